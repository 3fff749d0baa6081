"""The few names for other programs: evaluate a challenge, rank any comparisons, verify a trace, read a config.

The same code as the commands, without a shell. Everything raises `ClaraError`s with a reason and a remedy; nothing is
printed, and nothing is read from the environment unless no settings are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from clara_eval.config.eval_config import EvalConfig, parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

    from clara_eval.actions.rank import Ranking
    from clara_eval.challenges.evaluate import Evaluation
    from clara_eval.evaluation.replay import Checked

__all__ = ["EvalConfig", "Settings", "evaluate", "parse_eval_config", "rank", "verify"]

Verdict = Literal["left", "right", "tie"]
_SIDES = frozenset({"left", "right", "tie"})


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


def rank(games: Iterable[tuple[str, str, Verdict]], *, payout_bps: Sequence[int] = (10000,)) -> Ranking:
    """Rank items by (left, right, winner) triples in any order, with intervals and the margin at the pay line."""
    from clara_eval.actions.rank import rank_games

    checked = []
    for number, game in enumerate(games):
        if not _is_comparison(game):
            raise BadInput(
                f"Game {number} {str(game)[:200]} is not a comparison of two items.",
                path=f"games[{number}]",
                remedy='Give two different names and "left", "right" or "tie".',
            )
        checked.append(game)
    return rank_games(checked, payout_bps)


def _is_comparison(game: object) -> bool:
    """Programs without types call this too."""
    if not isinstance(game, Sequence) or len(game) != 3 or not all(isinstance(part, str) and part for part in game):
        return False
    return game[0] != game[1] and game[2] in _SIDES


async def verify(trace: str | Path, settings: Settings | None = None) -> Checked:
    """Walk a trace file again and recompute everything but the models' words; BadTrace names what does not hold."""
    from clara_eval.actions.verify import verify_trace

    return await verify_trace(str(trace), settings or Settings.from_env())
