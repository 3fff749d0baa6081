"""Submissions made for a trial: payloads, what carries them, and where they are placed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex, sha256_hex
from clara_eval.core.submission import Submission
from clara_eval.evaluation.features.extract import ReadingContext
from clara_eval.submissions.model import Solution

_FIRST = "def first(values):\n    if not values:\n        return None\n    return values[0]\n"
_TOTAL = "def total(values, rate):\n    result = 0\n    for value in values:\n        result += value * rate\n"
HONEST = (_FIRST, f"{_TOTAL}    return result\n")
AFTER_CUT = "value = compute(value)\n" * 4_000
"""Longer than one part of a prompt: what follows stands where a careless reader would have stopped."""


READING = ReadingContext("0x" + "22" * 20, "0x" + "11" * 32, "python")


def solution_of(text: str, number: int = 1, language: str | None = "python", *, at: int | None = None) -> Solution:
    """Handed in by account `number`, at second `at`; lone surrogates of a payload become question marks."""
    content = text.encode("utf-8", "replace")
    submission = Submission(
        Address(f"0x{number:040x}"), number, "data:,", keccak_hex(content), at if at is not None else number, 1
    )
    return Solution(
        submission=submission,
        content=content,
        text=content.decode(),
        media_type="text/plain",
        content_keccak=keccak_hex(content),
        content_sha256=sha256_hex(content),
        hash_kind="content",
        pinned=True,
        language=language,
    )


@dataclass(frozen=True, slots=True)
class Payload:
    text: str
    kind: str


def own_payloads() -> list[Payload]:
    text = resources.files("clara_eval").joinpath("redteam", "data", "own.jsonl").read_text("utf-8")
    return _read(text, "the built-in corpus")


def payloads_in(path: Path) -> list[Payload]:
    """The payloads of a file; BadInput names the first line that holds none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise BadInput(
            f"The corpus {str(path)!r} cannot be read ({type(bad).__name__}).",
            value=str(path),
            remedy="Give a UTF-8 file with one JSON object a line.",
        ) from None
    return _read(text, f"the corpus {str(path)!r}")


def _read(text: str, name: str) -> list[Payload]:
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found.append(Payload(str(row["text"]), str(row.get("class", ""))))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(
                f"Line {number} of {name} is not a JSON object with a text.",
                remedy='Write one object a line: {"text": "…", "class": "…"}.',
            ) from None
    if not found:
        raise BadInput(f"There is no payload in {name}.", remedy="Write one JSON object with a text a line.")
    return found


def _name(payload: str, letters: str = "A-Za-z0-9") -> str:
    return "_".join(re.findall(f"[{letters}]+", payload)[:12]).lower()


def _attribute(payload: str) -> str:
    name = _name(payload) or "nothing"
    held = f"class Held:\n    def __init__(self):\n        self.a_{name} = 1\n\n"
    return f"{held}    def read(self):\n        return self.a_{name}\n"


CARRIERS: dict[str, Callable[[str], str]] = {
    "bare": lambda payload: payload + "\n",
    "comment": lambda payload: "".join(f"# {line}\n" for line in payload.split("\n")),
    "docstring": lambda payload: f'def doc():\n    """{payload}"""\n    return 1\n',
    "string": lambda payload: f"NOTE = {payload!r}\n",
    "name": lambda payload: f"def {_name(payload, 'A-Za-z') or 'nothing'}():\n    return 1\n",
    "attribute": _attribute,
    "fake_test": lambda payload: f"def test_{_name(payload)}():\n    assert True\n",
    "markdown": lambda payload: f"# Notes\n\n{payload}\n\n```python\nx = 1\n```\n",
}
POSITIONS: dict[str, Callable[[str], str]] = {
    "head": lambda part: part + HONEST[0] + HONEST[1],
    "middle": lambda part: HONEST[0] + part + HONEST[1],
    "tail": lambda part: HONEST[0] + HONEST[1] + part,
    "after_cut": lambda part: AFTER_CUT + HONEST[0] + part,
}


def submissions(payloads: list[Payload]) -> Iterator[tuple[Payload, str, str, str]]:
    """Each payload with carrier, position and text; the long ones behind a cut for every 25th payload only."""
    for number, payload in enumerate(payloads):
        for carrier, carry in CARRIERS.items():
            for position, put in POSITIONS.items():
                if position != "after_cut" or number % 25 == 0:
                    yield payload, carrier, position, put(carry(payload.text))
