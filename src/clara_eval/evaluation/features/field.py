"""Compare each submission's facts with the whole field: outliers, and claims that nothing supports.

Figures are robust (median and median deviation), so that a few liars do not move them.
Invariant: the order of entries does not matter, measured values never change, and words lose a place but win none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.model import Flag, Severity
from clara_eval.evaluation.features.extract import DISAGREE, MANY_CLAIMS, SubmissionFacts, worst
from clara_eval.judge.comparison import WIDEST_LINEAR, Value, goodness, make_vector

FEWEST_ENTRIES = 5  # fewer entries than this have no usual value, so none of them is an outlier
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
GROUP_DISTANCE = 0.1  # an entry with others this close on that scale belongs to a group and does not stand out
COMMON_SHARE = 0.25  # values that this share of the field claims are not rare
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
    support = {feature.name: _Support(feature, list(read.values())) for feature in schema.judged}
    disagreeing: Counter[object] = Counter(
        name
        for facts in read.values()
        for name in {flag.evidence["feature"] for flag in facts.flags if flag.code == DISAGREE}
    )
    capped = {account: _capped(schema, read[account], support, account in without) for account in sorted(read)}
    field, others = _Field(schema, capped, paid), len(features) - 1

    def info(flag: Flag) -> Flag:
        """A disagreement of views that most others have too is only information."""
        is_usual = flag.code == DISAGREE and 0 < others <= 2 * (disagreeing[flag.evidence["feature"]] - 1)
        return replace(flag, severity="info") if is_usual else flag

    found = {}
    for account, facts in capped.items():
        flags = [info(flag) for flag in facts.flags] + ([_NO_VIEW] if account in without else [])
        flags += [*_outliers(facts, field), *_claims_stand_out(schema, account, field)]
        found[account] = replace(facts, flags=tuple(flags))
    return found


class _Support:
    """The entries that claim a feature."""

    def __init__(self, feature: Feature, field: Sequence[SubmissionFacts]) -> None:
        claiming = [facts for facts in field if facts.claimed.get(feature.name) is not None]
        self.claimed, self.unsupported = len(claiming), sum(feature.name in facts.unsupported for facts in claiming)
        known = [v for facts in claiming if (v := facts.vector.as_dict()[feature.name]) is not None]
        self._worst_first = sorted(known, key=lambda value: goodness(feature, value))

    def others(self, mine: Value) -> list[Value]:
        """Return the values without one that is mine, worst first; mine if there are no others."""
        others: list[Value] = list(self._worst_first)
        if mine in others:
            others.remove(mine)
        return others or [mine]


def usual_of_others(numbers: Sequence[float], mine: float, least: float) -> tuple[float, float]:
    """Return the median of all but one, and the median deviation as a standard deviation."""
    others = list(numbers)
    others.remove(mine)
    middle = median(others)
    return middle, max(_TO_SIGMA * median([abs(number - middle) for number in others]), least)


class _Field:
    def __init__(self, schema: FeatureSchema, features: Mapping[Address, SubmissionFacts], paid: int | None) -> None:
        size, self.features = len(features), features
        self.numbers = {
            feature: [n for facts in features.values() if (n := _scaled(feature, _exact(feature, facts))) is not None]
            for feature in schema.judged
            if feature.type in ("integer", "number")
        }
        self.claims: dict[Address, float] = {}
        self.nearly_best: set[Address] = set()
        self.alike: Counter[tuple[Value, ...]] = Counter()  # how many claim exactly these values
        for account, facts in features.items():
            claimed = _claimed(schema, facts)
            self.alike[tuple(claimed.values())] += 1
            if not claimed:
                continue
            worth = {feature: goodness(feature, value) for feature, value in claimed.items()}
            self.claims[account] = math.fsum(worth.values()) / len(worth)
            if all(own >= goodness(feature, _step_below(feature)) - _ALIKE for feature, own in worth.items()):
                self.nearly_best.add(account)
        # So many entries with the best claims are reviewed, if their claims are nearly the best possible.
        self.most_reviewed = max(1, min(size // 4 if paid is None else paid, size // REVIEWED_ONE_IN))
        self.might_be_paid = max(1, min(paid or 0, size // 2), size // REVIEWED_ONE_IN)

    def as_good(self, merit: float) -> int:
        """How many claims are worth at least this much."""
        return sum(one >= merit for one in self.claims.values())


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
            values_of_others = support[feature.name].others(before)
            usual = values_of_others[(len(values_of_others) - 1) // 2]  # the worse of two in the middle
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
        middle, spread = usual_of_others(numbers, mine, least)
        score = (mine - middle) / spread
        if abs(score) < OUTLIER_SPREADS * (1 + SMALL_FIELD_ALLOWANCE / size):
            continue
        good = feature.better is not None and (score > 0) == (feature.better == "higher")
        shown = round(value, 4) if isinstance(value, float) else value
        told = f"{feature.name} is {shown}, far from the other {size - 1} entries ({abs(score):.0f} spreads off)."
        evidence = {"feature": feature.name, "value": value, "spreads": round(score, 1)}
        yield Flag("outlier", "review" if good else "warn", told, evidence=evidence)


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
    mine, facts, size, score = field.claims.get(account), field.features[account], len(field.claims), 0.0
    if mine is None:
        return
    claimed, as_good = _claimed(schema, facts), field.as_good(mine - _ALIKE)
    if size > 1:
        middle, spread = usual_of_others(list(field.claims.values()), mine, LEAST_CLAIM_SPREAD)
        score = (mine - middle) / spread
    alone = field.as_good(mine - GROUP_DISTANCE) <= max(1, size // 8)
    far = size >= FEWEST_ENTRIES and alone and score >= CLAIM_SPREADS * (1 + SMALL_FIELD_ALLOWANCE / size)
    count = len(claimed)
    nearly, decides = account in field.nearly_best, count * 2 >= sum(f.better is not None for f in schema.judged)
    rare = field.alike[tuple(claimed.values())] < max(MANY_CLAIMS, COMMON_SHARE * len(field.features))
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


def _step_below(feature: Feature) -> Value:
    """Return the value one level, one word, or a tenth of the range below the best."""
    if feature.type == "boolean":
        return feature.better == "higher"
    if feature.type == "enum":
        last = len(feature.values) - 1
        return feature.values[max(0, last - 1) if feature.better == "higher" else min(last, 1)]
    step = max((feature.high - feature.low) / 10, 1.0 if feature.type == "integer" else 0.0)
    return feature.high - step if feature.better == "higher" else feature.low + step


def _claimed(schema: FeatureSchema, facts: SubmissionFacts) -> dict[Feature, Value]:
    """Return the values of the features that only a model tells and that have a direction."""
    values = facts.vector.as_dict()
    told = [one for one in schema.judged if one.better is not None and one.source == "llm"]
    known = [one for one in told if facts.measured.get(one.name) is None and values[one.name] is not None]
    return {feature: values[feature.name] for feature in known}
