"""The vocabulary of each language, and how to detect the language of a text."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from typing import Any

from clara_eval.core.syntax import parse


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOCABULARY: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("vocabulary.toml").read_text("utf-8"))
for _table in (VOCABULARY["library"], VOCABULARY["roles"]):
    _table |= dict.fromkeys(("typescript", "tsx"), _table["javascript"])
NODES = {name: words(text) for name, text in VOCABULARY["nodes"].items()}  # node types of all grammars
STRINGS = NODES["strings"]
LIBRARY = {name: words(text) for name, text in VOCABULARY["library"].items()}  # names that are not replaced
_SIGNS: dict[str, tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]] = {
    name: tuple((tuple(needed.split()), re.compile(sign, re.MULTILINE)) for needed, sign in signs)
    for name, signs in VOCABULARY["signs"].items()
}
"""Signs of each language: words of which the text must have one, and the pattern to search for."""
READ_AS_CODE = frozenset({"python", "rust", "solidity", "javascript", "typescript", "go"})
_ALIASES = {
    **dict.fromkeys(("py", "python3"), "python"),
    **dict.fromkeys(("js", "mjs", "jsx", "ecmascript"), "javascript"),
    **dict.fromkeys(("ts", "tsx"), "typescript"),
    "sol": "solidity",
    "rs": "rust",
    "golang": "go",
}
_SAMPLE_CHARS = 32_768
_SAMPLES = 9  # spread over a long text, so that a long comment at its start cannot hide a program


def language_name(hint: str) -> str:
    """Return the usual lower-case name of a language that is written as `Py`, `Golang` or `sol`."""
    name = hint.strip().lower().removeprefix("x-")
    return _ALIASES.get(name, name)


def guess_language(text: str) -> str | None:
    """Guess the language by its signs, and by parse errors if parts of the text differ; None for prose."""
    if len(text) <= _SAMPLE_CHARS:
        return _guess(text)
    step = max(_SAMPLE_CHARS, (len(text) - _SAMPLE_CHARS) // (_SAMPLES - 1) + 1)
    samples = [text[start : start + _SAMPLE_CHARS] for start in range(0, len(text), step)]
    guesses = [guess for guess in dict.fromkeys(map(_guess, samples)) if guess is not None]
    if len(guesses) < 2:
        return next(iter(guesses), None)
    trees = {name: parse(text.encode("utf-8", "replace"), name) for name in guesses}
    errors = {name: tree.errors for name, tree in trees.items() if tree is not None}
    return min(errors, key=lambda name: errors[name]) if errors else guesses[0]


def _guess(sample: str) -> str | None:
    counts = {
        name: sum(_has_sign(sample, name, number) for number in range(len(signs))) for name, signs in _SIGNS.items()
    }
    if counts["typescript"] and counts["javascript"]:
        # Every TypeScript file also shows the signs of JavaScript.
        counts["typescript"] += counts["javascript"]
    best = max(counts, key=lambda name: counts[name])
    if counts[best] >= 2:
        return best
    # One sign is enough if prose practically never shows it.
    certain = (("solidity", 0), ("python", 0), ("go", 1), ("rust", 0))
    return next((name for name, number in certain if _has_sign(sample, name, number)), None)


def _has_sign(sample: str, name: str, number: int) -> bool:
    needed, sign = _SIGNS[name][number]
    return any(word in sample for word in needed) and sign.search(sample) is not None


def choose_language(text: str, *, hint: str | None, uri: str, media_type: str) -> str | None:
    if hint:
        return language_name(hint)
    if guessed := guess_language(text):
        return guessed
    ending = re.search(r"\.(py|mjs|jsx?|tsx?|sol|rs|go)$", uri.split("?", 1)[0].split("#", 1)[0].lower())
    if ending and not uri.startswith("data:"):
        return language_name(ending.group(1))
    claimed = language_name(media_type.rpartition("/")[2])
    return claimed if claimed in _SIGNS else None
