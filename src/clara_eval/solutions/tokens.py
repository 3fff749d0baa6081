"""A text as a stream of tokens in which formatting, comments and quotes do not count.

Text comes in, tokens go out; what a stranger wrote decides nothing but its own stream, and every pattern here is linear
in its length. Comments are dropped only where the text itself shows a language, because `//` divides in Python and `#`
is a heading in prose. `abstract` also forgets the names a programmer chose.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Sequence
from dataclasses import dataclass

from clara_eval.solutions.language import guess_language

_STRINGS = r"'(?:[^'\\\n]|\\.)*'?|\"(?:[^\"\\\n]|\\.)*\"?"
_PYTHON = re.compile(
    r"(?P<skip>\#[^\n]*|(?:(?<=\n)|\A)[ \t]*[rRbBuUfF]{0,2}(?:'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)))"
    r"|(?P<string>'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|" + _STRINGS + r")|(?P<word>\w+)|(?P<other>[^\w\s])",
    re.DOTALL,
)
_BRACES = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<string>" + _STRINGS + r"|`(?:[^`\\]|\\.)*`?)|(?P<word>\w+)|(?P<other>[^\w\s])",
    re.DOTALL,
)
# In Rust 'a is a lifetime, not the start of a string.
_RUST = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\\n]|\\.)')|(?P<word>\w+)|(?P<other>[^\w\s])",
    re.DOTALL,
)
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        and as assert async await break case catch class const continue contract def default defer del delete
        do elif else emit enum error event except export extends external false final finally fn for from func
        function global go if impl implements import in instanceof interface internal is lambda let library
        loop map mapping match memory mod modifier mut new nil None nonlocal not null or package pass payable
        pragma private pub public pure raise range require return returns revert select self static storage
        string struct super switch this throw trait true True False try type typeof uint256 int256 address
        bool bytes uint unchecked undefined unsafe use using var view virtual void where while with yield int
        float str len print
        """,
    )
)


@dataclass(frozen=True, slots=True)
class TokenStream:
    tokens: tuple[str, ...]
    is_code: bool


def token_stream(text: str) -> TokenStream:
    """The tokens that make up the work; prose is folded to its words."""
    language = guess_language(text)
    if language is None:
        return TokenStream(tuple(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())), is_code=False)
    pattern = {"python": _PYTHON, "rust": _RUST}.get(language, _BRACES)
    kept = (found for found in pattern.finditer(text) if found.lastgroup != "skip")
    return TokenStream(tuple(_plain(found) for found in kept), is_code=True)


def _plain(found: re.Match[str]) -> str:
    text = found.group()
    # One kind of quote: formatters change it, programmers rarely mean it.
    return '"' + text.strip("'\"`") + '"' if found.lastgroup == "string" else text


def shingles(stream: TokenStream, width: int) -> set[str]:
    tokens = stream.tokens
    return {"\x1f".join(tokens[start : start + width]) for start in range(len(tokens) - width + 1)}


def abstract_shingles(stream: TokenStream, width: int) -> set[str]:
    """Shingles in which each chosen name is only "the first, second, … name here": renaming changes none of them."""
    if not stream.is_code:
        return set()  # without its words, prose has nothing left to compare
    names = {token for token in set(stream.tokens) if _is_name(token)}
    starts = range(len(stream.tokens) - width + 1)
    return {"\x1f".join(_forget_names(stream.tokens[start : start + width], names)) for start in starts}


def _forget_names(window: Sequence[str], names: Container[str]) -> list[str]:
    seen: dict[str, str] = {}
    return [seen.setdefault(token, f"\x1e{len(seen)}") if token in names else token for token in window]


def _is_name(token: str) -> bool:
    # A string of one word is a key, and renamed like any other name; a sentence is content.
    return token.strip('"').isidentifier() and token not in _KEYWORDS
