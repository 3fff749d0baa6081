"""Encode and decode functions, events and errors of the shipped contracts by their ABIs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, Literal, Required, TypedDict, get_args

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, ClaraError
from clara_eval.core.hashing import keccak_hex

ContractName = Literal["Challenge", "ChallengeFactory", "IdentityRegistry", "ReputationRegistry", "TestUSDC"]
CONTRACT_NAMES: tuple[ContractName, ...] = get_args(ContractName)


class AbiItem(TypedDict, total=False):
    """One function, event, error, argument or field of an ABI file."""

    name: str
    type: Required[str]
    inputs: list[AbiItem]
    outputs: list[AbiItem]
    components: list[AbiItem]  # The fields of a struct
    indexed: bool


@dataclass(frozen=True, slots=True)
class Artifact:
    name: ContractName
    abi: list[AbiItem]
    bytecode: str
    solc: str


@cache
def artifact(name: ContractName) -> Artifact:
    """Load a shipped artifact. The value is cached and shared: do not change it."""
    content = json.loads(resources.files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return Artifact(name, content["abi"], content["bytecode"], content["solc"])


MOST_BYTES = 4_000_000  # Longer than the answer of any honest contract
FOREIGN_GAS = 300_000  # For contracts that anybody may have written: enough for a proxy, and a bound on any loop
FOREIGN_BYTES = 4_096


class Undecodable(ClaraError):
    """The bytes do not match the ABI."""


@dataclass(frozen=True)
class Function:
    """One function, or a custom error, which has no outputs."""

    name: str
    inputs: tuple[AbiItem, ...]
    outputs: tuple[AbiItem, ...] = ()

    @cached_property
    def types(self) -> tuple[str, ...]:
        return tuple(map(_type, self.inputs))

    @cached_property
    def signature(self) -> str:
        return f"{self.name}({','.join(self.types)})"

    @cached_property
    def selector(self) -> bytes:
        return bytes.fromhex(keccak_hex(self.signature.encode())[2:10])

    def call(self, *values: object) -> bytes:
        """Encode calldata; a struct is given as a mapping by field name."""
        arguments = [_to_abi(value, item) for value, item in zip(values, self.inputs, strict=True)]
        encoded: bytes = encode(self.types, arguments)
        return self.selector + encoded

    def answer(self, data: object, *, at_most: int = MOST_BYTES) -> tuple[object, ...]:
        """Decode the outputs in order, with structs as mappings and bytes32 as 0x text."""
        return _values(self.outputs, _bytes(data, at_most))

    def named_answer(self, values: tuple[object, ...]) -> Mapping[str, Any]:
        if len(values) == 1 and isinstance(values[0], Mapping):
            return values[0]
        return {item["name"]: value for item, value in zip(self.outputs, values, strict=True)}

    def arguments(self, calldata: bytes) -> tuple[Any, ...]:
        """Decode the arguments in calldata; bytes after them are ignored, as in Solidity."""
        return _values(self.inputs, calldata[4:])


@dataclass(frozen=True, slots=True)
class View:
    to: Address
    function: Function
    values: tuple[object, ...] = ()
    is_foreign: bool = False

    def request(self) -> dict[str, str]:
        bound = {"gas": hex(FOREIGN_GAS)} if self.is_foreign else {}
        return {"to": self.to, "data": "0x" + self.function.call(*self.values).hex(), **bound}

    def read(self, answer: object) -> tuple[Any, ...] | None:
        """Decode the outputs; None if the contract refused or the answer does not match."""
        try:
            return self.function.answer(answer, at_most=FOREIGN_BYTES if self.is_foreign else MOST_BYTES)
        except Undecodable:
            return None


@dataclass(frozen=True, slots=True)
class Event:
    signature: str
    inputs: tuple[AbiItem, ...]

    @property
    def topic(self) -> str:
        return keccak_hex(self.signature.encode())

    def read(self, entry: Mapping[str, object]) -> dict[str, Any]:
        """Decode the values by name; of indexed text and bytes there is only the hash."""
        found = self.read_indexed(entry)
        plain = [item for item in self.inputs if not item["indexed"]]
        values = _values(plain, _bytes(entry["data"], MOST_BYTES)) if plain else ()
        return found | {item["name"]: value for item, value in zip(plain, values, strict=True)}

    def read_indexed(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Decode only the topics, which stay readable if the data is garbled."""
        indexed = [item for item in self.inputs if item["indexed"]]
        topics: Sequence[str] = entry["topics"][1:]
        if len(topics) != len(indexed):
            raise Undecodable(f"The entry is not {self.signature}.")
        return {item["name"]: _word(item["type"], word) for item, word in zip(indexed, topics, strict=True)}


class Abi:
    """The ABI of one contract; an overloaded function is found by its signature."""

    def __init__(self, entries: Sequence[AbiItem]) -> None:
        self._functions: dict[str, Function] = {}
        self._events: dict[str, Event] = {}
        self.errors: list[Function] = []
        for entry in entries:
            made = Function(entry.get("name", ""), tuple(entry.get("inputs", ())), tuple(entry.get("outputs", ())))
            if entry["type"] == "event":
                self._events[made.name] = Event(made.signature, made.inputs)
            elif entry["type"] == "error":
                self.errors.append(made)
            elif entry["type"] == "function":
                self._functions[made.signature] = made
                self._functions.setdefault(made.name, made)

    def function(self, name: str) -> Function:
        return self._functions[name]

    def event(self, name: str) -> Event:
        return self._events[name]


@cache
def abi(name: ContractName) -> Abi:
    return Abi(artifact(name).abi)


def _type(item: AbiItem) -> str:
    kind = item["type"]
    if not kind.startswith("tuple"):
        return kind
    return f"({','.join(map(_type, item['components']))}){kind.removeprefix('tuple')}"


def _bytes(data: object, at_most: int) -> bytes:
    if not isinstance(data, str) or len(data) > 2 * at_most + 2:
        raise Undecodable("There is no answer, or one that is too long.")
    try:
        return bytes.fromhex(data.removeprefix("0x"))
    except ValueError as bad:
        raise Undecodable("The answer is not hex.") from bad


def _values(items: Sequence[AbiItem], data: bytes) -> tuple[object, ...]:
    # Strings are decoded as bytes, which have an equal encoding but need not be UTF-8.
    types = [_type(item).replace("string", "bytes") for item in items]
    try:
        values = decode(types, data)
    except (DecodingError, OverflowError, ValueError) as bad:
        raise Undecodable(f"The data is not ({','.join(types)}).") from bad
    return tuple(_from_abi(value, item) for value, item in zip(values, items, strict=True))


def _to_abi(value: Any, item: AbiItem) -> object:
    kind = item["type"]
    if kind.endswith("]"):
        inner: AbiItem = {**item, "type": kind[: kind.rindex("[")]}
        return [_to_abi(part, inner) for part in value]
    if kind == "tuple":
        return tuple(_to_abi(value[part["name"]], part) for part in item["components"])
    return bytes.fromhex(value.removeprefix("0x")) if kind == "bytes32" and isinstance(value, str) else value


def _from_abi(value: Any, item: AbiItem) -> object:
    kind = item["type"]
    if kind.endswith("]"):
        inner: AbiItem = {**item, "type": kind[: kind.rindex("[")]}
        return tuple(_from_abi(part, inner) for part in value)
    if kind == "tuple":
        return {inner["name"]: _from_abi(part, inner) for part, inner in zip(value, item["components"], strict=True)}
    if kind == "bytes32":
        return "0x" + value.hex()
    return value.decode("utf-8", errors="replace") if kind == "string" else value


def _word(kind: str, word: str) -> object:
    """Decode an indexed value; other types than numbers and addresses stay 32 bytes."""
    if kind == "address":
        return "0x" + word[-40:].lower()
    return int(word, 16) if kind.startswith("uint") else word


@dataclass(frozen=True, slots=True)
class ContractVersion:
    challenge: Abi
    factory: Abi


VERSIONS: Mapping[str, ContractVersion] = {"1": ContractVersion(abi("Challenge"), abi("ChallengeFactory"))}


def contract_version(name: str) -> ContractVersion:
    if name not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise BadInput(f"The contracts are of version {name[:20]!r}, and only {known} is known.", value=name)
    return VERSIONS[name]


STATUS_NAMES = ("Open", "Scoring", "Finalized", "Cancelled", "Expired")
_STATUS_REMEDIES: dict[tuple[object, ...], str] = {
    (0, 1): "After the deadline, call advanceToScoring first.",
    (1, 2): "Call finalize first, 12 hours after the scores were posted.",
    (1, 4): "It expires only when no scores are posted by the scoring deadline.",
}


@dataclass(frozen=True, slots=True)
class ContractRefusal:
    """A decoded custom error; `str()` is its message for users."""

    name: str
    values: tuple[object, ...]
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = ", ".join(str(value) for value in self.values if not isinstance(value, str) or value.isprintable())
        return f"{self.reason} {self.remedy} ({self.name}{f': {shown}' if shown else ''})".replace("  ", " ")


_WORDS = tomllib.loads(resources.files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8"))


@cache
def known_errors() -> Mapping[bytes, Function]:
    """Return every error that a shipped contract or Solidity itself can raise, by selector."""
    own = [Function("Error", ({"name": "", "type": "string"},)), Function("Panic", ({"name": "", "type": "uint256"},))]
    errors = [*own, *(error for name in CONTRACT_NAMES for error in abi(name).errors)]
    return {error.selector: error for error in errors}


def decode_refusal(data: object) -> ContractRefusal | None:
    """Decode the data of a revert (bytes, or 0x text as nodes send it); None if the error is unknown."""
    try:
        raw = data if isinstance(data, bytes) else _bytes(data, MOST_BYTES)
        error = known_errors()[raw[:4]]
        values = error.arguments(raw)
    except (Undecodable, KeyError):
        return None  # any contract may have sent the data: a known selector proves nothing
    reason, remedy = _WORDS.get(error.name, (f"The contract refused with {error.name}.", ""))
    if error.name == "InvalidStatus":
        names: dict[object, str] = dict(enumerate(STATUS_NAMES))
        current, expected = (names.get(value, f"in unknown status {value}") for value in values)
        reason = f"The challenge is {current}, but this needs it to be {expected}."
        remedy = _STATUS_REMEDIES.get(values, "Read the challenge's status before trying again.")
    elif error.name == "Error":
        reason = f"The contract refused: {str(values[0])[:200]!r}."
    elif error.name == "Panic":
        reason = f"The contract stopped on an internal check (panic {values[0]:#x})."
        remedy = "Check the values of the call."
    return ContractRefusal(error.name, values, reason, remedy)
