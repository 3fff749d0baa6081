"""Write the status of an evaluation, map errors to states, and count attempts.

Invariant: everything in the status is public; progress never decreases while an evaluation runs.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from clara_eval.challenges.review import read_review
from clara_eval.core import errors
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.codec import read_stored
from clara_eval.core.hashing import plain_json
from clara_eval.core.version import code_version
from clara_eval.documents.results import FINAL_STATES, MEANINGS, EvalStatus, StageProgress, State, Summary, read
from clara_eval.documents.store_keys import KeyOfOne, index_key, status_key
from clara_eval.evaluation.round import Stage
from clara_eval.store.leases import Busy
from clara_eval.store.sql_store import PublicKeys

_STATE_OF: tuple[tuple[type[BaseException], State | None], ...] = (
    (Busy, None),  # another process evaluates, and writes the status
    (errors.NotOurs, None),  # its poster scores it: nothing failed
    (errors.Stalled, "pending"),
    (errors.Unscorable, "unscorable"),
    (errors.Deferred, "deferred"),
    (errors.NotYet, "pending"),
    (errors.Temporary, "pending"),
    (errors.ConfigError, "pending"),
)  # The first match counts; every other error is a failure
_BY_SEVERITY: tuple[type[BaseException], ...] = (
    errors.NotYet, errors.Temporary, errors.Deferred, errors.NeedsReview, errors.BadInput, errors.NotFound,
    errors.ConfigError, errors.Unscorable, errors.CannotPublish, errors.Disagrees,
)  # fmt: skip
_PROGRESS_RANGES: dict[Stage, tuple[int, int]] = {
    "collecting": (0, 10),
    "executing": (10, 20),
    "extracting": (20, 40),
    "comparing": (40, 90),
}
Listener = Callable[[EvalStatus], None]
Clock = Callable[[], float]
attempts_key: KeyOfOne = "engine:attempts:{}".format
workflow_id: Callable[[int, Address, int], str] = "evaluate:{}:{}:{}".format
FAILED = "engine:failed:"  # Prefix of the key with the time of a failure and the version of the program
WRITE_SECONDS = 0.25  # Least time between two writes of progress
_AFTER_STAGES: frozenset[State] = FINAL_STATES | {"publishing", "review"}
_STATE_FIELDS = ("reason", "retryAt", "postedBy", "objectionsUntil", "postsAt")
CLOSED: dict[str, tuple[State, str]] = {
    "expired": ("failed", "It expired without scores: every submitter may claim an equal share."),
    "cancelled": ("unscorable", "The challenge was cancelled and the poster refunded."),
}  # State and reason of an evaluation whose contract ended without scores
# Each pattern begins only where a sentence or a name does: a long text without either takes linear time.
_PRIVATE_SENTENCE = re.compile(r"(?<![^.!?])[^.!?]*\bCLARA_[A-Z_]+[^.!?]*[.!?]?")
_PRIVATE_PLACE = re.compile(
    r"@?https?://[^\s,;)]+|(?<![\w-])(?<!\w\.)(?:(?:[\w-]+\.)+[a-z]{2,}|(?:\d+\.){3}\d+|localhost)(?::\d+)?"
    r"|\[[0-9a-f]*:[0-9a-f:]*\](?::\d+)?"
)


def public_text(text: str) -> str:
    """Remove the operator's settings and endpoints."""
    return _PRIVATE_PLACE.sub("…", _PRIVATE_SENTENCE.sub("", text)).strip()


def shown_to_all(status: EvalStatus) -> EvalStatus:
    """Remove the operator's settings and endpoints from the reason of a status."""
    if status.reason is None or status.status == "elsewhere":
        return status
    return status.model_copy(update={"reason": public_text(status.reason) or MEANINGS[status.status]})


def scored_elsewhere(evaluator: Address, poster: Address, ours: Address | None) -> EvalStatus | None:
    """Return the status of a challenge that others evaluate; None if we do, or `ours` is unknown."""
    if evaluator in {ZERO_ADDRESS, poster}:
        who = "The poster scores this challenge"
    elif ours is not None and evaluator != ours:
        who = f"Another evaluator, {evaluator}, scores this challenge"
    else:
        return None
    then = "Without scores by the scoring deadline every submitter may claim an equal share."
    return EvalStatus(status="elsewhere", progress=0, reason=f"{who}; this service does not evaluate it. {then}")


def status_without_evaluation(summary: Summary, ours: Address | None) -> EvalStatus:
    elsewhere = scored_elsewhere(Address(summary.evaluator), Address(summary.poster), ours)
    if elsewhere is None:
        return EvalStatus(status="pending", progress=0)
    if summary.scorePostedAt:
        by = summary.postedBy or ("poster" if summary.evaluator in {ZERO_ADDRESS, summary.poster} else "other")
        return EvalStatus(status="complete", progress=100, postedBy=by, reason=elsewhere.reason)
    state, reason = CLOSED.get(summary.chainStatus, (elsewhere.status, elsewhere.reason))
    return EvalStatus(status=state, progress=0, reason=reason)


async def evaluation_status(keys: PublicKeys, chain_id: int, address: str, ours: Address | None) -> EvalStatus | None:
    if (found := await read(keys, chain_id, EvalStatus, status_key(address))) is not None:
        return found
    summary = await read(keys, chain_id, Summary, index_key(address))
    return status_without_evaluation(summary, ours) if summary else None


def state_of(error: BaseException) -> State | None:
    return next((state for kind, state in _STATE_OF if isinstance(error, kind)), "failed")


def reason_of(error: BaseException) -> str:
    """Return the reason to publish; the message of an unexpected error stays in the log."""
    if isinstance(known := errors.as_ours(error), errors.ClaraError):
        return str(known)
    return f"An unexpected error ended the evaluation ({type(error).__name__})."


def gravest(error: BaseException) -> BaseException:
    """Return the most severe error of a group: a bug before a refusal, a refusal before an outage."""

    def severity(one: BaseException) -> int:
        exact = [rank for rank, kind in enumerate(_BY_SEVERITY) if isinstance(one, kind)]
        if exact:
            return min(exact) if not isinstance(one, errors.CannotPublish) else max(exact)
        return len(_BY_SEVERITY) + (0 if isinstance(one, errors.ClaraError) else 1)

    if isinstance(error, BaseExceptionGroup):
        return max(map(gravest, error.exceptions), key=severity)
    return errors.as_ours(error)


class StatusWriter:
    """Writer of the status of one evaluation; a stage calls it with its progress."""

    def __init__(
        self, keys: PublicKeys, chain_id: int, address: str, *, listener: Listener | None = None, now: Clock = time.time
    ) -> None:
        self._keys, self._chain_id, self._address = keys, chain_id, address
        self._listener, self._now = listener or (lambda _status: None), now
        self.meter: Callable[[], tuple[int, float]] = lambda: (0, 0.0)
        self._stage_began: dict[str, tuple[float, int]] = {}
        self._written_at = 0.0
        self._writing: asyncio.Task[None] | None = None
        self._earlier: EvalStatus | None = None
        start = int(now())
        self.status = EvalStatus(status="pending", progress=0, startedAt=start, updatedAt=start)

    @classmethod
    async def resumed(
        cls, keys: PublicKeys, chain_id: int, address: str, *, listener: Listener | None = None
    ) -> StatusWriter:
        """Return a writer that keeps the stored start time, and the progress unless it was final."""
        writer = cls(keys, chain_id, address, listener=listener)
        with suppress(ValueError):  # the status of another version may be unreadable: start over
            writer._earlier = await read(keys, chain_id, EvalStatus, status_key(address))
        if (earlier := writer._earlier) is not None:
            progress = 0 if earlier.status in FINAL_STATES else earlier.progress
            kept = {"stage": earlier.stage, "estimateUsd": earlier.estimateUsd, "warning": earlier.warning}
            writer.note(startedAt=earlier.startedAt or writer.status.startedAt, progress=progress, **kept)
        return writer

    def note(self, **changes: object) -> None:
        """Change fields, to be written with the next state or progress."""
        self.status = self.status.model_copy(update=changes)

    async def say_error(self, error: BaseException) -> None:
        """Write the state that an error means; after a post the state stays complete."""
        state, earlier = state_of(error), self._earlier
        if state is None or (isinstance(error, errors.NotFound) and earlier is None):
            return
        if earlier is not None and earlier.status == "complete" and earlier.postedBy:
            await self._flush()
            await self._write(earlier)
        else:
            at = error.retry_at if isinstance(error, errors.Deferred) else None
            await self.say(state, reason=reason_of(error), retryAt=at)

    def __call__(self, stage: Stage, done: int, total: int) -> None:
        """Show the progress of a stage; it is written in the background."""
        low, high = _PROGRESS_RANGES[stage]
        progress = max(self.status.progress, int(low + (high - low) * (done / total if total else 1.0)))
        state: State = "comparing" if stage == "comparing" else "extracting"
        calls, cost = self.meter()
        began, first = self._stage_began.setdefault(stage, (self._now(), done))
        elapsed, steps = self._now() - began, done - first
        shown = StageProgress(name=stage, done=done, total=total, calls=calls, costUsd=round(cost, 6))
        if steps > 0 and elapsed > 0:
            rate = steps / elapsed
            shown.callsPerSecond, shown.secondsLeft = round(rate, 2), round((total - done) / rate, 1)
        self._change(status=state, progress=progress, reason=None, retryAt=None, stage=shown)
        if self._now() - self._written_at >= WRITE_SECONDS and (self._writing is None or self._writing.done()):
            self._write_soon()

    def tell_trouble(self, trouble: str) -> None:
        """Show what the stage waits for, until it makes progress."""
        if trouble != self.status.reason:
            self._change(reason=trouble)
            self._write_soon()

    def _change(self, **changes: object) -> None:
        self.note(updatedAt=int(self._now()), **changes)
        self._listener(self.status)

    def _write_soon(self) -> None:
        earlier = self._writing

        async def write() -> None:
            if earlier is not None:
                await asyncio.wait((earlier,))
            await self._write(self.status)

        self._written_at = self._now()
        self._writing = asyncio.get_running_loop().create_task(write())

    async def say(self, state: State, progress: int = 0, **fields: int | str | None) -> None:
        """Change the state and write it; `fields` are named in `_STATE_FIELDS`, and reset if not given."""
        await self._flush()
        self._change(
            status=state,
            progress=100 if state in FINAL_STATES else max(self.status.progress, progress),
            stage=None if state in _AFTER_STAGES else self.status.stage,
            **dict.fromkeys(_STATE_FIELDS) | fields,
        )
        await self._write(self.status)

    async def _flush(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            with suppress(errors.Temporary):  # the next state is written anyway
                await writing

    async def _write(self, status: EvalStatus) -> None:
        if status.status == "failed":
            await self._keys.put(self._chain_id, FAILED + self._address, _failed_by_us(status))
        await self._keys.put(self._chain_id, status_key(self._address), plain_json(status.model_dump()))


def _failed_by_us(status: EvalStatus) -> str:
    return f"{status.updatedAt} {code_version()}"


async def is_to_try_again(keys: PublicKeys, chain_id: int, address: str, status: EvalStatus) -> bool:
    """Return whether another version ended the round as failed, so that this one may finish it."""
    if status.status != "failed" or await keys.get(chain_id, FAILED + address) == _failed_by_us(status):
        return False
    review = await read_review(keys, chain_id, address)
    return review is None or review.state != "rejected"


@dataclass(frozen=True, slots=True)
class Attempts:
    number: int = 1
    failures: int = 0
    retry_at: int | None = None

    def after(self, retry_at: int | None, *, failed: bool) -> Attempts:
        return Attempts(self.number + 1, self.failures + 1 if failed else 0, retry_at)


async def read_attempts(keys: PublicKeys, chain_id: int, address: str) -> Attempts:
    return read_stored(Attempts, await keys.get(chain_id, attempts_key(address)) or "{}")


async def save_attempts(keys: PublicKeys, chain_id: int, address: str, attempts: Attempts) -> None:
    await keys.put(chain_id, attempts_key(address), plain_json(asdict(attempts)))


async def try_at_once(keys: PublicKeys, chain_id: int, address: str) -> None:
    """Let the next attempt begin now, regardless of earlier failures."""
    await save_attempts(keys, chain_id, address, replace(await read_attempts(keys, chain_id, address), retry_at=None))
