"""The outages that need more than patience.

All but `RequestRefused` are `Temporary`: never a verdict about anybody. `RateLimited` slows every caller of the judge
down. `Unanswered` means that the request left us and no answer came back, so the provider may have charged for it: the
budget counts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.core.errors import ConfigError, Temporary


class RateLimited(Temporary):
    """The provider asks for fewer calls (429) or is overloaded (529)."""


class Unanswered(Temporary):
    """The request was sent and no answer came back."""


class ServerFailed(Temporary):
    """The provider answered with a 5xx: it is not well, or it chokes on this very prompt."""


class RequestRefused(ConfigError):
    """The provider refuses the request (400, 422): the model is set up wrongly, or it is this very prompt."""


class UnsignedAnswer(Unanswered):
    """An answer came, and may be charged, without the signature that it has to have."""


class Garbled(Unanswered):
    """An answer came, and is charged, that is nothing of what was asked for, and so is what it says to others."""


class TooSlow(Unanswered):
    """No answer within the time of a call."""


class AnswerCut(Temporary):
    """Every answer was cut at its token limit, up to the largest: our limit or the model's, never the entry's fault.

    Asking later gives the recorded answers again, so nothing waits for it.
    """

    remedies = "Raise CLARA_ANSWER_TOKENS and the budget, or choose a model that thinks less"

    def __init__(self, what: str, requests: Sequence[str]) -> None:
        remedy = f"{self.remedies}; then evaluate anew (`evaluate --restart`)."
        super().__init__(f"{what}: no more is asked for.", remedy=remedy)
        self.requests = tuple(requests)
        """The hashes of all that was asked."""


class TooCostly(AnswerCut):
    """What one entry may cost is used up or would not suffice: the others are read and compared without it."""

    remedies = "Raise CLARA_BUDGET_PER_CHALLENGE_USD"


class GoneWithout(Temporary):
    """A finished walk went without this answer, so it is not asked for again."""


class OutOfTime(Temporary):
    """The round's wall-clock budget ends before this judge can answer."""


class JudgeDown(Temporary):
    """The judge failed so often that this run goes on without it; a later run asks it again."""


class JudgeWaits(Temporary):
    """The provider asks for a long pause: whoever waits for it should hold nothing meanwhile."""
