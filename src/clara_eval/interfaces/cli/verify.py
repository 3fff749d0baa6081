"""Commands `verify` (check a trace) and `calibrate` (measure how far judges agree with people)."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Exit, Option

from clara_eval.actions.amounts import show_amount, show_moment
from clara_eval.actions.calibrate import LEAST_LABELS, Calibration, CostEstimate, Rejudged, calibrate_labels, rejudge
from clara_eval.actions.verify import Checked, CheckedFolder, JudgeEvidence, verified_document, verify_any
from clara_eval.config.settings import Settings
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, BadTrace, NotFound
from clara_eval.core.untrusted import escaped
from clara_eval.interfaces.cli.output import JsonFlag, Judges, YesToCost, answer, emit_json, fail, read_text
from clara_eval.interfaces.cli.screen import agree_to_cost, console, print_lines, print_wrapped, safe


def verify(
    source: Annotated[str, Argument(metavar="TRACE_OR_ADDRESS", help="A trace file, ipfs://CID, or an address.")],
    *,
    rpc: Annotated[str | None, Option(help="A node's URL: also check the posted transaction.")] = None,
    again: Annotated[
        int,
        Option(
            "--rejudge",
            min=0,
            help="Ask again about this many comparisons, drawn by the hash of the block after the post.",
        ),
    ] = 0,
    judge: Annotated[str, Option(help="Who is asked again, as in CLARA_JUDGES.")] = "",
    details: Annotated[bool, Option("--details", help="Also entries, approvals and signatures.")] = False,
    yes: YesToCost = False,
    json: JsonFlag = False,
) -> None:
    """Recompute a trace; print the winners, what was checked, and what it leaves unproven."""
    settings = Settings.from_env()
    if again and (rpc is None or not judge):
        raise BadInput("--rejudge needs a judge, and a node for the draw.", remedy="Give --judge NAME and --rpc URL.")
    try:
        checked = asyncio.run(verify_any(source, settings, rpc=rpc))
    except BadTrace as bad:
        refused = f"[red]refused[/red] {safe(bad.entry)}: {safe(bad.message, 600)}"
        answer({"ok": False, "entry": bad.entry, "problem": bad.message}, json, lambda: print_lines(refused))
        raise Exit(1) from None
    except NotFound as missing:
        fail(missing, code=2, as_json=json)  # exit code 1 means that a trace was refused; here there is none
    if not json:
        print_verified(checked, details=details)
    found = None
    if again:
        if isinstance(checked, CheckedFolder):
            raise BadInput("No block draws the comparisons of a folder.", remedy="Leave out --rejudge.")
        cost = partial(_confirm_cost, yes=yes)
        found = asyncio.run(rejudge(checked, settings, judge=judge, wanted=again, rpc=rpc, on_estimate=cost))
    if json:
        emit_json({**verified_document(checked), "rejudged": to_camel_json(found) if found else None})
    elif found:
        _print_rejudged(found)


def _confirm_cost(cost: CostEstimate, *, yes: bool) -> None:
    """Print the cost on standard error, and ask for consent unless it is free."""
    usd = "an unknown price" if cost.micro_usd is None else f"about ${cost.micro_usd / 1e6:.4f}"
    console().print(f"asking {safe(cost.judge, 200)} {cost.calls} times, for {usd}", soft_wrap=True)
    agree_to_cost(yes=yes or cost.micro_usd == 0)


def _print_rejudged(found: Rejudged) -> None:
    share = found.disagreement
    drawn = f"{found.drawn} of {found.decided} comparisons, drawn by block {found.block_number} ({found.seed})"
    print_lines(f"asked again: {drawn}, by {safe(found.judge, 200)}")
    if share.value is None or share.low is None or share.high is None:
        print_lines("no verdict came back")
        return
    print_lines(
        f"{len(found.otherwise)} changed: {share.value:.1%} of them, "
        f"between {share.low:.1%} and {share.high:.1%} of all (95 %); {found.unanswered} without a verdict",
        *(f"  {one.first} against {one.second}: recorded as {one.winner}" for one in found.otherwise[:20]),
    )


def print_verified(checked: Checked | CheckedFolder, *, details: bool = False) -> None:
    """Print the winners, what was checked, and what the trace leaves unproven; `details` adds the rest."""
    warning, result = checked.execution_warning, checked.result
    counts = f"{len(result.given.submissions)} submissions, {len(result.comparisons)} comparisons, ranking, winners"
    winners, scope, compared = _winners_and_scope(checked)
    head = f"[yellow]ok, but {warning}[/yellow]" if warning else "[green]ok[/green]       every entry holds"
    print_lines(
        f"{head}: {safe(result.given.name)}", *(f"{place:>5}.   {won}" for place, won in enumerate(winners, start=1))
    )
    print_wrapped(f"{counts}{scope}", "checked  ")
    for point in checked.not_proven:
        print_wrapped(escaped(point[:600]), "unproven ")
    print_lines(f"digest   {checked.digest}")
    if not details:
        return
    print_lines(
        f"entries  {checked.entries}",
        *(f"chain    {point}" for point in compared),
        *(f"approved by {safe(one.by, 80)}: {safe(one.note or 'no note', 500)}" for one in checked.notes.approvals),
        *(
            f"begun by {safe(one.begun_by, 80)}; started again {show_moment(one.at)} by {safe(one.finished_by, 80)}, "
            f"with {one.answers} answers that were paid before"
            for one in checked.notes.restarts
        ),
        *map(_signature_line, checked.judges),
    )


def _winners_and_scope(checked: Checked | CheckedFolder) -> tuple[list[str], str, tuple[str, ...]]:
    """Return the winners in words, what else was checked, and what was compared with the chain."""
    if isinstance(checked, CheckedFolder):
        return [safe(won) for won in checked.winners], "; a folder: there is no chain to compare with", ()
    scope, posted = "only within the trace: add --rpc URL to compare it with the chain", checked.posted
    if posted:
        scope = f"and that this is what the {posted.by} posted ({posted.tx_hash})"
    token = checked.challenge.token
    won = [f"{one.account}  {safe(show_amount(one.prize_amount, token))}" for one in checked.winners.entries]
    return won, f", prizes, calldata; {scope}", checked.compared


def _signature_line(judge: JudgeEvidence) -> str:
    text = f"answers of {safe(judge.judge, 200)}: {judge.signed} of {judge.answers} signed"
    for key in judge.keys:
        state = f"platform {key.enclave.status}" if key.enclave.status else "quote not checked"
        text += f"; key {safe(key.name, 120)} in the enclave {key.enclave.measurements['mrTd'][:16]}… ({state})"
    return text


def calibrate(
    labels: Annotated[Path, Argument(metavar="LABELS.jsonl", help="An evalConfig line, then one pair per line.")],
    *,
    judges: Judges = "",
    json: JsonFlag = False,
) -> None:
    """Run the judges over pairs that people decided; report and save their agreement and biases."""
    settings = Settings.from_env()
    found = asyncio.run(calibrate_labels(read_text(labels), settings, judges))
    if json:
        emit_json({"calibrations": [{**to_camel_json(one), "mayPostAlone": doubt is None} for one, doubt in found]})
        return
    enough = f"At least {settings.calibration_floor:.0%} of clear pairs on {LEAST_LABELS} labels: it may post alone."
    for one, doubt in found:
        console(stderr=False).print(_calibration_table(one))
        print_lines(safe(doubt or enough, 600))


def _calibration_table(found: Calibration) -> Table:
    table = Table("figure", "value", "95 % interval", "pairs", title=safe(found.judge, 200), title_justify="left")
    figures = {
        "agreement with people": found.agreement,
        "agreement on clear pairs": found.clear,
        "position bias": found.position_bias,
        "length bias": found.length_bias,
    }
    for name, figure in figures.items():
        value = "not known" if figure.value is None else f"{figure.value:.3f}"
        between = "" if figure.low is None or figure.high is None else f"{figure.low:.3f} to {figure.high:.3f}"
        table.add_row(name, value, between, str(figure.count))
    kappa = "not known" if found.kappa is None else f"{found.kappa:.3f}"
    table.add_row("kappa (beyond chance)", kappa, "", str(found.labels - found.undecided))
    table.add_row("base rate (most frequent choice)", f"{found.base_rate:.3f}", "", str(found.labels))
    if (alone := found.alone) is not None:
        share, covers = f"at most {alone.alpha:.0%} wrong", f"{alone.count} ({alone.coverage:.0%})"
        table.add_row("posts alone from", f"{alone.chance:.2f} for the last paid place", share, covers)
    table.add_row("pairs without a verdict", str(found.undecided), "", str(found.labels))
    return table
