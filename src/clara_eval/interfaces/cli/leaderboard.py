"""`leaderboard` and `score`: who stands where in a posted challenge, and why one entry ended where it did.

Both ask the chain for what was paid, and the store or the service of CLARA_API_URL for the rest. Before scores are
posted there is nothing to show but the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer
from rich.text import Text

from clara_eval.actions import results
from clara_eval.app import Caller, open_caller
from clara_eval.chain.model import PrizeToken
from clara_eval.config.settings import Settings
from clara_eval.core.address import short, to_address
from clara_eval.core.untrusted import bare
from clara_eval.documents.actions import (
    ComparisonRow,
    LeaderboardResult,
    ScoreResult,
    StandingRow,
)
from clara_eval.documents.results import LeaderboardRow, Margin, Scores, Token
from clara_eval.interfaces.cli.leaderboard_table import ROWS, LeaderboardTable, print_leaderboard
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.result import print_asked, print_next
from clara_eval.interfaces.cli.screen import console, print_labelled, short_hex, wrapped
from clara_eval.interfaces.cli.words import in_shell

NEIGHBOURS = 2
"""How many places above and below one entry are shown with it."""
T = TypeVar("T")


def leaderboard(
    address: AddressArgument,
    *,
    limit: Annotated[int, typer.Option(min=1, max=results.MAX_STANDINGS, help="How many places to show.")] = ROWS,
    json: JsonFlag = False,
) -> None:
    """Show everybody's place, its interval and prize, once scores are posted."""
    found, scores = asyncio.run(_ask(lambda caller: _leaderboard(caller, address, limit)))
    if json:
        emit_json(in_shell(found.model_dump(mode="json")))
        return
    if scores is not None:
        print_asked(scores)
        console(stderr=False).print()
    leaderboard = _table_of(found.standings, found.token, scores.margin if scores else None)
    print_leaderboard(console(stderr=False), leaderboard, limit=limit)
    console(stderr=False).print()
    if found.warning:
        print_labelled("Warning", found.warning)
    if found.postedBy == "poster":
        print_labelled("Posted by", "the poster, not the evaluator")
    if found.source == "chain":
        print_labelled("Known", "only the winners that the chain names; CLARA_API_URL names a service that knows all")
    first = found.standings[0].address if found.standings else "SUBMITTER"
    print_next([f"score {found.address} {first}", f"verify {found.address}"])


async def _leaderboard(caller: Caller, address: str, limit: int) -> tuple[LeaderboardResult, Scores | None]:
    found = await results.leaderboard(caller, address, limit=limit)
    return found, await caller.records.scores(to_address(found.address))


def score(
    address: AddressArgument,
    submitter: Annotated[str, typer.Argument(help="Who submitted; your own wallet's address by default.")] = "",
    *,
    json: JsonFlag = False,
) -> None:
    """Say why one entry ended where it did: its place, facts, games, closest rival, and the prize."""
    found, standings = asyncio.run(_ask(lambda caller: _score(caller, address, submitter)))
    if json:
        emit_json(in_shell(found.model_dump(mode="json")))
        return
    _print_score(found, standings)


async def _score(caller: Caller, address: str, submitter: str) -> tuple[ScoreResult, list[StandingRow]]:
    found = await results.score(caller, address, submitter or None)
    leaderboard = await results.leaderboard(caller, address, limit=results.MAX_STANDINGS)
    return found, leaderboard.standings


def _print_score(found: ScoreResult, standings: Sequence[StandingRow]) -> None:
    screen, own = console(stderr=False), found.submitter
    screen.print(Text.assemble((short(own), "bold"), f" in {found.address}"))
    for line in wrapped(in_shell(short_hex(found.why)), 0):
        screen.print(Text(line))
    screen.print()
    leaderboard = _table_of(_near(standings, own), found.token, None, marked=own)
    print_leaderboard(screen, leaderboard, heading=f"Around place {found.standing.rank} of {found.entries}")
    _print_facts(found)
    _print_comparisons(found.games)
    screen.print()
    print_labelled("Prize", in_shell(found.claimable, found.address))
    print_labelled("Trace", in_shell(found.trace))
    print_next([f"verify {found.address}"])


def _print_facts(found: ScoreResult) -> None:
    screen = console(stderr=False)
    if found.features:
        screen.print()
        screen.print(Text("Facts by which it was judged", style="bold"))
    for fact in found.features:
        screen.print(Text(f"  {fact.name:<28} {fact.value}"))
    for note in (*found.notes, *found.flags):
        for number, line in enumerate(wrapped(short_hex(bare(note)), 4)):
            screen.print(Text(f"{'    ' if number else '  - '}{line}"))


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
        for line in wrapped(short_hex(bare(game.reason)), 4) if game.reason else ():
            screen.print(Text(f"    {line}"))


def _near(standings: Sequence[StandingRow], own: str) -> list[StandingRow]:
    place = next((number for number, row in enumerate(standings) if row.address == own), 0)
    return list(standings[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1])


def _table_of(
    rows: Sequence[StandingRow], token: Token, margin: Margin | None, *, marked: str = ""
) -> LeaderboardTable:
    known = PrizeToken(to_address(token.address), token.symbol, token.decimals)
    return LeaderboardTable([ranked(row) for row in rows], known, margin, marked=marked)


def ranked(row: StandingRow) -> LeaderboardRow:
    """A row as the public document has it; its reason is no longer fenced: the table escapes it."""
    return LeaderboardRow.model_validate({**row.model_dump(), "reason": bare(row.reason) if row.reason else None})


async def _ask(question: Callable[[Caller], Awaitable[T]]) -> T:
    async with open_caller(Settings.from_env()) as caller:
        return await question(caller)
