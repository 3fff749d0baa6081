"""The names for other programs: evaluate a challenge, rank comparisons, verify a trace, read a config.

Everything raises `ClaraError`s; nothing is printed, and the environment is read only if no settings are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clara_eval.config.eval_config import EvalConfig, parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address

if TYPE_CHECKING:
    from pathlib import Path

    from clara_eval.actions.evaluate import Evaluation
    from clara_eval.actions.rank import Ranking
    from clara_eval.actions.verify import Checked

__all__ = ["EvalConfig", "Settings", "evaluate", "parse_eval_config", "rank", "verify"]


async def evaluate(address: str, settings: Settings | None = None, *, dry_run: bool = False) -> Evaluation:
    """Judge one challenge and post its winners; without an evaluator key, or with `dry_run`, nothing is sent.

    A second call continues the first and pays for nothing twice.
    """
    from clara_eval.actions.evaluate import EvaluationRequest
    from clara_eval.actions.evaluate import evaluate as evaluate_challenge
    from clara_eval.app import open_app

    target = to_address(address, what="challenge")
    async with open_app(settings or Settings.from_env()) as app:
        return await evaluate_challenge(app, target, EvaluationRequest(is_named=True, dry_run=dry_run))


def rank(
    games: Iterable[tuple[str, str, str]], *, top: int | None = None, payout_bps: Sequence[int] | None = None
) -> Ranking:
    """Rank items by (left, right, winner) triples in any order, with intervals and the chance of the top.

    The winner is left, right, tie or a name; `payout_bps` are shares of a prize, best first.
    """
    from clara_eval.actions.rank import rank_comparisons

    return rank_comparisons(games, top, payout_bps)


async def verify(trace: str | Path, settings: Settings | None = None) -> Checked:
    """Recompute everything in a trace but the models' answers; BadTrace names what does not hold."""
    from clara_eval.actions.verify import verify_trace

    return await verify_trace(str(trace), settings or Settings.from_env())
