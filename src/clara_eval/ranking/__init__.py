"""The ranking room: from verdicts to an order that deserves the money, with its uncertainty beside it.

In come items in canonical order and results in any order; out goes a `Ranking`: Elo as specified, intervals, the margin
at the pay line, a consistency report and flags. What must hold: the same results give the same bytes, whatever the
order in which they arrived.
"""

from __future__ import annotations

from clara_eval.core.flags import Flag
from clara_eval.ranking.consistency import ConsistencyReport
from clara_eval.ranking.rank import Ranking, Standing, rank
from clara_eval.ranking.uncertainty import PayMargin

__all__ = ["ConsistencyReport", "Flag", "PayMargin", "Ranking", "Standing", "rank"]
