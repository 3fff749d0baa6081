"""`review list|show|approve|reject|rule`: a person's decision before money moves."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.table import Table

from clara_eval.actions import review as reviews
from clara_eval.actions.amounts import round_amount, show_count, show_moment
from clara_eval.actions.review import Decide, Decree, review_sheet
from clara_eval.config.settings import Settings
from clara_eval.core.address import short, to_address
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.documents.rest import ReviewSheet
from clara_eval.documents.results import RuledStage
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, print_leaderboard
from clara_eval.interfaces.cli.output import AddressArgument, JsonFlag, answer, emit_json
from clara_eval.interfaces.cli.screen import console, print_lines, print_next, safe

Digest = Annotated[str | None, typer.Option(help="The digest of the trace you reviewed; any other result is refused.")]
Note = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]
By = Annotated[str, typer.Option(help="Who decides; it stands in the public trace.")]


def list_waiting(*, json: JsonFlag = False) -> None:
    """List every review of this network, waiting ones first."""
    try:
        found = asyncio.run(reviews.in_store(Settings.from_env(), reviews.list_reviews))
    except NotFound:
        found = []
    if json:
        emit_json({"reviews": [review.to_json() for review in found]})
        return
    if not found:
        console(stderr=False).print("Nothing is waiting for review. Results above CLARA_REVIEW_ABOVE_USD will.")
    for review in found:
        print_lines(f"{review.state:<9} {review.address}  trace {review.digest}")
        if review.state == "waiting":
            print_lines(f"          {safe(review.unless_decided, 1000)}")
        print_lines(*(f"          {safe(reason)}" for reason in review.reasons))
        print_lines(*([f"          note: {safe(review.note)}"] if review.note else []))


def show(address: AddressArgument, *, json: JsonFlag = False) -> None:
    """One result that waits: money, time, ranking, doubts, facts and comparisons near the last paid place."""
    target = to_address(address)
    sheet = asyncio.run(
        reviews.in_store(Settings.from_env(), lambda store, chain_id: review_sheet(store, chain_id, target))
    )
    answer(sheet, json, lambda: print_sheet(sheet))


def approve(
    address: AddressArgument,
    *,
    digest: Annotated[str, typer.Option(help="The digest of the result you reviewed, as `review show` says.")],
    note: Annotated[str, typer.Option(help="Why; it is in the public trace.")] = "",
    by: By = "",
    json: JsonFlag = False,
) -> None:
    """Let the service post exactly the result you reviewed."""
    target = to_address(address)
    _decide(
        lambda store, chain_id: reviews.approve(store, chain_id, target, note=note, digest=digest, by=by),
        f"A running service posts it within some minutes; by hand: clara-eval evaluate {target}.",
        json=json,
    )


def reject(
    address: AddressArgument, *, note: Note = "", by: By = "", digest: Digest = None, json: JsonFlag = False
) -> None:
    """End the evaluation as failed; the poster may still post."""
    target = to_address(address)
    _decide(
        lambda store, chain_id: reviews.reject(store, chain_id, target, note=note, digest=digest, by=by),
        "Nothing is posted.",
        json=json,
    )


def rule(
    address: AddressArgument,
    *,
    digest: Annotated[str, typer.Option(help="The digest of the result that you looked at, as `review show` says.")],
    exclude: Annotated[str | None, typer.Option(help="The address of an entry that is not to be ranked.")] = None,
    original: Annotated[str | None, typer.Option(help="The address that is the original of a copied work.")] = None,
    judge: Annotated[str | None, typer.Option(help="A judge, as in CLARA_JUDGES, to be asked instead.")] = None,
    stage: Annotated[RuledStage, typer.Option(help="What the judge is asked for.")] = "comparing",
    note: Note = "",
    by: By = "",
    json: JsonFlag = False,
) -> None:
    """Exclude an entry, say who is the original, or ask another judge; the round is then evaluated again."""
    if sum(bool(value) for value in (exclude, original, judge)) != 1:
        raise BadInput("A ruling is exactly one of --exclude, --original and --judge.", path="ruling")
    account = to_address(exclude or original or "") if not judge else None
    decree = Decree(
        "exclude" if exclude else "original" if original else "judge",
        account,
        judge,
        stage if judge else None,
        note,
        by,
    )
    target = to_address(address)
    _decide(
        lambda store, chain_id: reviews.rule(store, chain_id, target, decree, digest=digest),
        "The ruling is saved. The round is evaluated again; review the new result.",
        json=json,
    )


def _decide(decide: Decide, follows: str, *, json: bool) -> None:
    review = asyncio.run(reviews.in_store(Settings.from_env(), decide))
    answer(review.to_json(), json, lambda: print_lines(f"{review.address} is {review.state}. {follows}"))


def print_sheet(sheet: ReviewSheet) -> None:
    """Print a review: the money, the doubts, the ranking, and facts and comparisons near the last paid place."""
    money, due = "not known", sheet.postsAt or sheet.scoringDeadline
    if sheet.prizePool is not None and sheet.token is not None:
        money = f"{round_amount(int(sheet.prizePool), sheet.token)} for {show_count(sheet.winnerCount, 'place')}"
    print_lines(
        f"{sheet.state:<9} {sheet.address}  {safe(sheet.title or '')}",
        *([f"doubt     {safe(sheet.misplaced.sentence, 400)}"] if sheet.misplaced else []),
        f"digest    {sheet.traceDigest}",
        f"money     {money}; {f'decide before {show_moment(due)}' if due else 'the deadline is not known here'}",
    )
    if sheet.unlessDecided:
        print_lines(f"default   {safe(sheet.unlessDecided, 1000)}")
    print_lines(*(f"waits     {safe(reason, 600)}" for reason in sheet.reasons))
    print_lines(*(f"{flag.severity:<9} {safe(flag.code)}: {safe(flag.sentence, 600)}" for flag in sheet.doubts))
    for ruling in sheet.rulings:
        about = ruling["account"] or (f"{ruling['judge']} for {ruling['stage']}" if ruling["judge"] else "the clock")
        print_lines(f"ruled     {ruling['kind']} {safe(about)}: {safe(ruling['note'] or 'no note')}")
    if sheet.note:
        print_lines(f"note      {safe(sheet.note)}")
    screen = console(stderr=False)
    screen.print()
    print_leaderboard(screen, LeaderboardTable(sheet.ranking, sheet.token), heading="Ranking")
    screen.print()
    screen.print(_facts(sheet))
    for game in sheet.games:
        winner = game.winner if game.winner in {None, "tie"} else short(game.winner or "")
        verdict = f"{winner or 'undecided'} ({game.confidence}): {safe(game.reason, 200)}"
        print_lines(f"compared  {short(game.first)} against {short(game.second)}: {verdict}")
    if sheet.state == "waiting":
        print_next([f"review approve {sheet.address} --digest {sheet.traceDigest}"])


def _facts(sheet: ReviewSheet) -> Table:
    accounts = list(dict.fromkeys(account for values in sheet.facts.values() for account in values))
    table = Table(title="facts near the last paid place")
    table.add_column("feature")
    for account in accounts:
        table.add_column(short(account))
    for name, values in sheet.facts.items():
        table.add_row(safe(name), *(safe(str(values.get(account))) for account in accounts))
    return table
