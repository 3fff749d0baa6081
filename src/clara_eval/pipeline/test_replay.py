"""A trace is checked by walking it again: honest ones hold, forged ones are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clara_eval.demo.lifecycle import write_trace
from clara_eval.errors import BadTrace
from clara_eval.pipeline.replay import check_trace
from clara_eval.pipeline.test_evaluate import closed_round, opened, run
from clara_eval.testing.local_chain import LocalChain
from clara_eval.trace.document import TraceWriter, read_entries, render

Entries = dict[str, Any]


async def traced(chain: LocalChain, place: Path) -> list[str]:
    """The lines of a posted round's trace."""
    address = await closed_round(chain)
    async with opened(chain, place) as app:
        await run(app, address)
        path = await write_trace(app, address)
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


def forged(lines: list[str], change: Callable[[Entries], None]) -> list[str]:
    """The same trace with changed bodies and all hashes made right again: only its meaning is wrong."""
    bodies = {entry.key: entry.body for entry in read_entries(lines)}
    change(bodies)
    writer = TraceWriter()
    changed = [writer.line(key, body) for key, body in bodies.items()]
    return "".join(render(changed, writer.digest)).splitlines(keepends=True)


async def test_an_honest_trace_holds_offline_and_on_chain(local_chain: LocalChain, tmp_path: Path) -> None:
    """A posted round's trace holds by itself, and the chain has its digest."""
    lines = await traced(local_chain, tmp_path)
    offline = await check_trace(lines)
    assert offline.posted is None
    async with opened(local_chain, tmp_path) as app:
        checked = await check_trace(lines, app.chain)
    assert checked.posted is not None
    assert checked.digest == offline.digest == json.loads("".join(lines))["digest"]


def _swap_winner(bodies: Entries) -> None:
    bodies["winners"][0], bodies["winners"][1] = bodies["winners"][1], bodies["winners"][0]


def _raise_elo(bodies: Entries) -> None:
    bodies["ranking"]["standings"][3]["elo"] += 200


def _turn_a_game(bodies: Entries) -> None:
    bodies["comparison/0000000"]["winner"] = "tie"


def _better_feature(bodies: Entries) -> None:
    key = next(k for k in bodies if k.startswith("features/"))
    bodies[key]["features"]["max_complexity"] = 0


def _other_config(bodies: Entries) -> None:
    bodies["metadata"]["evalConfig"] = bodies["metadata"]["evalConfig"].replace("lower", "higher")


def _drop_a_game(bodies: Entries) -> None:
    del bodies["comparison/0000005"]


def _hide_a_rejection(bodies: Entries) -> None:
    bodies["rejected"].pop()


def _other_calldata(bodies: Entries) -> None:
    bodies["calldata"] = bodies["calldata"][:-2] + "01"


def _other_header(bodies: Entries) -> None:
    bodies["header"]["challenge"] = "0x" + "1" * 40


def _other_rules(bodies: Entries) -> None:
    bodies["header"]["rules"] = 0


def _misshapen_solution(bodies: Entries) -> None:
    bodies[next(k for k in bodies if k.startswith("solution/"))] = None


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (_other_header, "header"),
        (_misshapen_solution, "evidence"),
        (_swap_winner, "winners"),
        (_raise_elo, "ranking"),
        (_turn_a_game, "comparison/0000000"),
        (_better_feature, "features/"),
        (_other_config, "metadata"),
        (_drop_a_game, "comparison/0000006"),
        (_hide_a_rejection, "rejected"),
        (_other_calldata, "calldata"),
    ],
)
async def test_a_forged_entry_is_named_although_its_hashes_are_right(
    local_chain: LocalChain, tmp_path: Path, change: Callable[[Entries], None], entry: str
) -> None:
    """Whoever rewrites a result and all hashes is caught by the evidence."""
    lines = forged(await traced(local_chain, tmp_path), change)
    with pytest.raises(BadTrace) as caught:
        await check_trace(lines)
    assert entry in caught.value.entry


async def test_a_trace_of_other_rules_is_not_called_forged(local_chain: LocalChain, tmp_path: Path) -> None:
    """It is refused with the version that can check it, and says that only the hashes were looked at."""
    lines = forged(await traced(local_chain, tmp_path), _other_rules)
    with pytest.raises(BadTrace, match=r"'clara-eval [\d.]+' under rules 0.*nothing else was checked"):
        await check_trace(lines)


def _other_submission(bodies: Entries) -> None:
    bodies["challenge"]["submissions"][0]["submitted_at"] += 1


async def test_other_facts_than_the_chains_are_refused(local_chain: LocalChain, tmp_path: Path) -> None:
    """A trace that is sound in itself but tells another story than the chain is refused with the chain at hand."""
    lines = forged(await traced(local_chain, tmp_path), _other_submission)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(BadTrace, match="other facts"):
            await check_trace(lines, app.chain)
