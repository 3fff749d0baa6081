"""The judge's confidence: measured by what survives the swap."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.support.judge_confidence import measure_confidence

from clara_eval.core.model import Winner
from clara_eval.evaluation.play import Comparison
from clara_eval.ranking import rank, tally


def round_of(informed: float, seed: int, pairs: int = 200) -> list[Comparison]:
    """Pairs in both orders; a verdict that keeps is claimed with `informed` more confidence."""
    random = Random(seed)
    played = []
    for k in range(pairs):
        kept = random.random() < 0.6
        claimed = round(0.6 + random.random() * 0.2 + (informed if kept else 0), 3)
        other: Winner = "second" if kept else "first"
        played.append(Comparison(f"a{k}", f"b{k}", "j", "first", claimed, "", ()))
        played.append(Comparison(f"b{k}", f"a{k}", "j", other, claimed, "", ()))
    return played


def test_confidence_that_tells_something_is_seen() -> None:
    """Where kept verdicts are claimed with more confidence the separation is clearly above one half."""
    found = measure_confidence(round_of(0.15, 1))
    assert found.tells_something
    assert (found.separation or 0) > 0.8


def test_confidence_that_is_noise_is_called_noise() -> None:
    """Random confidences separate nothing, in nearly every round."""
    assert sum(measure_confidence(round_of(0.0, seed)).tells_something for seed in range(40)) <= 4


def test_confidence_moves_nobody() -> None:
    """No confidence reaches the ranking: the same verdicts claimed quite differently give the same bytes."""
    played = round_of(0.15, 2, 30)
    timid = [replace(each, confidence=0.01) for each in played]
    items = sorted({each.first for each in played})
    tables = (tally(items, [comparison.result for comparison in games]) for games in (played, timid))
    first, second = (rank(table, seed=b"s", winner_count=3) for table in tables)
    assert repr(first) == repr(second)


def test_without_swaps_nothing_is_said() -> None:
    """No pair in both orders, or nothing that turned: no figure."""
    assert measure_confidence(round_of(0.1, 1)[::2]).separation is None
    assert measure_confidence([]).separation is None
