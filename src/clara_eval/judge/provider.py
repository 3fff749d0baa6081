"""What a provider of judges declares; one file with a `PROVIDER`, found by `providers/registry.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from clara_eval.config.settings import Settings
from clara_eval.judge.costs.budgets import RunBudget
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.port import AnswerBook, ConnectedLlm, JournalEntries, Llm, Prompt

EFFORT = "low"  # effort of models that think: judges read short texts and compare a few typed facts
LONGEST_CALL_SECONDS = 900.0  # Time-out of one HTTP call; `RetryPolicy.call_limit` is shorter


@dataclass(frozen=True, slots=True)
class JudgeName:
    """One judge. `text` is its name in traces; `base_url` only for a foreign endpoint."""

    text: str
    provider: str
    model: str
    base_url: str | None = None
    attestation: str = ""  # how its endpoint signs, the word after `#`; empty: not at all


class JudgeStore(AnswerBook, JournalEntries, Protocol):
    """The answer book, and the journals of batches and of attested keys; the store fulfils it."""


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One model in one run, and the money for it."""

    llm: Llm
    store: JudgeStore
    run: str
    budget: RunBudget
    card: PriceCard | None
    poll_seconds: float = 20.0


AnswerInBatches = Callable[[BatchRun, Sequence[Prompt], float], Awaitable[bool]]
"""Answers prompts in batches, given the seconds left; False if that is not worth it and they must be asked singly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    name: str  # the word before the colon in CLARA_JUDGES
    form: str  # how its judges are written, for messages and documents
    build: Callable[[JudgeName, Settings], ConnectedLlm] | None
    """Connects nothing yet; a missing key or package is a ConfigError. None: judges without a model."""
    price: Callable[[JudgeName, datetime], PriceCard | None]
    takes_address: bool = False  # whether `@https://host/v1` may follow the model
    models: tuple[str, ...] = ()  # all models there are; empty: any name is passed on
    most_at_once: int | None = None  # concurrent calls, if fewer than CLARA_MAX_CONCURRENCY
    thinks: Callable[[JudgeName], bool] = lambda _judge: False
    """Whether a judge thinks before it answers, as far as that is known."""
    most_tokens: int | None = None  # the longest answer, if shorter than CLARA_ANSWER_TOKENS
    answer_in_batches: AnswerInBatches | None = None
    signs: tuple[str, ...] = ()
    """How endpoints may sign their answers inside an enclave (`near`, `aci`); what is built then has `report`."""
