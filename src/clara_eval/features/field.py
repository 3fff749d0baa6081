"""What only the whole field can tell about one submission: who stands out, and whose claims nothing supports.

In: the facts of every ranked submission, each read alone. Out: the same facts with further flags, and with claims
capped at the middle of their range where others show evidence for theirs and this one does not. Robust figures only
(median and median deviation), so that a few liars do not move what they are held against; in a small field more is
forgiven, and below five entries nobody stands out. Must hold: the order of entries does not matter, and measured values
never change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from clara_eval.challenge.model import Address
from clara_eval.eval_config import Feature, FeatureSchema
from clara_eval.features.features import Features
from clara_eval.features.merging import worst
from clara_eval.flags import Flag
from clara_eval.judge.rules import WIDEST_LINEAR, goodness
from clara_eval.judge.vector import Value, make_vector

FEWEST = 5
"""Entries that it takes to say what is usual."""
OUTLIER = 4.5
SMALL_FIELD = 1.3
"""A field of n forgives outliers by a factor of 1 + 1.3/n."""
STANDS_OUT, STANDS_OUT_COARSE = 1.7, 1.3
"""Spreads above the middle; on scales of a few levels a whole level is one spread already."""
FEW_VALUES = 10
NEARLY_ALL = 3
"""From this many claims on, all of them within one step of the best are worth a look where that is rare."""
RARE = 0.25
SPREAD = 0.15
"""Claims of honest entries differ at least this much, on a scale from worst to best."""
_TO_SIGMA = 1.4826
_ALIKE = 1e-9


def compare_field(schema: FeatureSchema, features: Mapping[Address, Features]) -> dict[Address, Features]:
    """Every submission's facts, with what the others tell about them."""
    capped = {account: _capped(schema, account, features) for account in sorted(features)}
    return {
        account: replace(
            facts,
            flags=(
                *facts.flags,
                *_missing_view(account, capped),
                *_outliers(schema, account, capped),
                *_claims_stand_out(schema, account, capped),
                *_nearly_all_best(schema, account, capped),
            ),
        )
        for account, facts in capped.items()
    }


def _capped(schema: FeatureSchema, account: Address, features: Mapping[Address, Features]) -> Features:
    """Claims without support count as the middle at best, unless the others have none either: then nothing shows it."""
    facts = features[account]
    values, flags = facts.vector.as_dict(), list(facts.flags)
    for feature in schema.judged:
        if feature.name not in facts.unsupported or facts.measured.get(feature.name) is not None:
            continue
        others = [o for a, o in features.items() if a != account and o.claimed.get(feature.name) is not None]
        if others and sum(feature.name in other.unsupported for other in others) * 2 >= len(others):
            continue
        before, after = values[feature.name], _at_most_middle(feature, values[feature.name])
        values[feature.name] = after
        flags.append(_unsupported(feature, before, after))
    return replace(facts, vector=make_vector(schema, values), flags=tuple(flags))


def _unsupported(feature: Feature, before: Value, after: Value) -> Flag:
    counts = f"; it counts as {after}" if after != before else ""
    return Flag(
        "unsupported_claim",
        "review" if after != before else "warn",
        f"{feature.name} is claimed as {before}, but no line of what the submission does was shown for it{counts}.",
        evidence={"feature": feature.name, "claimed": before, "counts": after},
    )


def _at_most_middle(feature: Feature, value: Value) -> Value:
    if feature.better is None or value is None:
        return value
    return worst(feature, [value, _middle(feature)])


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


def _missing_view(account: Address, features: Mapping[Address, Features]) -> Iterator[Flag]:
    """Code that cannot be read without its comments and strings, where the others' can."""
    mine = features[account].second_view
    if mine not in ("missing", "none"):
        return
    others = [facts.second_view for other, facts in features.items() if other != account]
    have = sum(one in ("read", "same") for one in others)
    if mine == "missing" or have * 2 > len(others):
        yield Flag(
            "no_second_view",
            "review",
            "It could not be read a second time without comments and strings, so nothing bears out what it says.",
        )


def _outliers(schema: FeatureSchema, account: Address, features: Mapping[Address, Features]) -> Iterator[Flag]:
    for feature in schema.judged:
        if feature.type not in ("integer", "number"):
            continue
        field = {a: _scaled(feature, _exact(feature, facts)) for a, facts in features.items()}
        mine = field.pop(account)
        known = [value for value in field.values() if value is not None]
        if mine is None or len(known) + 1 < FEWEST:
            continue
        middle, spread = _usual(known, _least_spread(feature))
        score = (mine - middle) / spread
        if abs(score) < OUTLIER * (1 + SMALL_FIELD / (len(known) + 1)):
            continue
        value = _exact(feature, features[account])
        good = feature.better is not None and (score > 0) == (feature.better == "higher")
        yield Flag(
            "outlier",
            "review" if good else "warn",
            f"{feature.name} is {value}, far from the other {len(known)} entries ({abs(score):.0f} spreads off).",
            evidence={"feature": feature.name, "value": value, "spreads": round(score, 1)},
        )


def _exact(feature: Feature, facts: Features) -> Value:
    """As measured, not as the judge sees it: steps of a wide range would make outliers of neighbours."""
    measured = facts.measured.get(feature.name)
    return facts.vector.as_dict()[feature.name] if measured is None else measured


def _scaled(feature: Feature, value: Value) -> float | None:
    """Counts without a narrow range differ by ratio: 3 and 30 as much as 30 and 300."""
    if value is None or isinstance(value, (bool, str)):
        return None
    return float(value) if _is_narrow(feature) else math.copysign(math.log1p(abs(value)), value)


def _is_narrow(feature: Feature) -> bool:
    return feature.min is not None and feature.max is not None and feature.max - feature.min <= WIDEST_LINEAR


def _least_spread(feature: Feature) -> float:
    if not _is_narrow(feature):
        return 0.5
    return max((feature.high - feature.low) / 8, 1.0 if feature.type == "integer" else 0.0)


def _usual(values: Sequence[float], least: float) -> tuple[float, float]:
    """Median, and median deviation as a standard deviation."""
    middle = _median(values)
    return middle, max(_TO_SIGMA * _median([abs(value - middle) for value in values]), least)


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _claims_stand_out(schema: FeatureSchema, account: Address, features: Mapping[Address, Features]) -> Iterator[Flag]:
    """What only a model says is better for one entry than for nearly all others, and by much."""
    claims = {a: _claimed_merit(schema, facts) for a, facts in features.items()}
    field = [merit for a, merit in claims.items() if merit is not None and a != account]
    mine = claims[account]
    if mine is None or len(field) + 1 < FEWEST:
        return
    size = len(field) + 1
    as_good = 1 + sum(merit >= mine - _ALIKE for merit in field)
    middle, spread = _usual(field, SPREAD)
    score = (mine - middle) / spread
    claimed = _claimed(schema, features[account])
    coarse = len(claimed) < NEARLY_ALL and all(_is_coarse(feature) for feature in claimed)
    bound = max(STANDS_OUT_COARSE if coarse else STANDS_OUT, 1.2 + 8 / size if size < 10 or not coarse else 0)
    if as_good <= max(1, size // 8) and score >= bound:
        yield Flag(
            "claims_stand_out",
            "review",
            f"What only a model can tell is better here than for the other {len(field)} entries, by "
            f"{score:.1f} spreads; no tool bears it out.",
            evidence={"spreads": round(score, 1), "asGood": as_good},
        )


def _nearly_all_best(schema: FeatureSchema, account: Address, features: Mapping[Address, Features]) -> Iterator[Flag]:
    """Every claim at its best or a step below: what a liar asks for who does not want to stand out."""
    claimed = _claimed(schema, features[account])
    if len(claimed) < NEARLY_ALL or any(flag.code == "all_best" for flag in features[account].flags):
        return
    others = [facts for other, facts in features.items() if other != account]
    as_good = sum(_is_nearly_best(schema, facts) for facts in others)
    if _is_nearly_best(schema, features[account]) and as_good <= RARE * len(others):
        yield Flag(
            "nearly_all_best",
            "review",
            f"All {len(claimed)} claimed features are at their best value or one step below it.",
            evidence={"features": len(claimed), "asGood": as_good},
        )


def _is_nearly_best(schema: FeatureSchema, facts: Features) -> bool:
    values, claimed = facts.vector.as_dict(), _claimed(schema, facts)
    return bool(claimed) and all(goodness(f, values[f.name]) >= goodness(f, _step_below(f)) for f in claimed)


def _step_below(feature: Feature) -> Value:
    """One level, one word, or a twentieth of the range below the best."""
    if feature.type == "boolean":
        return feature.better == "higher"
    if feature.type == "enum":
        last = len(feature.values) - 1
        return feature.values[max(0, last - 1) if feature.better == "higher" else min(last, 1)]
    step = max((feature.high - feature.low) / 20, 1.0 if feature.type == "integer" else 0.0)
    return feature.high - step if feature.better == "higher" else feature.low + step


def _is_coarse(feature: Feature) -> bool:
    return feature.type in ("boolean", "enum") or (
        feature.type == "integer" and feature.high - feature.low < FEW_VALUES
    )


def _claimed(schema: FeatureSchema, facts: Features) -> list[Feature]:
    """What only a model says about this submission, where one end is better."""
    values = facts.vector.as_dict()
    return [
        feature
        for feature in schema.judged
        if feature.better is not None
        and feature.source == "llm"
        and facts.measured.get(feature.name) is None
        and values[feature.name] is not None
    ]


def _claimed_merit(schema: FeatureSchema, facts: Features) -> float | None:
    """Mean goodness of the claims that count, from 0 to 1."""
    values = facts.vector.as_dict()
    counted = [goodness(feature, values[feature.name]) for feature in _claimed(schema, facts)]
    return math.fsum(counted) / len(counted) if counted else None
