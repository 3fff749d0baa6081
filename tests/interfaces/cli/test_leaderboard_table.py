"""The one table of places: whole at every width, with the pay line where it belongs, and harmless."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from clara_eval.documents.results import LeaderboardRow, Margin, Token
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, draw_bar, print_leaderboard, table_lines

USDC = Token(address="0x" + "1" * 40, symbol="USDC", decimals=6, isKnown=True)
MARGIN = Margin(place=3, probability=0.82, word="uncertain", sentence="82 % sure.", setChance=0.8)


def row(rank: int, **more: Any) -> LeaderboardRow:
    return LeaderboardRow.model_validate(
        {
            "address": f"0x{rank:040x}", "rank": rank, "elo": 1700.0 - 50 * rank, "low": 1640.0 - 50 * rank,
            "high": 1760.0 - 50 * rank, "pTop": max(0.0, 1 - rank / 8), "wins": 20 - rank, "losses": rank, "ties": 0,
            "score": 9000 - 700 * rank, "status": "ranked",
            "prizeAmount": str(400_000_000 // rank) if rank <= 3 else None, **more,
        }
    )  # fmt: skip


def executed(rank: int) -> dict[str, Any]:
    return {"outcome": "passed", "testsPassed": 13 - rank, "tests": 12, "gas": 1_020_930 + rank, "fuel": None}


def shown(leaderboard: LeaderboardTable, width: int, limit: int = 25) -> list[str]:
    out = io.StringIO()
    print_leaderboard(Console(file=out, width=width, highlight=False), leaderboard, limit=limit)
    return out.getvalue().splitlines()


PLAIN = LeaderboardTable([row(n) for n in range(1, 8)], USDC, MARGIN)
NAMED = LeaderboardTable(PLAIN.rows, USDC, MARGIN, {one.address: f"entry_{one.rank}" for one in PLAIN.rows})
RUN = LeaderboardTable([row(n, executed=executed(n)) for n in range(1, 8)], USDC, MARGIN, NAMED.names)
METRICS = LeaderboardTable(
    [
        row(n, executed={**executed(n), "metrics": {"batch_gas": 20_930 * n, "single_gas": 900, "zeta": 1.5}})
        for n in range(1, 8)
    ],
    USDC,
    MARGIN,
    NAMED.names,
)


@pytest.mark.parametrize("width", [60, 72, 80, 100, 140, 200])
@pytest.mark.parametrize("leaderboard", [PLAIN, NAMED, RUN, METRICS], ids=["plain", "named", "run", "metrics"])
def test_no_line_wraps_and_no_number_is_cut(leaderboard: LeaderboardTable, width: int) -> None:
    """Every place is one line that fits, with its rank, its whole rating and its whole prize."""
    lines = [line.plain for line in table_lines(leaderboard, leaderboard.rows, width)]
    assert len(lines) == 9
    assert all(cell_len(line) <= width for line in lines)
    for rank, line in enumerate((line for line in lines[1:] if "above this line" not in line), start=1):
        assert line.startswith(str(rank))
        assert f"{1700 - 50 * rank}" in line.split()
        if rank <= 3:
            assert line.endswith(f"{400_000_000 // rank // 10_000 / 100:,.2f} USDC")


def test_what_was_run_is_shown_at_eighty_columns() -> None:
    """Tests and gas stand beside the rating on the narrowest usual terminal; a wide one shows everything."""
    heading, first = (line.plain for line in table_lines(RUN, RUN.rows, 80)[:2])
    assert heading.split()[:4] == ["#", "entry", "tests", "gas"]
    assert ("12/12" in first, "1,020,931" in first, "●" in first) == (True, True, True)
    wide = table_lines(RUN, RUN.rows, 140)[0].plain
    assert wide.split() == [
        "#",
        "entry",
        "agent",
        "tests",
        "gas",
        "Elo",
        "P(paid)",
        "W–L–T",
        "score",
        "90",
        "%",
        "range",
        "prize",
    ]
    assert "batch gas" in table_lines(METRICS, METRICS.rows, 140)[0].plain


def test_the_pay_line_stands_between_the_paid_and_the_others() -> None:
    """It says how sure it is; nobody is above it without a prize, and it is not drawn where all are paid."""
    lines = shown(PLAIN, 100)
    assert [
        number
        for number, line in enumerate(lines)
        if "paid above this line: 80 % sure by this judge, uncertain" in line
    ] == [5]
    assert not any("above this line" in line for line in shown(LeaderboardTable(PLAIN.rows[:3], USDC, MARGIN), 100))


def test_prizes_are_in_tokens_however_the_token_counts() -> None:
    """Never in base units: two decimals, and a sign where they are not all of it."""
    odd = Token(address=USDC.address, symbol="WETH", decimals=18, isKnown=True)
    lines = shown(
        LeaderboardTable([row(1, prizeAmount=str(10**18 // 3)), row(2, prizeAmount=str(5 * 10**17))], odd), 80
    )
    assert lines[2].endswith("≈0.33 WETH")
    assert lines[3].endswith("0.50 WETH")


def test_places_that_only_the_chain_knows_have_no_rating() -> None:
    """Without an evaluation of ours there is a place, a score and a prize, and no invented interval."""
    unknown = dict.fromkeys(("elo", "low", "high", "pTop", "wins", "losses", "ties"))
    lines = shown(LeaderboardTable([row(1, **unknown), row(2, **unknown)], USDC), 80)
    assert lines[1].split()[:3] == ["#", "agent", "Elo"]
    assert "●" not in "".join(lines)


def test_strangers_words_move_no_terminal() -> None:
    """A token's symbol, a name and a reason are shown as text, without escape codes, markup or endless length."""
    hostile = Token(address=USDC.address, symbol="\x1b[2J[bold]" + "X" * 50, decimals=6, isKnown=True)
    names = {PLAIN.rows[0].address: "\u202e[red]" + "n" * 90}
    rows = [*PLAIN.rows, row(8, status="rejected", code="copy", reason="\x1b[31m[/x] of 0x" + "ab" * 20)]
    text = "\n".join(shown(LeaderboardTable(rows, hostile, MARGIN, names), 80))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]" in text
    assert "[/x] of 0xabab…abab" in text


def test_a_thousand_places_are_not_printed_at_once() -> None:
    """The first ones, and how many more there are."""
    lines = shown(LeaderboardTable([row(n) for n in range(1, 1001)], USDC, MARGIN), 80)
    assert len(lines) == 1 + 1 + 25 + 1 + 1
    assert lines[-1] == "and 975 more places"


def test_a_bar_stays_in_its_place() -> None:
    """Ends and middle are on the shared scale, whatever the numbers are."""
    assert draw_bar(0, 5, 10, (0, 10), 11) == "├────●────┤"
    assert draw_bar(5, 5, 5, (5, 5), 11).strip() == "●"
    assert len(draw_bar(-100, 0, 900, (0, 10), 11)) == 11


def test_ratings_without_doubt_are_called_exact() -> None:
    """Where no row has an interval the column says exact; one row with an interval and it is named as such."""
    exact = [row(n, low=1700.0 - 50 * n, high=1700.0 - 50 * n) for n in range(1, 8)]
    assert shown(LeaderboardTable(exact, USDC, MARGIN), 140)[1].split()[-2:] == ["exact", "prize"]
    assert "90 % range" in shown(LeaderboardTable([*exact[:-1], row(7)], USDC, MARGIN), 140)[1]
