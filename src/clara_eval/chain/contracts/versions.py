"""Which contracts belong together: one entry for each version that stands on some network.

`Network.contracts` names the version. Clients, calldata, topics and signing policies take their ABIs from here, and
fields go by their names: a version with more fields, or the same ones in another order, is one more ABI file and one
more entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clara_eval.chain.contracts.abi import Abi, abi
from clara_eval.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class ContractVersion:
    challenge: Abi
    factory: Abi


VERSIONS: Mapping[str, ContractVersion] = {"1": ContractVersion(abi("Challenge"), abi("ChallengeFactory"))}


def contract_version(name: str) -> ContractVersion:
    """The version of that name, or an error that lists those there are."""
    if name not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise BadInput(f"The contracts are of version {name[:20]!r}, and only {known} is known.", value=name)
    return VERSIONS[name]
