"""`challenge try|list|show|watch`: measure a draft, and look at challenges."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar, cast, get_args

import typer
from rich.text import Text

from clara_eval.actions.amounts import show_moment, show_wait
from clara_eval.actions.challenges import ChallengeFilter, browse, detail
from clara_eval.actions.results import eval_status, is_waiting
from clara_eval.actions.submit import draft_text, try_draft
from clara_eval.app import Caller, open_caller
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput
from clara_eval.core.untrusted import bare, escaped
from clara_eval.documents.actions import BrowseResult, DetailResult, EvalStatusResult
from clara_eval.documents.results import STOPPED_STATES, ChainStatus
from clara_eval.interfaces import words
from clara_eval.interfaces.cli.leaderboard_table import stage_text
from clara_eval.interfaces.cli.output import NAMES, AddressArgument, FromOption, JsonFlag, answer, emit_json
from clara_eval.interfaces.cli.screen import console, print_labelled, print_next, print_text, program

T = TypeVar("T")


def try_(
    address: AddressArgument,
    file: Annotated[str, typer.Option(help="The draft.")],
    json: JsonFlag = False,
) -> None:
    """Measure a draft with the challenge's public harness and tools, on this machine; nothing is sent."""
    found = ask(lambda caller: try_draft(caller, address, draft_text(caller, "", file)))
    answer(found, json, lambda: print_text(words.tried_text(found)))


def list_(
    status: Annotated[str, typer.Option(help="open, scoring, finalized, cancelled, expired or any.")] = "open",
    skill: Annotated[str, typer.Option(help="Only with this skill.")] = "",
    evaluator: Annotated[str, typer.Option(help="clara, self or any.")] = "any",
    limit: Annotated[int, typer.Option(min=1, max=50)] = 20,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    json: JsonFlag = False,
) -> None:
    """List challenges, newest first."""
    if status not in {"any", *get_args(ChainStatus)} or evaluator not in {"clara", "self", "any"}:
        raise BadInput(f"--status {status!r} or --evaluator {evaluator!r} is not known.", remedy="See --help.")
    wanted = ChallengeFilter(
        status=cast("ChainStatus | Literal['any']", status),
        skill=skill,
        evaluator=cast("Literal['clara', 'self', 'any']", evaluator),
        limit=limit,
        offset=offset,
    )
    found = ask(lambda caller: browse(caller, wanted))
    answer(found, json, lambda: _show_list(found, wanted))


def show(address: AddressArgument, sender: FromOption = "", json: JsonFlag = False) -> None:
    """Show one challenge in full, with your own submission."""
    found = words.detail(ask(lambda caller: detail(caller, address, sender or None)), NAMES)
    answer(found, json, lambda: _show_detail(found))


def watch(
    address: AddressArgument,
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=0.1)] = 5.0,
    json: JsonFlag = False,
) -> None:
    """Follow an evaluation until it ends; --json prints the last status."""
    found = ask(lambda caller: _watch(caller, address, every))
    if json:
        emit_json(found)
    if found.status in STOPPED_STATES:
        raise typer.Exit(1)


def ask(question: Callable[[Caller], Awaitable[T]]) -> T:
    """Call an action with the caller of this shell."""

    async def answer() -> T:
        async with open_caller(Settings.from_env()) as caller:
            return await question(caller)

    return asyncio.run(answer())


async def _watch(caller: Caller, address: str, every: float) -> EvalStatusResult:
    last = ""
    while True:
        found = await eval_status(caller, address)
        shown = words.status(found, NAMES)
        if (text := _status_text(shown)) != last:
            console().print(text, markup=False, soft_wrap=True)
            last = text
        if not is_waiting(found):
            return shown
        await asyncio.sleep(every)


def _status_text(found: EvalStatusResult) -> str:
    lines = [f"{found.status}  {found.progress} %  {found.explanation}"]
    lines += [f"  {stage_text(found.stage)}"] if found.stage.total else []
    lines += [f"  looked at again at {show_moment(found.retryAt)}"] if found.retryAt else []
    lines += [f"  reason: {bare(found.reason)}"] if found.reason else []
    return "\n".join(lines)


def _show_list(found: BrowseResult, wanted: ChallengeFilter) -> None:
    screen = console(stderr=False)
    for item in found.challenges:
        left = f"{show_wait(item.secondsLeft)} left" if item.secondsLeft else "closed"
        screen.print(Text(escaped(bare(item.title))[:100] or "A challenge without a title", style="bold"))
        parts = (item.address, item.status, item.prize, f"{item.submissionCount} submitted", left)
        screen.print(Text("  " + "  ".join(escaped(part) for part in parts)), soft_wrap=True)
    if not found.challenges:
        screen.print(Text(_nothing(found, wanted)))
    if found.nextOffset is not None:
        console().print(f"More with --offset {found.nextOffset}.")


def _nothing(found: BrowseResult, wanted: ChallengeFilter) -> str:
    """Say how to get from an empty list to a full one."""
    kind = "" if wanted.status == "any" else f" {wanted.status}"
    said = f"No{kind} challenge{' of that kind' if wanted.skill or wanted.evaluator != 'any' else ''} on "
    if found.total:
        return f"{said}{found.network}, {found.total} in all: `{program()} challenge list --status any` lists them."
    return f"{said}{found.network} yet. Post the first one: `{program()} challenge post --help`."


def _show_detail(found: DetailResult) -> None:
    item = found.challenge
    screen = console(stderr=False)
    screen.print(Text(escaped(bare(item.title)), style="bold"), soft_wrap=True)
    shares = " / ".join(f"{share / 100:g} %" for share in found.payoutBps)
    lines = [
        ("address", f"{item.address} on {found.network}"),
        ("status", f"{item.status}, scored by {item.evaluator}, {item.submissionCount} submitted"),
        ("prize", f"{item.prize} for {item.winnerCount} winner(s): {shares}"),
        ("deadline", f"{show_moment(item.deadline)}; scores by {show_moment(found.scoringDeadline)}"),
        ("poster", found.poster),
        ("problem", bare(found.problemStatement)[:600]),
        ("config", bare(found.evalConfig)[:600] if found.evalConfig else "none"),
    ]
    lines += [("unusable", found.configProblem)] if found.configProblem else []
    lines += [(f"winner {w.rank}", f"{w.address}  {w.prize}  score {w.score}") for w in found.winners]
    lines += [("yours", f"version {found.yours.version}, agent {found.yours.agentId}")] if found.yours else []
    lines += [("explorer", item.explorerUrl)] if item.explorerUrl else []
    for label, text in lines:
        print_labelled(label, text)
    if item.acceptsSubmissions:
        print_next([f"challenge try {item.address} --file DRAFT", f"challenge submit {item.address} --file SOLUTION"])
    else:
        print_next([f"leaderboard {item.address}" if found.winners else f"challenge watch {item.address}"])
