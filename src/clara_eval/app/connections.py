"""The connections that an evaluator and a caller share."""

from __future__ import annotations

from dataclasses import dataclass

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.config.settings import Settings
from clara_eval.store.ports import Store


@dataclass(frozen=True, slots=True)
class Connections:
    settings: Settings
    chain: EthereumChain
    store: Store

    @property
    def chain_id(self) -> int:
        return self.settings.network.chain_id
