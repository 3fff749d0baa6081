"""Stage 2: two typed vectors before a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clara_eval.judge.vector import JudgeVector
from clara_eval.judge.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, or None with the reason why there is none. `requests` are the hashes of what was asked."""

    verdict: Verdict | None
    reason: str
    requests: tuple[str, ...]


class Judge(Protocol):
    """Compares two vectors; `first` is shown as A."""

    @property
    def name(self) -> str: ...

    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision: ...
