"""The errors of the product, named by what the caller does next: wait, retry, refuse, stop."""

from __future__ import annotations

import errno
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

_RESOURCE_BY_ERRNO = {
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOMEM: "memory",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}


@dataclass(eq=False, repr=False)
class ClaraError(Exception):
    """The base of our errors; `remedy` says what to do.

    `see` is the code of an action that helps and `about` its address; each interface words the hint itself.
    """

    message: str
    _: KW_ONLY
    remedy: str = ""
    see: str = ""
    about: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigError(ClaraError):
    """A setting is wrong: the process ends with this message."""


@dataclass(eq=False, repr=False, kw_only=True)
class BadInput(ClaraError):
    """The input is unusable; `path` points to the wrong part, `value` is that part."""

    path: str = ""
    value: object = None


class NotFound(ClaraError):
    """There is no such challenge, trace or contract."""


class NotPublic(ClaraError):
    """The document exists, but this reader may not see it."""


class NotYet(ClaraError):
    """A deadline or status is not reached yet: look again at the next tick."""


@dataclass(eq=False, repr=False, kw_only=True)
class Temporary(ClaraError):
    """A node, gateway or model does not respond: retry later. Never a verdict."""

    retry_after_seconds: float | None = None
    longest_pause_seconds: float | None = field(default=None, init=False)
    """The longest pause before the next attempt: after it a deadline would pass."""


class StoreDown(Temporary):
    """The database does not respond, or accepts no writes."""


class RanOut(Temporary):
    """This machine has no more file descriptors, memory, disk space or threads."""


def as_ours(error: BaseException) -> BaseException:
    """Convert an error of an exhausted resource to `RanOut`; return any other error as it is."""
    what = _RESOURCE_BY_ERRNO.get(error.errno or 0) if isinstance(error, OSError) else None
    if isinstance(error, MemoryError):
        what = "memory"
    elif isinstance(error, RuntimeError) and "start new thread" in str(error):
        what = "threads"
    if what is None:
        return error
    return RanOut(f"This machine has no more {what}.", remedy="Free some, or raise the limit; the work is tried again.")


class BadAnswer(ClaraError):
    """The model's answer cannot be parsed: ask again, then record it as undecided."""


@dataclass(eq=False, repr=False, kw_only=True)
class BadSubmission(ClaraError):
    """The submission cannot be judged: it is rejected with `code`, and the round continues."""

    code: str = "unreadable"


class CannotPublish(ClaraError):
    """The contract would revert, or we must not send: stop this challenge and alert."""


class CannotAct(ClaraError):
    """The contract would revert a poster's or agent's action: nothing more was sent."""


class NotOurs(CannotPublish):
    """Another evaluator scores this challenge: we do not write its status."""


@dataclass(eq=False, repr=False, kw_only=True)
class Stalled(CannotPublish, Temporary):
    """Nothing can be sent now; sending continues by itself once the cause is gone."""

    cause: Literal["balance", "gas_cap", "nonces", "gap"]


class Unscorable(CannotPublish):
    """No possible result can be posted, for example fewer submitters than winners."""


@dataclass(eq=False, repr=False, kw_only=True)
class Deferred(ClaraError):
    """A budget cap is reached: the challenge waits until `retry_at`."""

    retry_at: int | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class OutOfBudget(Temporary):
    """The budget of a run is used up, by answers or (`is_lost`) by calls without a response."""

    is_lost: bool = False


class NeedsReview(ClaraError):
    """A person has to approve before anything is posted."""


class Disagrees(ClaraError):
    """A deterministic step differs from its record: code or data changed during an evaluation."""


@dataclass(eq=False, repr=False, kw_only=True)
class BadTrace(ClaraError):
    """A trace is wrong; `entry` names the first wrong entry."""

    entry: str = ""
