"""Why a contract refused, in words a person can act on."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from clara_eval.chain.contracts.abi import CONTRACT_NAMES, Function, Undecodable, abi

STATUS_NAMES = ("Open", "Scoring", "Finalized", "Cancelled", "Expired")


@dataclass(frozen=True, slots=True)
class ContractRefusal:
    """One decoded custom error; `str()` is the sentence for a person."""

    name: str
    values: tuple[object, ...]
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = ", ".join(str(value) for value in self.values if not isinstance(value, str) or value.isprintable())
        return f"{self.reason} {self.remedy} ({self.name}{f': {shown}' if shown else ''})".replace("  ", " ")


@cache
def _words() -> Mapping[str, tuple[str, str]]:
    text = resources.files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8")
    return {name: (reason, remedy) for name, (reason, remedy) in tomllib.loads(text).items()}


@cache
def known_errors() -> Mapping[bytes, Function]:
    """Return every error that a shipped contract or Solidity itself can raise, by selector."""
    own = [Function("Error", ({"name": "", "type": "string"},)), Function("Panic", ({"name": "", "type": "uint256"},))]
    return {
        error.selector: error for error in (*own, *(error for name in CONTRACT_NAMES for error in abi(name).errors))
    }


def decode_refusal(data: bytes | str | None) -> ContractRefusal | None:
    """Decode a revert's data (bytes, or 0x text as nodes send it); None if it is not an error that we know."""
    try:
        raw = bytes.fromhex(data.removeprefix("0x")) if isinstance(data, str) else data or b""
    except ValueError:
        raw = b""
    error = known_errors().get(raw[:4])
    if error is None:
        return None
    try:
        values = error.arguments(raw)
    except Undecodable:
        return None  # the data comes from whatever contract was called: a known selector proves nothing
    reason, remedy = _in_words(error.name, values)
    return ContractRefusal(name=error.name, values=values, reason=reason, remedy=remedy)


def _in_words(name: str, values: tuple[object, ...]) -> tuple[str, str]:
    if name == "InvalidStatus":
        current, expected = (_status_name(value) for value in values)
        return f"The challenge is {current}, but this needs it to be {expected}.", _status_remedy(*values)
    if name == "Error":
        return f"The contract refused: {str(values[0])[:200]!r}.", ""
    if name == "Panic":
        return f"The contract stopped on an internal check (panic {values[0]:#x}).", "Check the values of the call."
    return _words().get(name, (f"The contract refused with {name}.", ""))


def _status_name(value: object) -> str:
    return STATUS_NAMES[value] if isinstance(value, int) and value < len(STATUS_NAMES) else f"in unknown status {value}"


def _status_remedy(current: object, expected: object) -> str:
    if current == 0 and expected == 1:
        return "After the deadline, call advanceToScoring first."
    if current == 1 and expected == 2:
        return "Call finalize first, 12 hours after the scores were posted."
    if current == 1 and expected == 4:
        return "It expires only when no scores are posted by the scoring deadline."
    return "Read the challenge's status before trying again."
