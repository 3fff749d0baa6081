"""Errors of model calls; all but `RequestRefused` are `Temporary`, never a verdict about an entry."""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.core.errors import ConfigError, Temporary


class RateLimited(Temporary):
    """The provider asks for fewer calls (429) or is overloaded (529)."""


class Unanswered(Temporary):
    """The request was sent and no answer came back: it may be charged."""


class ServerFailed(Temporary):
    """The provider answered with a 5xx: it is down, or fails on this prompt."""


class RequestRefused(ConfigError):
    """The provider refuses the request (400, 422): a wrong model setting, or this prompt."""


class UnsignedAnswer(Unanswered):
    """An answer came, and may be charged, without the required signature."""


class Garbled(Unanswered):
    """Answers are charged and are not what was asked for, to any prompt."""


class TooSlow(Unanswered):
    """No answer within the time of a call."""


class AnswerCut(Temporary):
    """Every answer was cut at its token limit, up to the largest: never the entry's fault."""

    remedies = "Raise CLARA_ANSWER_TOKENS and the budget, or choose a model that thinks less"

    def __init__(self, what: str, requests: Sequence[str]) -> None:
        remedy = f"{self.remedies}; then evaluate anew (`evaluate --restart`)."
        super().__init__(f"{what}: no more is asked for.", remedy=remedy)
        self.requests = tuple(requests)
        """The hashes of all that was asked."""


class TooCostly(AnswerCut):
    """The share of one entry does not suffice; the others are judged without it."""

    remedies = "Raise CLARA_BUDGET_PER_CHALLENGE_USD"


class GoneWithout(Temporary):
    """A finished run went without this answer, so it is not asked for again."""


class OutOfTime(Temporary):
    """The time ends before this model can answer."""


class JudgeDown(Temporary):
    """The model failed too often in this run; a later run asks it again."""


class JudgeWaits(Temporary):
    """The provider asks for a pause too long to hold a place for."""
