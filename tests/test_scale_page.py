"""docs/scale.md holds what its document says, and the simulation of the scheduler behaves as a scheduler must."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.faulty_node import FaultyNode
from tests.support.scripts import load_script

from clara_eval.actions.quote import Size, quote_config
from clara_eval.app import open_app
from clara_eval.config.eval_config import parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.demo.round import post_round
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.service.due import EngineOptions, due
from clara_eval.service.survey import READ_TOGETHER as TOGETHER

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return load_script("make_scale")


def test_the_page_is_written_from_its_document(scale: ModuleType) -> None:
    """The tables are those of docs/scale.json, whose assumptions and months are those of the script."""
    text, told = scale.PAGE.read_text(encoding="utf-8"), json.loads(scale.FIGURES.read_text(encoding="utf-8"))
    assert scale.page(text, told) == text
    assumed = scale.Assumed()
    assert told["assumed"] == scale.asdict(assumed)
    assert told["months"] == [scale.month(count, assumed) for count in scale.MONTHS]
    assert [(r["challenges"], r["posted"], r["late"]) for r in told["simulated"]] == [(10_000, 10_000, 0)] * 6


def test_the_limits_on_the_page_follow_from_the_months(scale: ModuleType) -> None:
    """Each "reached at" is the number of challenges at which that share is whole; the smallest is what breaks first."""
    text, found = scale.PAGE.read_text(encoding="utf-8"), scale.limits(scale.Assumed())
    for name, challenges in found.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert f"| {float(f'{challenges:.2g}'):,.0f} a month" in row, (name, challenges)
    first = min(found, key=found.__getitem__)
    assert f"**What breaks first**: {first}, at about {float(f'{found[first]:.2g}'):,.0f} challenges a month" in text
    one = scale.month(1, scale.Assumed())["nodeCallsPerSecond"]
    assert f"{float(f'{1 / one:.2g}'):,.0f} a month for each call a second" in text
    assert f"at 340,000 they are {340_000 * one:.0f} a second" in text


def test_what_is_assumed_of_the_program_is_what_the_program_does(scale: ModuleType) -> None:
    """The tick's share for finalizing, and the places in one process and in all, are those of the shipped defaults."""
    assert scale.Assumed().finalize_seconds == EngineOptions().finalize_seconds
    assert (scale.EngineOptions, scale.due) == (EngineOptions, due)
    eight = scale.Simulation(scale.Assumed(), 3, 8, 0.0)
    assert eight.places == EngineOptions().global_evaluations == 8 * EngineOptions().worker_evaluations


@pytest.mark.parametrize(("dollars", "is_enough"), [("25", False), ("120", True)])
def test_a_large_round_costs_what_the_page_says(scale: ModuleType, dollars: str, is_enough: bool) -> None:
    """A thousand entries at the assumed prices: the comparisons, the dollars, and the budget that pays for all."""
    values = {"CLARA_JUDGES": "openai:one", "OPENAI_API_KEY": "not-a-real-key", "CLARA_PRICES": "openai:one=3/15"}
    settings = Settings.from_env({**values, "CLARA_BUDGET_PER_CHALLENGE_USD": dollars}, env_file=None)
    config = parse_eval_config(json.dumps(scale.CONFIG))
    found = quote_config(config, settings, judges="", size=Size(1000, 0), schedule="auto")
    assert (found.notes == []) is is_enough
    if is_enough:
        said = f"{found.quote.size.looks:,} comparisons and ${(found.quote.models_micro_usd or 0) / 1e6:.0f}"
        assert (
            f"takes about {said}, and needs a `CLARA_BUDGET_PER_CHALLENGE_USD` of ${dollars};" in scale.PAGE.read_text()
        )


async def test_a_look_takes_as_many_calls_as_the_page_counts(
    scale: ModuleType, local_chain: LocalChain, tmp_path: Path
) -> None:
    """A real node is asked for as many challenges as a tick reads together."""
    addresses = [to_address(await post_round(local_chain)) for _ in range(TOGETHER)]
    async with FaultyNode(local_chain.rpc_url) as node:
        settings = local_settings(local_chain, tmp_path / "store.db", tmp_path).model_copy(update={"rpc_url": node.url})
        async with open_app(settings) as app:
            head = await app.chain.blocks.head()
            await app.chain.challenges.challenges_at(addresses[:1], head)  # the token is known from then on
            node.requests = 0
            node.calls.clear()
            await app.chain.challenges.challenges_at(addresses, head)
    assumed = scale.Assumed()
    assert node.requests / TOGETHER == pytest.approx(assumed.requests_per_look, rel=0.1)
    assert node.calls.total() / TOGETHER == pytest.approx(assumed.calls_per_look, rel=0.1)


def test_everything_is_posted_and_finalized_in_time_while_capacity_lasts(scale: ModuleType) -> None:
    """Deadlines over a week: all are posted within two ticks of their deadline, and finalized within two of theirs."""
    found = scale.Simulation(scale.Assumed(), 300, 1, 7.0).run()
    assert (found.posted, found.late, found.most_concurrent) == (300, 0, 300)
    assert found.posted_after_hours["longest"] < 0.2
    assert 0 <= found.finalized_late_hours < 0.2


def test_a_burst_waits_in_the_queue_and_more_places_shorten_it_only_until_the_provider_is_full(
    scale: ModuleType,
) -> None:
    """All deadlines in one second: never more at once than the options allow; a slow provider is what remains."""
    one, eight = (scale.Simulation(scale.Assumed(), 300, workers, 0.0).run() for workers in (1, 8))
    assert (one.longest_queue, one.most_running, eight.most_running) == (300, 8, 64)
    assert eight.posted_after_hours["longest"] <= one.posted_after_hours["longest"]
    calls = 300 * scale.calls_of(scale.Assumed())["calls"]
    assert eight.posted_after_hours["longest"] * 3600 >= calls / scale.Assumed().provider_calls_per_second


def test_what_cannot_be_done_in_time_is_told(scale: ModuleType) -> None:
    """A provider of one call in five minutes: what is posted comes after the scoring deadline, and is counted as late."""
    slow = scale.replace(scale.Assumed(), provider_calls_per_second=1 / 300, scoring_days=0.5)
    found = scale.Simulation(slow, 3, 1, 0.0).run()
    assert 0 < found.late == found.posted
    assert found.posted_after_hours["median"] > 12
