"""The contracts as package data: ABI and bytecode of each, compiled from `solidity/`.

Comes in: a contract's name. Goes out: its artifact, read once and kept. The JSON files are written by
`npm run contracts` and compared with their sources in the tests; nobody edits them. `refusals` turns the custom errors
found in these ABIs into words; `versions` says which of them belong together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, Required, TypedDict, get_args

ContractName = Literal["Challenge", "ChallengeFactory", "IdentityRegistry", "ReputationRegistry", "TestUSDC"]
CONTRACT_NAMES: tuple[ContractName, ...] = get_args(ContractName)


class AbiItem(TypedDict, total=False):
    """One function, event, error, argument or field of an ABI file."""

    name: str
    type: Required[str]
    inputs: list[AbiItem]
    outputs: list[AbiItem]
    components: list[AbiItem]
    """The fields, where it is a struct."""
    indexed: bool


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a client needs to deploy a contract and to talk to it."""

    name: ContractName
    abi: list[AbiItem]
    bytecode: str
    solc: str


@cache
def artifact(name: ContractName) -> Artifact:
    """The shipped artifact of that contract. The value is shared: read it, do not change it."""
    content = json.loads(resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return Artifact(name=name, abi=content["abi"], bytecode=content["bytecode"], solc=content["solc"])
