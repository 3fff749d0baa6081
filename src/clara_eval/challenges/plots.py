"""Plots of a ranking as SVG text, without a plotting library: ratings with intervals, and the win matrix.

Every label is escaped and shortened: names come from strangers. Long fields are cut to the best items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib import resources

import numpy as np
import numpy.typing as npt

from clara_eval.ranking import Ranking, Standing, Tally

MOST_ROWS = 60
LABEL = 26

_STYLE = resources.files("clara_eval.challenges").joinpath("plots.css").read_text(encoding="utf-8")
"""Plain classes instead of CSS variables: converters other than browsers know them."""


def ratings_svg(ranking: Ranking) -> str:
    """One row per item: Elo as a dot, the 90 % range as a bar, paid places in colour."""
    shown = ranking.standings[:MOST_ROWS]
    left, right, top, step = 210, 780, 64, 22
    low, high = min(s.low for s in shown), max(s.high for s in shown)
    pad = max(10.0, 0.04 * (high - low))
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    bottom = top + step * len(shown)
    margin = replace(ranking.margin, item=_short(ranking.margin.item), next_item=_short(ranking.margin.next_item))
    parts = [_text(16, 26, "Ratings with 90 % ranges", "title"), _text(16, 44, margin.sentence, "soft")]
    for tick in _ticks(low, high):
        parts.append(_line(x(tick), top - 8, x(tick), bottom, "grid"))
        parts.append(_text(x(tick), bottom + 16, f"{tick:g}", "soft mid"))
    for row, standing in enumerate(shown):
        parts += _rating_row(standing, ranking.winner_count, top + step * row + step / 2, x)
    if ranking.winner_count < len(shown):
        y = top + step * ranking.winner_count
        parts.append(_line(16, y, 884, y, "paidline"))
    parts.append(_text(884, top - 14, f"P(top {ranking.winner_count})", "soft end"))
    parts += _cut_note(len(ranking.standings), bottom + 34)
    return _svg(900, bottom + 46, parts, f"Ratings of {len(ranking.standings)} items with 90 % ranges")


def win_matrix_svg(ranking: Ranking, table: Tally) -> str:
    """Share of points of the row item against the column item, best first; empty where they never met."""
    shown = [s.item for s in ranking.standings[:MOST_ROWS]]
    share = _shares([s.item for s in ranking.standings], table)[: len(shown), : len(shown)]
    cell = 26 if len(shown) <= 30 else 14
    left, top = 210, 92
    parts = [
        _text(16, 26, "Who beats whom", "title"),
        _text(16, 44, "Row against column: green wins, orange loses, grey even, empty never compared.", "soft"),
    ]
    for i, item in enumerate(shown):
        y = top + cell * i
        parts.append(_text(left - 8, y + cell / 2 + 4, f"{i + 1}. {_short(item)}", "end"))
        if len(shown) <= 30 or i % 5 == 4:
            parts.append(_text(left + cell * (i + 0.5), top - 8, str(i + 1), "soft mid"))
        parts.append(
            f'<rect x="{left + cell * i + 1}" y="{y + 1}" width="{cell - 2}" height="{cell - 2}" class="line"/>'
        )
        parts += [
            _cell(left + cell * j, y, cell, float(share[i, j]), f"{item} – {other}" if len(shown) <= 30 else "")
            for j, other in enumerate(shown)
            if j != i
        ]
    bottom = top + cell * len(shown)
    parts += _cut_note(len(ranking.standings), bottom + 22)
    width = max(640, left + cell * len(shown) + 24)
    return _svg(width, bottom + 34, parts, f"Win matrix of {len(shown)} items")


def _rating_row(standing: Standing, winner_count: int, y: float, x: Callable[[float], float]) -> list[str]:
    kind = "paid" if standing.rank <= winner_count else "rest"
    start, end = x(standing.low), x(standing.high)
    tip = f"{_safe(standing.item)}: Elo {standing.elo:.1f} ({standing.low:.0f}–{standing.high:.0f})"
    bar = f'x="{start:.1f}" y="{y - 3:.1f}" width="{end - start:.1f}" height="6" rx="3" opacity=".35"'
    dot = f'cx="{x(standing.elo):.1f}" cy="{y:.1f}" r="5"'
    return [
        _text(200, y + 4, f"{standing.rank}. {_short(standing.item)}", "end"),
        f'<rect {bar} class="{kind}"/>',
        f'<circle {dot} class="{kind}"><title>{tip}</title></circle>',
        _text(884, y + 4, f"{100 * standing.p_top:.0f} %", "end"),
    ]


def _shares(items: Sequence[str], table: Tally) -> npt.NDArray[np.float64]:
    size = len(items)
    key = table.first * size + table.second
    points = np.bincount(key, table.points, size * size).reshape(size, size)
    games = np.bincount(key, minlength=size * size).reshape(size, size)
    total = games + games.T
    won = points + games.T - points.T
    places = {item: number for number, item in enumerate(table.items)}
    order = np.array([places[item] for item in items])
    share: npt.NDArray[np.float64] = np.where(total > 0, won / np.maximum(total, 1), np.nan)[np.ix_(order, order)]
    return share


def _cell(x: float, y: float, size: float, share: float, title: str) -> str:
    inner = f'x="{x + 1:.0f}" y="{y + 1:.0f}" width="{size - 2:.0f}" height="{size - 2:.0f}" rx="2"'
    if np.isnan(share):
        return f'<rect {inner} class="never"/>'
    kind = "even" if share == 0.5 else "paid" if share > 0.5 else "lose"
    strength = 1.0 if share == 0.5 else min(1.0, 0.25 + 1.5 * abs(share - 0.5))
    tip = f"<title>{_safe(title)}: {100 * share:.0f} %</title>" if title else ""
    return f'<rect {inner} class="{kind}" opacity="{strength:.2f}">{tip}</rect>'


def _cut_note(total: int, y: float) -> Iterable[str]:
    return [_text(16, y, f"The best {MOST_ROWS} of {total} are shown.", "soft")] if total > MOST_ROWS else []


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers in the range."""
    raw = max(high - low, 1e-9) / 6
    unit = 10.0 ** np.floor(np.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    return [round(float(k * step), 10) for k in range(int(np.ceil(low / step - 1e-9)), int(high / step + 1e-9) + 1)]


def _short(text: str) -> str:
    if text.startswith("0x") and len(text) > 18:
        return f"{text[:8]}…{text[-6:]}"
    return text if len(text) <= LABEL else text[: LABEL - 1] + "…"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Markup escaped; what XML cannot hold and what hides or turns text becomes a dot."""
    return escape("".join(c if c.isprintable() else "·" for c in text))


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _svg(width: float, height: float, parts: Iterable[str], label: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="clara" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" role="img" aria-label="{escape(label)}">'
    )
    body = "\n".join(parts)
    return f'{head}<style>{_STYLE}</style><rect class="back" width="100%" height="100%"/>\n{body}\n</svg>\n'
