"""`CLARA_JURY=in-turn`: a cheap judge for all, a strong one near the money, in the trace and in both verifiers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.support.forged_trace import Entries, forged
from tests.support.simulation import TOP3, SimulatedWorld, draw_verdicts, draw_world, quality
from tests.support.verifiers import node_refusals

from clara_eval.actions.folder import entries_of
from clara_eval.actions.judge import JudgeRequest, judge_entries, named_judges
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadTrace
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import Winner
from clara_eval.evaluation.folder import check_folder
from clara_eval.judge.port import Prompt
from clara_eval.ranking import Group, Pairing, Result, Schedule, choose_schedule, rank, tally

LINES = {"name": "lines", "type": "integer", "source": "measured", "better": "lower", "min": 0, "max": 1000}
CONFIG = json.dumps({"version": 1, "features": [LINES], "criteria": "Short is better."}).encode()
FIRST, SECOND = "callable:cheap", "callable:strong"


def by_facts(prompt: Prompt) -> str:
    """Fewer lines are better; a coin decides between two that are close."""
    shown = [json.loads(line)["lines"] for line in prompt.user.splitlines() if line.startswith("{")]
    if len(shown) == 4:
        return json.dumps({"order": ["ABCD"[k] for k in sorted(range(4), key=shown.__getitem__)], "reason": "by lines"})
    coin = "AB"[int(keccak_hex(prompt.user.encode())[2:6], 16) % 2]
    winner = coin if abs(shown[0] - shown[1]) < 2 else "AB"[shown[1] < shown[0]]
    return json.dumps({"winner": winner, "confidence": 0.7, "reason": "by lines"})


def cheap(prompt: Prompt) -> str:
    return by_facts(prompt)


def strong(prompt: Prompt) -> str:
    return by_facts(prompt)


async def judged(size: int, folder: Path) -> list[str]:
    names, llms = named_judges([cheap, strong])
    contents = entries_of({f"e{k}": f"Answer {k}: " + f"w{k * 97:x} " * 40 + "\n" * k for k in range(size)})
    request = JudgeRequest(contents, CONFIG, names, winners=2, llms=llms)
    await judge_entries(request, Settings.from_env({"CLARA_JURY": "in-turn"}), folder)
    return (folder / "trace.json").read_text(encoding="utf-8").splitlines(keepends=True)


def together(bodies: Entries) -> None:
    """As if both judges had been asked everything."""
    del bodies["plan"]["jury"]


def turned(bodies: Entries) -> None:
    """As if the strong judge had been asked first."""
    bodies["plan"]["judges"].reverse()


def too_many(bodies: Entries) -> None:
    """As if the plan had allowed less."""
    bodies["plan"]["maxGames"] = 2 * (len([key for key in bodies if key.startswith("comparison/")]) // 8)


@pytest.mark.parametrize(("size", "lies"), [(7, [together, turned, too_many]), (9, [turned])])
async def test_both_verifiers_repeat_a_round_in_turn(
    size: int, lies: list[Callable[[Entries], None]], tmp_path: Path
) -> None:
    """The first judge compares all, the second some pairs, and the plan says so; a plan that says otherwise is refused."""
    lines = await judged(size, tmp_path / "out")
    checked = await check_folder(lines)
    asked = checked.result.comparisons
    by_second = [one for one in asked if one.judge == SECOND]
    assert 0 < len(by_second) < len([one for one in asked if one.judge == FIRST])
    assert not any(one.group for one in by_second)
    assert f"Then {SECOND} was asked {len(by_second)} questions near the paid places." in checked.result.schedule_reason
    traces = {"true": lines, **{lie.__name__: forged(lines, lie) for lie in lies}}
    for lie in lies:
        with pytest.raises(BadTrace):
            await check_folder(traces[lie.__name__])
    refused = node_refusals(traces, tmp_path)
    assert refused.pop("true") == ""
    assert all(refused.values()), refused


def answers(schedule: Schedule, judges: dict[str, SimulatedWorld]) -> list[Result]:
    results: list[Result] = []
    while batch := schedule.next_batch(results):
        for question in batch:
            judge = judges[question.judge]
            results += judge.order_of(question) if isinstance(question, Group) else [judge.answer(question)]
    return results


def test_a_strong_judge_near_the_money_lowers_what_is_misplaced() -> None:
    """It compares pairs, within its share of the budget, after the cheap one, whose questions stay what they were."""
    misplaced = {"cheap": 0.0, "in turn": 0.0}
    for seed in range(8):
        cheap = draw_world(12, seed)
        even = np.full((12, 12), 0.5)  # no luck: who is better by this judge wins
        strong = SimulatedWorld(cheap.truth, draw_verdicts(cheap.truth, 0 * even, even, cheap.model), seed=seed)
        choose = partial(choose_schedule, cheap.items, winner_count=3, payout_bps=TOP3, in_turn=True)
        alone = answers(choose(("cheap",), max_comparisons=50), {"cheap": cheap})
        both = answers(choose(("cheap", "strong"), max_comparisons=100), {"cheap": cheap, "strong": strong})
        by_second = [result for result in both if result.judge == "strong"]
        assert [result for result in both if result.judge == "cheap"] == alone
        assert len(by_second) <= 50
        assert not any(result.group for result in by_second)
        for name, results in (("cheap", alone), ("in turn", both)):
            found = rank(tally(cheap.items, results), seed=b"turn", winner_count=3, payout_bps=TOP3)
            order = np.array([int(standing.item) for standing in found.standings])
            misplaced[name] += quality(cheap.truth, order).misallocation
    assert misplaced["in turn"] < 0.8 * misplaced["cheap"]


def test_a_clear_round_asks_no_second_judge() -> None:
    """If every paid place is clear by the first judge, the second is not asked."""
    items = tuple("abcdefg")
    schedule = choose_schedule(items, ("cheap", "strong"), max_comparisons=None, winner_count=1, in_turn=True)
    won: dict[bool, Winner] = {True: "first", False: "second"}
    results: list[Result] = []
    while batch := schedule.next_batch(results):
        assert {question.judge for question in batch} == {"cheap"}
        pairs = [question for question in batch if isinstance(question, Pairing)]
        for q in pairs:
            winner = won[q.first == "a"] if "a" in {q.first, q.second} else "tie"
            results.append(Result(q.first, q.second, winner, q.judge))
    assert len(results) == 42
