"""Parse model answers (completions, thinking, one bounded JSON object) and fill prompt templates."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from html import escape
from importlib import resources

from clara_eval.core.errors import BadAnswer, BadInput, ConfigError
from clara_eval.core.hashing import sha256_hex
from clara_eval.core.strict_json import JsonLimits, object_or_none, read_strict_json
from clara_eval.judge.port import Answer, Prompt, Stop

THINKING_ROOM = 4_096  # tokens for thinking in a first request: at low effort most answers need fewer
_SPACE = " \t\r\n"
_THOUGHT_ENDS = re.compile(
    r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]|<\|channel\|>final<\|message\|>", re.IGNORECASE | re.ASCII
)
_THOUGHT_BEGINS = re.compile(
    r"[ \t\r\n]*(?:<(?:think|thinking|thought|reasoning)>|\[THINK\]|<\|channel\|>)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """Token limits of a round's answers, thinking included; part of its plan."""

    thinking: int  # tokens that a first request adds for thinking
    most: int  # limit of every request, unless the answer without thinking needs more
    growth: int = 4  # factor of the limit after a cut answer

    def first(self, answer_tokens: int) -> int:
        """Return the limit of the first request, for an answer that needs this many tokens."""
        return max(answer_tokens, min(answer_tokens + self.thinking, self.most))

    def larger(self, limit: int) -> int | None:
        """Return the next limit after a cut answer; None if `limit` is the largest."""
        grown = min(limit * self.growth, self.most)
        return grown if grown > limit else None

    def all(self, answer_tokens: int) -> tuple[int, ...]:
        """Return all limits that one question may be asked with, smallest first."""
        limits = [self.first(answer_tokens)]
        while (grown := self.larger(limits[-1])) is not None:
            limits.append(grown)
        return tuple(limits)


def without_thinking(text: str) -> str:
    """Remove the thinking before a model's answer; return an empty text if there is only thinking."""
    if text.lstrip(_SPACE).startswith(("{", "```")):
        return text
    ends = [found.end() for found in _THOUGHT_ENDS.finditer(text)]
    if ends:
        return text[ends[-1] :]
    return "" if _THOUGHT_BEGINS.match(text) else text


def is_cut(answer: Answer) -> bool:
    """Return whether the token limit cut this answer, or it is empty apart from thinking."""
    return answer.stop == "max_tokens" or (answer.stop == "end" and not without_thinking(answer.text).strip(_SPACE))


LIMITS = JsonLimits(bytes=16_384, depth=3)
_read_schema = lru_cache(maxsize=64)(json.loads)  # a stage has one schema, and callers do not modify it


def object_schema(**properties: object) -> dict[str, object]:
    """Make the JSON Schema of an object with exactly these fields, for the providers' strict modes."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read_object(
    text: str, fields: Collection[str], limits: JsonLimits = LIMITS, *, optional: Collection[str] = ()
) -> dict[str, object]:
    """Return the only object in the text. Raises BadAnswer unless it has exactly these fields."""
    try:
        value = read_strict_json(_outermost_braces(text), limits, what="The answer")
    except BadInput as bad:
        # Reasons are saved and displayed, so text of the model in them must be harmless.
        raise BadAnswer(shown(bad.message, 200)) from None
    if not isinstance(value, dict):
        raise BadAnswer("The answer is not a JSON object.")
    missing, extra = sorted(set(fields) - set(value)), set(value) - {*fields, *optional}
    if missing:
        raise BadAnswer(f"The answer lacks {', '.join(missing)}.")
    if extra:
        raise BadAnswer(f"The answer has {len(extra)} fields that were not asked for.")
    return value


def _outermost_braces(text: str) -> str:
    """Return the text from the first brace to the last, without a fence or words around the object."""
    begins = text.find("{")
    return text if begins < 0 else text[begins : text.rfind("}") + 1]


def has_required_fields(text: str, schema_json: str) -> bool:
    """Return whether the text holds an object with the fields that the schema requires."""
    required = set(_read_schema(schema_json).get("required", ()))
    value = object_or_none(_outermost_braces(text)) if required else {}
    return value is not None and required <= value.keys()


def shown(text: str, limit: int) -> str:
    """Return a model's text for display: one line without control characters, of at most `limit`."""
    line = " ".join(text.split())
    line = line if line.isprintable() else "".join(c for c in line if unicodedata.category(c)[0] != "C")
    return line if len(line) <= limit else line[: limit - 1] + "…"


_STOPS: dict[str, Stop] = {
    **dict.fromkeys(("length", "model_length", "max_tokens", "max_output_tokens", "incomplete"), "max_tokens"),
    **dict.fromkeys(("content_filter", "refusal", "safety"), "refusal"),
}
"""Finish reasons of compatible endpoints for answers that were cut or refused."""
TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")


def with_schema(system: str, schema_json: str) -> str:
    """Return the system prompt for an endpoint that does not support `response_format`."""
    return f"{system}\n\nAnswer with one JSON object that fits this JSON Schema:\n{schema_json}"


def read_completion(content: bytes, prompt: Prompt, model: str, sampling: str | None = None) -> Answer:
    """Parse a chat completion; `model` is used if it names none. Raises ValueError for anything else."""
    try:
        body = json.loads(content)
        choice = body["choices"][0]
        message = choice["message"]
        refusal, reason = message.get("refusal"), str(choice.get("finish_reason")).lower()
        if reason == "error":
            raise ValueError("The model failed in the middle of its answer.")
        stop = "refusal" if refusal else _STOPS.get(reason, "end")
        text = str(refusal or _text_of(message.get("content")))
        thought = "".join(_text_of(message.get(name)) for name in ("reasoning_content", "reasoning"))
        # If the endpoint does not count: an answer that was cut has used its whole limit.
        estimate = prompt.max_tokens if stop == "max_tokens" else len(text + thought) // 3 + 1
        tokens = _read_usage(body.get("usage"), prompt, estimate)
        return Answer(text, str(body.get("model") or model), stop, *tokens, sampling=sampling)
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as bad:
        raise ValueError("It is not a chat completion.") from bad


def is_request_of(prompt: Prompt, model: str, content: bytes) -> bool:
    body = object_or_none(content)
    if body is None or body.get("model") != model:
        return False
    limits = [body[name] for name in TOKEN_LIMITS if name in body]
    systems = (prompt.system, with_schema(prompt.system, prompt.schema_json))
    asked = [[{"role": "system", "content": s}, {"role": "user", "content": prompt.user}] for s in systems]
    return limits == [prompt.max_tokens] and body.get("messages") in asked


def _text_of(content: object) -> str:
    """Join the text parts of a message; other parts (thinking) are not the answer."""
    if isinstance(content, list):
        return "".join(_text_of(part.get("text")) for part in content if part.get("type") in ("text", "output_text"))
    return content if isinstance(content, str) else ""


def _read_usage(usage: object, prompt: Prompt, output_estimate: int) -> tuple[int, int, int]:
    """Return input, output and cached tokens; a missing count is estimated, never 0. Thinking is output."""
    counted = usage or {}
    if not isinstance(counted, dict):
        raise TypeError("The usage is not an object.")
    sent, received, total = (counted.get(f"{kind}_tokens") for kind in ("prompt", "completion", "total"))
    details = counted.get("prompt_tokens_details") or {}
    input_tokens = (len(prompt.system) + len(prompt.user)) // 3 + 1 if sent is None else int(sent)
    output_tokens = output_estimate if received is None else int(received)
    thought = int((counted.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)
    if total is not None and sent is not None:
        output_tokens = max(output_tokens, int(total) - input_tokens)
    if thought > output_tokens:
        output_tokens += thought  # neither count includes thinking
    return input_tokens, output_tokens, int(details.get("cached_tokens") or 0)


_KEPT = frozenset(["\n", "\t", *map(chr, range(0x20, 0x7F))])
_SELECTORS = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810), 0x034F])
_KINDS = {"Cc": "control", "Cf": "format", "Co": "private", "Cn": "unassigned", "Cs": "surrogate"}


@dataclass(frozen=True, slots=True)
class PromptView:
    text: str
    removed: tuple[tuple[str, int], ...]  # counts of removed characters, by kind; replaced line ends are not counted


def prompt_view(text: str) -> PromptView:
    """Return untrusted text in NFKC without invisible characters; it depends on nothing but the text."""
    removed: Counter[str] = Counter()
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = lines.replace("\u2028", "\n").replace("\u2029", "\n")
    # Before and after NFKC: a removed character may have kept letters from combining, and NFKC may produce new ones.
    clean = _remove_invisible(unicodedata.normalize("NFKC", _remove_invisible(lines, removed)), removed)
    while (again := _remove_invisible(unicodedata.normalize("NFKC", clean), removed)) != clean:
        clean = again
    return PromptView(clean, tuple(sorted(removed.items())))


def _remove_invisible(text: str, removed: Counter[str]) -> str:
    kinds = {char: kind for char in set(text) - _KEPT if (kind := _invisible_kind(char)) is not None}
    if not kinds:
        return text
    removed.update(kinds[char] for char in text if char in kinds)
    return text.translate({ord(char): None for char in kinds})


def _invisible_kind(char: str) -> str | None:
    return "selector" if ord(char) in _SELECTORS else _KINDS.get(unicodedata.category(char))


def escaped(text: str) -> str:
    return escape(text, quote=False)


NAMES = tuple(f"{stage}.{part}" for stage in ("extract", "compare", "order", "typing") for part in ("system", "user"))
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    name: str
    text: str
    sha256: str
    pieces: tuple[str, ...]  # text, name, text, name, …, text

    def pattern(self, **values: str) -> str:
        """Return a regular expression for this text, filled with the given expressions."""
        return replace(self, pieces=tuple(re.escape(piece) for piece in self.pieces)).fill(**values)

    def fill(self, **values: str) -> str:
        names = set(self.pieces[1::2])
        if names != set(values):
            wrong, wanted = (
                ", ".join(f"{{{{{name}}}}}" for name in sorted(one)) for one in (names ^ {*values}, values)
            )
            message = f"The prompt file prompts/{self.name}.md does not fit its values: {wrong}."
            raise ConfigError(message, remedy=f"It holds each of these exactly: {wanted}.")
        return "".join(values[piece] if number % 2 else piece for number, piece in enumerate(self.pieces))


@cache
def template(name: str) -> PromptTemplate:
    text = resources.files("clara_eval").joinpath("judge", "prompts", f"{name}.md").read_text("utf-8")
    return PromptTemplate(name, text, sha256_hex(text.encode()), tuple(_PLACEHOLDER.split(text)))


def template_hash(*names: str) -> str:
    return sha256_hex("".join(template(name).sha256 for name in names).encode())


def prompt_files() -> dict[str, dict[str, str]]:
    """Return every prompt file with its text and hash, for the trace."""
    return {name: {"sha256": template(name).sha256, "text": template(name).text} for name in NAMES}
