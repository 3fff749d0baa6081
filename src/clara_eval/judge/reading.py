"""Read a model's answer: tokens for thinking, answers that were cut, and exactly one JSON object within limits."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from clara_eval.core.errors import BadAnswer, BadInput
from clara_eval.core.strict_json import JsonLimits, read_strict_json
from clara_eval.judge.port import Answer

THINKING_ROOM = 4_096
"""Tokens that the first request of a thinking model leaves for thinking: at low effort most answers need fewer."""
_SPACE = " \t\r\n"
_THOUGHT_ENDS = re.compile(
    r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]|<\|channel\|>final<\|message\|>", re.IGNORECASE | re.ASCII
)
_THOUGHT_BEGINS = re.compile(
    r"[ \t\r\n]*(?:<(?:think|thinking|thought|reasoning)>|\[THINK\]|<\|channel\|>)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The limits of all answers of one round, thinking included; part of its plan."""

    thinking: int  # tokens that a first request leaves for thinking, beside those that the answer needs
    most: int  # no request asks for more than this many tokens, unless the bare answer needs more
    growth: int = 4  # a cut answer is asked for again with so many times the limit

    def first(self, answer_tokens: int) -> int:
        """Return the limit of the first request, for an answer that needs this many tokens."""
        return max(answer_tokens, min(answer_tokens + self.thinking, self.most))

    def larger(self, limit: int) -> int | None:
        """Return the limit after a cut at this one; None at the bound."""
        grown = min(limit * self.growth, self.most)
        return grown if grown > limit else None

    def all(self, answer_tokens: int) -> tuple[int, ...]:
        """Return every limit that one question can be asked with, smallest first."""
        limits = [self.first(answer_tokens)]
        while (grown := self.larger(limits[-1])) is not None:
            limits.append(grown)
        return tuple(limits)


def without_thinking(text: str) -> str:
    """Remove a model's thinking before its answer; empty if only thinking is there."""
    if text.lstrip(_SPACE).startswith(("{", "```")):
        return text
    ends = [found.end() for found in _THOUGHT_ENDS.finditer(text)]
    if ends:
        return text[ends[-1] :]
    return "" if _THOUGHT_BEGINS.match(text) else text


def is_cut(answer: Answer) -> bool:
    """Return whether the limit ended this answer, or thinking left nothing of it."""
    return answer.stop == "max_tokens" or (answer.stop == "end" and not without_thinking(answer.text).strip(_SPACE))


LIMITS = JsonLimits(bytes=16_384, depth=3)


def object_schema(**properties: object) -> dict[str, object]:
    """Make the JSON Schema of an object with exactly these fields, as strict modes of the providers want it."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read_object(
    text: str, fields: Collection[str], limits: JsonLimits = LIMITS, *, optional: Collection[str] = ()
) -> dict[str, object]:
    """Return the one object in the text, with these fields; optional ones may be missing."""
    try:
        value = read_strict_json(_object_in(text), limits, what="The answer")
    except BadInput as bad:
        # Reasons are kept and shown: what the model wrote is quoted in them only as harmless characters.
        raise BadAnswer(shown(bad.message, 200)) from None
    if not isinstance(value, dict):
        raise BadAnswer("The answer is not a JSON object.")
    missing, extra = sorted(set(fields) - set(value)), set(value) - {*fields, *optional}
    if missing:
        raise BadAnswer(f"The answer lacks {', '.join(missing)}.")
    if extra:
        raise BadAnswer(f"The answer has {len(extra)} fields that were not asked for.")
    return value


def _object_in(text: str) -> str:
    """Return what is from the first brace to the last: a fence or words around the object do not count."""
    begins = text.find("{")
    return text if begins < 0 else text[begins : text.rfind("}") + 1]


def makes_sense(text: str, schema_json: str) -> bool:
    """Return whether this is an object with the fields that the schema requires."""
    required = _required(schema_json)
    if not required:
        return True
    try:
        value = json.loads(_object_in(text))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and required <= set(value)


@lru_cache(maxsize=64)
def _required(schema_json: str) -> frozenset[str]:
    return frozenset(json.loads(schema_json).get("required", ()))


def shown(text: str, limit: int) -> str:
    """Return a model's words for people: one line without control characters, at most `limit` long."""
    line = " ".join(text.split())
    if not (line.isascii() and line.isprintable()):
        line = "".join(char for char in line if unicodedata.category(char)[0] != "C")
    return line if len(line) <= limit else line[: limit - 1] + "…"
