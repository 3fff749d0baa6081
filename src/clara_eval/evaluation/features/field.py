"""Compare each submission's facts with the whole field: flag outliers, cap unsupported claims.

The statistics are robust (median, median absolute deviation), so that a few false claims do not move them.
Invariant: the order of entries does not matter, measured values never change, and claims are only lowered.
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
from clara_eval.evaluation.features.extract import MANY_CLAIMS, VIEWS_DISAGREE, SubmissionFacts, worst
from clara_eval.judge.comparison import WIDEST_LINEAR, Value, goodness, make_vector

MIN_ENTRIES = 5  # for outliers; fewer entries have no usual value
OUTLIER_SPREADS = 4.5  # distance from the median of an outlier; above the textbook's 3.5, because counts are skewed
SMALL_FIELD_ALLOWANCE = 1.3  # with n entries, bounds grow by 1 + 1.3/n: the spread of few entries is uncertain
CLAIM_SPREADS = 2.5  # distance above the median at which claims stand out; low, because they are not measured
NEARLY_BEST_SPREADS = 0.8  # for claims that are all nearly the best; with few levels, the best is never far away
MIN_CLAIM_SPREAD = 0.15  # on a scale from worst (0) to best (1); honest claims differ at least this much
GROUP_DISTANCE = 0.1  # on that scale; an entry with others this close does not stand out
COMMON_SHARE = 0.25  # of the field; values that so many claim are not rare
REVIEWED_ONE_IN = 3  # at most one entry in three is reviewed for its claims, to save the reviewers' time
AMBIGUOUS_CLAIMS = "claims_untold"  # flag of claims that are nearly the best, but so are those of others
_TO_SIGMA = 1.4826  # from a median absolute deviation to a standard deviation
_EPSILON = 1e-9


def compare_field(
    schema: FeatureSchema, features: Mapping[Address, SubmissionFacts], paid: int | None = None
) -> dict[Address, SubmissionFacts]:
    """Return all facts with flags and capped claims; `paid` is the number of winners, by default n/4."""
    seen_twice = sum(facts.second_view in ("read", "same") for facts in features.values())
    lacking = {"missing", "none"} if seen_twice * 2 > len(features) - 1 else {"missing"}
    # Entries without a neutral view, while the others have one.
    without = {account for account, facts in features.items() if facts.second_view in lacking}
    read = dict(features)
    for account in without:
        known = (name for name, value in features[account].claimed.items() if value is not None)
        read[account] = replace(features[account], unsupported=tuple(sorted(known)))
    support = {feature.name: _Support(feature, list(read.values())) for feature in schema.judged}
    disagreeing: Counter[object] = Counter(
        name
        for facts in read.values()
        for name in {flag.evidence["feature"] for flag in facts.flags if flag.code == VIEWS_DISAGREE}
    )
    capped = {account: _cap_claims(schema, read[account], support, account in without) for account in sorted(read)}
    field, others = _Field(schema, capped, paid), len(features) - 1

    def lower_if_usual(flag: Flag) -> Flag:
        """Lower a disagreement of views that most others have, too."""
        is_usual = flag.code == VIEWS_DISAGREE and 0 < others <= 2 * (disagreeing[flag.evidence["feature"]] - 1)
        return replace(flag, severity="info") if is_usual else flag

    found = {}
    for account, facts in capped.items():
        flags = [lower_if_usual(flag) for flag in facts.flags] + ([_NO_VIEW] if account in without else [])
        flags += [*_flag_outliers(facts, field), *_flag_claims(schema, account, field)]
        found[account] = replace(facts, flags=tuple(flags))
    return found


class _Support:
    """How many entries claim a feature, how many without support, and their values."""

    def __init__(self, feature: Feature, field: Sequence[SubmissionFacts]) -> None:
        claiming = [facts for facts in field if facts.claimed.get(feature.name) is not None]
        self.claimed, self.unsupported = len(claiming), sum(feature.name in facts.unsupported for facts in claiming)
        known = [v for facts in claiming if (v := facts.vector.as_dict()[feature.name]) is not None]
        self._worst_first = sorted(known, key=lambda value: goodness(feature, value))

    def others(self, mine: Value) -> list[Value]:
        """Return the values of the others, worst first; `mine` if there are none."""
        others: list[Value] = list(self._worst_first)
        if mine in others:
            others.remove(mine)
        return others or [mine]


def usual_of_others(numbers: Sequence[float], mine: float, least: float) -> tuple[float, float]:
    """Return median and robust standard deviation of `numbers` without `mine`."""
    others = list(numbers)
    others.remove(mine)
    middle = median(others)
    return middle, max(_TO_SIGMA * median([abs(number - middle) for number in others]), least)


class _Field:
    def __init__(self, schema: FeatureSchema, features: Mapping[Address, SubmissionFacts], paid: int | None) -> None:
        size, self.features = len(features), features
        self.numbers = {
            feature: [n for facts in features.values() if (n := _scale(feature, _value_of(feature, facts))) is not None]
            for feature in schema.judged
            if feature.type in ("integer", "number")
        }
        self.claims: dict[Address, float] = {}
        self.nearly_best: set[Address] = set()
        self.alike: Counter[tuple[Value, ...]] = Counter()  # how many claim exactly these values
        for account, facts in features.items():
            claimed = _model_claims(schema, facts)
            self.alike[tuple(claimed.values())] += 1
            if not claimed:
                continue
            worth = {feature: goodness(feature, value) for feature, value in claimed.items()}
            self.claims[account] = math.fsum(worth.values()) / len(worth)
            if all(own >= goodness(feature, _step_below(feature)) - _EPSILON for feature, own in worth.items()):
                self.nearly_best.add(account)
        # The number of entries that are reviewed if their claims are nearly the best possible.
        self.most_reviewed = max(1, min(size // 4 if paid is None else paid, size // REVIEWED_ONE_IN))
        self.payable_places = max(1, min(paid or 0, size // 2), size // REVIEWED_ONE_IN)

    def as_good(self, merit: float) -> int:
        """Count the claims that are at least this good."""
        return sum(one >= merit for one in self.claims.values())


def _cap_claims(
    schema: FeatureSchema, facts: SubmissionFacts, support: Mapping[str, _Support], lacks_view: bool
) -> SubmissionFacts:
    """Cap claims without support at the middle of the range.

    At the usual value if most others have no support either; without a second view, also at the worst of the others.
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
            usual = values_of_others[(len(values_of_others) - 1) // 2]  # the worse median
            values[feature.name] = before if feature.better is None else worst(feature, [before, usual])
            continue
        known = feature.better is not None and before is not None
        after = worst(feature, [before, _middle_value(feature)]) if known else None
        if lacks_view and after is not None:
            after = worst(feature, [after, support[feature.name].others(before)[0]])
        values[feature.name] = after
        counts = f"; it counts as {after}" if after != before else ""
        sentence = f"{feature.name} is claimed as {before}, but no line of what the submission does was shown for it"
        evidence = {"feature": feature.name, "claimed": before, "counts": after}
        severity: Severity = "review" if after != before else "warn"
        flags.append(Flag("unsupported_claim", severity, f"{sentence}{counts}.", evidence=evidence))
    return replace(facts, vector=make_vector(schema, values), flags=tuple(flags))


def _middle_value(feature: Feature) -> Value:
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


def _flag_outliers(facts: SubmissionFacts, field: _Field) -> Iterator[Flag]:
    for feature, numbers in field.numbers.items():
        value = _value_of(feature, facts)
        mine, size = _scale(feature, value), len(numbers)
        if mine is None or size < MIN_ENTRIES:
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
        text = f"{feature.name} is {shown}, far from the other {size - 1} entries ({abs(score):.0f} spreads off)."
        evidence = {"feature": feature.name, "value": value, "spreads": round(score, 1)}
        yield Flag("outlier", "review" if good else "warn", text, evidence=evidence)


def _value_of(feature: Feature, facts: SubmissionFacts) -> Value:
    """Return the measured value if there is one: the vector rounds wide ranges to coarse steps."""
    measured = facts.measured.get(feature.name)
    return facts.vector.as_dict()[feature.name] if measured is None else measured


def _scale(feature: Feature, value: Value) -> float | None:
    """Return the number, on a log scale unless its range is narrow; None if it is no number."""
    if value is None or isinstance(value, (bool, str)):
        return None
    return float(value) if _is_narrow(feature) else math.copysign(math.log1p(abs(value)), value)


def _is_narrow(feature: Feature) -> bool:
    return feature.min is not None and feature.max is not None and feature.max - feature.min <= WIDEST_LINEAR


def _flag_claims(schema: FeatureSchema, account: Address, field: _Field) -> Iterator[Flag]:
    """Flag claims that are far above the field or all nearly the best."""
    mine, facts, size, score = field.claims.get(account), field.features[account], len(field.claims), 0.0
    if mine is None:
        return
    claimed, as_good = _model_claims(schema, facts), field.as_good(mine - _EPSILON)
    if size > 1:
        middle, spread = usual_of_others(list(field.claims.values()), mine, MIN_CLAIM_SPREAD)
        score = (mine - middle) / spread
    alone = field.as_good(mine - GROUP_DISTANCE) <= max(1, size // 8)
    far = size >= MIN_ENTRIES and alone and score >= CLAIM_SPREADS * (1 + SMALL_FIELD_ALLOWANCE / size)
    count = len(claimed)
    nearly, decides = account in field.nearly_best, count * 2 >= sum(f.better is not None for f in schema.judged)
    rare = field.alike[tuple(claimed.values())] < max(MANY_CLAIMS, COMMON_SHARE * len(field.features))
    best = nearly and as_good <= field.most_reviewed and score > NEARLY_BEST_SPREADS and rare
    shown = any(flag.code == "all_best" for flag in facts.flags)
    stands_out = far or (best and decides and count < MANY_CLAIMS and size >= MIN_ENTRIES)
    if best and count >= MANY_CLAIMS and not shown:
        text = f"All {count} claimed features are at their best value or one step below it."
        yield Flag("nearly_all_best", "review", text, evidence={"features": count, "asGood": as_good - 1})
    elif nearly and decides and size >= MIN_ENTRIES and as_good <= field.payable_places and not (stands_out or shown):
        alike = len(field.nearly_best) - 1
        text = (
            f"What only a model can tell is nearly the best there is, as for {alike} of the other {size - 1} entries; "
            "no tool bears it out, and the field cannot tell who claims too much."
        )
        yield Flag(AMBIGUOUS_CLAIMS, "info", text, evidence={"nearlyBest": alike + 1, "asGood": as_good})
    if stands_out:
        text = f"What only a model can tell is better here than for {size - as_good} of the other {size - 1} entries "
        text += f"({score:.1f} spreads above the middle); no tool bears it out."
        yield Flag("claims_stand_out", "review", text, evidence={"spreads": round(score, 1), "asGood": as_good})


def _step_below(feature: Feature) -> Value:
    """Return the value one level, one enum value, or a tenth of the range below the best."""
    if feature.type == "boolean":
        return feature.better == "higher"
    if feature.type == "enum":
        last = len(feature.values) - 1
        return feature.values[max(0, last - 1) if feature.better == "higher" else min(last, 1)]
    step = max((feature.high - feature.low) / 10, 1.0 if feature.type == "integer" else 0.0)
    return feature.high - step if feature.better == "higher" else feature.low + step


def _model_claims(schema: FeatureSchema, facts: SubmissionFacts) -> dict[Feature, Value]:
    """Return the values that only a model claims, of features with a direction."""
    values = facts.vector.as_dict()
    directed = [one for one in schema.judged if one.better is not None and one.source == "llm"]
    known = [one for one in directed if facts.measured.get(one.name) is None and values[one.name] is not None]
    return {feature: values[feature.name] for feature in known}
