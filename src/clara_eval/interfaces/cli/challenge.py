"""`challenge post|submit|try|claim|list|show|watch`: what posters and agents do, in a shell.

The same actions as the MCP tools. Writing commands show the plan and send nothing, until `--send`; with it they ask on
a terminal, or need `--yes`. Posters' words are shown on one line, escaped and cut.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar, cast, get_args

import typer
from rich.text import Text

from clara_eval.actions.act import act, prepare
from clara_eval.actions.browse import ChallengeFilter, browse, detail
from clara_eval.actions.claim import claim as claim_action
from clara_eval.actions.finalize import finalize as finalize_action
from clara_eval.actions.plan import Action
from clara_eval.actions.post import post as post_action
from clara_eval.actions.results import eval_status, is_waiting
from clara_eval.actions.submit import Handing, draft_text
from clara_eval.actions.submit import submit as submit_action
from clara_eval.actions.terms import NO_HASH, Posting
from clara_eval.actions.times import show_moment, show_wait
from clara_eval.actions.try_draft import in_words, try_draft
from clara_eval.actions.wording import written
from clara_eval.app import Caller, open_caller
from clara_eval.challenges.status import STOPPED_STATES
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.core.untrusted import bare, escaped
from clara_eval.documents.actions import ActResult, BrowseResult, DetailResult, EvalStatusResult
from clara_eval.documents.results import ChainStatus
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.result import print_next, stage_words
from clara_eval.interfaces.cli.screen import console, print_labelled, program
from clara_eval.interfaces.cli.words import in_shell

T = TypeVar("T")

SendFlag = Annotated[bool, typer.Option("--send", help="Sign and send with CLARA_WALLET_KEY; without it: dry run.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before sending.")]
FromOption = Annotated[str, typer.Option("--from", help="Your address, when no wallet key is set.")]
WATCH_SECONDS = 5.0


def post(  # noqa: PLR0917 - the terms of a challenge
    title: Annotated[str, typer.Option(help="One line that says what is wanted.")],
    problem: Annotated[str, typer.Option(help="The task, or @FILE to read it from.")],
    prize: Annotated[str, typer.Option(help='The prize pool: "100", "12.5 USDC".')],
    deadline: Annotated[str, typer.Option(help='"7 days", "36h", or a date with time zone.')],
    config: Annotated[Path | None, typer.Option(help="The eval config file; needed for evaluator clara.")] = None,
    evaluator: Annotated[str, typer.Option(help="clara or self.")] = "clara",
    payout: Annotated[str, typer.Option(help="top1, top3, top5, equal, or basis points 5000,3000,2000.")] = "top3",
    winners: Annotated[int | None, typer.Option(help="Number of winners, with payout equal.")] = None,
    scoring_window: Annotated[str, typer.Option(help="Time for scoring after the deadline.")] = "3 days",
    token: Annotated[str, typer.Option(help="The prize token's address; USDC by default.")] = "",
    skill: Annotated[list[str] | None, typer.Option(help="A skill tag; may be repeated.")] = None,
    max_participants: Annotated[int, typer.Option(help="0 means no limit.")] = 0,
    expected_entries: Annotated[int | None, typer.Option(help="For the quote and the warnings.")] = None,
    private_set_hash: Annotated[str, typer.Option(help="Commits to a hidden harness: see harness hash.")] = "",
    allow_duplicate: Annotated[bool, typer.Option(help="Post although the same challenge is open.")] = False,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Post a challenge: shows plan, quote, fee and warnings; --send escrows the prize."""
    if evaluator not in {"clara", "self"}:
        raise BadInput(f"--evaluator {evaluator!r} is not known.", remedy="Use clara or self.")
    posting = Posting(
        title=title,
        problem_statement=_text(Path(problem[1:])) if problem.startswith("@") else problem,
        prize=prize,
        deadline=deadline,
        eval_config=_text(config) if config else "",
        evaluator=cast("Literal['clara', 'self']", evaluator),
        payout=payout,
        winner_count=winners,
        scoring_window=scoring_window,
        token=token or None,
        skills=tuple(skill or ()),
        max_participants=max_participants,
        expected_entries=expected_entries,
        private_set_hash=private_set_hash or NO_HASH,
        allow_duplicate=allow_duplicate,
    )
    _write(post_action(posting, sender or None), send=send, yes=yes, json=json)


def submit(  # noqa: PLR0917 - three ways to name a solution
    address: AddressArgument,
    text: Annotated[str, typer.Option(help="The solution itself.")] = "",
    file: Annotated[str, typer.Option(help="A file that holds it.")] = "",
    uri: Annotated[str, typer.Option(help="Where it already is: data:, https: or ipfs:.")] = "",
    solution_hash: Annotated[str, typer.Option(help="keccak256 of the content behind --uri.")] = "",
    agent_id: Annotated[int | None, typer.Option(help="Your id in the identity registry; else looked up.")] = None,
    register: Annotated[
        bool, typer.Option("--register", help="Register as an agent first if you are not one yet.")
    ] = False,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Submit a solution, or replace your earlier one."""
    handing = Handing(
        challenge=address,
        content=text,
        file=file,
        uri=uri,
        solution_hash=solution_hash,
        agent_id=agent_id,
        register=register,
    )
    _write(submit_action(handing, sender or None), send=send, yes=yes, json=json)


def try_(
    address: AddressArgument,
    file: Annotated[str, typer.Option(help="The draft.")],
    json: JsonFlag = False,
) -> None:
    """Measure a draft with the challenge's public harness and tools, on this machine; nothing is sent."""
    found = _read(lambda caller: try_draft(caller, address, draft_text(caller, "", file)))
    if json:
        emit_json(in_shell(found))
    else:
        console(stderr=False).print(in_words(found), markup=False, soft_wrap=True)


def claim(
    address: AddressArgument,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Claim your prize, or your share of an expired challenge."""
    _write(claim_action(address, sender or None), send=send, yes=yes, json=json)


def finalize(
    address: AddressArgument,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Open the claims of a challenge, 12 hours after its scores were posted; anybody may."""
    _write(finalize_action(address, sender or None), send=send, yes=yes, json=json)


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
    found = _read(lambda caller: browse(caller, wanted))
    if json:
        emit_json(in_shell(found.model_dump(mode="json")))
    else:
        _show_list(found, wanted)


def show(address: AddressArgument, sender: FromOption = "", json: JsonFlag = False) -> None:
    """Show one challenge in full, with your own submission."""
    found = _read(lambda caller: detail(caller, address, sender or None))
    if json:
        emit_json(in_shell(found.model_dump(mode="json")))
    else:
        _show_detail(found)


def watch(
    address: AddressArgument,
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=0.1)] = WATCH_SECONDS,
    json: JsonFlag = False,
) -> None:
    """Follow an evaluation until it ends; --json prints the last status."""
    found = _read(lambda caller: _watch(caller, address, every))
    if json:
        emit_json(in_shell(found.model_dump(mode="json")))
    if found.status in STOPPED_STATES:
        raise typer.Exit(1)


def _read(question: Callable[[Caller], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with open_caller(Settings.from_env()) as caller:
            return await question(caller)

    return asyncio.run(ask())


def _write(action: Action, *, send: bool, yes: bool, json: bool) -> None:
    found = _read(lambda caller: _act(caller, action, send=send, yes=yes))
    if json:
        emit_json(in_shell(found.model_dump(mode="json")))
        return
    console(stderr=False).print(in_shell(written(found), found.challenge), markup=False, soft_wrap=True)


async def _act(caller: Caller, action: Action, *, send: bool, yes: bool) -> ActResult:
    async def report(done: int, total: int, words: str) -> None:
        console().print(f"[{done}/{total}] {words}", markup=False)

    if not send:
        found = await act(caller, action, confirmed="unasked")
        if caller.account is not None:
            found.next = "Nothing was sent: this was a dry run. Run it again with --send to send it."
        return found
    if caller.account is None:
        raise ConfigError("--send needs a local wallet key.", remedy="Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE.")
    agreed = yes or _asked((await prepare(caller, action)).question)
    return await act(caller, action, confirmed="yes" if agreed else "no", report=report)


def _asked(question: str) -> bool:
    if not sys.stdin.isatty():
        raise BadInput("There is no terminal to ask for confirmation.", remedy="Add --yes to send without being asked.")
    return typer.confirm(question, err=True)


async def _watch(caller: Caller, address: str, every: float) -> EvalStatusResult:
    said = ""
    while True:
        found = await eval_status(caller, address)
        text = in_shell(_status_words(found), found.address)
        if text != said:
            console().print(text, markup=False, soft_wrap=True)
            said = text
        if not is_waiting(found):
            return found
        await asyncio.sleep(every)


def _status_words(found: EvalStatusResult) -> str:
    """One evaluation in a few lines; the reason may quote others."""
    lines = [f"{found.status}  {found.progress} %  {found.explanation}"]
    stage = found.stage
    if stage.total:
        lines.append(f"  {stage_words(stage)}")
    if found.retryAt:
        lines.append(f"  looked at again at {show_moment(found.retryAt)}")
    if found.reason:
        lines.append(f"  reason: {bare(found.reason)}")
    return "\n".join(lines)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")  # line ends as they are: the chain commits to these very bytes
    except (OSError, UnicodeDecodeError) as bad:
        why = "it is not text in UTF-8" if isinstance(bad, UnicodeDecodeError) else bad.strerror
        raise BadInput(
            f"The file {str(path)!r} cannot be read: {why}.", value=str(path), remedy="Name a file with text in UTF-8."
        ) from None


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
    """An empty list says how to get to a full one."""
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
    lines += [("unusable", in_shell(found.configProblem))] if found.configProblem else []
    lines += [(f"winner {w.rank}", f"{w.address}  {w.prize}  score {w.score}") for w in found.winners]
    if found.yours:
        lines.append(("yours", f"version {found.yours.version}, agent {found.yours.agentId}"))
    lines += [("explorer", item.explorerUrl)] if item.explorerUrl else []
    for label, text in lines:
        print_labelled(label, text)
    print_next(_steps(found))


def _steps(found: DetailResult) -> list[str]:
    """What one does with a challenge in this state."""
    address = found.challenge.address
    if found.challenge.acceptsSubmissions:
        return [f"challenge try {address} --file DRAFT", f"challenge submit {address} --file SOLUTION"]
    return [f"leaderboard {address}"] if found.winners else [f"challenge watch {address}"]
