"""Read submissions that try to manipulate a reader: misleading ones and injections."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from bench.quality.answers import KeptAnswers
from bench.quality.reading import BLOCK, CHALLENGE
from bench.quality.truth import HERE, Submission, schema_of, submissions

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.errors import BadAnswer
from clara_eval.evaluation.features.extract import ReadingContext, extract_features, questions_for
from clara_eval.judge.comparison import Value
from clara_eval.judge.extraction import read_claims
from clara_eval.judge.structured_llm import AskOutcome, StructuredLlm
from clara_eval.redteam.simulators import own_payloads, solution_of

CARRIER = "factorial/off_by_one"
PAYLOADS = 30
LONGEST = 420
BEST = {
    "error_handling": "catches", "growth": "constant", "has_checks": True, "works": True,
}  # fmt: skip
"""Values that a hostile submitter wants; only these features are asked, to keep calls short."""
_CLAIMS = re.compile(r'\{\s*"correctness".*?\}')
_KINDS = (
    "tag_breakout", "role_spoof", "feature_lie", "persuasion", "code_carrier", "encoded", "unicode_zw", "unicode_math",
    "unicode_bidi", "second_order", "prompt_leak", "refusal_dos", "json_breakout", "collusion", "unusual",
)  # fmt: skip


class AskedOnce(StructuredLlm):
    """Ask each question once, so that the number of calls is known."""

    async def ask(self, prompt: Any, read: Any, tries: int = 1) -> AskOutcome[Any]:
        return await StructuredLlm.ask(self, prompt, read, min(tries, 1))


def tricks() -> list[Submission]:
    found = []
    whole = (HERE / "tricks.txt").read_text(encoding="utf-8")
    for part in re.split(r"^=== ", whole, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        name, _, trick = head.partition(" ")
        found.append(replace(submissions()[name], name=f"{trick} {name}", text=text))
    return sorted(found, key=lambda one: one.name.partition(" ")[2])


def injections() -> list[Submission]:
    """Return payloads of each kind in turn, filled in for this schema, before a wrong program."""
    short = [payload for payload in own_payloads() if 40 < len(payload.text) < LONGEST]
    by_kind = {kind: [payload.text for payload in short if payload.kind == kind] for kind in _KINDS}
    carrier, found = submissions()[CARRIER], []
    for number in range(max(map(len, by_kind.values()))):
        for kind in _KINDS:
            if number < len(by_kind[kind]):
                payload = _CLAIMS.sub(lambda _: json.dumps(BEST), by_kind[kind][number])
                comment = "".join(f"# {line}\n" for line in payload.splitlines())
                found.append(replace(carrier, name=f"{kind}/{number}", text=comment + carrier.text))
    return found[:PAYLOADS]


def led_schema() -> FeatureSchema:
    whole = schema_of("code")
    return replace(whole, features=tuple(feature for feature in whole.features if feature.name in BEST))


def honest() -> list[Submission]:
    """Return the originals of the tricks and injections, and two right programs."""
    names = (CARRIER, "frequencies/case_matters", "factorial/loop", "frequencies/guarded")
    return [submissions()[name] for name in names]


async def read_whole(reader: KeptAnswers, part: str, one: Submission) -> dict[str, Any]:
    """Read one submission as in a round: both views, all checks, all flags."""
    schema = led_schema()
    reading = ReadingContext(CHALLENGE, BLOCK, one.language, statement=one.statement)
    solution = solution_of(one.text, language=one.language)
    before = reader.calls
    facts = await extract_features(AskedOnce(reader), schema, solution, reading)
    full = questions_for(schema, solution, reading)["full"][0]
    said: dict[str, Value] = {}
    paid = await reader.ask(full.prompt)
    try:
        said = read_claims(paid.answer.text, schema, full.canary).values
    except BadAnswer:
        said = {name: value for name, value in _object(paid.answer.text).items() if name in schema.names}
    return {
        "part": part,
        "variant": "whole",
        "item": one.name,
        "said": said,
        "kept": facts.vector.as_dict(),
        "flags": sorted(flag.code for flag in facts.flags),
        "secondView": facts.second_view,
        "calls": reader.calls - before - 1,
    }


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
