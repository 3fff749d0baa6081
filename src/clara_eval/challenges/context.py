"""What the evaluation of a challenge works with: the ports to the outside, and its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.sender import Receipt, TransactionSender
from clara_eval.challenges.model_pool import ModelPool
from clara_eval.config.networks import Network
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.harness import Machine
from clara_eval.judge.calibration_gate import FLOOR, Mode
from clara_eval.store.sql_store import SqlStore
from clara_eval.submissions.model import Fetch, SubmissionLimits


@dataclass(frozen=True, slots=True)
class Ports:
    chain: EthereumChain
    fetch: Fetch
    store: SqlStore
    sender: TransactionSender
    models: ModelPool
    machine: Machine = field(default_factory=Machine)
    """Runs submissions."""


@dataclass(frozen=True, slots=True)
class Options:
    network: Network
    plan: EvaluationPlan
    seconds: float
    """How long the models may take."""
    review_above_usd: float | None = 1000.0
    review_doubt_usd: float | None = 50.0
    review_doubt_share: float = 0.2
    calibration: Mode = "known"
    calibration_floor: float = FLOOR
    objection_window: int = 0
    """Seconds between the announcement of a result and its post; 0 is none."""
    objection_judge: str = ""
    gives_up: bool = False
    """Whether the scoring window is nearly over: what cannot be read now gets its verdict, and a person looks."""
    dry_run: bool = False
    retry_after_seconds: tuple[float, ...] = SubmissionLimits().retry_after_seconds
    """Waits between attempts to fetch a submission; what is accepted never depends on them."""
    sent: Callable[[Receipt], None] = lambda _receipt: None
    """Called with every transaction."""
