"""`leaderboard` and `score`: the places of a posted challenge, and why one entry ended where it did."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from clara_eval.actions import results
from clara_eval.app import Caller
from clara_eval.core.address import short, to_address
from clara_eval.core.untrusted import bare
from clara_eval.documents.actions import ComparisonRow, ScoreResult, StandingRow
from clara_eval.documents.results import LeaderboardRow, Margin, Token
from clara_eval.interfaces import words
from clara_eval.interfaces.cli.challenge import ask
from clara_eval.interfaces.cli.leaderboard_table import ROWS, LeaderboardTable, print_asked, print_leaderboard
from clara_eval.interfaces.cli.output import NAMES, AddressArgument, JsonFlag, emit_json
from clara_eval.interfaces.cli.screen import console, print_labelled, print_next, print_wrapped, short_hex

NEIGHBOURS = 2
"""How many places above and below one entry are shown with it."""


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
        screen.print(Text(f"  {fact.name:<28} {fact.value}"))
    for note in (*map(bare, found.notes), *(flag_sentence(bare(flag)) for flag in found.flags)):
        print_wrapped(short_hex(note), "  - ")


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
            print_wrapped(short_hex(bare(game.reason)), "    ")


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
