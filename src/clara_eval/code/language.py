"""Words of each language and its syntax tree, and how to tell a text's language: by a hint, by the text, by a claim."""

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
LIBRARY = {name: words(text) for name, text in VOCABULARY["library"].items()}  # what stays when names are replaced
_COMPILED: dict[str, tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]] = {
    name: tuple((tuple(needed.split()), re.compile(sign, re.MULTILINE)) for needed, sign in signs)
    for name, signs in VOCABULARY["signs"].items()
}
"""By language its signs: words of which the text must hold one for the sign to be in it, and the pattern."""
READ_AS_CODE = frozenset({"python", "rust", "solidity", "javascript", "typescript", "go"})
_ALIASES = {
    **dict.fromkeys(("py", "python3"), "python"),
    **dict.fromkeys(("js", "mjs", "jsx", "ecmascript"), "javascript"),
    **dict.fromkeys(("ts", "tsx"), "typescript"),
    "sol": "solidity",
    "rs": "rust",
    "golang": "go",
}
_LOOKED_AT = 32_768
_PLACES = 9  # places of a long text that are looked at, so that nobody hides a program behind a long comment


def language_name(hint: str) -> str:
    """The usual lower-case name for what people write: `Py`, `Golang`, `sol`."""
    name = hint.strip().lower().removeprefix("x-")
    return _ALIASES.get(name, name)


def guess_language(text: str) -> str | None:
    """The language with most signs, at least two, of several the one that parses best; None for prose."""
    if len(text) <= _LOOKED_AT:
        return _guess(text)
    step = max(_LOOKED_AT, (len(text) - _LOOKED_AT) // (_PLACES - 1) + 1)
    places = [text[start : start + _LOOKED_AT] for start in range(0, len(text), step)]
    guesses = [guess for guess in dict.fromkeys(map(_guess, places)) if guess is not None]
    if len(guesses) < 2:
        return next(iter(guesses), None)
    trees = {name: parse(text.encode("utf-8", "replace"), name) for name in guesses}
    errors = {name: tree.errors for name, tree in trees.items() if tree is not None}
    return min(errors, key=lambda name: errors[name]) if errors else guesses[0]


def _guess(head: str) -> str | None:
    counts = {
        name: sum(_shows(head, name, number) for number in range(len(signs))) for name, signs in _COMPILED.items()
    }
    if counts["typescript"] and counts["javascript"]:
        # Every TypeScript file also shows the signs of JavaScript.
        counts["typescript"] += counts["javascript"]
    best = max(counts, key=lambda name: counts[name])
    if counts[best] >= 2:
        return best
    # One sign is enough if prose practically never shows it.
    certain = (("solidity", 0), ("python", 0), ("go", 1), ("rust", 0))
    return next((name for name, number in certain if _shows(head, name, number)), None)


def _shows(head: str, name: str, number: int) -> bool:
    needed, sign = _COMPILED[name][number]
    return any(word in head for word in needed) and sign.search(head) is not None


def choose_language(text: str, *, hint: str | None, uri: str, media_type: str) -> str | None:
    if hint:
        return language_name(hint)
    if guessed := guess_language(text):
        return guessed
    ending = re.search(r"\.(py|mjs|jsx?|tsx?|sol|rs|go)$", uri.split("?", 1)[0].split("#", 1)[0].lower())
    if ending and not uri.startswith("data:"):
        return language_name(ending.group(1))
    claimed = language_name(media_type.rpartition("/")[2])
    return claimed if claimed in _COMPILED else None
