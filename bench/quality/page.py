"""Compute the figures of docs/quality.md from stored results and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

from bench.quality.leading import CARRIER
from bench.quality.truth import Label, labels, schema_of, submissions

from clara_eval.actions.calibrate import proportion

NEAR = 0.25
"""A number counts as right if it is off by at most a quarter."""
Result = dict[str, Any]
Results = dict[tuple[str, str, str], Result]
VARIANTS = {
    "base": "as the product asks",
    "before": "as it asked before: no line numbers, null for what is not there",
    "evidence": "the line before the value",
    "unstated": "without the poster's statement",
    "neutral": "names and comments removed (the second view)",
}


def share(hits: int, count: int) -> str:
    """Format a share with its Wilson interval, as calibration does."""
    found = proportion(hits, count)
    if found.value is None or found.low is None or found.high is None:
        return "–"
    return f"{hits} of {count}: {found.value:.0%} ({found.low:.0%} – {found.high:.0%})"


def is_right(said: object, truth: Label) -> bool:
    if isinstance(truth, float) and isinstance(said, (int, float)) and not isinstance(said, bool):
        return abs(said - truth) <= NEAR * abs(truth)
    return type(said) is type(truth) and said == truth


def type_of(item: str, feature: str) -> str:
    if feature in ("works", "answers_task"):
        return "whether it does what the task asks"
    return {"integer": "integer (a count)", "number": "number (a mean)", "boolean": "boolean", "enum": "enum"}[
        schema_of(submissions()[item].kind).feature(feature).type
    ]


Fact = tuple[str, str, object, Label]
"""Item, feature, reported value, true value."""


def facts(results: Iterable[Result]) -> list[Fact]:
    known = labels()
    return [
        (one["item"], feature, said, truth)
        for one in results
        for feature, said in one["said"].items()
        if (truth := known[one["item"]].get(feature)) is not None
    ]


def right(found: Iterable[Fact]) -> tuple[int, int]:
    hits = [is_right(said, truth) for _, _, said, truth in found]
    return sum(hits), len(hits)


def variant(results: Results, name: str) -> dict[str, Result]:
    return {item: one for (part, kind, item), one in results.items() if part == "read" and kind == name}


def guess(found: list[Fact]) -> tuple[int, int]:
    """Return how often the most frequent true value of each feature would be right."""
    hits = 0
    for feature in {fact[1] for fact in found}:
        values = [truth for _, name, _, truth in found if name == feature]
        hits += max(sum(is_right(value, truth) for truth in values) for value in values)
    return hits, len(found)


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]
    return "\n".join(lines)


def by_type(results: Results) -> str:
    found = facts(variant(results, "base").values())
    rows: list[tuple[object, ...]] = []
    for kind in sorted({type_of(item, feature) for item, feature, _, _ in found}):
        of_kind = [fact for fact in found if type_of(fact[0], fact[1]) == kind]
        unknown = sum(said is None for _, _, said, _ in of_kind)
        rows.append((kind, share(*right(of_kind)), f"{guess(of_kind)[0] / len(of_kind):.0%}", f"{unknown}"))
    rows.append(("all", share(*right(found)), f"{guess(found)[0] / len(found):.0%}", sum(f[2] is None for f in found)))
    for half in ("seen", "unseen"):
        of_half = [fact for fact in found if submissions()[fact[0]].half == half]
        rows.append((f"all, the {half} half", share(*right(of_half)), f"{guess(of_half)[0] / len(of_half):.0%}", ""))
    for language in ("python", "javascript", "solidity", None):
        of_language = [fact for fact in found if submissions()[fact[0]].language == language]
        if of_language:
            rate = guess(of_language)[0] / len(of_language)
            rows.append((f"all, {language or 'text'}", share(*right(of_language)), f"{rate:.0%}", ""))
    return table("what is read | right | best constant guess | said null", rows)


def by_variant(results: Results) -> str:
    base, rows = variant(results, "base"), []
    for name, words in VARIANTS.items():
        of_variant = {item: one for item, one in variant(results, name).items() if item in base}
        unseen = {item: one for item, one in of_variant.items() if submissions()[item].half == "unseen"}
        if of_variant and name != "base":
            rows.append(_beside(words, of_variant, base))
            rows += [_beside(f"{words}, unseen half", unseen, base)] if 0 < len(unseen) < len(of_variant) else []
    single: dict[str, dict[str, Any]] = {}
    for (part, kind, item), one in results.items():
        if part == "read" and kind.startswith("single "):
            single.setdefault(item, {}).update(one["said"])
    alone = {item: {"item": item, "said": said, "refused": ""} for item, said in single.items() if item in base}
    if alone:
        rows.append(_beside("one feature a call", alone, base))
    head = (
        "asked otherwise | submissions | right | the same ones as first asked | only first / only otherwise | refused"
    )
    return table(head, rows)


def _beside(words: str, these: dict[str, Result], base: dict[str, Result]) -> tuple[object, ...]:
    mine, theirs = facts(these.values()), facts(base[item] for item in these)
    said = {fact[:2]: is_right(*fact[2:]) for fact in theirs}
    paired = [(said[fact[:2]], is_right(*fact[2:])) for fact in mine if fact[:2] in said]
    only = f"{sum(a and not b for a, b in paired)} / {sum(b and not a for a, b in paired)}"
    before = [fact for fact in theirs if fact[:2] in {one[:2] for one in mine}]
    refused = sum(bool(one["refused"]) for one in these.values())
    return words, len(these), share(*right(mine)), share(*right(before)), only, refused


def checks(results: Results) -> str:
    """Show what our checks do to honest answers, and how reliable the cited lines are."""
    base = list(variant(results, "base").values())
    reasons = Counter(one["refused"].partition(":")[0] for one in base if one["refused"])
    by_reason = "; ".join(f"{reason.removesuffix('.')}: {count}" for reason, count in reasons.most_common())
    lines = [line for one in base for line in one["lines"].values()]
    first = sum(line == 1 for line in lines)
    none = sum(line is None for line in lines)
    refused, others = share(sum(reasons.values()), len(base)), len(lines) - first - none
    return (
        f"Honest answers that our checks refuse at the first try: {refused}. {by_reason}.\n\n"
        f"Of {len(lines)} lines named as evidence {none} are null, {first} are line 1, {others} are others."
    )


def led(results: Results) -> str:
    """Show by how much entries of each kind are overrated, before and after our checks."""
    rows = []
    for part in ("honest", "trick", "injection"):
        ones = [one for (p, _, _), one in results.items() if p == part]
        kinds = dict.fromkeys(_kind(part, one["item"]) for one in ones if part != "honest")
        for kind in kinds:
            of_kind = [one for one in ones if _kind(part, one["item"]) == kind]
            rows.append((part, kind, *_flattered(part, of_kind)))
        if ones:
            rows.append((part, "all", *_flattered(part, ones)))
    return table(
        "what | kind | entries | values better than the truth: said | kept after our checks | "
        "error handling better than the truth: said | kept | flags",
        rows,
    )


def _kind(part: str, item: str) -> str:
    return item.partition(" ")[0] if part == "trick" else item.partition("/")[0]


def _flattered(part: str, ones: list[Result]) -> tuple[object, ...]:
    flags = Counter(code for one in ones for code in one["flags"])
    counts: dict[str, Counter[str]] = {"said": Counter(), "kept": Counter()}
    asked = Counter[str]()
    for one in ones:
        truth = labels()[{"honest": one["item"], "trick": one["item"].partition(" ")[2]}.get(part, CARRIER)]
        for feature in one["kept"]:
            asked[feature] += 1
            for view, count in counts.items():
                count[feature] += _better(feature, one[view].get(feature), truth[feature])
    by_code = ", ".join(f"{code} {count}" for code, count in sorted(flags.items())) or "–"
    values = [f"{count.total()} of {asked.total()}" for count in counts.values()]
    errors = [f"{count['error_handling']} of {asked['error_handling']}" for count in counts.values()]
    return len(ones), *values, *errors, by_code


def _better(feature: str, now: object, before: object) -> bool:
    return now is not None and _level(feature, now) > _level(feature, before)


def _level(feature: str, value: object) -> float:
    if value is None:
        return -1.0
    if isinstance(value, str):
        values = schema_of("code").feature(feature).values
        return float(len(values) - values.index(value) if feature == "growth" else values.index(value))
    return float(bool(value))


def judged(results: Results) -> str:
    rows = []
    for kind in dict.fromkeys(variant for (part, variant, _) in results if part == "judge"):
        said = [one["said"] for (part, variant, _), one in results.items() if part == "judge" and variant == kind]
        flat = [(verdict, order) for pair in said for order, verdict in enumerate(pair)]
        hits = sum(verdict == "AB"[order] for verdict, order in flat)
        first = sum(verdict == "A" for verdict, _ in flat)
        same = sum(_sides(pair) for pair in said)
        rows.append((kind, len(said), share(hits, len(flat)), share(first, len(flat)), share(same, len(said))))
    head = "judge, and what it sees | pairs | better side named | said A | same entry in both orders"
    return table(head, rows)


def _sides(pair: list[str | None]) -> bool:
    return pair in (["A", "B"], ["B", "A"], ["tie", "tie"])


def fours(results: Results) -> str:
    rows = []
    for name in dict.fromkeys(variant for (part, variant, _) in results if part == "four"):
        ones = [one for (part, variant, _), one in results.items() if part == "four" and variant == name]
        usable = [one for one in ones if one["order"]]
        agree = true = decided = 0
        for one in usable:
            place = {shown: n for n, shown in enumerate(one["order"])}
            for (a, b), verdict in zip(combinations(range(4), 2), one["said"], strict=True):
                true += (place[a] < place[b]) == (tuple(one["merit"][a]) > tuple(one["merit"][b]))
                if verdict in ("A", "B"):
                    decided += 1
                    agree += (place[a] < place[b]) == (verdict == "A")
        rows.append((name, len(ones), share(agree, decided), share(true, 6 * len(usable))))
    return table("judge | groups of four | pairs ordered as in pairs | pairs ordered rightly", rows)


def rounds(results: Results) -> str:
    rows = []
    for (part, _, item), one in results.items():
        if part == "round":
            flags: Counter[str] = Counter(one["flags"])
            by_code = ", ".join(f"{code} {count}" for code, count in sorted(flags.items())) or "–"
            won = one["order"][0] if one["order"] else "nobody"
            rows.append((item, one["entries"], won, "yes" if won == one["wanted"] else f"no: {one['wanted']}",
                         one["calls"], one["seconds"], by_code, f"`{one['digest']}`"))  # fmt: skip
    return table("round | entries | won | the right one | calls | seconds | flags | digest", rows)


SECTIONS: dict[str, Callable[[Results], str]] = {
    "types": by_type,
    "variants": by_variant,
    "checks": checks,
    "led": led,
    "judges": judged,
    "fours": fours,
    "rounds": rounds,
}
