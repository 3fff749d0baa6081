"""ABI and bytecode of the contracts, compiled from `solidity/` by `npm run contracts`."""

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
    """The fields of a struct."""
    indexed: bool


@dataclass(frozen=True, slots=True)
class Artifact:
    """One compiled contract."""

    name: ContractName
    abi: list[AbiItem]
    bytecode: str
    solc: str


@cache
def artifact(name: ContractName) -> Artifact:
    """Load a shipped artifact. The value is shared: read it, do not change it."""
    content = json.loads(resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return Artifact(name=name, abi=content["abi"], bytecode=content["bytecode"], solc=content["solc"])
