"""A round, and the plan by which it is evaluated: who judges and how many games."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from clara_eval.config.eval_config import EvalConfig, Metadata
from clara_eval.core.submission import Submission, Version
from clara_eval.judge.costs.budgets import ReadingBudget
from clara_eval.judge.reading import TokenLimits


@dataclass(frozen=True, slots=True)
class Round:
    run: str
    """The id of the evaluation: the seed of the intervals."""
    name: str
    """What the venue calls it: the seed of the order of the entries and of the nonces in prompts."""
    beacon: str
    """A hash that no submitter knew before the deadline."""
    metadata_bytes: bytes
    metadata: Metadata
    config_hash: str
    """What the poster committed to."""
    private_set_hash: str
    """The commitment to a hidden harness."""
    winner_count: int
    payout_bps: tuple[int, ...]
    submissions: tuple[Submission, ...]
    replaced: tuple[Version, ...] = ()
    """Versions that were replaced, oldest first: they tell who had some content first."""

    @property
    def config(self) -> EvalConfig:
        return self.metadata.config


Stage = Literal["collecting", "executing", "extracting", "comparing"]
ProgressListener = Callable[[Stage, int, int], None]
"""Called after every step; must be cheap."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    judges: tuple[str, ...]
    """As in CLARA_JUDGES; the first model among them also reads the submissions."""
    schedule: str = "auto"
    max_games: int | None = None
    """What money and time allow; None is no limit."""
    reader: str | None = None
    """Who reads the submissions, where a person ruled so; None is the models of the jury."""
    tokens: TokenLimits | None = None
    """How long answers may be; None for a round planned before limits grew: a cut answer is asked for as it was."""

    reading: ReadingBudget | None = None
    """What reading the entries may cost; None if there is no cap, or nothing that costs."""

    @property
    def models(self) -> tuple[str, ...]:
        jury = tuple(name for name in self.judges if name != "rules")
        return jury if self.reader is None or self.reader in jury else (*jury, self.reader)

    @property
    def readers(self) -> tuple[str, ...]:
        """The models that read the submissions: the first, then the next if it cannot answer."""
        return self.models if self.reader is None else (self.reader,)


def no_listener(stage: Stage, done: int, total: int) -> None:
    """Ignore the progress of a run."""
