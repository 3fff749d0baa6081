"""Check a poster's sentences for what must not steer an evaluation: addresses, links, signals, commands."""

from __future__ import annotations

import re
import unicodedata

from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, MEASURED, typed
from clara_eval.config.eval_config.model import BareName, EvalConfig, Feature
from clara_eval.config.eval_config.problems import ProblemReport, at, suggestion

SHORT_CRITERIA = 40
KNOWN = (*MEASURED, *EXECUTED, *COMMON)
HARD_TO_READ = frozenset({"number"})
"""Types of which a real reader had most values wrong: docs/quality.md."""

_FORBIDDEN = (
    (r"https?://|\bwww\.|\bipfs://|\bdata:[a-z]+/", "a URL", "the judge opens no links: say what is wanted in words"),
    (r"\b0x[0-9a-fA-F]{64}\b|\b[0-9a-fA-F]{64}\b", "a hash", "describe the property that makes a solution good"),
    (r"\b0x[0-9a-fA-F]{40}\b", "an address", "who submitted must not matter: describe the work"),
    (r"(?i)\b[a-z0-9-]+\.(?:eth|base\.eth)\b", "an ENS name", "who submitted must not matter: describe the work"),
)
_QUOTED = re.compile(r"[\"“«]([^\"”»\n]{1,200})[\"”»]|`([^`\n]{1,200})`")
_MAGIC = re.compile(
    r"(?i)\b(?:contain|includ|mention|say|phrase|word|magic|start|begin|end|sign|comment|string|token|marker)\w*\W+"
    r"(?:\w+\W+){0,4}$"
)
_WHO_OR_WHEN = re.compile(
    r"(?i)\b(?:submitter|author|wallet|sender|agent ?id|submitted (?:before|after|by|first|last)|"
    r"first submission|last submission|block (?:number )?\d+|timestamp)\b"
)
_ORDERS = re.compile(
    r"(?:^|_)(ignore|disregard|override|choose|select|pick|prefer|always|never|instructions?|winner|loser)(?=_|$)"
)
_LESS_IS_BETTER = re.compile(
    r"(?:^|_)(?:gas|costs?|errors|bugs|latency|slippage|complexity|duplicates?|vulnerabilities|risk|warnings)(?:_|$)"
)


def lint_criteria(report: ProblemReport, criteria: str) -> None:
    lint_text(report, "$.criteria", criteria)
    if 0 < len(criteria.strip()) < SHORT_CRITERIA:
        report.warn(
            "$.criteria",
            criteria,
            f"The criteria have {len(criteria.strip())} characters: too little to decide by.",
            "Say what makes one solution better than another, in order of importance.",
        )


def lint_feature(report: ProblemReport, path: str, feature: Feature | BareName) -> None:
    orders = _ORDERS.findall(feature.name)
    if len(orders) >= 2:
        remedy = "Name what is observed, such as novelty."
        report.forbid(path, feature.name, "The name is a command, not a property.", remedy)
    elif orders:
        report.warn(path, feature.name, f"The name reads like a command ({orders[0]!r}).", "Name what is observed.")
    if isinstance(feature, BareName):
        if typed(feature.name) is None and "Did you mean" in (near := suggestion(feature.name, KNOWN, 0.85)):
            report.warn(path, feature.name, "No tool and no list knows this name: a model chooses what it means.", near)
        return
    lint_text(report, at(path, "description"), feature.description)
    for number, anchor in enumerate(feature.anchors):
        lint_text(report, at(at(path, "anchors"), number), anchor)
    _lint_direction(report, path, feature)
    if feature.source == "llm" and feature.type in {"number", "integer"} and None in {feature.min, feature.max}:
        report.warn(
            path,
            feature.name,
            "A number that a model reads has no full range, so nothing can be clamped.",
            "Give min and max.",
        )
    elif is_hard_to_read(feature):
        problem = "A reader is mostly wrong about means and shares (docs/quality.md)."
        report.warn(path, feature.name, problem, "Measure it, or ask for a count or a level.")


def is_hard_to_read(feature: Feature | BareName) -> bool:
    return isinstance(feature, Feature) and feature.source == "llm" and feature.type in HARD_TO_READ


def lint_text(report: ProblemReport, path: str, text: str) -> None:
    hidden = sorted({c for c in text if c not in "\n\r\t" and unicodedata.category(c) in {"Cc", "Cf", "Co", "Cn"}})
    if hidden:
        names = ", ".join(f"U+{ord(c):04X}" for c in hidden[:5])
        report.forbid(path, ascii(text[:80]), f"The text holds invisible characters ({names}).", "Remove them.")
    for pattern, what, remedy in _FORBIDDEN:
        found = re.search(pattern, text)
        if found:
            report.forbid(path, found.group(), f"The text holds {what}.", remedy[0].upper() + remedy[1:] + ".")
    for quoted in _QUOTED.finditer(text):
        phrase = quoted.group(1) or quoted.group(2)
        if len(phrase.split()) >= 3 or _MAGIC.search(text[max(0, quoted.start() - 80) : quoted.start()]):
            report.warn(
                path,
                phrase,
                "A quoted phrase can be a signal between poster and submitter.",
                "Describe the property instead of quoting words; the judge sees typed features and no text.",
            )
    found = _WHO_OR_WHEN.search(text)
    if found:
        report.warn(
            path,
            found.group(),
            f"The text speaks of who submitted or when ({found.group()!r}).",
            "The judge sees neither; a tie already goes to the earlier submission.",
        )


def _lint_direction(report: ProblemReport, path: str, feature: Feature) -> None:
    if feature.better is None or feature.type in {"enum", "text"}:
        return
    usual = typed(feature.name)
    if usual is not None and usual.better is not None:
        reversed_ = usual.better != feature.better
    else:
        costly = _LESS_IS_BETTER.search(feature.name) is not None
        reversed_ = costly and feature.better == "higher" and not feature.anchors and feature.type != "boolean"
    if reversed_:
        report.warn(
            at(path, "better"),
            feature.better,
            f'For {feature.name!r}, better = "{feature.better}" looks reversed.',
            "Check the direction; if it is meant, say in the description what a high value means.",
        )


def lint_judge(report: ProblemReport, config: EvalConfig) -> None:
    read_by_model = [
        feature.name
        for feature in config.features
        if (feature.source if isinstance(feature, Feature) else getattr(typed(feature.name), "source", "llm")) == "llm"
    ]
    if config.judge == "rules" and read_by_model:
        report.warn(
            "$.judge",
            "rules",
            f"Comparing by rules is free, but a model still has to read: {', '.join(read_by_model)}.",
            'Use only features with source "measured" for an evaluation without any model.',
        )
