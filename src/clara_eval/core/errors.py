"""The errors of the product, named by what the caller does next: wait, try again, refuse, stop."""

from __future__ import annotations

import errno
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

_RUN_OUT = {
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOMEM: "memory",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}


@dataclass(eq=False, repr=False)
class ClaraError(Exception):
    """The root of our errors; `remedy` says what to do.

    `see` is the code of an action that helps, about an address; each interface writes its own sentence for it.
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
    """A setting is wrong: the process ends with this sentence."""


@dataclass(eq=False, repr=False, kw_only=True)
class BadInput(ClaraError):
    """The input is unusable; `path` points into it, `value` is the offender."""

    path: str = ""
    value: object = None


class NotFound(ClaraError):
    """No such challenge, trace or contract here."""


class NotPublic(ClaraError):
    """It exists, and this reader may not see it."""


class NotYet(ClaraError):
    """A deadline or status is not reached: look again at the next tick."""


@dataclass(eq=False, repr=False, kw_only=True)
class Temporary(ClaraError):
    """A node, gateway or model does not answer now: try again later. Never a verdict."""

    retry_after_seconds: float | None = None
    longest_pause_seconds: float | None = field(default=None, init=False)
    """The longest wait that is allowed: after it a window would close."""


class StoreDown(Temporary):
    """The database does not answer, or takes no write."""


class RanOut(Temporary):
    """This machine has no more file descriptors, memory, disk space or threads."""


def as_ours(error: BaseException) -> BaseException:
    """Return `RanOut` for an error that says so, else the error itself."""
    what = _RUN_OUT.get(error.errno or 0) if isinstance(error, OSError) else None
    if isinstance(error, MemoryError):
        what = "memory"
    elif isinstance(error, RuntimeError) and "start new thread" in str(error):
        what = "threads"
    if what is None:
        return error
    return RanOut(f"This machine has no more {what}.", remedy="Free some, or raise the limit; it goes on by itself.")


class BadAnswer(ClaraError):
    """The model's text is not what was asked for: ask again, then record it as undecided."""


@dataclass(eq=False, repr=False, kw_only=True)
class BadSubmission(ClaraError):
    """The submission cannot be judged: it is rejected with `code`, and the round continues."""

    code: str = "unreadable"


class CannotPublish(ClaraError):
    """The contract would refuse, or we must not send: stop this challenge and alert."""


class CannotAct(ClaraError):
    """A poster's or agent's action would be refused: nothing more was sent."""


class NotOurs(CannotPublish):
    """Another evaluator scores this challenge: its status is not ours to write."""


@dataclass(eq=False, repr=False, kw_only=True)
class Stalled(CannotPublish, Temporary):
    """Nothing can be sent now; it continues by itself once the cause is gone."""

    cause: Literal["balance", "gas_cap", "nonces", "gap"]


class Unscorable(CannotPublish):
    """No possible result can be posted, for example fewer submitters than winners."""


@dataclass(eq=False, repr=False, kw_only=True)
class Deferred(ClaraError):
    """A budget cap is reached: the challenge waits until `retry_at`."""

    retry_at: int | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class OutOfBudget(Temporary):
    """The budget of a run is used up, by answers or (`is_lost`) by calls that were never answered."""

    is_lost: bool = False


class NeedsReview(ClaraError):
    """A person has to approve before anything is posted."""


class Disagrees(ClaraError):
    """A pure step gives another result than recorded: code or data changed during an evaluation."""


@dataclass(eq=False, repr=False, kw_only=True)
class BadTrace(ClaraError):
    """A trace is wrong; `entry` names the first wrong entry."""

    entry: str = ""
