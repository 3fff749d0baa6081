"""Decide whether judges may post without a person: one sufficiently calibrated judge is enough."""

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
CONFIDENCE = 0.9  # level of a guarantee: it may be false for one set of labels in ten
LEAST_LABELS = 50
Mode = Literal["known", "required", "off"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its 95 % confidence interval; `value` is None if nothing could be measured."""

    value: float | None
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Guarantee:
    """At most `alpha` of the verdicts with at least this chance disagree with people.

    It holds with probability `confidence`, for pairs like the labelled ones.
    """

    chance: float
    alpha: float
    confidence: float
    coverage: float  # the share of all labelled pairs that have such a verdict
    count: int
    wrong: int

    @property
    def sentence(self) -> str:
        of = f"of its verdicts with a chance of {self.chance:.0%} or more ({self.coverage:.0%} of pairs)"
        return f"{of}, people contradict at most {self.alpha:.0%} (confidence {self.confidence:.0%})"


def guarantee(verdicts: Sequence[tuple[float, bool]], pairs: int, alpha: float) -> Guarantee | None:
    """Return the guarantee with the lowest chance that these verdicts (chance, is wrong) support, if any."""
    found = None  # tested in a fixed sequence, from the highest down to the first failure: needs no correction
    for chance in sorted({chance for chance, _ in verdicts}, reverse=True):
        accepted = [is_wrong for own, is_wrong in verdicts if own >= chance]
        count, wrong = len(accepted), sum(accepted)
        if not 0 < alpha < 1 or _binomial_cdf(wrong, count, alpha) > 1 - CONFIDENCE:
            break
        found = Guarantee(chance, alpha, CONFIDENCE, round(count / pairs, 6), count, wrong)
    return found


def _binomial_cdf(wrong: int, count: int, share: float) -> float:
    """Return the probability of at most `wrong` wrong verdicts of `count` if `share` of all are wrong."""
    ways = (lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) for k in range(wrong + 1))
    return fsum(exp(way + k * log(share) + (count - k) * log1p(-share)) for k, way in enumerate(ways))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one judge with one prompt on one kind of work."""

    judge: str
    prompt: str
    work: str
    labels: int
    undecided: int  # pairs without a verdict in both orders; excluded from the figures
    agreement: Measured
    base_rate: float  # the share of the people's most frequent choice: the agreement of a constant answer
    kappa: float | None
    clear: Measured
    position_bias: Measured  # from -1 to 1: at 0.1 the entry shown first won 10 more pairs in 100 than it lost
    length_bias: Measured  # from -1 to 1: how much more often than people the judge prefers the longer entry
    alone: Guarantee | None = None  # the chance at the pay line from which it may post alone, if the labels show one


CALIBRATION = JsonCodec(Calibration)


def work_hash(config: EvalConfig, schema: FeatureSchema) -> str:
    return sha256_hex(plain_json({"criteria": config.criteria, "schema": schema.to_json()}).encode())


def prompt_hash() -> str:
    return template_hash("compare.system", "compare.user")


def why_not_alone(
    voters: Sequence[str], found: Iterable[Calibration | None], mode: Mode, floor: float = FLOOR, chance: float = 1.0
) -> str | None:
    """Return why these judges may not post alone a pay line with this chance; None if they may."""
    reasons = [_why_not(judge, one, mode, floor, chance) for judge, one in zip(voters, found, strict=True)]
    return None if None in reasons else " ".join(filter(None, reasons)) or None


def _why_not(judge: str, found: Calibration | None, mode: Mode, floor: float, chance: float) -> str | None:
    if mode == "off" or (found is None and mode == "known"):
        return None
    if found is None:
        return f"{judge} is not calibrated with this prompt, so it does not post alone."
    if found.labels < LEAST_LABELS:
        return f"{judge} is calibrated on {found.labels} labels only; {LEAST_LABELS} are needed to post alone."
    clear = found.clear.value
    if clear is None or clear < floor:
        why = (
            "none of its verdicts is clear" if clear is None else f"it agrees with people on {clear:.0%} of clear pairs"
        )
        return f"{judge} does not post alone: {why}, and {floor:.0%} are needed."
    if found.alone is None and mode == "required":
        return f"{judge} does not post alone: its labels show no chance above which at most {1 - floor:.0%} are wrong."
    if found.alone is not None and chance < found.alone.chance:
        return f"{judge} does not post a pay line of {chance:.0%} alone: {found.alone.sentence}."
    return None
