"""Prompts and answers, the port to a model, and the hash that names a request."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from clara_eval.core.hashing import plain_json
from clara_eval.judge.attestation.model import Signed

Purpose = Literal["schema", "features", "comparison"]
Stop = Literal["end", "max_tokens", "refusal"]
MOST_TOKENS = 2**53


@dataclass(frozen=True, slots=True)
class Prompt:
    purpose: Purpose
    system: str
    """The constant part of a stage, so providers can cache it."""
    user: str
    schema_json: str
    """JSON Schema of the answer, as text, so that a prompt is hashable."""
    max_tokens: int
    template: str
    """SHA-256 of the prompt file this was built from."""


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    model: str
    """The model id the provider says answered."""
    stop: Stop
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Of the input tokens, those read from the provider's cache."""
    cache_write_tokens: int = 0
    signed: Signed | None = None
    """The bytes and the signature, if the endpoint signs."""

    def __post_init__(self) -> None:
        """Raise ValueError for counts that no model can have used."""
        counts = (self.input_tokens, self.output_tokens, self.cached_tokens, self.cache_write_tokens)
        if not all(0 <= count < MOST_TOKENS for count in counts):
            raise ValueError(f"The token counts {counts} cannot be.")


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """An answer with the request it answers. `cost_micro_usd` is None if the model has no known price."""

    request: str
    run: str
    llm: str
    purpose: str
    answer: Answer
    cost_micro_usd: int | None


class Llm(Protocol):
    """One model at one provider. Raises Temporary for outages, ConfigError for a wrong key or model."""

    @property
    def name(self) -> str:
        """The name as in CLARA_JUDGES, for example `anthropic:claude-sonnet-4-5`."""
        ...

    async def complete(self, prompt: Prompt) -> Answer: ...


class ConnectedLlm(Llm, Protocol):
    """A model that holds connections, a thread or weights."""

    async def close(self) -> None: ...


class AnswerBook(Protocol):
    """The store of paid answers."""

    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]: ...
    async def answered(self, requests: Sequence[str]) -> set[str]:
        """Return those of the requests that have an answer."""
        ...

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        """Save, unless this request is answered already; return what is saved."""
        ...


class Asker(Protocol):
    """A model whose answers are kept."""

    @property
    def name(self) -> str: ...

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        """Prepare for these prompts; changes no answer, and by default does nothing."""
        del prompts

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        """Return the recorded answer of this request, or a new one that is recorded before it is returned."""
        ...


def request_hash(llm: str, prompt: Prompt, attempt: int = 0) -> str:
    """Hash the complete request. `attempt` counts how often an unusable answer was asked again."""
    begun = _begun(llm, prompt.purpose, prompt.system, prompt.schema_json, prompt.max_tokens, attempt).copy()
    begun.update(f"{plain_json(prompt.user)}}}".encode())
    return f"0x{begun.hexdigest()}"


@lru_cache(maxsize=256)
def _begun(llm: str, purpose: Purpose, system: str, schema_json: str, max_tokens: int, attempt: int) -> hashlib._Hash:
    """Hash up to the user's part, which comes last; the rest is constant for a stage."""
    body = {
        "llm": llm,
        "purpose": purpose,
        "system": system,
        "user": "",
        "schema": schema_json,
        "maxTokens": max_tokens,
        "attempt": attempt,
    }
    return hashlib.sha256(plain_json(body).removesuffix('""}').encode())
