"""Decide whether judges may post without a person: one judge above the floor is enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from clara_eval.config.eval_config import EvalConfig, FeatureSchema
from clara_eval.core.codec import JsonCodec
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.judge.templates import template_hash

FLOOR = 0.85
LEAST_LABELS = 50
Mode = Literal["known", "required", "off"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its 95 % interval; `value` is None if nothing could be measured."""

    value: float | None
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one judge with one prompt on one kind of work."""

    judge: str
    prompt: str
    work: str
    labels: int
    undecided: int
    """Pairs without a verdict in both orders: they are not in the figures."""
    agreement: Measured
    base_rate: float
    """The share of the people's most frequent choice: what always saying it would reach."""
    kappa: float | None
    clear: Measured
    position_bias: Measured
    """From -1 to 1: 0.1 means that being shown first won ten pairs in a hundred more than it lost."""
    length_bias: Measured
    """From -1 to 1: how much more than people the judge prefers the longer one."""


CALIBRATION = JsonCodec(Calibration)


def work_hash(config: EvalConfig, schema: FeatureSchema) -> str:
    return sha256_hex(plain_json({"criteria": config.criteria, "schema": schema.to_json()}).encode())


def prompt_hash() -> str:
    return template_hash("compare.system", "compare.user")


def why_not_alone(
    voters: Sequence[str], found: Iterable[Calibration | None], mode: Mode, floor: float = FLOOR
) -> str | None:
    """Return why these judges may not post without a person; None if they may."""
    reasons = []
    for judge, calibration in zip(voters, found, strict=True):
        reason = _doubt(judge, calibration, mode, floor)
        if reason is None:
            return None
        reasons.append(reason)
    return " ".join(reasons) or None


def _doubt(judge: str, found: Calibration | None, mode: Mode, floor: float) -> str | None:
    if mode == "off" or (found is None and mode == "known"):
        return None
    if found is None:
        return f"{judge} is not calibrated with this prompt, so it does not post alone."
    if found.labels < LEAST_LABELS:
        return f"{judge} is calibrated on {found.labels} labels only; {LEAST_LABELS} are needed to post alone."
    worth = found.clear.value
    if worth is None or worth < floor:
        shown = (
            "none of its verdicts is clear" if worth is None else f"it agrees with people on {worth:.0%} of clear pairs"
        )
        return f"{judge} does not post alone: {shown}, and {floor:.0%} are needed."
    return None
