"""From verdicts to a ranking: schedules, Elo, the model of how sure it is, and the margin at the pay line."""

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
