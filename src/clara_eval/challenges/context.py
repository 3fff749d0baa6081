"""Ports and options of the evaluation of a challenge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.sender import Receipt, TransactionSender
from clara_eval.challenges.model_pool import ModelPool
from clara_eval.config.settings import Settings
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.harness import Machine
from clara_eval.store.sql_store import SqlStore
from clara_eval.submissions.model import Fetch


@dataclass(frozen=True, slots=True)
class Ports:
    chain: EthereumChain
    fetch: Fetch
    store: SqlStore
    sender: TransactionSender
    models: ModelPool
    machine: Machine = field(default_factory=Machine)  # Runs submissions


@dataclass(frozen=True, slots=True)
class Options:
    settings: Settings
    plan: EvaluationPlan
    seconds: float  # How long the models may take
    gives_up: bool = False  # The scoring window is nearly over: reject what cannot be read, and ask for a review
    dry_run: bool = False
    sent: Callable[[Receipt], None] = lambda _receipt: None  # Called with every transaction
