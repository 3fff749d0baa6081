"""Measure features of text and code with tools; a feature that cannot be measured is None."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from clara_eval.code import Code, guess_language, language_name, read_code
from clara_eval.code.language import READ_AS_CODE
from clara_eval.code.neutral import neutral_code
from clara_eval.config.eval_config import MEASURED
from clara_eval.core.errors import BadSubmission
from clara_eval.core.strict_json import json_shape

LONG_LINE = 120
_WORD = re.compile(r"\w+(?:['’]\w+)?")
# The lookbehind matches a run of marks only at its start, so that a hundred thousand dots are scanned once.
_SENTENCE_END = re.compile(r"(?<![.!?…。！？])[.!?…。！？]++(?=\s|$)|\n\s*\n")
_TODO = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
_VOWELS = re.compile(r"[aeiouy]+", re.IGNORECASE)
_TWO_CHARACTERS = re.compile(r"[^\W_][\W_]*[^\W_]")  # at least two letters or digits
_RUN = 3  # lines that must repeat together: single lines such as `return None` repeat in all good code


def lines_of(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


def sentences_of(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE_END.split(text) if _WORD.search(part)]


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def reading_ease(text: str) -> float | None:
    """Return the Flesch reading ease, 0 (hard) to 100 (easy); None without sentences. Meant for English."""
    sentences, words = len(sentences_of(text)), words_of(text)
    if not sentences or not words:
        return None
    syllables = sum(max(1, len(_VOWELS.findall(word))) for word in words)
    ease = 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words)
    return min(100.0, max(0.0, ease))


def repeated_lines_share(lines: Sequence[str]) -> float | None:
    """Return the share of lines in runs of three lines that occur more than once."""
    content = [" ".join(line.split()) for line in lines]
    content = [line for line in content if _TWO_CHARACTERS.search(line)]
    if not content:
        return None
    windows = [tuple(content[start : start + _RUN]) for start in range(len(content) - _RUN + 1)]
    counts = Counter(windows)
    if len(counts) == len(windows):
        return 0.0
    repeated = {start + step for start, window in enumerate(windows) if counts[window] > 1 for step in range(_RUN)}
    return len(repeated) / len(content)


# Possessive quantifiers: a long line that is no fence is scanned once, without backtracking.
_FENCE = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*+$")


def known_language(language: str | None) -> str | None:
    """Return the language for a name such as `Solidity ^0.8` or `ts`; None if it cannot be parsed."""
    for word in re.findall(r"[A-Za-z0-9_-]+", language or "")[:4]:
        name = language_name(word)
        if name in READ_AS_CODE:
            return name
    return None


def neutral_view(text: str, language: str | None, wanted: frozenset[str] = frozenset()) -> str | None:
    """Return the code (of Markdown, its fenced code) in neutral words; None without a syntax tree."""
    name = known_language(language)
    if name is None:
        return None
    source = text.encode("utf-8", "replace")
    whole = read_code(source, name)
    blocks = fenced_code(text, name) if whole is None or whole.errors else None
    if blocks is not None and (inside := read_code(blocks.encode(), name)) and (whole is None or inside.errors == 0):
        source = blocks.encode()
    return neutral_code(source, name, wanted)


def fenced_code(text: str, language: str) -> str | None:
    """Join the fenced Markdown blocks in this or no language; None if there are none."""
    blocks: list[str] = []
    fence, wanted = "", False
    for line in text.split("\n"):
        mark = _FENCE.match(line.rstrip("\r"))
        if not fence and mark:
            fence, wanted = mark.group(1), not mark.group(2) or known_language(mark.group(2)) == language
        elif fence and mark and mark.group(1).startswith(fence) and not mark.group(2):
            fence = ""
        elif fence and wanted:
            blocks.append(line)
    return "\n".join(blocks) + "\n" if blocks and not fence else None


Measured: TypeAlias = dict[str, float | int | bool | None]


def measure(content: str | bytes, language: str | None) -> Measured:
    """Measure every feature; `language` is any common name, or None to detect it."""
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    values: Measured = dict.fromkeys(MEASURED)
    values["bytes"] = len(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return values
    name = known_language(language) if language else guess_language(text)
    lines = lines_of(text)
    values |= {
        "lines": len(lines),
        "words": len(words_of(text)),
        "blank_share": share(sum([not line.strip() for line in lines]), len(lines)),
        "long_lines_share": share(sum(len(line) > LONG_LINE for line in lines), len(lines)),
        "todo_count": len(_TODO.findall(text)),
    }
    if name is None:
        sentences = sentences_of(text)
        distinct = {" ".join(sentence.casefold().split()) for sentence in sentences}
        values |= {
            "sentences": len(sentences),
            "mean_sentence_words": share(len(words_of(text)), len(sentences)),
            "reading_ease": reading_ease(text),
            "duplicate_share": share(len(sentences) - len(distinct), len(sentences)),
        }
        try:
            depth, keys = json_shape(text)
        except BadSubmission:
            return values
        return values | {"json_keys": keys, "json_depth": depth}
    source, code = raw, read_code(raw, name)
    blocks = fenced_code(text, name) if code is None or code.errors else None
    inside = read_code(blocks.encode(), name) if blocks is not None else None
    if blocks is not None and inside is not None and (code is None or inside.errors < code.errors):
        source, code = blocks.encode(), inside
    if code is None:
        return values | {"parses": False, "duplicate_share": repeated_lines_share(lines)}
    code_share = 1.0 if source is raw else min(1.0, len(source) / max(len(raw), 1))
    return values | _structure(source, code) | {"code_share": code_share}


def _structure(source: bytes, code: Code) -> Measured:
    found = code.structure
    functions, complexities = found.functions, found.complexities
    blanked = bytearray(source)
    for start, end in found.comments:
        blanked[start:end] = re.sub(rb"[^\n]", b" ", bytes(blanked[start:end]))
    bare = lines_of(blanked.decode("utf-8", "replace"))
    return {
        "parses": code.errors == 0,
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
        "distinct_names": code.distinct_names,
    }
