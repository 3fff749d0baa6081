"""From verdicts to a ranking: schedules, Elo, intervals and the margin at the pay line."""

from __future__ import annotations

from clara_eval.core.flags import Flag
from clara_eval.ranking.consistency import ConsistencyReport
from clara_eval.ranking.rank import Ranking, Standing, rank
from clara_eval.ranking.uncertainty import PayMargin

__all__ = ["ConsistencyReport", "Flag", "PayMargin", "Ranking", "Standing", "rank"]
