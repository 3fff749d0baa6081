"""Decide whether judges may post without a person: one judge above the floor is enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, lgamma, log, log1p
from typing import Literal

from clara_eval.config.eval_config import EvalConfig, FeatureSchema
from clara_eval.core.codec import JsonCodec
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.judge.reading import template_hash

FLOOR = 0.85
CONFIDENCE = 0.9  # that a guarantee holds: one set of labels in ten may be lucky
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
class Guarantee:
    """Of verdicts with at least this chance at most `alpha` are wrong by people, on pairs like the labelled ones."""

    chance: float
    alpha: float
    confidence: float
    coverage: float  # the share of all labelled pairs that have such a verdict
    count: int
    wrong: int

    @property
    def sentence(self) -> str:
        of = f"of its verdicts from a chance of {self.chance:.0%} on ({self.coverage:.0%} of pairs)"
        return f"{of} at most {self.alpha:.0%} are wrong by people, by {self.confidence:.0%}"


def guarantee(verdicts: Sequence[tuple[float, bool]], pairs: int, alpha: float) -> Guarantee | None:
    """Find the least chance from which verdicts (chance, is wrong) are wrong in at most `alpha`; None if none is."""
    found = None  # tested from the largest down until one fails: a fixed sequence needs no correction
    for chance in sorted({chance for chance, _ in verdicts}, reverse=True):
        accepted = [is_wrong for own, is_wrong in verdicts if own >= chance]
        count, wrong = len(accepted), sum(accepted)
        if not 0 < alpha < 1 or _at_most(wrong, count, alpha) > 1 - CONFIDENCE:
            break
        found = Guarantee(chance, alpha, CONFIDENCE, round(count / pairs, 6), count, wrong)
    return found


def _at_most(wrong: int, count: int, share: float) -> float:
    """The chance of at most so many among `count` if each is wrong with this chance."""
    ways = (lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) for k in range(wrong + 1))
    return fsum(exp(way + k * log(share) + (count - k) * log1p(-share)) for k, way in enumerate(ways))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one judge with one prompt on one kind of work."""

    judge: str
    prompt: str
    work: str
    labels: int
    undecided: int  # pairs without a verdict in both orders: they are not in the figures
    agreement: Measured
    base_rate: float  # the share of the people's most frequent choice: what always saying it would reach
    kappa: float | None
    clear: Measured
    position_bias: Measured
    """From -1 to 1: 0.1 means that being shown first won ten pairs in a hundred more than it lost."""
    length_bias: Measured  # from -1 to 1: how much more than people the judge prefers the longer one
    alone: Guarantee | None = None  # from which chance at the pay line it may post alone; None if the labels show none


CALIBRATION = JsonCodec(Calibration)


def work_hash(config: EvalConfig, schema: FeatureSchema) -> str:
    return sha256_hex(plain_json({"criteria": config.criteria, "schema": schema.to_json()}).encode())


def prompt_hash() -> str:
    return template_hash("compare.system", "compare.user")


def why_not_alone(
    voters: Sequence[str], found: Iterable[Calibration | None], mode: Mode, floor: float = FLOOR, chance: float = 1.0
) -> str | None:
    """Return why these judges may not post a pay line of this chance without a person; None if they may."""
    doubts = [_doubt(judge, one, mode, floor, chance) for judge, one in zip(voters, found, strict=True)]
    return None if None in doubts else " ".join(filter(None, doubts)) or None


def _doubt(judge: str, found: Calibration | None, mode: Mode, floor: float, chance: float) -> str | None:
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
    if found.alone is None and mode == "required":
        return f"{judge} does not post alone: its labels show no chance from which at most {1 - floor:.0%} are wrong."
    if found.alone is not None and chance < found.alone.chance:
        return f"{judge} does not post a pay line of {chance:.0%} alone: {found.alone.sentence}."
    return None
