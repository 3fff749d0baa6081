"""Compare each submission's facts with the whole field: outliers, and claims that nothing supports.

Figures are robust (median and median deviation), so that a few liars do not move them.
Invariant: the order of entries does not matter, measured values never change, and words lose a place but win none.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.flags import Flag, Severity
from clara_eval.evaluation.features.extract import DISAGREE, MANY_CLAIMS, SubmissionFacts, worst
from clara_eval.judge.comparison import WIDEST_LINEAR, Value, goodness, make_vector

FEWEST_ENTRIES = 5
"""Fewer entries than this have no usual value, so none of them is an outlier."""
OUTLIER_SPREADS = 4.5
"""Distance from the median that makes a value an outlier; above the textbook's 3.5, because counts are skewed."""
SMALL_FIELD_ALLOWANCE = 1.3
"""In a field of n the bounds in spreads grow by a factor of 1 + 1.3/n: few entries tell the spread badly."""
CLAIM_SPREADS = 2.5
"""Distance above the median that makes a claim stand out; lower than for outliers, because nothing measured it."""
NEARLY_BEST_SPREADS = 0.8
"""Distance above the median for claims that are all nearly the best: on few levels the best is never far away."""
LEAST_CLAIM_SPREAD = 0.15
"""Least spread of claims, on a scale from worst to best: honest claims differ at least this much."""
GROUP_DISTANCE = 0.1
"""An entry with others this close on that scale belongs to a group and does not stand out."""
COMMON_SHARE = 0.25
"""Values that this share of the field claims are not rare."""
REVIEWED_ONE_IN = 3
"""At most one entry in three is reviewed for its claims, however many are paid: a person's time is bounded."""
UNTOLD = "claims_untold"
"""Flag of claims that are nearly the best like those of others: the field cannot tell who claims too much."""
_TO_SIGMA = 1.4826
_ALIKE = 1e-9


def compare_field(
    schema: FeatureSchema, features: Mapping[Address, SubmissionFacts], paid: int | None = None
) -> dict[Address, SubmissionFacts]:
    """Return every submission's facts with flags and capped claims; `paid` places, by default one in four."""
    seen_twice = sum(facts.second_view in ("read", "same") for facts in features.values())
    lacking = {"missing", "none"} if seen_twice * 2 > len(features) - 1 else {"missing"}
    # Code that cannot be read in neutral words, while that of the others can.
    without = {account for account, facts in features.items() if facts.second_view in lacking}
    read = dict(features)
    for account in without:
        known = (name for name, value in features[account].claimed.items() if value is not None)
        read[account] = replace(features[account], unsupported=tuple(sorted(known)))
    support = {feature.name: _Support.of(feature, read) for feature in schema.judged}
    disagreeing: Counter[object] = Counter(
        name
        for facts in read.values()
        for name in {flag.evidence["feature"] for flag in facts.flags if flag.code == DISAGREE}
    )
    capped = {account: _capped(schema, read[account], support, account in without) for account in sorted(read)}
    field, others = _Field.of(schema, capped, paid), len(features) - 1

    def info(flag: Flag) -> Flag:
        """A disagreement of views that most others have too is only information."""
        is_usual = flag.code == DISAGREE and 0 < others <= 2 * (disagreeing[flag.evidence["feature"]] - 1)
        return replace(flag, severity="info") if is_usual else flag

    return {
        account: replace(
            facts,
            flags=(
                *(info(flag) for flag in facts.flags),
                *([_NO_VIEW] if account in without else []),
                *_outliers(facts, field),
                *_claims_stand_out(schema, account, field),
            ),
        )
        for account, facts in capped.items()
    }


@dataclass(frozen=True, slots=True)
class _Support:
    claimed: int
    unsupported: int
    values: tuple[Value, ...]
    """Of all who claim it, from worst to best."""

    @classmethod
    def of(cls, feature: Feature, features: Mapping[Address, SubmissionFacts]) -> _Support:
        claiming = [facts for facts in features.values() if facts.claimed.get(feature.name) is not None]
        values = [facts.vector.as_dict()[feature.name] for facts in claiming]
        known = sorted((v for v in values if v is not None), key=lambda value: goodness(feature, value))
        return cls(len(claiming), sum(feature.name in facts.unsupported for facts in claiming), tuple(known))

    def others(self, mine: Value) -> list[Value]:
        """Return the values without one that is mine; mine if there are no others."""
        place = self.values.index(mine) if mine in self.values else len(self.values)
        return [*self.values[:place], *self.values[place + 1 :]] or [mine]

    def usual(self, mine: Value) -> Value:
        """Return the median of the others, the worse of two."""
        others = self.others(mine)
        return others[(len(others) - 1) // 2]


class _Values:
    """Sorted numbers of all entries, for medians that leave one out."""

    def __init__(self, values: Iterable[float | None]) -> None:
        self._ordered = sorted(value for value in values if value is not None)
        self._deviations: dict[float, list[float]] = {}

    def __len__(self) -> int:
        return len(self._ordered)

    def others(self, mine: float, least: float) -> tuple[float, float]:
        """Return the median of all but one, and the median deviation as a standard deviation."""
        middle = _median_without(self._ordered, mine)
        if middle not in self._deviations:  # leaving one out moves the middle to one of a few places
            self._deviations[middle] = sorted(abs(value - middle) for value in self._ordered)
        return middle, max(_TO_SIGMA * _median_without(self._deviations[middle], abs(mine - middle)), least)

    def at_least(self, bound: float) -> int:
        return len(self._ordered) - bisect_left(self._ordered, bound)


def _median_without(ordered: Sequence[float], one: float) -> float:
    """Return the median of sorted numbers without one of them."""
    place, count = bisect_left(ordered, one), len(ordered) - 1
    above, below = (ordered[k if k < place else k + 1] for k in (count // 2, max(0, count // 2 - 1)))
    return above if count % 2 else (below + above) / 2


@dataclass(frozen=True, slots=True)
class _Field:
    features: Mapping[Address, SubmissionFacts]
    numbers: Mapping[Feature, _Values]
    claims: Mapping[Address, float | None]
    merits: _Values
    nearly_best: frozenset[Address]
    alike: Mapping[tuple[Value, ...], int]
    """How many claim exactly these values."""
    most_reviewed: int
    """So many entries with the best claims are reviewed, if their claims are nearly the best possible."""
    might_be_paid: int
    """So many entries with the best claims might be paid."""

    @classmethod
    def of(cls, schema: FeatureSchema, features: Mapping[Address, SubmissionFacts], paid: int | None) -> _Field:
        size = len(features)
        claims: dict[Address, float | None] = dict.fromkeys(features)
        for account, facts in features.items():
            values = facts.vector.as_dict()
            if counted := [goodness(one, values[one.name]) for one in _claimed(schema, facts)]:
                claims[account] = math.fsum(counted) / len(counted)
        return cls(
            features,
            {
                feature: _Values(_scaled(feature, _exact(feature, facts)) for facts in features.values())
                for feature in schema.judged
                if feature.type in ("integer", "number")
            },
            claims,
            _Values(claims.values()),
            frozenset(account for account, facts in features.items() if _is_nearly_best(schema, facts)),
            Counter(_claimed_values(schema, facts) for facts in features.values()),
            max(1, min(size // 4 if paid is None else paid, size // REVIEWED_ONE_IN)),
            max(1, min(paid or 0, size // 2), size // REVIEWED_ONE_IN),
        )


def _capped(
    schema: FeatureSchema, facts: SubmissionFacts, support: Mapping[str, _Support], is_unseen: bool
) -> SubmissionFacts:
    """Cap claims without support at the middle, or at the usual value if most others have no support either.

    Claims of an entry without a second view are no better than the worst of the others.
    """
    values, flags = facts.vector.as_dict(), list(facts.flags)
    for feature in schema.judged if facts.unsupported else ():
        if feature.name not in facts.unsupported or facts.measured.get(feature.name) is not None:
            continue
        mine = facts.claimed.get(feature.name) is not None
        others, bare = support[feature.name].claimed - mine, support[feature.name].unsupported - mine
        before = values[feature.name]
        if others and bare * 2 >= others:
            usual = support[feature.name].usual(before)
            values[feature.name] = before if feature.better is None else worst(feature, [before, usual])
            continue
        known = feature.better is not None and before is not None
        after = worst(feature, [before, _middle(feature)]) if known else None
        if is_unseen and after is not None:
            after = worst(feature, [after, support[feature.name].others(before)[0]])
        values[feature.name] = after
        counts = f"; it counts as {after}" if after != before else ""
        sentence = f"{feature.name} is claimed as {before}, but no line of what the submission does was shown for it"
        evidence = {"feature": feature.name, "claimed": before, "counts": after}
        severity: Severity = "review" if after != before else "warn"
        flags.append(Flag("unsupported_claim", severity, f"{sentence}{counts}.", evidence=evidence))
    return replace(facts, vector=make_vector(schema, values), flags=tuple(flags))


def _middle(feature: Feature) -> Value:
    if feature.type == "boolean":
        return feature.better == "lower"
    if feature.type == "enum":
        last = len(feature.values) - 1
        return feature.values[last // 2 if feature.better == "higher" else (last + 1) // 2]
    span = feature.high - feature.low
    middle = feature.low + (span / 2 if span <= WIDEST_LINEAR else math.expm1(math.log1p(span) / 2))
    if feature.type == "number":
        return middle
    return math.floor(middle) if feature.better == "higher" else math.ceil(middle)


_NO_VIEW = Flag(
    "no_second_view",
    "review",
    "It could not be read a second time in neutral words, so nothing bears out what it says.",
)


def _outliers(facts: SubmissionFacts, field: _Field) -> Iterator[Flag]:
    for feature, numbers in field.numbers.items():
        value = _exact(feature, facts)
        mine, size = _scaled(feature, value), len(numbers)
        if mine is None or size < FEWEST_ENTRIES:
            continue
        least = 0.5
        if _is_narrow(feature):
            least = max((feature.high - feature.low) / 8, 1.0 if feature.type == "integer" else 0.0)
        middle, spread = numbers.others(mine, least)
        score = (mine - middle) / spread
        if abs(score) < OUTLIER_SPREADS * (1 + SMALL_FIELD_ALLOWANCE / size):
            continue
        told = round(value, 4) if isinstance(value, float) else value
        good = feature.better is not None and (score > 0) == (feature.better == "higher")
        yield Flag(
            "outlier",
            "review" if good else "warn",
            f"{feature.name} is {told}, far from the other {size - 1} entries ({abs(score):.0f} spreads off).",
            evidence={"feature": feature.name, "value": value, "spreads": round(score, 1)},
        )


def _exact(feature: Feature, facts: SubmissionFacts) -> Value:
    """Return the measured value: the judge's steps of a wide range would make outliers of neighbours."""
    measured = facts.measured.get(feature.name)
    return facts.vector.as_dict()[feature.name] if measured is None else measured


def _scaled(feature: Feature, value: Value) -> float | None:
    """Put counts without a narrow range on a log scale."""
    if value is None or isinstance(value, (bool, str)):
        return None
    return float(value) if _is_narrow(feature) else math.copysign(math.log1p(abs(value)), value)


def _is_narrow(feature: Feature) -> bool:
    return feature.min is not None and feature.max is not None and feature.max - feature.min <= WIDEST_LINEAR


def _claims_stand_out(schema: FeatureSchema, account: Address, field: _Field) -> Iterator[Flag]:
    """Flag claims far above the field, or good enough to be paid for alone."""
    mine, facts = field.claims[account], field.features[account]
    if mine is None:
        return
    size, as_good = len(field.merits), field.merits.at_least(mine - _ALIKE)
    count, score = len(_claimed(schema, facts)), 0.0
    if size > 1:
        middle, spread = field.merits.others(mine, LEAST_CLAIM_SPREAD)
        score = (mine - middle) / spread
    alone = field.merits.at_least(mine - GROUP_DISTANCE) <= max(1, size // 8)
    far = size >= FEWEST_ENTRIES and alone and score >= CLAIM_SPREADS * (1 + SMALL_FIELD_ALLOWANCE / size)
    nearly, decides = account in field.nearly_best, count * 2 >= sum(f.better is not None for f in schema.judged)
    rare = field.alike[_claimed_values(schema, facts)] < max(MANY_CLAIMS, COMMON_SHARE * len(field.features))
    best = nearly and as_good <= field.most_reviewed and score > NEARLY_BEST_SPREADS and rare
    shown = any(flag.code == "all_best" for flag in facts.flags)
    stands_out = far or (best and decides and count < MANY_CLAIMS and size >= FEWEST_ENTRIES)
    if best and count >= MANY_CLAIMS and not shown:
        told = f"All {count} claimed features are at their best value or one step below it."
        yield Flag("nearly_all_best", "review", told, evidence={"features": count, "asGood": as_good - 1})
    elif nearly and decides and size >= FEWEST_ENTRIES and as_good <= field.might_be_paid and not (stands_out or shown):
        alike = len(field.nearly_best) - 1
        told = (
            f"What only a model can tell is nearly the best there is, as for {alike} of the other {size - 1} entries; "
            "no tool bears it out, and the field cannot tell who claims too much."
        )
        yield Flag(UNTOLD, "info", told, evidence={"nearlyBest": alike + 1, "asGood": as_good})
    if stands_out:
        told = f"What only a model can tell is better here than for {size - as_good} of the other {size - 1} entries "
        told += f"({score:.1f} spreads above the middle); no tool bears it out."
        yield Flag("claims_stand_out", "review", told, evidence={"spreads": round(score, 1), "asGood": as_good})


def _is_nearly_best(schema: FeatureSchema, facts: SubmissionFacts) -> bool:
    values, claimed = facts.vector.as_dict(), _claimed(schema, facts)
    return bool(claimed) and all(goodness(f, values[f.name]) >= goodness(f, _step_below(f)) - _ALIKE for f in claimed)


def _step_below(feature: Feature) -> Value:
    """Return the value one level, one word, or a tenth of the range below the best."""
    if feature.type == "boolean":
        return feature.better == "higher"
    if feature.type == "enum":
        last = len(feature.values) - 1
        return feature.values[max(0, last - 1) if feature.better == "higher" else min(last, 1)]
    step = max((feature.high - feature.low) / 10, 1.0 if feature.type == "integer" else 0.0)
    return feature.high - step if feature.better == "higher" else feature.low + step


def _claimed(schema: FeatureSchema, facts: SubmissionFacts) -> list[Feature]:
    """Return the features that only a model tells and that have a direction."""
    values = facts.vector.as_dict()
    return [
        feature
        for feature in schema.judged
        if feature.better is not None
        and feature.source == "llm"
        and facts.measured.get(feature.name) is None
        and values[feature.name] is not None
    ]


def _claimed_values(schema: FeatureSchema, facts: SubmissionFacts) -> tuple[Value, ...]:
    values = facts.vector.as_dict()
    return tuple(values[feature.name] for feature in _claimed(schema, facts))
