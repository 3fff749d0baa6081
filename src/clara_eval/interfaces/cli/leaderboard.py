"""`status`, `leaderboard`, `score`: how far an evaluation is, its places, and why one entry ended where it did."""

from __future__ import annotations

import asyncio
import json as json_text
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from clara_eval.actions import results
from clara_eval.actions.amounts import show_moment
from clara_eval.actions.operator import known_status
from clara_eval.app import Caller
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, short, to_address
from clara_eval.core.errors import NotFound
from clara_eval.core.untrusted import bare
from clara_eval.documents.actions import ComparisonRow, ScoreResult, StandingRow
from clara_eval.documents.results import STOPPED_STATES, EvalStatus, LeaderboardRow, Margin, Scores, Token
from clara_eval.interfaces import words
from clara_eval.interfaces.cli.challenge import ask, watch
from clara_eval.interfaces.cli.leaderboard_table import (
    ROWS,
    LeaderboardTable,
    print_asked,
    print_leaderboard,
    print_result,
)
from clara_eval.interfaces.cli.output import NAMES, AddressArgument, JsonFlag, answer, emit_json, fail
from clara_eval.interfaces.cli.screen import console, print_labelled, print_next, print_wrapped, short_hex

NEIGHBOURS = 2
"""How many places above and below one entry are shown with it."""


_NEXT = {
    "complete": "verify {0}|leaderboard {0}",
    "review": "review show {0}",
    "failed": "evaluate {0}",
    "deferred": "spend",
    "unscorable": "challenge show {0}",
}
"""The commands to run after each status."""


def status(
    address: AddressArgument,
    *,
    follow: Annotated[bool, typer.Option("--watch", help="Follow it until it ends; exit 1 if it failed.")] = False,
    every: Annotated[float, typer.Option(help="With --watch: seconds between two checks.", min=0.1)] = 5.0,
    json: JsonFlag = False,
) -> None:
    """Show how far the evaluation of a challenge has come."""
    if follow:
        ended = ask(lambda caller: watch(caller, address, every))
        answer(ended, json, lambda: None)
        raise typer.Exit(1 if ended.status in STOPPED_STATES else 0)
    target = to_address(address)
    document, scores = asyncio.run(known_status(Settings.from_env(), target))
    if document is None:
        remedy = f"`clara-eval evaluate {target}` starts one; CLARA_API_URL names the service that has one."
        fail(NotFound(f"No evaluation of {target} is known here.", remedy=remedy), as_json=json)
    answer({"challenge": target, **document.model_dump()}, json, lambda: _print_status(target, document, scores))


def _print_status(target: Address, document: EvalStatus, scores: Scores | None) -> None:
    out, meaning = console(stderr=False), words.meaning(document)
    out.print(Text.assemble((target, "bold"), f"  {document.status}  {document.progress} %"))
    out.print(Text(meaning))
    if document.warning:
        print_labelled("Warning", document.warning)
    if document.stage is not None:
        print_labelled("Stage", words.stage_text(document.stage))
    if document.retryAt:
        print_labelled("Again at", show_moment(document.retryAt))
    if document.reason and document.reason != meaning:
        print_labelled("Reason", document.reason[:1000])
    if scores is not None and scores.rankings:
        out.print()
        print_result(scores)
    print_next(_NEXT.get(document.status, "status {} --watch").format(target).split("|"))


def leaderboard(
    address: AddressArgument,
    *,
    limit: Annotated[int, typer.Option(min=1, max=results.MAX_STANDINGS, help="How many places to show.")] = ROWS,
    json: JsonFlag = False,
) -> None:
    """Show everybody's place, its interval and prize, once scores are posted."""

    async def read(caller: Caller) -> None:
        found = words.leaderboard(await results.leaderboard(caller, address, limit=limit), NAMES)
        if json:
            emit_json(found)
            return
        screen, scores = console(stderr=False), await caller.records.scores(to_address(found.address))
        if scores is not None:
            print_asked(scores)
            screen.print()
        table = table_of(found.standings, found.token, scores.margin if scores else None)
        print_leaderboard(screen, table, limit=limit)
        screen.print()
        if found.warning:
            print_labelled("Warning", found.warning)
        if found.postedBy == "poster":
            print_labelled("Posted by", "the poster, not the evaluator")
        if found.source == "chain":
            print_labelled(
                "Known", "only the winners that the chain names; CLARA_API_URL names a service that knows all"
            )
        print_next([f"score {found.address} 1", f"verify {found.address}"])

    ask(read)


def score(
    address: AddressArgument,
    submitter: Annotated[str, typer.Argument(help="Who submitted; your own wallet's address by default.")] = "",
    *,
    json: JsonFlag = False,
) -> None:
    """Say why one entry ended where it did: its place, facts, comparisons, closest rival, and the prize."""

    async def read(caller: Caller) -> None:
        found = words.score(await results.score(caller, address, submitter or None), NAMES)
        if json:
            emit_json(found)
            return
        all_places = await results.leaderboard(caller, address, limit=results.MAX_STANDINGS)
        _print_score(found, all_places.standings)

    ask(read)


def _print_score(found: ScoreResult, standings: Sequence[StandingRow]) -> None:
    screen, own = console(stderr=False), found.submitter
    screen.print(Text.assemble((short(own), "bold"), f" in {found.address}"))
    print_wrapped(short_hex(found.why))
    screen.print()
    place = next((number for number, row in enumerate(standings) if row.address == own), 0)
    near = standings[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1]
    heading = f"Around place {found.standing.rank} of {found.entries}"
    print_leaderboard(screen, table_of(near, found.token, marked=own), heading=heading)
    _print_facts(found)
    _print_comparisons(found.games)
    screen.print()
    print_labelled("Prize", found.claimable)
    print_labelled("Trace", found.trace)
    print_next([f"verify {found.address}"])


def _print_facts(found: ScoreResult) -> None:
    screen = console(stderr=False)
    if found.features:
        screen.print()
        screen.print(Text("Facts by which it was judged", style="bold"))
    for fact in found.features:
        screen.print(Text(f"  {words.readable(fact.name):<28} {words.fact(fact.value)}"))
    if found.standing.executed and (failed := found.standing.executed.failed):
        screen.print()
        screen.print(Text("What did not pass", style="bold"))
        for name, how in failed.items():
            screen.print(Text(f"  {words.readable(name):<28} {how}"))
    for note in (*map(bare, found.notes), *(flag_sentence(bare(flag)) for flag in found.flags)):
        print_wrapped(short_hex(words.plain(note)), "  - ")


def flag_sentence(text: str) -> str:
    """The sentence of a flag; its JSON may be cut."""
    try:
        return str(json_text.loads(text)["sentence"])
    except (ValueError, LookupError, TypeError):
        return text


def _print_comparisons(games: Sequence[ComparisonRow]) -> None:
    screen = console(stderr=False)
    if games:
        screen.print()
        screen.print(Text("Comparisons with its neighbours", style="bold"))
    for game in games:
        sure = f", {100 * game.confidence:.0f} % sure" if game.confidence is not None else ""
        colour = {"won": "green", "lost": "red"}.get(game.result, "yellow")
        side = "shown first" if game.shownFirst else "shown second"
        screen.print(Text.assemble("  ", (game.result, colour), f" against {short(game.rival)}, {side}{sure}"))
        if game.reason:
            print_wrapped(short_hex(words.plain(bare(game.reason))), "    ")


def table_of(
    rows: Sequence[StandingRow], token: Token, margin: Margin | None = None, *, marked: str = ""
) -> LeaderboardTable:
    """Reasons leave their fence: the table escapes them."""
    ranked = [
        LeaderboardRow.model_validate(
            {**row.model_dump(exclude={"name"}), "reason": bare(row.reason) if row.reason else None}
        )
        for row in rows
    ]
    return LeaderboardTable(ranked, token, margin, marked=marked)
