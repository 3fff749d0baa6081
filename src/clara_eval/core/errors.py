"""The errors of the product, named by what the caller does next: wait, try again, refuse, stop."""

from __future__ import annotations

from typing import Literal


class ClaraError(Exception):
    """The root. `remedy` says what the reader can do about it."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigError(ClaraError):
    """A setting is wrong: the process ends at once with this sentence."""


class BadInput(ClaraError):
    """A person or program handed in something unusable; `path` points into it, `value` is the offender."""

    def __init__(self, message: str, *, path: str = "", value: object = None, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path
        self.value = value


class NotFound(ClaraError):
    """No such challenge, trace or contract here."""


class NotPublic(ClaraError):
    """It exists, and this reader may not see it."""


class NotYet(ClaraError):
    """A deadline or status is not reached: look again at the next tick."""


class Temporary(ClaraError):
    """A node, gateway or model does not answer now: back off and try again. Never a verdict about anybody."""

    def __init__(self, message: str, *, remedy: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after_seconds = retry_after_seconds
        self.longest_pause_seconds: float | None = None
        """Whoever waits may not wait longer than this: a window would close meanwhile."""


class BadAnswer(ClaraError):
    """The model's text is not what was asked for: ask again, then record it as undecided with this reason."""


class BadSubmission(ClaraError):
    """This submission cannot be judged: it is recorded as rejected, with `code` for programs, and the round goes on."""

    def __init__(self, message: str, *, code: str = "unreadable", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.code = code


class GivenUp(BadSubmission):
    """An outage lasted until nothing was tried any more. Nobody knows whose fault it was."""


class CannotPublish(ClaraError):
    """The contract would refuse, or we must not send: stop this challenge and raise the alarm."""


class CannotAct(ClaraError):
    """A poster's or agent's action would be refused, or their wallet must not do it: nothing more was sent."""


class NotOurs(CannotPublish):
    """Somebody else scores this challenge: nothing failed, and its status is not ours to write."""


class Stalled(CannotPublish, Temporary):
    """Nothing can be sent now, and it goes on by itself once the cause has passed; a person is told meanwhile."""

    def __init__(
        self, message: str, *, cause: Literal["balance", "gas_cap", "nonces", "gap"], remedy: str = ""
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.cause = cause


class Unscorable(CannotPublish):
    """No possible result can be posted, for example fewer submitters than winners."""


class Deferred(ClaraError):
    """A budget cap is reached: the challenge waits. `retry_at` is when it will be looked at again."""

    def __init__(self, message: str, *, remedy: str = "", retry_at: int | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_at = retry_at


class OutOfBudget(Temporary):
    """The budget of a run is used up, by answers or (`is_lost`) by calls that were never answered.

    A run goes without what its answers left no money for; what was lost is our outage, and is waited for.
    """

    def __init__(self, message: str, *, remedy: str = "", is_lost: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.is_lost = is_lost


class NeedsReview(ClaraError):
    """A person has to approve before anything is posted."""


class Disagrees(ClaraError):
    """A pure step gives another result than the recorded one: code or data changed under a running evaluation."""


class BadTrace(ClaraError):
    """A trace does not hold; `entry` names the first entry that is wrong."""

    def __init__(self, message: str, *, entry: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.entry = entry
