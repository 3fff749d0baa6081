"""`verify`: check the public record of an evaluation without trusting anybody."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from clara_eval.cli.options import JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.screen import console, safe
from clara_eval.errors import BadTrace
from clara_eval.pipeline.replay import NOT_PROVEN, Checked
from clara_eval.settings import Settings
from clara_eval.use_cases.verify import verify_trace


def verify(
    source: Annotated[str, typer.Argument(metavar="TRACE_OR_ADDRESS", help="A trace file, or a challenge's address.")],
    *,
    rpc: Annotated[str | None, typer.Option(help="A node's URL: also check the posted transaction.")] = None,
    json: JsonFlag = False,
) -> None:
    """Check a trace: recompute everything in it and say whether it holds."""
    try:
        checked = asyncio.run(verify_trace(source, Settings.from_env(), rpc=rpc))
    except BadTrace as bad:
        if json:
            emit_json({"ok": False, "entry": bad.entry, "problem": bad.message})
        else:
            console(stderr=False).print(
                f"[red]refused[/red] {safe(bad.entry)}: {safe(bad.message, 600)}", soft_wrap=True
            )
        raise typer.Exit(1) from None
    document = _document(checked)
    not_proven = (*checked.unchecked, *NOT_PROVEN)
    if json:
        emit_json({**document, "notProven": list(not_proven)})
    else:
        _tell(document, not_proven)


def _document(checked: Checked) -> dict[str, Any]:
    walk, posted = checked.walk, checked.posted
    return {
        "ok": True,
        "challenge": checked.challenge.address,
        "chainId": checked.challenge.chain_id,
        "digest": checked.digest,
        "entries": checked.entries,
        "submissions": len(checked.challenge.submissions),
        "comparisons": len(walk.comparisons),
        "executed": len(walk.execution.executed) if walk.execution else 0,
        "notChecked": list(checked.unchecked),
        "winners": [
            {"account": w.account, "score": w.score, "prizeAmount": str(w.prize_amount)} for w in walk.winners.entries
        ],
        "onChain": None
        if posted is None
        else {"txHash": posted.tx_hash, "postedBy": str(posted.by), "block": posted.block_number},
    }


def _tell(document: dict[str, Any], not_proven: tuple[str, ...]) -> None:
    screen = console(stderr=False)
    held = f"{document['entries']} entries of {document['challenge']} hold; digest {document['digest']}"
    screen.print(f"[green]ok[/green] {held}", soft_wrap=True)
    counts = f"{document['submissions']} submissions, {document['comparisons']} games"
    screen.print(f"recomputed: {counts}, ranking, winners, prizes, calldata")
    if document["onChain"]:
        posted = f"{document['onChain']['txHash']}, posted by the {document['onChain']['postedBy']}"
        screen.print(f"on chain: {posted}, commits to this digest", soft_wrap=True)
    screen.print("not proven by this:")
    for point in not_proven:
        screen.print(f"  - {point}", soft_wrap=True)
