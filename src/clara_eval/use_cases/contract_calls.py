"""Calls to the contracts as bytes, from the shipped ABIs, and their answers back as values.

Comes in: a contract's name, a function and its arguments. Goes out: calldata, or the decoded answer. Strings that
strangers stored are decoded leniently: bytes that are not UTF-8 become U+FFFD instead of an error.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from clara_eval.challenge.model import Address
from clara_eval.contracts import ContractName, artifact
from clara_eval.errors import NotFound
from clara_eval.hashing import keccak_hex
from clara_eval.use_cases.port import Desk, View


@cache
def _function(contract: ContractName, name: str) -> dict[str, Any]:
    return next(entry for entry in artifact(contract).abi if entry["type"] == "function" and entry["name"] == name)


def _type(item: dict[str, Any], *, reading: bool = False) -> str:
    kind: str = item["type"]
    if kind.startswith("tuple"):
        inside = ",".join(_type(part, reading=reading) for part in item["components"])
        return f"({inside}){kind.removeprefix('tuple')}"
    return kind.replace("string", "bytes") if reading else kind


def calldata(contract: ContractName, name: str, *args: Any) -> str:
    """0x text of a call."""
    types = [_type(item) for item in _function(contract, name)["inputs"]]
    selector = keccak_hex(f"{name}({','.join(types)})".encode())[:10]
    return selector + encode(types, args).hex()


def view(contract: ContractName, to: Address, name: str, *args: Any) -> View:
    return View(to, calldata(contract, name, *args))


def answer(contract: ContractName, name: str, data: str | None) -> Any:
    """The value behind an answer; None if there is none of the right shape. One output is given bare."""
    if data is None or len(data) < 66:
        return None
    outputs = _function(contract, name)["outputs"]
    try:
        values = decode([_type(item, reading=True) for item in outputs], bytes.fromhex(data.removeprefix("0x")))
    except (DecodingError, ValueError, OverflowError):
        return None
    ours = tuple(_ours(value, item) for value, item in zip(values, outputs, strict=True))
    return ours[0] if len(ours) == 1 else ours


def _ours(value: Any, item: dict[str, Any]) -> Any:
    if item["type"] == "tuple":
        return tuple(_ours(part, kind) for part, kind in zip(value, item["components"], strict=True))
    if item["type"] == "bytes32":
        return "0x" + value.hex()
    return value.decode("utf-8", errors="replace") if item["type"] == "string" else value


async def look(desk: Desk, contract: ContractName, to: Address, name: str, *args: Any) -> Any:
    """One value of a contract; NotFound if no such contract stands there."""
    found = answer(contract, name, (await desk.node.views([view(contract, to, name, *args)]))[0])
    if found is None:
        raise NotFound(
            f"The contract at {to} does not answer {name}() on {desk.settings.network_name}.",
            remedy=f"Check the address, and that it is a {contract} on this network.",
        )
    return found
