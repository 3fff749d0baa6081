"""Rounds of every schedule, with juries, with answers that never came, cut short and gone on with: the trace alone gives
the same questions and the same result, in our verifier and in the independent one (`verifier/verify.mjs`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.support.forged_trace import Change, forged
from tests.support.model_rounds import CONFIG, ScriptedModels, in_fours
from tests.support.rounds import opened
from tests.support.scripted_llm import ScriptedLlm, answer_of
from tests.support.verifiers import node_refusals

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import App
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import config_hash
from clara_eval.core.address import Address
from clara_eval.core.errors import BadTrace, Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.port import Answer, Llm, Prompt

ENTRIES = 11
ONE, TWO = "scripted:one", "scripted:two"
STATEMENTS = (
    "if {a} > {b}:\n        {a} -= {n}",
    "for {a} in range({n}):\n        {b} += {a}",
    "while {b} < {n}:\n        {b} += {n}",
    "{a} = {b} * {n}",
    "{a}, {b} = {b}, {a} % {n}",
    "print({a}, {b}, {n})",
)


def program(number: int) -> bytes:
    """Like no other one of the round."""
    rng = random.Random(number)
    body = "".join(f"    {rng.choice(STATEMENTS)}\n" for _ in range(9 + 4 * number))
    return f"def solve(left, right):\n{body.format(a='left', b='right', n=7 + number)}    return left\n".encode()


async def round_of_eleven(chain: LocalChain) -> Address:
    """A closed round with as many entries as it takes for some pairs never to meet."""
    config = json.dumps(CONFIG)
    described = json.dumps({"title": "t", "problemStatement": "p", "evalConfig": config}).encode()
    terms = PostedTerms(
        challenge_uri=data_uri(described, "application/json"),
        eval_config_hash=config_hash(config.encode()),
        open_seconds=HOUR,
        prize_pool=500_000_000,
    )
    address = await chain.post_challenge(terms)
    contents = [program(number) for number in range(ENTRIES)]
    handed = [Handed(agent, data_uri(own), keccak_hex(own)) for agent, own in zip(chain.agents, contents, strict=False)]
    await chain.submit_all(address, handed)
    await chain.move_time(HOUR + 1)
    return address


@dataclass
class Unreliable:
    """A judge that never answers some of the questions, always the same ones, and goes down for good after so many."""

    lost: float = 0.0
    answers: float = float("inf")
    name: str = ONE

    async def complete(self, prompt: Prompt) -> Answer:
        if prompt.purpose == "comparison":
            self.answers -= 1
            if self.answers < 0 or int(keccak_hex(prompt.user.encode())[2:6], 16) < 0x10000 * self.lost:
                raise Temporary("The line was cut.")
        return await ScriptedLlm(in_fours, name=self.name).complete(prompt)


async def judged(app: App, address: Address, llms: Sequence[Llm], schedule: str, games: int) -> Evaluation:
    scripted = replace(app, models=ScriptedModels(app, {llm.name: llm for llm in llms}))
    plan = EvaluationPlan(tuple(llm.name for llm in llms), schedule=schedule, max_games=games)
    return await evaluate(scripted, address, EvaluationRequest(plan=plan, dry_run=True))


async def traced(app: App, address: Address) -> list[str]:
    return (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)


def questions(done: Evaluation) -> int:
    return len({comparison.question for comparison in done.result.comparisons})


@pytest.mark.parametrize(
    ("schedule", "games", "judges", "ordered_by"),
    [
        ("full", 55, (ONE,), "elo"),
        ("full", 40, (ONE,), "elo, then strength"),
        ("both", 220, (ONE, TWO), "elo"),
        ("adaptive", 30, (ONE,), "elo, then strength"),
        ("adaptive", 60, (ONE, TWO), "elo, then strength"),
        ("fours", 20, (ONE,), "elo without repeats, then strength"),
        ("fours", 40, (ONE, TWO), "elo without repeats, then strength"),
    ],
)
async def test_both_verifiers_repeat_a_round_of_every_schedule(
    schedule: str, games: int, judges: Sequence[str], ordered_by: str, local_chain: LocalChain, tmp_path: Path
) -> None:
    """Whoever judges, within the games that are allowed: questions, places and digest come from the trace alone."""
    address = await round_of_eleven(local_chain)
    async with opened(local_chain, tmp_path) as app:
        llms = [ScriptedLlm(in_fours, name=name) for name in judges]
        done = await judged(app, address, llms, schedule, games)
        lines = await traced(app, address)
    assert done.result.ranking is not None
    assert (done.result.schedule, questions(done), done.result.ranking.ordered_by) == (schedule, games, ordered_by)
    assert (await check_trace(lines)).digest == done.digest
    assert node_refusals({"round": lines}, tmp_path) == {"round": ""}


@pytest.mark.parametrize("stop", ["max_tokens", "end"])
async def test_a_judge_that_cannot_order_is_asked_for_pairs(
    stop: Literal["max_tokens", "end"], local_chain: LocalChain, tmp_path: Path
) -> None:
    """A judge whose every order is cut off or no order compares pairs; the round does not wait for orders."""

    def only_pairs(prompt: Prompt) -> str | Answer:
        said = '{"order":["B","A","B","A"]' + (',"reason":""}' if stop == "end" else "")
        return answer_of(said, stop) if '"order"' in prompt.schema_json else in_fours(prompt)

    address = await round_of_eleven(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, [ScriptedLlm(only_pairs, name=ONE)], "auto", 40)
        lines = await traced(app, address)
    assert done.result.schedule == "fours"
    assert {len(one.group) for one in done.result.comparisons if one.winner is not None} == {0}
    assert len(done.result.placed) == ENTRIES
    assert (await check_trace(lines)).digest == done.digest
    assert node_refusals({"round": lines}, tmp_path) == {"round": ""}


@pytest.mark.parametrize(("schedule", "games", "lost"), [("adaptive", 30, 0.15), ("fours", 20, 0.1)])
async def test_what_nobody_answered_stays_so_where_the_schedule_chooses(
    schedule: str, games: int, lost: float, local_chain: LocalChain, tmp_path: Path
) -> None:
    """Orders and pairs without an answer are spent: a later walk and both verifiers choose the same questions. (Never
    most of a batch: that would be an outage.)
    """
    address = await round_of_eleven(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, [Unreliable(lost)], schedule, games)
        well = ScriptedLlm(in_fours, name=ONE)
        again = await judged(app, address, [well], schedule, games)
        lines = await traced(app, address)
    undecided = {comparison.question for comparison in done.result.comparisons if comparison.winner is None}
    assert 0 < len(undecided) < games / 2
    assert (questions(done), well.seen) == (games, [])
    assert again.digest == done.digest == (await check_trace(lines)).digest
    assert node_refusals({"round": lines}, tmp_path) == {"round": ""}


@pytest.mark.parametrize(("schedule", "games"), [("adaptive", 30), ("fours", 20)])
async def test_a_round_cut_short_goes_on_with_the_very_same_questions(
    schedule: str, games: int, local_chain: LocalChain, tmp_path: Path
) -> None:
    """Down after a few answers, twice, and then gone on with: as if nothing had happened, and nothing paid twice."""
    address = await round_of_eleven(local_chain)
    async with opened(local_chain, tmp_path / "cut") as app:
        for answers in (4, 9):
            with pytest.raises(Temporary):
                await judged(app, address, [Unreliable(answers=answers)], schedule, games)
        cut = await judged(app, address, [ScriptedLlm(in_fours, name=ONE)], schedule, games)
        paid = [request for request, _, _ in await app.store.calls_of(cut.challenge.run)]
    async with opened(local_chain, tmp_path / "straight") as app:
        straight = await judged(app, address, [ScriptedLlm(in_fours, name=ONE)], schedule, games)
    assert cut.digest == straight.digest
    assert len(paid) == len(set(paid)) == len(straight.result.answers)


def _of_an_order(bodies: dict[str, Any]) -> dict[str, Any]:
    """A verdict that was read off an order."""
    found = (body for key, body in bodies.items() if key.startswith("comparison/"))
    chosen: dict[str, Any] = next(body for body in found if body["group"] and body["winner"] in ("first", "second"))
    return chosen


def _turn_a_verdict(bodies: dict[str, Any]) -> None:
    one = _of_an_order(bodies)
    one["winner"] = {"first": "second", "second": "first"}[one["winner"]]


def _turn_an_order(bodies: dict[str, Any]) -> None:
    answer = bodies[f"answer/{_of_an_order(bodies)['requests'][-1]}"]["answer"]
    told = json.loads(answer["text"])
    answer["text"] = json.dumps({**told, "order": told["order"][::-1]})


def _show_another_four(bodies: dict[str, Any]) -> None:
    one = _of_an_order(bodies)
    stranger = next(row["item"] for row in bodies["ranking"]["standings"] if row["item"] not in one["group"])
    place = next(k for k, item in enumerate(one["group"]) if item not in (one["first"], one["second"]))
    one["group"][place] = stranger


def _call_it_a_pair(bodies: dict[str, Any]) -> None:
    _of_an_order(bodies)["group"] = []


def _forget_a_pair_of_an_order(bodies: dict[str, Any]) -> None:
    last = bodies["schedule"]["games"] - 1
    keys = [f"comparison/{number:07}" for number in range(last + 1)]
    gone = next(k for k, key in enumerate(keys) if bodies[key] is _of_an_order(bodies))
    for here, there in zip(keys[gone:], keys[gone + 1 :], strict=False):
        bodies[here] = bodies[there]
    del bodies[keys[-1]]
    bodies["schedule"]["games"] = last


def _swap_two_places(bodies: dict[str, Any]) -> None:
    rows = bodies["ranking"]["standings"]
    rows[0], rows[1] = {**rows[1], "rank": 1}, {**rows[0], "rank": 2}


def _score_by_strength(bodies: dict[str, Any]) -> None:
    rows = bodies["ranking"]["standings"]
    rows[0]["score"] = round(10000 / (1 + 10 ** (-173.7178 * rows[0]["theta"] / 400)))


def _surer(bodies: dict[str, Any]) -> None:
    bodies["ranking"]["standings"][2]["pTop"] = 0.99


def _order_by_elo(bodies: dict[str, Any]) -> None:
    bodies["ranking"]["orderedBy"] = "elo"


FORGERIES: dict[str, Change] = {
    "a verdict that the order does not say": _turn_a_verdict,
    "another order in the answer": _turn_an_order,
    "another four shown": _show_another_four,
    "called a pair": _call_it_a_pair,
    "one of six pairs forgotten": _forget_a_pair_of_an_order,
    "places swapped": _swap_two_places,
    "a score by strength": _score_by_strength,
    "a chance that the model does not give": _surer,
    "said to be ordered by Elo": _order_by_elo,
}


async def test_a_forged_order_is_named_by_both_verifiers(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whatever is changed about an order of four, its pairs, or the places that follow from them, with hashes made right
    again, neither program accepts.
    """
    address = await round_of_eleven(local_chain)
    async with opened(local_chain, tmp_path) as app:
        await judged(app, address, [ScriptedLlm(in_fours, name=ONE)], "fours", 12)
        lines = await traced(app, address)
    told = {lie: forged(lines, change) for lie, change in FORGERIES.items()}
    for lie, words in node_refusals(told, tmp_path).items():
        assert words.startswith("wrong"), (lie, words)
        with pytest.raises(BadTrace):
            await check_trace(told[lie])
