"""A review on the screen: what the money is about, what is doubtful, and the facts and games at the pay line.

A `ReviewSheet` comes in; lines for a person go out. Everything that a model or a stranger wrote is shown as plain text.
"""

from __future__ import annotations

from rich.table import Table

from clara_eval.actions.amounts import round_amount
from clara_eval.chain.model import PrizeToken
from clara_eval.core.address import short, to_address
from clara_eval.documents.review import ReviewSheet
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, print_leaderboard
from clara_eval.interfaces.cli.screen import console, safe


def print_sheet(sheet: ReviewSheet) -> None:
    screen = console(stderr=False)
    screen.print(f"{sheet.state:<9} {sheet.address}  {safe(sheet.title or '')}", soft_wrap=True)
    screen.print(f"digest    {sheet.traceDigest}", soft_wrap=True)
    screen.print(f"money     {_money(sheet)}; {_time(sheet)}", soft_wrap=True)
    if sheet.unlessDecided:
        screen.print(f"default   {safe(sheet.unlessDecided, 1000)}", soft_wrap=True)
    for reason in sheet.reasons:
        screen.print(f"waits     {safe(reason, 600)}", soft_wrap=True)
    for flag in sheet.doubts:
        screen.print(f"{flag.severity:<9} {safe(flag.code)}: {safe(flag.sentence, 600)}", soft_wrap=True)
    for ruling in sheet.rulings:
        about = ruling["account"] or (f"{ruling['judge']} for {ruling['stage']}" if ruling["judge"] else "the clock")
        screen.print(f"ruled     {ruling['kind']} {safe(about)}: {safe(ruling['note'] or 'no note')}", soft_wrap=True)
    if sheet.note:
        screen.print(f"note      {safe(sheet.note)}", soft_wrap=True)
    screen.print()
    print_leaderboard(screen, LeaderboardTable(sheet.ranking, _token(sheet)), heading="Ranking")
    screen.print()
    screen.print(_facts(sheet))
    for game in sheet.games:
        winner = game.winner if game.winner in {None, "tie"} else short(game.winner or "")
        said = f"{winner or 'undecided'} ({game.confidence}): {safe(game.reason, 200)}"
        screen.print(f"game      {short(game.first)} against {short(game.second)}: {said}", soft_wrap=True)


def _money(sheet: ReviewSheet) -> str:
    if sheet.prizePool is None or sheet.token is None:
        return "not known"
    token = _token(sheet)
    return f"{round_amount(int(sheet.prizePool), token)} for {sheet.winnerCount} places" if token else "not known"


def _token(sheet: ReviewSheet) -> PrizeToken | None:
    told = sheet.token
    return PrizeToken(to_address(told.address), told.symbol, told.decimals) if told else None


def _time(sheet: ReviewSheet) -> str:
    if sheet.secondsLeft is None:
        return "the time left is not known here"
    return f"{sheet.secondsLeft // 3600} h {sheet.secondsLeft % 3600 // 60} min to decide"


def _facts(sheet: ReviewSheet) -> Table:
    accounts = list(dict.fromkeys(account for values in sheet.facts.values() for account in values))
    table = Table(title="facts near the pay line")
    table.add_column("feature")
    for account in accounts:
        table.add_column(short(account))
    for name, values in sheet.facts.items():
        table.add_row(safe(name), *(safe(str(values.get(account))) for account in accounts))
    return table
