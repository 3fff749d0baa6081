"""Plots of a ranking as SVG text from the template `plots.svg`: ratings with intervals, win matrix."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

import numpy as np

from clara_eval.ranking import Ranking, Tally

MOST_ROWS = 60
LABEL_CHARS = 26
LEFT, RIGHT = 210, 780  # Ends of the rating axis in pixels


def ratings_svg(ranking: Ranking) -> str:
    """Draw one row per item: Elo as a dot, the 90 % interval as a bar, paid places in colour."""
    shown = ranking.standings[:MOST_ROWS]
    low, high = min(s.low for s in shown), max(s.high for s in shown)
    pad = max(10.0, 0.04 * (high - low))
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * (value - low) / (high - low)

    margin = replace(ranking.margin, item=_short(ranking.margin.item), next_item=_short(ranking.margin.next_item))
    rows = [(one, x(one.low), x(one.high) - x(one.low), x(one.elo)) for one in shown]
    raw = max(high - low, 1e-9) / 6
    unit = 10.0 ** np.floor(np.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    marks = range(int(np.ceil(low / step - 1e-9)), int(high / step + 1e-9) + 1)
    ticks = [(x(tick), f"{tick:g}") for tick in (round(float(mark * step), 10) for mark in marks)]
    return _render("ratings", ranking, rows=rows, ticks=ticks, note=margin.sentence)


def win_matrix_svg(ranking: Ranking, table: Tally) -> str:
    """Draw the share of points of each item against each other, best first; empty if they never met."""
    names, size = [standing.item for standing in ranking.standings], len(ranking.standings)
    key = table.first * size + table.second
    points = np.bincount(key, table.points, size * size).reshape(size, size)
    games = np.bincount(key, minlength=size * size).reshape(size, size)
    total = games + games.T
    won = points + games.T - points.T
    places = {item: number for number, item in enumerate(table.items)}
    order = np.array([places[item] for item in names])
    share = np.where(total > 0, won / np.maximum(total, 1), np.nan)[np.ix_(order, order)][:MOST_ROWS, :MOST_ROWS]
    return _render("matrix", ranking, shown=names[:MOST_ROWS], share=share.tolist())


def _render(kind: str, ranking: Ranking, **values: object) -> str:
    from jinja2 import Environment  # noqa: PLC0415 - of the extra `server`; ranking a file needs no plot

    folder = resources.files("clara_eval.challenges")
    environment = Environment(autoescape=True, finalize=_visible, trim_blocks=True, lstrip_blocks=True)
    environment.filters["short"] = _short
    # Plain classes instead of CSS variables, which converters other than browsers do not support.
    style = folder.joinpath("plots.css").read_text(encoding="utf-8")
    template = environment.from_string(folder.joinpath("plots.svg").read_text(encoding="utf-8"))
    return template.render(kind=kind, ranking=ranking, most=MOST_ROWS, left=LEFT, style=style, **values)


def _visible(value: object) -> object:
    """Replace characters that XML forbids, or that hide or reverse text, by a dot."""
    return "".join(c if c.isprintable() else "·" for c in value) if type(value) is str else value


def _short(text: str) -> str:
    if text.startswith("0x") and len(text) > 18:
        return f"{text[:8]}…{text[-6:]}"
    return text if len(text) <= LABEL_CHARS else text[: LABEL_CHARS - 1] + "…"
