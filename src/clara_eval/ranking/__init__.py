"""Turn verdicts into a ranking: schedules, Elo ratings, a model of their uncertainty, pay margins."""

from __future__ import annotations

from clara_eval.ranking.rank import Ranking, Standing, rank, rate
from clara_eval.ranking.results import Group, Pairing, Result, Tally, tally
from clara_eval.ranking.schedule import Schedule, choose_schedule

__all__ = [
    "Group",
    "Pairing",
    "Ranking",
    "Result",
    "Schedule",
    "Standing",
    "Tally",
    "choose_schedule",
    "rank",
    "rate",
    "tally",
]
