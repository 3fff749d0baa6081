"""Tell the language of a text: by the poster's hint, by the text, by what the submitter claims."""

from __future__ import annotations

import re

from clara_eval.core.syntax import parse

# Every repetition is bounded: a stranger writes the text, and must not choose how long a search takes.
_SIGNS: dict[str, tuple[str, ...]] = {
    "solidity": (
        r"\bpragma[ \t]{1,4}solidity\b",
        r"SPDX-License-Identifier",
        r"^[ \t]{0,40}(?:abstract[ \t]{1,4})?(?:contract|library|interface)[ \t]{1,4}\w{1,80}[^;{\n]{0,200}\{",
        r"\b(?:external|internal|public|private)[ \t]{1,4}(?:pure|view|payable|returns)\b",
        r"\b(?:uint256|mapping[ \t]{0,2}\(|msg\.sender|bytes32)",
    ),
    "python": (
        r"^[ \t]{0,40}(?:async[ \t]{1,4})?def[ \t]{1,4}\w{1,80}[ \t]{0,2}\(",
        r"^[ \t]{0,40}class[ \t]{1,4}\w{1,80}(?:\([^{;\n]{0,200}\))?[ \t]{0,2}:[ \t]{0,20}$",
        r"^[ \t]{0,40}(?:from[ \t]{1,4}[\w.]{1,80}[ \t]{1,4})?import[ \t]{1,4}[\w.]{1,80}(?: as\b|,|[ \t]{0,9}$)",
        r"^[ \t]{0,40}(?:if|elif|for|while|with|else|try|except)\b[^{;\n]{0,200}:[ \t]{0,20}$",
        r"__name__[ \t]{0,2}==",
    ),
    "rust": (
        r"\bfn[ \t]{1,4}\w{1,80}[ \t]{0,2}(?:<[^>\n]{0,80}>[ \t]{0,2})?\(",
        r"\blet[ \t]{1,4}mut\b",
        r"^[ \t]{0,40}impl\b",
        r"^[ \t]{0,40}use[ \t]{1,4}\w{1,80}::\w",
        r"->[ \t]{0,2}(?:Result|Option|Self|[iuf](?:8|16|32|64|128|size))\b",
    ),
    "go": (
        r"^package[ \t]{1,4}\w{1,80}[ \t]{0,20}$",
        r"^func[ \t]{1,4}(?:\([^)\n]{0,80}\)[ \t]{0,2})?\w{1,80}[ \t]{0,2}\(",
        r":=",
        r"\berr[ \t]{0,2}!=[ \t]{0,2}nil\b",
        r"^import[ \t]{0,2}[(\"]",
    ),
    "typescript": (
        r"[\w\])][ \t]{0,2}:[ \t]{0,2}(?:string|number|boolean|void|unknown|any)\b",
        r"^[ \t]{0,40}(?:export[ \t]{1,4})?(?:interface|type)[ \t]{1,4}\w{1,80}[ \t]{0,2}[{=]",
        r"\b(?:readonly|as[ \t]{1,2}const|import[ \t]{1,2}type)\b",
        r"\b(?:const|let)[ \t]{1,4}\w{1,80}[ \t]{0,2}:[ \t]{0,2}[\w<>\[\]]{1,80}[ \t]{0,2}=",
    ),
    "javascript": (
        r"\b(?:const|let|var)[ \t]{1,4}[\w{\[][^=\n]{0,80}=",
        r"\bfunction\b[ \t]{0,2}\*?[ \t]{0,2}\w{0,80}[ \t]{0,2}\(",
        r"=>",
        r"\b(?:require[ \t]{0,2}\(|module\.exports|export[ \t]{1,4}(?:default|const|function))",
        r"\bconsole\.log[ \t]{0,2}\(",
        r"[!=]==",
        r"\bthis\.\w",
    ),
}
_COMPILED = {name: tuple(re.compile(sign, re.MULTILINE) for sign in signs) for name, signs in _SIGNS.items()}
_NEEDED: dict[str, tuple[str, ...]] = {
    "solidity": (
        *("pragma", "SPDX", "contract library interface", "external internal public private"),
        "uint256 mapping msg.sender bytes32",
    ),
    "python": ("def", "class", "import", ":", "__name__"),
    "rust": ("fn", "mut", "impl", "::", "->"),
    "go": ("package", "func", ":=", "nil", "import"),
    "typescript": (":", "interface type", "readonly const type", ":"),
    "javascript": ("const let var", "function", "=>", "require module export", "console", "=== !==", "this."),
}
"""For each sign what a text must hold for the sign to be in it: prose holds hardly any, and is read in no time."""
_ALIASES = {
    **dict.fromkeys(("py", "python3"), "python"),
    **dict.fromkeys(("js", "mjs", "jsx", "ecmascript"), "javascript"),
    **dict.fromkeys(("ts", "tsx"), "typescript"),
    "sol": "solidity",
    "rs": "rust",
    "golang": "go",
}
_LOOKED_AT = 32_768
_PLACES = 9
"""Places of a long text that are looked at, so that nobody hides a program behind a long comment."""


def language_name(hint: str) -> str:
    """The usual lower-case name for what people write: `Py`, `Golang`, `sol`."""
    name = hint.strip().lower().removeprefix("x-")
    return _ALIASES.get(name, name)


def guess_language(text: str) -> str | None:
    """The language with most signs in the text, at least two of them; None for prose.

    If different places of a long text look like different languages, the one counts as which it parses best.
    """
    if len(text) <= _LOOKED_AT:
        return _guess(text)
    step = max(_LOOKED_AT, (len(text) - _LOOKED_AT) // (_PLACES - 1) + 1)
    places = [text[start : start + _LOOKED_AT] for start in range(0, len(text), step)]
    guesses = [guess for guess in dict.fromkeys(map(_guess, places)) if guess is not None]
    return guesses[0] if len(guesses) == 1 else _parsed_best(text, guesses)


def _parsed_best(text: str, guesses: list[str]) -> str | None:
    source = text.encode("utf-8", "replace")
    trees = {name: parse(source, name) for name in guesses}
    errors = {name: tree.errors for name, tree in trees.items() if tree is not None}
    return min(errors, key=lambda name: errors[name]) if errors else next(iter(guesses), None)


def _guess(head: str) -> str | None:
    counts = {name: sum(_shows(head, name, number) for number in range(len(signs))) for name, signs in _SIGNS.items()}
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
    return (
        any(word in head for word in _NEEDED[name][number].split()) and _COMPILED[name][number].search(head) is not None
    )


def choose_language(text: str, *, hint: str | None, uri: str, media_type: str) -> str | None:
    if hint:
        return language_name(hint)
    guessed = guess_language(text)
    if guessed:
        return guessed
    ending = re.search(r"\.(py|mjs|jsx?|tsx?|sol|rs|go)$", uri.split("?", 1)[0].split("#", 1)[0].lower())
    if ending and not uri.startswith("data:"):
        return language_name(ending.group(1))
    claimed = language_name(media_type.rpartition("/")[2])
    return claimed if claimed in _SIGNS else None
