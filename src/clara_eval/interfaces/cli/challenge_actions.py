"""`challenge post|submit|claim|object` and `finalize`: a plan is shown, and sent only with `--send`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from clara_eval.actions import claim as claiming
from clara_eval.actions.objections import ObjectionInput, object_or_show
from clara_eval.actions.perform import perform, prepare
from clara_eval.actions.plan import Action
from clara_eval.actions.post import NO_HASH, Posting
from clara_eval.actions.post import post as post_action
from clara_eval.actions.submit import SubmissionInput
from clara_eval.actions.submit import submit as submit_action
from clara_eval.app import Caller
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.documents.actions import ActResult
from clara_eval.interfaces import words
from clara_eval.interfaces.cli.challenge import ask
from clara_eval.interfaces.cli.output import NAMES, AddressArgument, FromOption, JsonFlag, answer, read_text
from clara_eval.interfaces.cli.screen import console, print_text

SendFlag = Annotated[bool, typer.Option("--send", help="Sign and send with CLARA_WALLET_KEY; without it: dry run.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before sending.")]


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
        problem_statement=read_text(Path(problem[1:])) if problem.startswith("@") else problem,
        prize=prize,
        deadline=deadline,
        eval_config=read_text(config) if config else "",
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
    submission = SubmissionInput(
        challenge=address,
        content=text,
        file=file,
        uri=uri,
        solution_hash=solution_hash,
        agent_id=agent_id,
        register=register,
    )
    _write(submit_action(submission, sender or None), send=send, yes=yes, json=json)


def claim(
    address: AddressArgument,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Claim your prize, or your share of an expired challenge."""
    _write(claiming.claim(address, sender or None), send=send, yes=yes, json=json)


def finalize(
    address: AddressArgument,
    sender: FromOption = "",
    send: SendFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Open the claims of a challenge, 12 hours after its scores were posted; anybody may."""
    _write(claiming.finalize(address, sender or None), send=send, yes=yes, json=json)


def object_(
    address: AddressArgument,
    *,
    about: Annotated[str, typer.Option(help="What is wrong: rejected, copy, feature:NAME or game:ADDRESS.")],
    reason: Annotated[str, typer.Option(help="Why, in a sentence or two; it becomes public with the trace.")],
    json: JsonFlag = False,
) -> None:
    """Object to an announced result, signed by CLARA_WALLET_KEY, at CLARA_API_URL or in the local store."""
    if Settings.from_env().wallet_key is None:
        raise ConfigError(
            "An objection is signed by the submitter.", remedy="Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE."
        )
    wanted = ObjectionInput(address, about, reason)
    found = ask(lambda caller: object_or_show(caller, wanted, confirmed="yes"))
    target, digest = found.address, found.traceDigest
    document = {"challengeAddress": target, "traceDigest": digest, "about": found.about, "reason": reason}
    answer(document, json, lambda: print_text(f"Objected to {digest} of {target}."))


def _write(action: Action, *, send: bool, yes: bool, json: bool) -> None:
    found = ask(lambda caller: _perform(caller, action, send=send, yes=yes))
    answer(found, json, lambda: print_text(words.acted_text(found, NAMES)))


async def _perform(caller: Caller, action: Action, *, send: bool, yes: bool) -> ActResult:
    async def report(done: int, total: int, step: str) -> None:
        console().print(f"[{done}/{total}] {step}", markup=False)

    if not send:
        return words.acted(await perform(caller, action, confirmed="unasked"), NAMES)
    if caller.account is None:
        raise ConfigError("--send needs a local wallet key.", remedy="Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE.")
    if not yes:
        question = (await prepare(caller, action)).question
        if not sys.stdin.isatty():
            raise BadInput(
                "There is no terminal to ask for confirmation.", remedy="Add --yes to send without being asked."
            )
        yes = typer.confirm(question, err=True)
    done = await perform(caller, action, confirmed="yes" if yes else "no", report=report)
    return words.acted(done, NAMES)
