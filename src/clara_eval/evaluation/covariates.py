"""Typed facts as columns of numbers: ranks of numbers, 0 or 1 for booleans, one column an enum value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clara_eval.judge.vector import JudgeVector, Value
from clara_eval.ranking.estimate import standardised
from clara_eval.ranking.tally import Floats

MOST_COLUMNS = 40


def covariates(items: Sequence[str], vectors: Mapping[str, JudgeVector]) -> Floats | None:
    if not items or any(item not in vectors for item in items):
        return None
    rows = [vectors[item].as_dict() for item in items]
    columns = [column for name in sorted(rows[0]) for column in _columns([row.get(name) for row in rows])]
    return standardised(columns[:MOST_COLUMNS], len(items)) if columns else None


def _columns(values: Sequence[Value]) -> list[list[float]]:
    known = [value for value in values if value is not None]
    if not known:
        return []
    if isinstance(known[0], str):
        return [
            _filled([None if v is None else float(v == word) for v in values]) for word in sorted(map(str, set(known)))
        ]
    if isinstance(known[0], bool):
        return [_filled([None if v is None else float(v) for v in values])]
    return [_filled(_ranks([None if v is None else float(v) for v in values]))]


def _ranks(values: Sequence[float | None]) -> list[float | None]:
    known = np.sort([value for value in values if value is not None])
    low, high = np.searchsorted(known, known, "left"), np.searchsorted(known, known, "right")
    rank = {float(value): float(a + b - 1) / 2 for value, a, b in zip(known, low, high, strict=True)}
    return [None if value is None else rank[value] for value in values]


def _filled(values: Sequence[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known)
    return [mean if value is None else value for value in values]
