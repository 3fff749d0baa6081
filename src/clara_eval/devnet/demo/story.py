"""The demo for a person: what was asked, a leaderboard, the money, and where to look next."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table

from clara_eval.actions.amounts import round_amount
from clara_eval.core.address import short
from clara_eval.devnet.demo.lifecycle import DemoResult
from clara_eval.documents.results import Scores
from clara_eval.interfaces.cli.leaderboard_table import leaderboard_of, print_asked, print_leaderboard
from clara_eval.interfaces.cli.screen import from_here, print_labelled, program


def show_story(screen: Console, told: DemoResult) -> None:
    """Everything after the walk, on standard output."""
    scores = Scores.model_validate(told.scores)
    screen.print()
    print_asked(scores)
    screen.print()
    print_leaderboard(
        screen, leaderboard_of(scores, {str(account): name for account, name in told.round.names.items()})
    )
    screen.print()
    screen.print(_money(told))
    screen.print()
    _where(told)


def _money(told: DemoResult) -> Table:
    challenge = told.evaluation.challenge
    table = Table(
        title="The money", title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    table.add_column("account", no_wrap=True)
    for heading in ("before", "claimed", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for account, (before, after) in told.balances.items():
        amounts = [round_amount(units, challenge.token) for units in (before, after - before, after)]
        table.add_row(f"{told.round.names[account]} {short(account)}", amounts[0], f"+{amounts[1]}", amounts[2])
    total = sum(after - before for before, after in told.balances.values())
    pool = [round_amount(units, challenge.token) for units in (challenge.prize_pool, total)]
    table.add_row("prize pool", pool[0], pool[1], "", style="dim")
    return table


def _where(told: DemoResult) -> None:
    print_labelled("Trace", str(told.trace_path))
    print_labelled("Digest", f"{told.evaluation.digest} (also in the posted transaction)")
    print_labelled("Check it", f"{program()} verify {shlex.quote(from_here(told.trace_path))}")
    print_labelled("See it", f"{program()} serve --demo")
