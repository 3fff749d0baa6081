"""Calibrating real judges over a real endpoint, and what it means for a round."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.labels import HEAD
from tests.support.model_rounds import judged, model_round, script
from tests.support.rounds import opened
from tests.support.scripted_judge import scripted_words
from tests.support.scripted_llm import ScriptedLlm
from typer.testing import CliRunner

from clara_eval.actions.calibrate import JudgedPair, calibrate, measure, proportion, read_labels
from clara_eval.app import open_jury
from clara_eval.challenges.public_documents import keep_calibration, known_calibration
from clara_eval.config.settings import Settings
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.interfaces.cli import app as command
from clara_eval.judge.calibration_gate import prompt_hash


def labels_text(pairs: int) -> str:
    """People prefer quality, but for every tenth pair, where they say the contrary."""
    lines = [HEAD]
    for number in range(pairs):
        first, second = number % 7, number % 7 + 2
        better = "first" if number % 10 == 0 else "second"
        lines.append(json.dumps({"first": {"quality": first}, "second": {"quality": second}, "winner": better}))
    return "\n".join(lines)


async def test_judges_are_asked_once_and_their_figures_are_kept(tmp_path: Path) -> None:
    """A jury of a model and rules over sixty pairs: ninety percent agreement, no bias, nothing paid twice."""
    labels = read_labels(labels_text(60))
    async with FakeEndpoint(words=scripted_words).running() as endpoint:
        judge = f"openai:m@{endpoint.url}"
        told = {"CLARA_JUDGES": f"{judge},rules", "CLARA_PRICES": f"{judge}=0/0"}
        settings = Settings.from_env({**told, "CLARA_DATABASE_URL": f"sqlite:///{tmp_path / 'store.db'}"})
        for _ in range(2):
            async with open_jury(settings) as (askers, store):
                model, rules = await calibrate(labels, askers, store, 31337)
                assert await known_calibration(store, 31337, judge, prompt_hash(), labels.work) == model
        assert endpoint.paid == 14  # seven distinct pairs in both orders
    assert (model.judge, rules.judge) == (judge, "rules")
    for found in (model, rules):
        assert (found.labels, found.agreement.value, found.clear.value) == (60, 0.9, 0.9)
        assert found.position_bias.value == 0.0


def test_the_command_reports_and_refuses_bad_files(tmp_path: Path) -> None:
    """One JSON document with every figure and whether the judge may post alone; a bad line is named."""
    path = tmp_path / "labels.jsonl"
    path.write_text(labels_text(60), encoding="utf-8")
    environment = {"CLARA_DATABASE_URL": f"sqlite:///{tmp_path / 'store.db'}", "CLARA_JUDGES": "rules"}
    ran = CliRunner().invoke(command, ["calibrate", str(path), "--json"], env=environment)
    assert ran.exit_code == 0, ran.output
    (found,) = json.loads(ran.stdout)["calibrations"]
    assert found["mayPostAlone"] is True
    assert found["clear"]["count"] == 60
    assert found["kappa"] is not None


@pytest.mark.parametrize(("agreed", "waits"), [(40, True), (55, False), (None, False)])
async def test_a_judge_below_the_floor_waits_for_a_person(
    agreed: int | None, waits: bool, local_chain: LocalChain, tmp_path: Path
) -> None:
    """With a calibration below the floor a person is asked and told why; above it, or without one, nobody is for that."""
    address = await model_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        if agreed is not None:
            measured = measure("scripted:model", prompt_hash(), "0xother", [JudgedPair("first", "first", "first")] * 60)
            await keep_calibration(app.store, 31337, replace(measured, clear=proportion(agreed, 60)))
        done = await judged(app, address, {"scripted:model": ScriptedLlm(script)})
        reasons = done.review.reasons if done.review else ()
    assert any("67% of clear pairs" in reason for reason in reasons) == waits
