"""Counts of any text: sizes, words, sentences, repetition; linear in its length."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

LONG_LINE = 120
_WORD = re.compile(r"\w+(?:['’]\w+)?")
# The look back lets a run of marks be tried at its first one only: a hundred thousand dots are read once.
_SENTENCE_END = re.compile(r"(?<![.!?…。！？])[.!?…。！？]++(?=\s|$)|\n\s*\n")
_OPEN_POINTS = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
_VOWELS = re.compile(r"[aeiouy]+", re.IGNORECASE)
_TWO_SIGNS = re.compile(r"[^\W_][\W_]*[^\W_]")
"""Two letters or digits, wherever they stand."""
_WINDOW = 3
"""Lines that must repeat together in code: single lines such as `return None` repeat in all good code."""


def lines_of(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


def sentences_of(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE_END.split(text) if _WORD.search(part)]


def open_points(text: str) -> int:
    return len(_OPEN_POINTS.findall(text))


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def long_lines_share(lines: Sequence[str]) -> float | None:
    return share(sum(len(line) > LONG_LINE for line in lines), len(lines))


def reading_ease(text: str) -> float | None:
    """Return the Flesch reading ease, 0 (hard) to 100 (easy); None without sentences. Meant for English."""
    sentences, words = len(sentences_of(text)), words_of(text)
    if not sentences or not words:
        return None
    syllables = sum(max(1, len(_VOWELS.findall(word))) for word in words)
    ease = 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words)
    return min(100.0, max(0.0, ease))


def repeated_lines_share(lines: Sequence[str]) -> float | None:
    """Return the share of lines in a run of lines that is found elsewhere in the text."""
    content = [" ".join(line.split()) for line in lines]
    content = [line for line in content if _TWO_SIGNS.search(line)]
    if not content:
        return None
    windows = [tuple(content[start : start + _WINDOW]) for start in range(len(content) - _WINDOW + 1)]
    counts = Counter(windows)
    if len(counts) == len(windows):
        return 0.0
    repeated = {start + step for start, window in enumerate(windows) if counts[window] > 1 for step in range(_WINDOW)}
    return len(repeated) / len(content)


def repeated_sentences_share(text: str) -> float | None:
    """Return the share of repeated sentences."""
    sentences = [" ".join(sentence.casefold().split()) for sentence in sentences_of(text)]
    return share(len(sentences) - len(set(sentences)), len(sentences))
