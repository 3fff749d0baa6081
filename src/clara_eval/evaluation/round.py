"""A round: the entries to rank and the terms to rank them by, as any venue gives them."""

from __future__ import annotations

from dataclasses import dataclass

from clara_eval.config.eval_config import EvalConfig, Metadata
from clara_eval.core.submission import Submission, Version


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
