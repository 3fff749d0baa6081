"""The plan of a round: who judges and how many games. It is part of the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from clara_eval.judge.costs.budgets import ReadingBudget
from clara_eval.judge.reading import TokenLimits

Stage = Literal["collecting", "executing", "extracting", "comparing"]


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


class ProgressListener(Protocol):
    """Called after every step; must be cheap."""

    def __call__(self, stage: Stage, done: int, total: int) -> None: ...


def no_listener(stage: Stage, done: int, total: int) -> None:
    """For walks that nobody follows."""
