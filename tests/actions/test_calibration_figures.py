"""Calibration: the figures cover the truth about a judge of known error, and the gate reads them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.support.labels import CONFIG, HEAD

from clara_eval.actions.calibrate import JudgedPair, Side, mean, measure, proportion, read_labels
from clara_eval.challenges.public_documents import keep_calibration, known_calibration
from clara_eval.core.errors import BadInput
from clara_eval.judge.calibration_gate import Calibration, Guarantee, guarantee, why_not_alone
from clara_eval.store.sqlite import SqliteStore

PAIR = {"first": {"quality": 3}, "second": {"quality": 5}, "winner": "second", "lengths": [10, 20]}
ERROR, FIRST, LONGER = 0.2, 0.15, 0.1
"""Shares of verdicts that are wrong, that follow the position, and that follow the length."""


def simulate_verdict(rng: random.Random, truth: Side, *, shown_first: Side, longer: Side) -> Side:
    other: dict[Side, Side] = {"first": "second", "second": "first"}
    chance = rng.random()
    if chance < FIRST:
        return shown_first
    if chance < FIRST + LONGER:
        return longer
    return other[truth] if rng.random() < ERROR else truth


def simulated(seed: int, pairs: int = 300) -> Calibration:
    """A judge of known error on pairs of which people prefer the longer one in half of the cases."""
    rng = random.Random(seed)
    judged = []
    for _ in range(pairs):
        truth: Side = rng.choice(("first", "second"))
        longer: Side = rng.choice(("first", "second"))
        straight = simulate_verdict(rng, truth, shown_first="first", longer=longer)
        swapped = simulate_verdict(rng, truth, shown_first="second", longer=longer)
        judged.append(JudgedPair(truth, straight, swapped, (2.0, 1.0) if longer == "first" else (1.0, 2.0)))
    return measure("simulated", "0xp", "0xw", judged)


def expected() -> tuple[float, float, float, float]:
    """Agreement, agreement on clear pairs, position bias and length bias of that judge, by adding up all cases."""
    agree = clear = right = position = length = 0.0
    for longer_is_true in (True, False):
        plain = 1 - FIRST - LONGER
        base = plain * (1 - ERROR) + (LONGER if longer_is_true else 0.0)
        true_first, true_second = base + FIRST, base
        both, neither = true_first * true_second, (1 - true_first) * (1 - true_second)
        agree += both / 2
        clear += (both + neither) / 2
        right += both / 2
        position += (true_first - true_second) / 2
        sign = 1 if longer_is_true else -1
        length += sign * ((both - neither) - 1) / 2 / 2
    return agree, right / clear, position, length


def test_the_intervals_cover_the_truth() -> None:
    """For 100 seeds each reported interval holds the known figure at least 90 times."""
    truth = expected()
    hits = [0, 0, 0, 0]
    for seed in range(100):
        found = simulated(seed)
        figures = (found.agreement, found.clear, found.position_bias, found.length_bias)
        for place, (figure, value) in enumerate(zip(figures, truth, strict=True)):
            assert figure.low is not None
            assert figure.high is not None
            hits[place] += figure.low <= value <= figure.high
    assert min(hits) >= 90, hits


def test_a_judge_without_error_and_one_that_only_looks_at_places() -> None:
    """Perfect agreement has kappa 1 and no bias; always A is a tie to both orders together, and full position bias."""
    right = [
        JudgedPair("first", "first", "first"),
        JudgedPair("second", "second", "second"),
        JudgedPair("tie", "tie", "tie"),
    ]
    found = measure("right", "0xp", "0xw", right)
    assert (found.agreement.value, found.kappa, found.position_bias.value) == (1.0, 1.0, 0.0)
    placed = measure("placed", "0xp", "0xw", [JudgedPair("first", "first", "second")] * 20)
    assert (placed.agreement.value, placed.position_bias.value, placed.clear.count) == (0.0, 1.0, 0)
    assert placed.base_rate == 1.0
    silent = measure("silent", "0xp", "0xw", [JudgedPair("first", None, "first")] * 3)
    assert (silent.undecided, silent.agreement.value, silent.kappa) == (3, None, None)


def test_intervals_at_the_edges_are_not_certainty() -> None:
    """Twenty of twenty is not a proof, nor is a bias that was never seen."""
    low = proportion(20, 20).low
    assert low is not None
    assert 0.8 < low < 0.9
    assert mean([0.0] * 20).high == 0.05


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (json.dumps(PAIR), "no evalConfig"),
        (HEAD, "no pair"),
        (f"{HEAD}\n{{", "Line 2 .* not JSON"),
        (f"{HEAD}\n[]", "Line 2 .* not a JSON object"),
        (f"{HEAD}\n{json.dumps({**PAIR, 'winner': 'A'})}", "winner is 'A'"),
        (f"{HEAD}\n{json.dumps({**PAIR, 'first': 3})}", "first is not an object"),
        (f"{HEAD}\n{json.dumps({**PAIR, 'second': {'other': 1}})}", "'other', which the config does not name"),
        (f"{HEAD}\n{json.dumps({**PAIR, 'second': {'quality': 'high'}})}", "second: "),
        (f"{HEAD}\n\n{json.dumps({**PAIR, 'lengths': [1]})}", "Line 3 .* lengths"),
        (json.dumps({"evalConfig": {**CONFIG, "features": ["strangeness"]}}), "strangeness"),
    ],
)
def test_labels_that_cannot_be_used_are_named(text: str, words: str) -> None:
    """The line, the reason and a remedy; nothing is left out silently."""
    with pytest.raises(BadInput, match=words) as caught:
        read_labels(text)
    assert caught.value.remedy


def test_labels_are_read_as_vectors_of_their_config() -> None:
    """A good file gives its pairs, and one hash for the kind of work."""
    labels = read_labels(f"{HEAD}\n{json.dumps(PAIR)}\n")
    assert labels.pairs[0].first.as_dict() == {"quality": 3}
    assert labels.pairs[0].lengths == (10.0, 20.0)
    assert labels.work == read_labels(f"{HEAD}\n{json.dumps(PAIR)}\n{json.dumps(PAIR)}").work


def calibration(judge: str, worth: float | None, labels: int = 60, work: str = "0xw") -> Calibration:
    found = measure(judge, "0xp", work, [JudgedPair("first", "first", "first")] * labels)
    return replace(found, clear=replace(found.clear, value=worth))


def test_the_gate() -> None:
    """Below the floor, with too few labels, or unknown where it is required: not alone; one good judge is enough."""
    good, bad, few = calibration("a", 0.9), calibration("b", 0.84), calibration("c", 1.0, labels=49)
    assert why_not_alone(("a",), (good,), "known") is None
    assert "84%" in (why_not_alone(("b",), (bad,), "known") or "")
    assert "49 labels" in (why_not_alone(("c",), (few,), "known") or "")
    assert "none of its verdicts" in (why_not_alone(("b",), (calibration("b", None),), "known") or "")
    assert why_not_alone(("b", "a"), (bad, good), "known") is None
    assert why_not_alone(("b", "c"), (bad, few), "known") is not None
    assert why_not_alone(("d",), (None,), "known") is None
    assert "not calibrated" in (why_not_alone(("d",), (None,), "required") or "")
    assert why_not_alone(("b",), (bad,), "off") is None
    assert why_not_alone((), (), "required") is None


def test_a_guarantee_holds_for_any_number_of_labels() -> None:
    """Judges wrong in just over 15 % get one from at most a tenth of the label sets; good ones mostly do, with coverage."""
    random = Random(28)
    for size in (30, 80, 300):
        sets = [[(0.8, random.random() < 0.1501) for _ in range(size)] for _ in range(400)]
        assert sum(guarantee(drawn, size, 0.15) is not None for drawn in sets) / 400 < 0.13
    good = [(0.9, k % 50 == 0) for k in range(200)] + [(0.7, k % 3 == 0) for k in range(100)]
    found = guarantee(good, 400, 0.15)
    assert found == Guarantee(0.9, 0.15, 0.9, 0.5, 200, 4)
    assert guarantee([], 10, 0.15) is None
    assert guarantee([(0.9, False)] * 10, 10, 0.15) is None
    assert guarantee([(0.9, False)] * 90_000, 90_000, 0.15) is not None


def test_verdicts_that_hold_in_both_orders_carry_the_guarantee() -> None:
    """A judge that people contradict where its orders differ posts alone only from the chance of two equal looks."""
    agreeing = [JudgedPair("first", "first", "first")] * 90 + [JudgedPair("tie", "second", "second")] * 5
    doubtful = [JudgedPair("first", "tie", "second")] * 20 + [JudgedPair("second", "first", "second")] * 20
    found = measure("a", "0xp", "0xw", [*agreeing, *doubtful])
    assert found.alone is not None
    assert (found.alone.count, found.alone.wrong, found.alone.alpha) == (95, 0, 0.15)
    assert found.alone.coverage == pytest.approx(95 / 135, abs=1e-6)
    assert 0.75 < found.alone.chance < 0.9
    assert why_not_alone(("a",), (found,), "known", chance=0.95) is None
    refused = why_not_alone(("a",), (found,), "known", chance=0.6) or ""
    assert "60% alone" in refused
    assert "(70% of pairs), people contradict at most 15% (confidence 90%)" in refused
    few = replace(found, alone=None)
    assert why_not_alone(("a",), (few,), "known", chance=0.6) is None
    assert "show no chance" in (why_not_alone(("a",), (few,), "required", chance=0.99) or "")


async def test_what_is_kept_is_bound_to_judge_prompt_and_work(tmp_path: Path) -> None:
    """The same work comes first, then the one with most labels; another prompt or judge is not taken."""
    store = await SqliteStore.open(tmp_path / "store.db")
    small, large = calibration("a", 0.9, 60, "0xone"), calibration("a", 0.5, 80, "0xtwo")
    for one in (small, large):
        await keep_calibration(store, 1, one)
    assert await known_calibration(store, 1, "a", "0xp", "0xone") == small
    assert await known_calibration(store, 1, "a", "0xp", "0xthree") == large
    assert await known_calibration(store, 1, "a", "0xother", "0xone") is None
    assert await known_calibration(store, 1, "b", "0xp", "0xone") is None
    assert await known_calibration(store, 2, "a", "0xp", "0xone") is None
    await store.close()
