"""Which language a text is written in, from the text alone.

A submitter also sends a media type and a file name, but those are claims: whoever may choose the language may choose
the tool that measures. So the poster's hint counts first, then the text, and the claims only where both are silent.
Unknown is None, and means prose or a language that no tool here reads.
"""

from __future__ import annotations

import re

_SIGNS: dict[str, tuple[str, ...]] = {
    "solidity": (
        r"\bpragma\s+solidity\b",
        r"SPDX-License-Identifier",
        r"^\s*(?:abstract\s+)?(?:contract|library|interface)\s+\w+[^;{\n]*\{",
        r"\b(?:external|internal|public|private)\s+(?:pure|view|payable|returns)\b",
        r"\b(?:uint256|mapping\s*\(|msg\.sender|bytes32)",
    ),
    "python": (
        r"^[ \t]*(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(",
        r"^[ \t]*class[ \t]+\w+[^{;\n]*:[ \t]*$",
        r"^[ \t]*(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+[\w.]+[^;{\n]*$",
        r"^[ \t]*(?:if|elif|for|while|with|else|try|except)\b[^{;\n]*:[ \t]*(?:#.*)?$",
        r"__name__\s*==",
    ),
    "rust": (
        r"\bfn\s+\w+\s*(?:<[^>\n]*>)?\s*\(",
        r"\blet\s+mut\b",
        r"^\s*impl\b",
        r"^\s*use\s+\w+(?:::\w+)+",
        r"->\s*(?:Result|Option|Self|[iuf](?:8|16|32|64|128|size))\b",
    ),
    "go": (
        r"^package\s+\w+\s*$",
        r"^func\s+(?:\([^)\n]*\)\s*)?\w+\s*\(",
        r":=",
        r"\berr\s*!=\s*nil\b",
        r"^import\s*(?:\(|\")",
    ),
    "typescript": (
        r"[\w\])]\s*:\s*(?:string|number|boolean|void|unknown|any)\b",
        r"^\s*(?:export\s+)?(?:interface\s+\w+\s*\{|type\s+\w+\s*=)",
        r"\b(?:readonly|as\s+const|import\s+type)\b",
        r"\b(?:const|let)\s+\w+\s*(?::\s*[\w<>\[\]]+\s*)=",
    ),
    "javascript": (
        r"\b(?:const|let|var)\s+[\w{\[][^=\n]*=",
        r"\bfunction\b\s*\*?\s*\w*\s*\(",
        r"=>",
        r"\b(?:require\s*\(|module\.exports|export\s+(?:default|const|function))",
        r"\bconsole\.log\s*\(",
    ),
}
_COMPILED = {name: tuple(re.compile(sign, re.MULTILINE) for sign in signs) for name, signs in _SIGNS.items()}
_ALIASES = {
    "py": "python",
    "python3": "python",
    "js": "javascript",
    "mjs": "javascript",
    "jsx": "javascript",
    "ecmascript": "javascript",
    "ts": "typescript",
    "tsx": "typescript",
    "sol": "solidity",
    "rs": "rust",
    "golang": "go",
}
_LOOKED_AT = 65_536
"""Characters that the guess reads; the signs of a language stand early."""


def language_name(hint: str) -> str:
    """The usual lower-case name for what people write: `Py`, `Golang`, `sol`."""
    name = hint.strip().lower().removeprefix("x-")
    return _ALIASES.get(name, name)


def guess_language(text: str) -> str | None:
    """The language with most signs in the text, at least two of them; None for prose."""
    head = text[:_LOOKED_AT]
    counts = {name: sum(1 for sign in signs if sign.search(head)) for name, signs in _COMPILED.items()}
    if counts["typescript"] and counts["javascript"]:
        # Every TypeScript file also shows the signs of JavaScript.
        counts["typescript"] += counts["javascript"]
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= 2 else _by_single_sign(head)


def _by_single_sign(head: str) -> str | None:
    """One sign is enough where prose practically never shows it."""
    for name, number in (("solidity", 0), ("python", 0), ("go", 1), ("rust", 0)):
        if _COMPILED[name][number].search(head):
            return name
    return None


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
