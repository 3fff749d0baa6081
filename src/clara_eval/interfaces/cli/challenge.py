"""Commands `challenge …`. Those that write show a plan, and send it only with `--send`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from rich.text import Text
from typer import Option, confirm

from clara_eval.actions import claim as claiming
from clara_eval.actions import post as posting
from clara_eval.actions import submit as submitting
from clara_eval.actions.amounts import show_count, show_moment, show_wait
from clara_eval.actions.challenges import ChallengeFilter, browse, detail
from clara_eval.actions.objections import ObjectionInput, object_or_show
from clara_eval.actions.perform import Action, perform, prepare
from clara_eval.actions.results import eval_status, is_waiting
from clara_eval.app import Caller, open_caller
from clara_eval.config.eval_config import parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.core.untrusted import bare, escaped
from clara_eval.documents.actions import ActResult, DetailResult, EvalStatusResult
from clara_eval.interfaces import words
from clara_eval.interfaces.cli import output
from clara_eval.interfaces.cli.config import feature_lines
from clara_eval.interfaces.cli.output import NAMES, AddressArgument, FromOption, JsonFlag, answer, emit_json, read_text
from clara_eval.interfaces.cli.screen import console, print_labelled, print_next, print_text, program

T = TypeVar("T")
ListedStatus = Literal["open", "scoring", "finalized", "cancelled", "expired", "any"]
NO_KEY = "Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE."
SendFlag = Annotated[bool, Option("--send", help="Sign and send with CLARA_WALLET_KEY; without it: dry run.")]
YesFlag = Annotated[bool, Option("--yes", "-y", help="Do not ask before sending.")]


def try_(address: AddressArgument, file: Annotated[str, Option(help="The draft.")], json: JsonFlag = False) -> None:
    """Measure a draft with the challenge's public harness and tools, on this machine; nothing is sent."""
    found = with_caller(lambda caller: submitting.try_draft(caller, address, submitting.draft_text(caller, "", file)))
    answer(found, json, lambda: print_text(words.trial_text(found)))


def list_(
    status: Annotated[ListedStatus, Option(help="Only with this status.")] = "open",
    skill: Annotated[str, Option(help="Only with this skill.")] = "",
    evaluator: Annotated[
        Literal["clara", "self", "any"], Option(help="Only those scored by Clara, or by their poster (self).")
    ] = "any",
    limit: Annotated[int, Option(min=1, max=50)] = 20,
    offset: Annotated[int, Option(min=0)] = 0,
    json: JsonFlag = False,
) -> None:
    """List challenges, newest first."""
    wanted = ChallengeFilter(status=status, skill=skill, evaluator=evaluator, limit=limit, offset=offset)
    found = with_caller(lambda caller: browse(caller, wanted))
    if json:
        emit_json(found)
        return
    screen = console(stderr=False)
    for item in found.challenges:
        left = f"{show_wait(item.secondsLeft)} left" if item.secondsLeft else "closed"
        screen.print(Text(escaped(bare(item.title))[:100] or "A challenge without a title", style="bold"))
        parts = (item.address, item.status, item.prize, f"{item.submissionCount} submitted", left)
        screen.print(Text("  " + "  ".join(escaped(part) for part in parts)), soft_wrap=True)
    if not found.challenges:
        kind = "" if status == "any" else f" {status}"
        text = f"No{kind} challenge{' of that kind' if skill or evaluator != 'any' else ''} on {found.network}"
        if found.total:
            text += f", {found.total} in all: `{program()} challenge list --status any` lists them."
        else:
            text += f" yet. Post the first one: `{program()} challenge post --help`."
        screen.print(Text(text))
    if found.nextOffset is not None:
        console().print(f"More with --offset {found.nextOffset}.")


def show(address: AddressArgument, sender: FromOption = "", json: JsonFlag = False) -> None:
    """Show one challenge in full, with your own submission."""
    found = words.explain_config(with_caller(lambda caller: detail(caller, address, sender or None)), NAMES)
    answer(found, json, lambda: _print_detail(found))


def with_caller(action: Callable[[Caller], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_caller(Settings.from_env()) as caller:
            return await action(caller)

    return asyncio.run(run())


async def watch(caller: Caller, address: str, every: float) -> EvalStatusResult:
    """Print each change of an evaluation until it ends."""
    last: list[str] = []
    while True:
        found = await eval_status(caller, address)
        shown = words.explain_status(found, NAMES)
        lines = [f"{shown.status}  {shown.progress} %  {shown.explanation}"]
        lines += [f"  {words.stage_text(shown.stage)}"] if shown.stage.total else []
        lines += [f"  next attempt at {show_moment(shown.retryAt)}"] if shown.retryAt else []
        lines += [f"  reason: {bare(shown.reason)}"] if shown.reason else []
        if lines != last:
            console().print("\n".join(lines), markup=False, soft_wrap=True)
            last = lines
        if not is_waiting(found):
            return shown
        await asyncio.sleep(every)


def _print_detail(found: DetailResult) -> None:
    item = found.challenge
    console(stderr=False).print(Text(escaped(bare(item.title)), style="bold"), soft_wrap=True)
    shares = " / ".join(f"{share / 100:g} %" for share in found.payoutBps)
    is_closed = item.status == "open" and not item.secondsLeft
    lines = [
        ("address", f"{item.address} on {found.network}"),
        ("status", f"{'closed, not scored yet' if is_closed else item.status}; scored by {item.evaluator}"),
        ("entries", str(item.submissionCount)),
        ("prize", f"{item.prize} for {show_count(item.winnerCount, 'winner')}: {shares}"),
        ("deadline", f"{show_moment(item.deadline)}; scores by {show_moment(found.scoringDeadline)}"),
        ("poster", found.poster),
        ("problem", bare(found.problemStatement)[:600]),
        *_config_lines(found),
    ]
    lines += [(f"winner {w.rank}", f"{w.address}  {w.prize}  score {w.score}") for w in found.winners]
    lines += [("yours", f"version {found.yours.version}, agent {found.yours.agentId}")] if found.yours else []
    lines += [("explorer", item.explorerUrl)] if item.explorerUrl else []
    for label, text in lines:
        print_labelled(label, text)
    following = [f"leaderboard {item.address}" if found.winners else f"status {item.address} --watch"]
    if item.acceptsSubmissions:
        following = [f"challenge try {item.address} --file DRAFT", f"challenge submit {item.address} --file SOLUTION"]
    print_next(following)


def _config_lines(found: DetailResult) -> list[tuple[str, str]]:
    """Return the criteria and features of a config, or why there are none."""
    try:
        config = parse_eval_config(bare(found.evalConfig)) if found.evalConfig else None
    except BadInput:
        config = None
    if config is None:
        return [("config", found.configProblem or "none")]
    problem = [("unusable", found.configProblem)] if found.configProblem else []
    return [("criteria", config.criteria[:600]), *problem, *(("feature", line) for line in feature_lines(config))]


def post(  # noqa: PLR0917 - the terms of a challenge
    title: Annotated[str, Option(help="One line that says what is wanted.")],
    problem: output.Problem,
    prize: Annotated[str, Option(help='The prize pool: "100", "12.5 USDC".')],
    deadline: Annotated[str, Option(help='"7 days", "36h", or a date with time zone.')],
    config: Annotated[Path | None, Option(help="The eval config file; needed for evaluator clara.")] = None,
    evaluator: Annotated[Literal["clara", "self"], Option(help="Who scores it.")] = "clara",
    payout: Annotated[str, Option(help="top1, top3, top5, equal, or basis points 5000,3000,2000.")] = "",
    winners: Annotated[int | None, Option(help="Number of winners; 3 unless --payout says it.")] = None,
    scoring_window: Annotated[str, Option(help="Time for scoring after the deadline.")] = "3 days",
    token: Annotated[str, Option(help="The prize token's symbol or address; USDC by default.")] = "",
    skill: Annotated[list[str] | None, Option(help="A skill tag; may be repeated.")] = None,
    max_participants: Annotated[int, Option(help="0 means no limit.")] = 0,
    expected_entries: Annotated[int | None, Option(help="For the quote and the warnings.")] = None,
    private_set_hash: Annotated[str, Option(help="Commits to a hidden harness: see harness hash.")] = "",
    allow_duplicate: Annotated[bool, Option(help="Post although the same challenge is open.")] = False,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Post a challenge: show plan, quote, fee and warnings; with --send, escrow the prize."""
    terms = posting.Posting(
        title=title,
        problem_statement=output.text_or_file(problem),
        prize=prize,
        deadline=deadline,
        eval_config=read_text(config) if config else "",
        evaluator=evaluator,
        payout=payout,
        winner_count=winners,
        scoring_window=scoring_window,
        token=token or None,
        skills=tuple(skill or ()),
        max_participants=max_participants,
        expected_entries=expected_entries,
        private_set_hash=private_set_hash or posting.NO_HASH,
        allow_duplicate=allow_duplicate,
    )
    _show_or_send(posting.post(terms, sender or None), send=send, yes=yes, json=json)


def submit(  # noqa: PLR0917 - three ways to name a solution
    address: AddressArgument,
    text: Annotated[str, Option(help="The solution itself.")] = "",
    file: Annotated[str, Option(help="A file, an archive or a folder that holds it.")] = "",
    uri: Annotated[str, Option(help="Where it already is: data:, https: or ipfs:.")] = "",
    solution_hash: Annotated[str, Option(help="keccak256 of the content behind --uri.")] = "",
    agent_id: Annotated[int | None, Option(help="Your id in the identity registry; else looked up.")] = None,
    register: Annotated[bool, Option("--register", help="Register as an agent first if you are not one yet.")] = False,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Submit a solution, or replace your earlier one."""
    submission = submitting.SubmissionInput(
        challenge=address,
        content=text,
        file=file,
        uri=uri,
        solution_hash=solution_hash,
        agent_id=agent_id,
        register=register,
    )
    _show_or_send(submitting.submit(submission, sender or None), send=send, yes=yes, json=json)


def score(
    address: AddressArgument,
    file: Annotated[str, Option("--scores", help="CSV or JSON with address and score; - is a pipe.")] = "",
    winner: Annotated[list[str] | None, Option(help="ADDRESS or ADDRESS=SCORE, best first; repeat.")] = None,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Score your own challenge after its deadline: pays the winners; cannot be undone."""
    if bool(file) == bool(winner):
        raise BadInput("The winners are not named.", remedy="Give --scores FILE, or --winner for each, best first.")
    text = sys.stdin.read() if file == "-" else read_text(Path(file)) if file else "\n".join(winner or [])
    action = claiming.own_scores(address, claiming.read_places(text), sender or None)
    _show_or_send(action, send=send, yes=yes, json=json)


def claim(
    address: AddressArgument,
    finalize: Annotated[
        bool, Option("--finalize", help="Only open the claims, 12 hours after the post; anybody may.")
    ] = False,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Claim your prize, or your share of an expired challenge."""
    action = claiming.finalize if finalize else claiming.claim
    _show_or_send(action(address, sender or None), send=send, yes=yes, json=json)


def object_(
    address: AddressArgument,
    *,
    about: Annotated[str, Option(help="What is wrong: rejected, copy, feature:NAME or game:ADDRESS.")] = "",
    reason: Annotated[str, Option(help="Why, in a sentence or two; it becomes public with the trace.")] = "",
    json: JsonFlag = False,
) -> None:
    """Show an announced result; with --about, object to it before the post, signed by CLARA_WALLET_KEY."""
    if about and Settings.from_env().wallet_key is None:
        raise ConfigError("An objection is signed by the submitter.", remedy=NO_KEY)
    wanted = ObjectionInput(address, about, reason)
    found = words.add_objection_step(with_caller(lambda caller: object_or_show(caller, wanted, confirmed="yes")), NAMES)
    objection = {"challengeAddress": found.address, "traceDigest": found.traceDigest, "about": about, "reason": reason}
    answer(objection if about else found, json, lambda: print_text(words.objection_text(found)))


def _show_or_send(action: Action, *, send: bool, yes: bool, json: bool) -> None:
    async def report(done: int, total: int, step: str) -> None:
        console().print(f"[{done}/{total}] {step}", markup=False)

    async def act(caller: Caller) -> ActResult:
        if not send:
            return await perform(caller, action, confirmed="unasked")
        if caller.account is None:
            raise ConfigError("--send needs a local wallet key.", remedy=NO_KEY)
        is_agreed = yes
        if not yes:
            question, remedy = (await prepare(caller, action)).question, "Add --yes to send without being asked."
            if not sys.stdin.isatty():
                raise BadInput("There is no terminal to ask for confirmation.", remedy=remedy)
            is_agreed = confirm(question, err=True)
        return await perform(caller, action, confirmed="yes" if is_agreed else "no", report=report)

    found = words.add_next_step(with_caller(act), NAMES)
    answer(found, json, lambda: print_text(words.action_text(found, NAMES)))
