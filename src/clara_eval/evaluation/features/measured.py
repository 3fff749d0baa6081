"""The catalogue of features that tools compute, for text and code; None if a feature cannot be measured.

Markdown counts as code if it is not valid code as a whole and has fenced blocks in the language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from clara_eval.code import Code, guess_language, is_held, read_code
from clara_eval.evaluation.features.prose import (
    lines_of,
    long_lines_share,
    open_points,
    reading_ease,
    repeated_lines_share,
    repeated_sentences_share,
    sentences_of,
    share,
    words_of,
)
from clara_eval.evaluation.features.views import fenced_code, known_language, without

Measured: TypeAlias = dict[str, float | int | bool | None]

TEXT_NAMES = ("bytes", "lines", "words", "blank_share", "long_lines_share", "todo_count", "duplicate_share")
PROSE_NAMES = ("sentences", "mean_sentence_words", "reading_ease")
CODE_NAMES = (
    "parses",
    "code_share",
    "code_lines",
    "functions",
    "classes",
    "imports",
    "tests",
    "max_complexity",
    "mean_complexity",
    "max_nesting",
    "longest_function",
    "mean_function_lines",
    "max_parameters",
    "comment_share",
    "documented_share",
    "distinct_names",
)
_SHORT = 16_384
MEASURED_NAMES = TEXT_NAMES + PROSE_NAMES + CODE_NAMES


@dataclass(frozen=True, slots=True)
class _Code:
    source: bytes
    read: Code
    share: float
    """Of the bytes of the submission, those that are this code."""


def measure(content: str | bytes, language: str | None) -> Measured:
    """Measure every feature; `language` as the poster or the intake names it, None to detect it."""
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    values: Measured = dict.fromkeys(MEASURED_NAMES)
    values["bytes"] = len(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return values
    name = known_language(language) if language else guess_language(text)
    values |= _text(text)
    if name is None:
        return values | _prose(text)
    code = _code(raw, text, name)
    if code is None:
        return values | {"parses": False, "duplicate_share": repeated_lines_share(lines_of(text))}
    return values | _structure(code)


def is_quick(text: str, language: str | None) -> bool:
    """Return whether measuring is fast: a short text that was parsed recently."""
    name = known_language(language)
    return len(text) <= _SHORT and name is not None and is_held(text.encode("utf-8", "replace"), name)


def _code(raw: bytes, text: str, language: str) -> _Code | None:
    whole = read_code(raw, language)
    if whole is not None and whole.errors == 0:
        return _Code(raw, whole, 1.0)
    blocks = fenced_code(text, language)
    inside = read_code(blocks.encode(), language) if blocks is not None else None
    if blocks is not None and inside is not None and (whole is None or inside.errors < whole.errors):
        return _Code(blocks.encode(), inside, len(blocks.encode()) / max(len(raw), 1))
    return _Code(raw, whole, 1.0) if whole is not None else None


def _text(text: str) -> Measured:
    lines = lines_of(text)
    return {
        "lines": len(lines),
        "words": len(words_of(text)),
        "blank_share": share(sum([not line.strip() for line in lines]), len(lines)),
        "long_lines_share": long_lines_share(lines),
        "todo_count": open_points(text),
    }


def _prose(text: str) -> Measured:
    sentences = sentences_of(text)
    return {
        "sentences": len(sentences),
        "mean_sentence_words": share(len(words_of(text)), len(sentences)),
        "reading_ease": reading_ease(text),
        "duplicate_share": repeated_sentences_share(text),
    }


def _structure(code: _Code) -> Measured:
    source, found = code.source, code.read.structure
    functions, complexities = found.functions, found.complexities
    bare = lines_of(without(source, found.comments).decode("utf-8", "replace"))
    return {
        "parses": code.read.errors == 0,
        "code_share": min(1.0, code.share),
        "code_lines": sum(bool(line.strip()) for line in bare),
        "duplicate_share": repeated_lines_share(bare),
        "functions": len(functions),
        "classes": found.classes,
        "imports": found.imports,
        "tests": found.tests,
        "max_complexity": max(complexities),
        "mean_complexity": sum(complexities) / len(complexities),
        "max_nesting": found.max_nesting,
        "longest_function": max((unit.lines for unit in functions), default=None),
        "mean_function_lines": share(sum(unit.lines for unit in functions), len(functions)),
        "max_parameters": max((unit.parameters for unit in functions), default=None),
        "comment_share": share(sum(end - start for start, end in found.comments), len(source)),
        "documented_share": share(sum(unit.documented for unit in functions), len(functions)),
        "distinct_names": code.read.distinct_names,
    }
