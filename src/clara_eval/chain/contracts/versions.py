"""Which ABIs belong together: one entry for each version of the contracts on some network.

`Network.contracts` names the version. Fields go by their names, so a version is one more ABI file and one more entry.
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
    if name not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise BadInput(f"The contracts are of version {name[:20]!r}, and only {known} is known.", value=name)
    return VERSIONS[name]
