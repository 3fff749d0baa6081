"""Cut a text into tokens without formatting, comments and quotes, and hash windows of them, in linear time."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from clara_eval.code.language import VOCABULARY, guess_language, words

_STRINGS = r"'(?:[^'\\\n]|\\.)*'?|\"(?:[^\"\\\n]|\\.)*\"?"
_PYTHON = re.compile(
    r"(?:\#[^\n]*|(?:(?<=\n)|\A)[ \t]*[rRbBuUfF]{0,2}(?:'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)))"
    r"|('''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|" + _STRINGS + r"|\w+|[^\w\s])",
    re.DOTALL,
)
_BRACES = re.compile(
    r"(?://[^\n]*|/\*.*?(?:\*/|\Z))|(" + _STRINGS + r"|`(?:[^`\\]|\\.)*`?|\w+|[^\w\s])",
    re.DOTALL,
)
# In Rust 'a is a lifetime, not the start of a string.
_RUST = re.compile(
    r"(?://[^\n]*|/\*.*?(?:\*/|\Z))|(\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\\n]|\\.)'|\w+|[^\w\s])",
    re.DOTALL,
)


_FIXED_WORDS = {name: words(text) for name, text in VOCABULARY["fixed"].items()}
"""What nobody can rename. Each language has its own: `map` and `len` are anybody's names in some of them."""
_HOLE = re.compile(r"\$?\{[^{}]*\}")
_SIZED = re.compile(r"(?:u?int|bytes|[iuf])\d{1,3}")
_WITH_SIZES = frozenset({"solidity", "rust", "go"})

READ_AS_CODE = frozenset({"python", "rust", "solidity", "javascript", "typescript", "go"})
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅαονρΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijshdqwABEKMHOPCTXIJSaovpABEZHIKMNOPTYX",
)
ODD = np.uint64(0x9E3779B97F4A7C15)
_MIXED_BY = np.uint64(29)
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
NO_HASHES: Hashes = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class TokenStream:
    tokens: tuple[str, ...]
    language: str | None


def token_stream(text: str, language: str | None = None) -> TokenStream:
    """The tokens that make up the work; prose is folded to its words. Without a language the text is asked for it."""
    language = language if language in READ_AS_CODE else guess_language(text)
    plain = _same_letters(text)
    if language is None:
        kept, position = list[str](), 0  # without comments, which Markdown does not show
        while (start := plain.find("<!--", position)) >= 0 and (end := plain.find("-->", start)) >= 0:
            kept.append(plain[position:start])
            position = end + 3
        return TokenStream(tuple(re.findall(r"\w+", " ".join((*kept, plain[position:])).casefold())), None)
    pattern, quotes = {"python": (_PYTHON, "'\""), "rust": (_RUST, "'\"")}.get(language, (_BRACES, "'\"`"))
    found = pattern.findall(plain)  # nothing for what is skipped
    tokens = [token if token[0] not in quotes else _one_quote(token, language) for token in found if token]
    return TokenStream(tuple(tokens), language)


def _same_letters(text: str) -> str:
    """One form for what looks the same: a copy is not new because its letters are Cyrillic or have gaps of no width."""
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)
    return "".join(char for char in folded if unicodedata.category(char) != "Cf")


def _one_quote(text: str, language: str) -> str:
    if text == "'" and language == "rust":  # a lifetime
        return text
    # One kind of quote: formatters change it, programmers rarely mean it.
    return '"' + text.strip("'\"`") + '"'


@dataclass(frozen=True, slots=True)
class Coded:
    """A stream as numbers, made once for every kind of window."""

    distinct: list[str]
    numbers: Ints
    """For each token its place among the distinct ones."""
    codes: Hashes
    language: str | None
    key: bytes

    @classmethod
    def of(cls, stream: TokenStream, key: bytes) -> Coded:
        known: dict[str, int] = {token: n for n, token in enumerate(dict.fromkeys(stream.tokens))}
        numbers = np.fromiter(map(known.__getitem__, stream.tokens), dtype=np.int64, count=len(stream.tokens))
        codes = np.array([_keyed_token(token, key) for token in known], dtype=np.uint64)
        return cls(list(known), numbers, codes[numbers] if len(numbers) else NO_HASHES, stream.language, key)

    def windows(self, width: int) -> Hashes:
        return _windows([self.codes] * width, len(self.codes), width)

    def kept_windows(self, width: int) -> Hashes:
        """The same over what a minifier keeps and no task dictates: names behind a point or before a colon."""
        if self.language is None or not len(self.numbers):
            return NO_HASHES
        is_name = self._are_names(self.language)
        places = {token: number for number, token in enumerate(self.distinct)}
        behind = np.append(False, self.numbers[:-1] == places.get(".", -1))
        before = np.append(self.numbers[1:] == places.get(":", -1), False)
        kept = self.codes[is_name & (behind | before)]
        return _windows([kept] * width, len(kept), width)

    def _are_names(self, language: str) -> npt.NDArray[np.bool_]:
        """Which tokens a programmer chose. A string of one word is a key, and renamed like a name; others stay."""
        fixed, has_sizes = _FIXED_WORDS[language], language in _WITH_SIZES
        found = [
            token.strip('"').isidentifier() and token not in fixed and not (has_sizes and _SIZED.fullmatch(token))
            for token in self.distinct
        ]
        are_names: npt.NDArray[np.bool_] = np.array(found, dtype=bool)[self.numbers]
        return are_names

    def abstract_windows(self, width: int) -> Hashes:
        """The same with a chosen name as how far back in the window it was last: renaming changes none of them."""
        if self.language is None or len(self.codes) < width:
            return NO_HASHES  # without its words, prose has nothing left to compare
        is_name = self._are_names(self.language)
        filled = {
            n: _HOLE.sub("{}", token) for n, token in enumerate(self.distinct) if token[0] == '"' and "{" in token
        }
        codes = self.codes.copy() if filled else self.codes
        for n, token in filled.items():
            codes[self.numbers == n] = keyed(token, self.key)
        order = np.argsort(self.numbers, kind="stable")
        apart = np.zeros(len(self.numbers), dtype=np.int64)
        again = self.numbers[order][1:] == self.numbers[order][:-1]
        apart[order[1:][again]] = (order[1:] - order[:-1])[again]
        since = apart.astype(np.uint64)
        offsets = np.arange(width, dtype=np.uint64)[:, None]
        back = np.where(since <= offsets, since, np.uint64(0))
        return _windows(np.where(is_name, back + np.uint64(1), codes), len(self.codes), width)


def keyed(text: str, key: bytes) -> int:
    """Sixty-four bits that nobody can foresee without the key."""
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=key).digest(), "big")


_keyed_token = lru_cache(maxsize=16_384)(keyed)
"""Entries have most of their tokens in common; statements are rarely the same, and would only push tokens out."""


def _windows(by_offset: Iterable[Hashes], length: int, width: int) -> Hashes:
    count = length - width + 1
    if count < 1:
        return NO_HASHES
    mixed = np.zeros(count, dtype=np.uint64)
    for offset, codes in enumerate(by_offset):
        mixed ^= codes[offset : offset + count]
        mixed *= ODD
        mixed ^= mixed >> _MIXED_BY
    return mixed
