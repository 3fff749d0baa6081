"""The interface to language models: prompts, answers, protocols, request hashes, and errors of calls."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.hashing import plain_json

Purpose = Literal["schema", "features", "comparison"]
Stop = Literal["end", "max_tokens", "refusal"]
MOST_TOKENS = 2**53


@dataclass(frozen=True, slots=True)
class Prompt:
    purpose: Purpose
    system: str
    user: str
    schema_json: str  # JSON Schema of the answer, as text, so that a prompt is hashable
    max_tokens: int
    template: str


@dataclass(frozen=True, slots=True)
class Signed:
    """The signature of one answer, with the exact bytes that it covers."""

    interface: str
    key: str  # near: the signing address; aci: `KEY_ID@KEYSET_DIGEST`
    request: str  # base64
    response: str  # base64
    proof: str  # the signature document as received


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    model: str
    stop: Stop
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    signed: Signed | None = None
    sampling: str | None = None  # sampling options that were sent: `temperature 0, seed 1`, or `neither`; None: unknown

    def __post_init__(self) -> None:
        counts = (self.input_tokens, self.output_tokens, self.cached_tokens, self.cache_write_tokens)
        if min(counts) < 0 or max(counts) >= MOST_TOKENS:
            raise ValueError(f"The token counts {counts} cannot be.")


def describe_sampling(sampling: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sampling.items()) or "neither"


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

    async def complete(self, prompt: Prompt) -> Answer: ...


class ConnectedLlm(Llm, Protocol):
    """A model that holds connections, a thread or weights."""

    async def close(self) -> None: ...


class AnswerBook(Protocol):
    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]: ...

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        """Save, unless this request is answered already; return what is saved."""


class JournalEntries(Protocol):
    """Entries of a run by key; the first write of a key counts."""

    async def entry(self, run: str, key: str) -> str | None: ...
    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]: ...
    async def add_entry(self, run: str, key: str, value: str) -> str: ...
    async def forget_entry(self, run: str, key: str) -> None: ...
    async def forget_run(self, run: str) -> None: ...


class Asker(Protocol):
    @property
    def name(self) -> str: ...

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        """Prepare for these prompts; changes no answer, and by default does nothing."""
        del prompts

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        """Return the recorded answer of this request, or a new one that is recorded before it is returned."""


def request_hash(llm: str, prompt: Prompt, attempt: int = 0) -> str:
    """Hash the complete request. `attempt` counts the retries after unusable answers."""
    digest = _hash_prefix(llm, prompt.purpose, prompt.system, prompt.schema_json, prompt.max_tokens, attempt).copy()
    digest.update(f"{plain_json(prompt.user)}}}".encode())
    return f"0x{digest.hexdigest()}"


@lru_cache(maxsize=256)
def _hash_prefix(llm: str, purpose: Purpose, system: str, schema_json: str, most: int, attempt: int) -> hashlib._Hash:
    """Hash everything before the user prompt, which is last; it is constant for a stage."""
    body = {"llm": llm, "purpose": purpose, "system": system, "user": "", "schema": schema_json, "maxTokens": most}
    return hashlib.sha256(plain_json(body | {"attempt": attempt}).removesuffix('""}').encode())


# Errors of model calls: all but `RequestRefused` are `Temporary`, never a verdict about an entry.


class RateLimited(Temporary):
    """The provider limits the rate (429) or is overloaded (529)."""


class Unanswered(Temporary):
    """The request was sent and no answer came back; it may be charged."""


class ServerFailed(Temporary):
    """The provider answered with a 5xx: it is down, or fails on this prompt."""


class RequestRefused(ConfigError):
    """The provider refuses the request (400, 422): a wrong model setting, or this prompt."""


class TooSlow(Unanswered):
    """No answer came within the timeout of a call."""


class AnswerCut(Temporary):
    """Every answer was cut at its token limit, or one entry's budget is used up; never the entry's fault."""

    def __init__(self, what: str, requests: Sequence[str], remedy: str = "") -> None:
        remedy = remedy or "Raise CLARA_ANSWER_TOKENS and the budget, or choose a model that thinks less"
        remedy = f"{remedy}; then evaluate anew (`evaluate --restart`)."
        super().__init__(f"{what}: no more is asked for.", remedy=remedy)
        self.requests = tuple(requests)  # hashes of all answered requests


class NothingJudged(Temporary):
    """Most questions of a stage have no usable answer; `requests` are sent again in a later run."""

    def __init__(self, what: str, requests: Sequence[str], retry_after_seconds: float | None = None) -> None:
        remedy = "It is asked again later; if it lasts, name another judge in CLARA_JUDGES."
        super().__init__(what, remedy=remedy, retry_after_seconds=retry_after_seconds)
        self.requests = tuple(requests)


class GoneWithout(Temporary):
    """A finished run did without this answer, so it is not requested again."""


class OutOfTime(Temporary):
    """The deadline is before this model can answer."""


class JudgeDown(Temporary):
    """The model fails or is unparsable too often, or asks for a long pause; a later run tries it again."""
