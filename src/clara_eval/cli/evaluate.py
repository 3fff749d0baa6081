"""`evaluate`: judge one challenge by hand."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from clara_eval.app import open_app
from clara_eval.challenge.model import Address, to_address
from clara_eval.cli.options import AddressArgument, JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.progress import LiveProgress
from clara_eval.cli.screen import console, safe
from clara_eval.pipeline.evaluate import Evaluation, read_scores
from clara_eval.publish.send import Outcome, Receipt
from clara_eval.settings import Settings
from clara_eval.use_cases.evaluate import EvaluationRequest, Observer
from clara_eval.use_cases.evaluate import evaluate as evaluate_challenge


def evaluate(
    address: AddressArgument,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compute and rehearse everything, send nothing.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an unfinished evaluation and start again.")
    ] = False,
    schedule: Annotated[str, typer.Option(help="auto, full, both, adaptive or fours (orders of four first).")] = "auto",
    max_games: Annotated[int | None, typer.Option(help="Compare at most this many times.", min=1)] = None,
    json: JsonFlag = False,
) -> None:
    """Evaluate one challenge and post its winners; without a key it is a dry run."""
    target = to_address(address)
    settings = Settings.from_env()
    done, scores = asyncio.run(_evaluate(settings, target, dry_run, restart, schedule, max_games))
    if json:
        emit_json(scores)
    else:
        _tell(done, scores)
    if not is_done(done.receipt):
        raise typer.Exit(1)


def is_done(receipt: Receipt | None) -> bool:
    """Whether nothing is left to do: not while a person, the chain or a new attempt is waited for."""
    return receipt is not None and receipt.outcome not in {Outcome.REVERTED, Outcome.UNKNOWN}


async def _evaluate(
    settings: Settings, target: Address, dry_run: bool, restart: bool, schedule: str, max_games: int | None
) -> tuple[Evaluation, dict[str, Any]]:
    async with open_app(settings) as app:
        with LiveProgress(console()) as progress:
            plan = app.plan(schedule=schedule, max_games=max_games)
            request = EvaluationRequest(
                is_named=True, plan=plan, dry_run=dry_run, restart=restart, observer=Observer(progress)
            )
            done = await evaluate_challenge(app, target, request)
        scores = await read_scores(app.store, app.chain_id, target) or {}
    status = "review" if done.receipt is None else done.receipt.outcome.value
    return done, {"challenge": target, "status": status, **scores}


def _tell(done: Evaluation, scores: dict[str, Any]) -> None:
    screen = console(stderr=False)
    for row in scores["rankings"]:
        rated = "not rated here" if row["elo"] is None else f"Elo {row['elo']:.0f}"
        elo = "rejected: " + row["code"] if row["status"] == "rejected" else rated
        screen.print(
            f"{row['rank']:>3}. {row['address']}  {elo}  score {row['score']}  prize {row['prizeAmount'] or '–'}"
        )
    if done.review is not None and done.receipt is None:
        screen.print("A person must approve before anything is posted:")
        for reason in done.review.reasons:
            screen.print(f"  - {safe(reason, 600)}", soft_wrap=True)
        screen.print(f"Approve with `clara-eval review approve {done.challenge.address}`, then evaluate again.")
    elif done.receipt is not None:
        said = [part for part in (done.receipt.tx_hash, done.receipt.detail) if part] or ["nothing was sent"]
        screen.print(f"{done.receipt.outcome.value}: {safe(' '.join(said), 1000)}", soft_wrap=True)
