"""`evaluate`: judge one challenge by hand."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from clara_eval.actions.evaluate import EvaluationRequest, Observer
from clara_eval.actions.evaluate import evaluate as evaluate_challenge
from clara_eval.app import open_app
from clara_eval.chain.sender import Receipt, SendOutcome
from clara_eval.challenges.evaluate import Evaluation, read_scores
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.documents.results import Scores
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.progress import LiveProgress
from clara_eval.interfaces.cli.result import print_next, print_result
from clara_eval.interfaces.cli.screen import console, print_labelled, short_hex, wrapped

OUTCOMES = {
    SendOutcome.CONFIRMED: "posted, and deep enough in the chain to stay",
    SendOutcome.ALREADY_DONE: "it was posted already",
    SendOutcome.DRY_RUN: "a dry run: checked and rehearsed, nothing was sent",
    SendOutcome.REVERTED: "the transaction was mined, but reverted",
    SendOutcome.UNKNOWN: "sent, but not seen in a block yet",
}


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
    return receipt is not None and receipt.outcome not in {SendOutcome.REVERTED, SendOutcome.UNKNOWN}


async def _evaluate(
    settings: Settings, target: Address, dry_run: bool, restart: bool, schedule: str, max_games: int | None
) -> tuple[Evaluation, dict[str, object]]:
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


def _tell(done: Evaluation, scores: dict[str, object]) -> None:
    address = done.challenge.address
    print_result(Scores.model_validate(scores))
    if done.review is not None and done.receipt is None:
        print_labelled("Waits for", "a person:")
        for reason in (done.review.unless_decided, *done.review.reasons):
            for number, line in enumerate(wrapped(short_hex(reason), 13)):
                console(stderr=False).print(Text(f"{'             ' if number else '           - '}{line}"))
        print_next([f"review show {address}"])
    elif done.receipt is not None:
        print_labelled("Outcome", done.receipt.detail or OUTCOMES[done.receipt.outcome])
        print_next(_after(done.receipt, address))


def _after(receipt: Receipt, address: str) -> list[str]:
    """What a person does next."""
    if receipt.outcome is SendOutcome.DRY_RUN:
        return [f"evaluate {address}  # with CLARA_EVALUATOR_KEY: posts it", f"trace {address} -o trace.json"]
    if receipt.outcome in (SendOutcome.REVERTED, SendOutcome.UNKNOWN):
        return [f"evaluate {address}", f"status {address}"]
    return [f"verify {address}", f"trace {address} -o trace.json"]
