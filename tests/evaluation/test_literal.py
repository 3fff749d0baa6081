"""`CLARA_ELO=literal`: the specification's single pass, in the trace and in both verifiers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest
from tests.support.forged_trace import Entries, forged
from tests.support.large_round import large_lines
from tests.support.rounds import closed_round, opened, run

from clara_eval.challenges.replay import check_trace
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput, BadTrace
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.evaluation.run import canonical_order
from clara_eval.ranking import Result, choose_schedule, rank, tally

VERIFIER = Path(__file__).parents[2] / "verifier" / "verify.mjs"
PLAN = EvaluationPlan(("rules",), elo="literal")


def bodies(lines: list[str]) -> dict[str, dict[str, object]]:
    return {line["key"]: line["body"] for line in (json.loads(raw.rstrip(",\n"))["entry"] for raw in lines[1:-1])}


def by_node(lines: list[str], folder: Path) -> tuple[int, str]:
    path = folder / "trace.json"
    path.write_text("".join(lines), encoding="utf-8")
    ran = subprocess.run(["node", VERIFIER, path], capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def specified(items: Sequence[str], verdicts: dict[tuple[str, str], float]) -> dict[str, float]:
    """The specification, word for word: 1500, K = 32, every pair once in the order of the list."""
    ratings = dict.fromkeys(items, 1500.0)
    for a, b in combinations(items, 2):
        points = verdicts[a, b] if (a, b) in verdicts else 1 - verdicts[b, a]
        expected = 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400))
        ratings[a], ratings[b] = ratings[a] + 32 * (points - expected), ratings[b] - 32 * (points - expected)
    return ratings


@pytest.mark.parametrize("size", [9, 101])
async def test_both_verifiers_check_the_single_pass(size: int, tmp_path: Path) -> None:
    """Plan and ranking say which Elo; the ratings are the specification's; a small and a large round hold in both."""
    lines = large_lines(size, PLAN)
    found = bodies(lines)
    assert (found["plan"]["elo"], found["ranking"]["literal"], found["schedule"]["name"]) == ("literal", True, "full")
    replayed = await check_trace(lines)
    ranking = replayed.result.ranking
    assert ranking is not None
    games = replayed.result.comparisons
    points = {(g.first, g.second): {"first": 1.0, "tie": 0.5, "second": 0.0}[str(g.winner)] for g in games}
    keccaks = {key[9:]: str(body["keccak"]) for key, body in found.items() if key.startswith("solution/")}
    items = canonical_order(str(found["challenge"]["address"]), keccaks)
    assert {s.item: s.elo for s in ranking.standings} == pytest.approx(specified(items, points), abs=2e-6)
    code, words = by_node(lines, tmp_path)
    assert code == 0, words


@pytest.mark.parametrize("lie", ["the plan says nothing", "the ranking says nothing", "the ratings are order-free"])
async def test_the_other_elo_is_named_by_both(lie: str, tmp_path: Path) -> None:
    """A trace that says one Elo and has the other does not hold."""
    lines, order_free = large_lines(9, PLAN), bodies(large_lines(9, EvaluationPlan(("rules",), "full")))

    def change(found: Entries) -> None:
        if lie == "the plan says nothing":
            del found["plan"]["elo"]
        elif lie == "the ranking says nothing":
            found["ranking"]["literal"] = False
        else:
            found["ranking"] = {**order_free["ranking"], "literal": True}

    changed = forged(lines, change)
    code, words = by_node(changed, tmp_path)
    assert (code, words.startswith("wrong   ranking")) == (1, True), words
    with pytest.raises(BadTrace):
        await check_trace(changed)


def test_only_a_schedule_of_every_pair_once_fits() -> None:
    """Under a cap too, `auto` is every pair once; another schedule is refused with the remedy."""
    chosen = choose_schedule([str(k) for k in range(12)], ("j",), max_comparisons=None, literal=True)
    assert (chosen.name, chosen.most_questions) == ("full", 66)
    with pytest.raises(BadInput, match="CLARA_ELO=literal takes every pair once"):
        choose_schedule(["a", "b"], ("j",), max_comparisons=None, name="fours", literal=True)


def test_in_a_single_pass_the_order_decides_and_by_default_it_does_not() -> None:
    """The example of docs/ranking.md: a circle of three, whose first place is anybody's."""
    circle = [Result("a", "b", "first"), Result("b", "c", "first"), Result("c", "a", "first")]
    turned = [circle[k:] + circle[:k] for k in range(3)]
    single = [rank(tally("abc", rows, in_given_order=True), seed=b"", winner_count=1, literal=True) for rows in turned]
    assert [found.standings[0].item for found in single] == ["c", "a", "b"]
    page = (Path(__file__).parents[2] / "docs" / "ranking.md").read_text(encoding="utf-8")
    for found in single:
        ratings = [f"{s.elo:.1f}" for s in sorted(found.standings, key=lambda s: s.item)]
        assert f"| {' | '.join(ratings)} | {found.winners[0]} |" in page
    assert {s.elo for rows in turned for s in rank(tally("abc", rows), seed=b"", winner_count=1).standings} == {1500.0}


async def test_the_setting_decides_how_a_round_is_rated(local_chain: LocalChain, tmp_path: Path) -> None:
    """`CLARA_ELO=literal` reaches the plan, the schedule and the posted ranking."""
    assert Settings.from_env({"CLARA_ELO": "literal"}).elo == "literal"
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path, elo="literal") as app:
        done = await run(app, address, dry_run=True)
    assert done.result.ranking is not None
    assert (done.result.schedule, done.result.ranking.literal) == ("full", True)
