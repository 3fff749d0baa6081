"""`verify`: check the public record of an evaluation without trusting anybody."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import typer

from clara_eval.actions.calibrate import Foreseen, Rejudged, rejudge
from clara_eval.actions.verify import Checked, JudgeEvidence, verified_document, verify_trace
from clara_eval.config.settings import Settings
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, BadTrace, NotFound
from clara_eval.interfaces.cli.options import JsonFlag, YesToCost
from clara_eval.interfaces.cli.output import emit_json, fail
from clara_eval.interfaces.cli.screen import agree_to_cost, console, safe


def verify(
    source: Annotated[str, typer.Argument(metavar="TRACE_OR_ADDRESS", help="A trace file, ipfs://CID, or an address.")],
    *,
    rpc: Annotated[str | None, typer.Option(help="A node's URL: also check the posted transaction.")] = None,
    again: Annotated[
        int, typer.Option("--rejudge", min=0, help="Ask so many comparisons again, drawn by the block after the post.")
    ] = 0,
    judge: Annotated[str, typer.Option(help="Who is asked again, as in CLARA_JUDGES.")] = "",
    yes: YesToCost = False,
    json: JsonFlag = False,
) -> None:
    """Check a trace: recompute everything in it and say whether it holds."""
    settings = Settings.from_env()
    if again and (rpc is None or not judge):
        raise BadInput("--rejudge needs a judge, and a node for the draw.", remedy="Give --judge NAME and --rpc URL.")
    try:
        checked = asyncio.run(verify_trace(source, settings, rpc=rpc))
    except BadTrace as bad:
        if json:
            emit_json({"ok": False, "entry": bad.entry, "problem": bad.message})
        else:
            console(stderr=False).print(
                f"[red]refused[/red] {safe(bad.entry)}: {safe(bad.message, 600)}", soft_wrap=True
            )
        raise typer.Exit(1) from None
    except NotFound as missing:
        fail(missing, code=2, as_json=json)  # 1 is for a trace that is refused; this one was never seen
    if not json:
        print_verified(checked)
    foreseen = partial(_ask_cost, yes=yes)
    asked = rejudge(checked, settings, judge=judge, wanted=again, rpc=rpc, foreseen=foreseen) if again else None
    found = asyncio.run(asked) if asked else None
    if json:
        emit_json({**verified_document(checked), "rejudged": to_camel_json(found) if found else None})
    elif found:
        _print_rejudged(found)


def _ask_cost(cost: Foreseen, *, yes: bool) -> None:
    """Say the cost on standard error, and ask for a yes unless it is free."""
    usd = "an unknown price" if cost.micro_usd is None else f"about ${cost.micro_usd / 1e6:.4f}"
    console().print(f"asking {safe(cost.judge, 200)} {cost.calls} times, for {usd}", soft_wrap=True)
    agree_to_cost(yes=yes or cost.micro_usd == 0)


def _print_rejudged(found: Rejudged) -> None:
    screen, share = console(stderr=False), found.disagreement
    drawn = f"{found.drawn} of {found.decided} comparisons, drawn by block {found.block_number} ({found.seed})"
    screen.print(f"asked again: {drawn}, by {safe(found.judge, 200)}", soft_wrap=True)
    if share.value is None or share.low is None or share.high is None:
        screen.print("no verdict came back")
        return
    screen.print(
        f"{len(found.otherwise)} came out otherwise: {share.value:.1%} of them, "
        f"between {share.low:.1%} and {share.high:.1%} of all (95 %); {found.unanswered} without a verdict",
        soft_wrap=True,
    )
    for one in found.otherwise[:20]:
        screen.print(f"  {one.first} against {one.second}: recorded as {one.winner}", soft_wrap=True)


def print_verified(checked: Checked) -> None:
    screen = console(stderr=False)
    held = f"{checked.entries} entries of {checked.challenge.address} hold; digest {checked.digest}"
    if warning := checked.execution_warning:
        screen.print(f"[yellow]ok, but {warning}[/yellow]; {held}", soft_wrap=True)
    else:
        screen.print(f"[green]ok[/green] {held}", soft_wrap=True)
    counts = f"{len(checked.challenge.submissions)} submissions, {len(checked.result.comparisons)} games"
    screen.print(f"recomputed: {counts}, ranking, winners, prizes, calldata")
    for point in checked.compared:
        screen.print(f"compared with the chain: {point}", soft_wrap=True)
    for approval in checked.approvals:
        screen.print(f"approved by {safe(approval.by, 80)}: {safe(approval.note or 'no note', 500)}", soft_wrap=True)
    for judge in checked.judges:
        screen.print(_signatures(judge), soft_wrap=True)
    if posted := checked.posted:
        told = f"{posted.tx_hash}, posted by the {posted.by}"
        screen.print(f"on chain: {told}, commits to this digest", soft_wrap=True)
    screen.print("not proven by this:")
    for point in checked.not_proven:
        screen.print(f"  - {point}", soft_wrap=True)


def _signatures(judge: JudgeEvidence) -> str:
    """Which answers of a model are signed, by which enclaves."""
    told = f"answers of {safe(judge.judge, 200)}: {judge.signed} of {judge.answers} signed"
    for key in judge.keys:
        state = f"platform {key.enclave.status}" if key.enclave.status else "quote not checked"
        told += f"; key {safe(key.name, 120)} in the enclave {key.enclave.measurements['mrTd'][:16]}… ({state})"
    return told
