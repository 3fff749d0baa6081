"""Commands `status`, `leaderboard`, `score` and `review …`."""

from __future__ import annotations

import asyncio
import json as json_text
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated

from rich.table import Table
from rich.text import Text
from typer import Argument, Exit, Option

from clara_eval.actions import results
from clara_eval.actions import review as reviews
from clara_eval.actions.amounts import round_amount, show_count, show_moment
from clara_eval.actions.operator import known_status
from clara_eval.app import Caller
from clara_eval.config.settings import Settings
from clara_eval.core.address import short, to_address
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.core.untrusted import bare
from clara_eval.documents.actions import ScoreResult, StandingRow
from clara_eval.documents.rest import ReviewSheet
from clara_eval.documents.results import STOPPED_STATES, RuledStage, RulingKind
from clara_eval.interfaces import words
from clara_eval.interfaces.cli import leaderboard_table as tables
from clara_eval.interfaces.cli import screen
from clara_eval.interfaces.cli.challenge import watch, with_caller
from clara_eval.interfaces.cli.output import NAMES, AddressArgument, JsonFlag, answer, emit_json, fail
from clara_eval.interfaces.cli.screen import print_lines, safe

NEIGHBOURS = 2  # places shown above and below one entry
_NEXT = {
    "complete": "verify {0}|leaderboard {0}",
    "review": "review show {0}",
    "failed": "evaluate {0}",
    "deferred": "spend",
    "unscorable": "challenge show {0}",
}  # The commands to run after each status.


def status(
    address: AddressArgument,
    *,
    follow: Annotated[bool, Option("--watch", help="Follow it until it ends; exit 1 if it failed.")] = False,
    every: Annotated[float, Option(help="With --watch: seconds between two checks.", min=0.1)] = 5.0,
    json: JsonFlag = False,
) -> None:
    """Show how far the evaluation of a challenge has come."""
    if follow:
        ended = with_caller(lambda caller: watch(caller, address, every))
        answer(ended, json, lambda: None)
        raise Exit(1 if ended.status in STOPPED_STATES else 0)
    target = to_address(address)
    document, scores = asyncio.run(known_status(Settings.from_env(), target))
    if document is None:
        remedy = f"`clara-eval evaluate {target}` starts one; CLARA_API_URL names the service that has one."
        fail(NotFound(f"No evaluation of {target} is known here.", remedy=remedy), as_json=json)
    if json:
        emit_json({"challenge": target, **document.model_dump()})
        return
    out, meaning = screen.console(stderr=False), words.status_meaning(document)
    out.print(Text.assemble((target, "bold"), f"  {document.status}  {document.progress} %"))
    out.print(Text(meaning))
    screen.print_labelled("Warning", document.warning)
    screen.print_labelled("Stage", words.stage_text(document.stage) if document.stage else None)
    screen.print_labelled("Again at", show_moment(document.retryAt) if document.retryAt else None)
    screen.print_labelled("Reason", document.reason[:1000] if document.reason not in {None, "", meaning} else None)
    if scores is not None and scores.rankings:
        out.print()
        tables.print_result(scores)
    screen.print_next(_NEXT.get(document.status, "status {} --watch").format(target).split("|"))


def leaderboard(
    address: AddressArgument,
    *,
    limit: Annotated[int, Option(min=1, max=results.MAX_STANDINGS, help="How many places to show.")] = tables.ROWS,
    json: JsonFlag = False,
) -> None:
    """Show every place with its interval and prize, once scores are posted."""

    async def read(caller: Caller) -> None:
        found = words.add_trace(await results.leaderboard(caller, address, limit=limit), NAMES)
        if json:
            emit_json(found)
            return
        out, scores = screen.console(stderr=False), await caller.records.scores(to_address(found.address))
        if scores is not None:
            tables.print_asked(scores)
            out.print()
        table = tables.LeaderboardTable(found.standings, found.token, scores.margin if scores else None)
        tables.print_leaderboard(out, table, limit=limit)
        out.print()
        only = "only the winners that the chain names; CLARA_API_URL names a service that knows all"
        screen.print_labelled("Warning", found.warning)
        screen.print_labelled("Posted by", "the poster, not the evaluator" if found.postedBy == "poster" else None)
        screen.print_labelled("Known", only if found.source == "chain" else None)
        screen.print_next([f"score {found.address} 1", f"verify {found.address}"])

    with_caller(read)


def score(
    address: AddressArgument,
    submitter: Annotated[str, Argument(help="Who submitted; your own wallet's address by default.")] = "",
    *,
    json: JsonFlag = False,
) -> None:
    """Explain the place of one entry: its facts, comparisons, closest rival and prize."""

    async def read(caller: Caller) -> None:
        found = words.explain_score(await results.score(caller, address, submitter or None), NAMES)
        if json:
            emit_json(found)
            return
        _print_score(found, (await results.leaderboard(caller, address, limit=results.MAX_STANDINGS)).standings)

    with_caller(read)


def _print_score(found: ScoreResult, standings: Sequence[StandingRow]) -> None:
    out, own = screen.console(stderr=False), found.submitter
    out.print(Text.assemble((short(own), "bold"), f" in {found.address}"))
    screen.print_wrapped(screen.short_hex(found.why))
    out.print()
    place = next((number for number, row in enumerate(standings) if row.address == own), 0)
    near = standings[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1]
    heading = f"Around place {found.standing.rank} of {found.entries}"
    tables.print_leaderboard(out, tables.LeaderboardTable(near, found.token, marked=own), heading=heading)
    if found.features:
        screen.print_heading("Facts by which it was judged")
    for fact in found.features:
        out.print(Text(f"  {words.feature_label(fact.name):<28} {words.show_value(fact.value)}"))
    if failed := found.standing.executed.failed if found.standing.executed else {}:
        screen.print_heading("What did not pass")
    for name, how in failed.items():
        out.print(Text(f"  {words.feature_label(name):<28} {how}"))
    for note in (*map(bare, found.notes), *(flag_sentence(bare(flag)) for flag in found.flags)):
        screen.print_wrapped(screen.short_hex(words.plain(note)), "  - ")
    if found.games:
        screen.print_heading("Comparisons with its neighbours")
    for game in found.games:
        sure = f", {100 * game.confidence:.0f} % sure" if game.confidence is not None else ""
        colour = {"won": "green", "lost": "red"}.get(game.result, "yellow")
        side = "shown first" if game.shownFirst else "shown second"
        out.print(Text.assemble("  ", (game.result, colour), f" against {short(game.rival)}, {side}{sure}"))
        if game.reason:
            screen.print_wrapped(screen.short_hex(words.plain(bare(game.reason))), "    ")
    out.print()
    screen.print_labelled("Prize", found.claimable)
    screen.print_labelled("Trace", found.trace)
    screen.print_next([f"verify {found.address}"])


def flag_sentence(text: str) -> str:
    """Return the sentence of a flag in JSON, or the text itself if the JSON is cut."""
    try:
        return str(json_text.loads(text)["sentence"])
    except (ValueError, LookupError, TypeError):
        return text


Digest = Annotated[str | None, Option(help="The digest of the trace you reviewed; any other result is refused.")]
Note = Annotated[str, Option(help="Why; it is kept with the decision.")]
By = Annotated[str, Option(help="Your name; it is published in the trace.")]


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
        screen.console(stderr=False).print("No result waits for a review.")
    for review in found:
        print_lines(f"{review.state:<9} {review.address}  trace {review.digest}")
        if review.state == "waiting":
            print_lines(f"          {safe(review.unless_decided, 1000)}")
        print_lines(*(f"          {safe(reason)}" for reason in review.reasons))
        print_lines(*([f"          note: {safe(review.note)}"] if review.note else []))


def show(address: AddressArgument, *, json: JsonFlag = False) -> None:
    """Show a result under review: prize, deadline, doubts, ranking, facts, comparisons near the pay line."""
    target, settings = to_address(address), Settings.from_env()
    sheet = asyncio.run(reviews.in_store(settings, lambda store, chain: reviews.review_sheet(store, chain, target)))
    answer(sheet, json, lambda: print_sheet(sheet))


def approve(
    address: AddressArgument,
    *,
    digest: Annotated[str, Option(help="The digest of the result you reviewed, as `review show` says.")],
    note: Annotated[str, Option(help="Why; it is in the public trace.")] = "",
    by: By = "",
    json: JsonFlag = False,
) -> None:
    """Let the service post exactly the result you reviewed."""
    follows = "A running service posts it within some minutes; by hand: clara-eval evaluate {}."
    _decide(address, partial(reviews.approve, note=note, digest=digest, by=by), follows, json=json)


def reject(
    address: AddressArgument, *, note: Note = "", by: By = "", digest: Digest = None, json: JsonFlag = False
) -> None:
    """End the evaluation as failed; the poster may still post scores."""
    _decide(address, partial(reviews.reject, note=note, digest=digest, by=by), "Nothing is posted.", json=json)


def rule(
    address: AddressArgument,
    *,
    digest: Annotated[str, Option(help="The digest of the result that you looked at, as `review show` says.")],
    exclude: Annotated[str | None, Option(help="The address of an entry that is not to be ranked.")] = None,
    original: Annotated[str | None, Option(help="The address that is the original of a copied work.")] = None,
    judge: Annotated[str | None, Option(help="A judge, as in CLARA_JUDGES, to be asked instead.")] = None,
    stage: Annotated[RuledStage, Option(help="What the judge is asked for.")] = "comparing",
    note: Note = "",
    by: By = "",
    json: JsonFlag = False,
) -> None:
    """Exclude an entry, name the original of a copy, or ask another judge; then evaluate the round again."""
    if sum(bool(value) for value in (exclude, original, judge)) != 1:
        raise BadInput("A ruling is exactly one of --exclude, --original and --judge.", path="ruling")
    account = to_address(exclude or original or "") if not judge else None
    kind: RulingKind = "exclude" if exclude else "original" if original else "judge"
    decree = reviews.Decree(kind, account, judge, stage if judge else None, note, by)
    follows = "The ruling is saved. The round is evaluated again; review the new result."
    _decide(address, partial(reviews.rule, decree=decree, digest=digest), follows, json=json)


def _decide(address: str, decide: Callable[..., Awaitable[reviews.Review]], follows: str, *, json: bool) -> None:
    target, settings = to_address(address), Settings.from_env()
    review = asyncio.run(reviews.in_store(settings, lambda store, chain_id: decide(store, chain_id, target)))
    text = f"{review.address} is {review.state}. {follows.format(target)}"
    answer(review.to_json(), json, lambda: print_lines(text))


def print_sheet(sheet: ReviewSheet) -> None:
    money, due = "not known", sheet.postsAt or sheet.scoringDeadline
    if sheet.prizePool is not None and sheet.token is not None:
        money = f"{round_amount(int(sheet.prizePool), sheet.token)} for {show_count(sheet.winnerCount, 'place')}"
    print_lines(
        f"{sheet.state:<9} {sheet.address}  {safe(sheet.title or '')}",
        *([f"doubt     {safe(sheet.misplaced.sentence, 400)}"] if sheet.misplaced else []),
        f"digest    {sheet.traceDigest}",
        f"money     {money}; {f'decide before {show_moment(due)}' if due else 'the deadline is not known here'}",
    )
    print_lines(*([f"default   {safe(sheet.unlessDecided, 1000)}"] if sheet.unlessDecided else []))
    print_lines(*(f"waits     {safe(reason, 600)}" for reason in sheet.reasons))
    print_lines(*(f"{flag.severity:<9} {safe(flag.code)}: {safe(flag.sentence, 600)}" for flag in sheet.doubts))
    for ruling in sheet.rulings:
        about = ruling["account"] or (f"{ruling['judge']} for {ruling['stage']}" if ruling["judge"] else "the clock")
        print_lines(f"ruled     {ruling['kind']} {safe(about)}: {safe(ruling['note'] or 'no note')}")
    print_lines(*([f"note      {safe(sheet.note)}"] if sheet.note else []))
    out = screen.console(stderr=False)
    out.print()
    tables.print_leaderboard(out, tables.LeaderboardTable(sheet.ranking, sheet.token), heading="Ranking")
    out.print()
    accounts = list(dict.fromkeys(account for values in sheet.facts.values() for account in values))
    table = Table("feature", *map(short, accounts), title="facts near the last paid place")
    for name, values in sheet.facts.items():
        table.add_row(safe(name), *(safe(str(values.get(account))) for account in accounts))
    out.print(table)
    for game in sheet.games:
        winner = game.winner if game.winner in {None, "tie"} else short(game.winner or "")
        verdict = f"{winner or 'undecided'} ({game.confidence}): {safe(game.reason, 200)}"
        print_lines(f"compared  {short(game.first)} against {short(game.second)}: {verdict}")
    if sheet.state == "waiting":
        screen.print_next([f"review approve {sheet.address} --digest {sheet.traceDigest}"])
