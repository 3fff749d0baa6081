"""`evaluate`, `status` and `check`: what an operator does by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clara_eval.cli.output import console, emit_json, fail, run, safe

if TYPE_CHECKING:
    from clara_eval.pipeline.evaluate import Evaluation
    from clara_eval.publish.send import Receipt

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
AddressArgument = Annotated[str, typer.Argument(help="The challenge's address.")]


def evaluate(
    address: AddressArgument,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compute and rehearse everything, send nothing.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Forget an unfinished walk and begin anew.")] = False,
    schedule: Annotated[str, typer.Option(help="auto, full, both or adaptive.")] = "auto",
    max_games: Annotated[int | None, typer.Option(help="At most so many games.", min=1)] = None,
    json: JsonFlag = False,
) -> None:
    """Evaluate one challenge and post its winners; without a key it is a dry run."""
    from clara_eval.challenge.model import to_address
    from clara_eval.settings import Settings

    target = to_address(address)
    settings = Settings.from_env()
    done, scores = run(_evaluate(settings, target, dry_run, restart, schedule, max_games))
    if json:
        emit_json(scores)
    else:
        _tell(done, scores)
    if not is_settled(done.receipt):
        raise typer.Exit(1)


def is_settled(receipt: Receipt | None) -> bool:
    """Whether nothing is left to do: not while a person, the chain or a new attempt is waited for."""
    from clara_eval.publish.send import Outcome

    return receipt is not None and receipt.outcome not in {Outcome.REVERTED, Outcome.UNKNOWN}


async def _evaluate(
    settings: Any, target: Any, dry_run: bool, restart: bool, schedule: str, max_games: int | None
) -> tuple[Evaluation, dict[str, Any]]:
    from clara_eval.app import open_app
    from clara_eval.cli.progress import LiveProgress
    from clara_eval.pipeline.evaluate import evaluate as walk
    from clara_eval.pipeline.evaluate import read_scores
    from clara_eval.trace.journal import Journal

    async with open_app(settings) as app:
        app.sender.account.trust(target)  # a person named it, so it need not be in the factory's list
        if restart:
            await Journal(app.store, f"{app.chain_id}:{target}").forget()
        with LiveProgress(console()) as progress:
            plan = app.plan(schedule=schedule, max_games=max_games)
            done = await walk(target, app.ports, app.options(plan, dry_run=dry_run, listener=progress))
        scores = await read_scores(app.store, app.chain_id, target) or {}
    status = "review" if done.receipt is None else done.receipt.outcome.value
    return done, {"challenge": target, "status": status, **scores}


def _tell(done: Evaluation, scores: dict[str, Any]) -> None:
    screen = console(stderr=False)
    for row in scores["rankings"]:
        elo = "rejected: " + row["code"] if row["status"] == "rejected" else f"Elo {row['elo']:.0f}"
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


def status(address: AddressArgument, *, json: JsonFlag = False) -> None:
    """Show where the evaluation of a challenge stands."""
    from clara_eval.challenge.model import to_address
    from clara_eval.settings import Settings

    target = to_address(address)
    document = run(_status(Settings.from_env(), target))
    if document is None:
        fail(f"No evaluation of {target} is known in this store. `clara-eval evaluate {target}` starts one.", code=1)
    if json:
        emit_json({"challenge": target, **document})
    else:
        screen = console(stderr=False)
        screen.print(f"{target}  {document['status']}  {document['progress']} %")
        if document.get("reason"):
            screen.print(safe(str(document["reason"]), 1000), soft_wrap=True)


async def _status(settings: Any, target: str) -> dict[str, Any] | None:
    from clara_eval.pipeline.status import read_status
    from clara_eval.store.open import open_store

    store = await open_store(settings.database_url)
    try:
        return await read_status(store, settings.network.chain_id, target)
    finally:
        await store.close()


def check(*, json: JsonFlag = False) -> None:
    """Look at settings, node, wallet, store and judges, and say what is ready and what is not."""
    from clara_eval.settings import Settings
    from clara_eval.use_cases.check import preflight

    findings = run(preflight(Settings.from_env()))
    if json:
        emit_json(
            {
                "ok": all(f.ok for f in findings),
                "checks": [{"name": f.name, "ok": f.ok, "detail": f.detail} for f in findings],
            }
        )
    else:
        for finding in findings:
            mark = "[green]ok[/green]  " if finding.ok else "[red]no[/red]  "
            console(stderr=False).print(f"{mark}{finding.name:<10} {safe(finding.detail, 1000)}", soft_wrap=True)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
