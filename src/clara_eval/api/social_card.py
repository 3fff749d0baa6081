"""The picture that stands beside a link to a challenge: title, prize and state, 1200 by 630 pixels.

Comes in: what the page says. Goes out: a PNG. A stranger's title is drawn, not interpreted; what the font does not have
is left out.
"""

from __future__ import annotations

import io
from functools import cache
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from clara_eval.api.schemas import ChallengeDetail
from clara_eval.api.templating import amount, share
from clara_eval.api.visible import visible
from clara_eval.api.wording import Phase
from clara_eval.challenge.model import short

SIZE = (1200, 630)
_BACK, _INK, _MUTED, _ACCENT, _LINE = "#0f2a28", "#f4f7f6", "#a9c2be", "#67cdbf", "#f2b33d"
_LEFT = 84
_TITLE_LINES = 3
Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont


@cache
def _font(size: int) -> Font:
    return ImageFont.load_default(size)


def _plain(text: str) -> str:
    """What the font can draw; the rest would be boxes."""
    return " ".join("".join(c if c.isascii() or "\u00a1" <= c <= "\u017f" else " " for c in visible(text)).split())


def _lines(text: str, font: Font, width: int, most: int) -> list[str]:
    """The text in lines of this width; the last one ends with dots where it does not all fit."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1] + "…"]
    return [_cut(line, font, width) for line in lines]


def _cut(line: str, font: Font, width: int) -> str:
    while line and font.getlength(line) > width:
        line = line[:-2] + "…"
    return line


def social_card(found: ChallengeDetail, phase: Phase) -> bytes:
    """The picture of one challenge."""
    picture = Image.new("RGB", SIZE, _BACK)
    draw = ImageDraw.Draw(picture)
    _brand(draw)
    title = _plain(found.title) or f"Challenge {short(found.address)}"
    y = 190
    for line in _lines(title, _font(68), SIZE[0] - 2 * _LEFT, _TITLE_LINES):
        draw.text((_LEFT, y), line, _INK, font=_font(68))
        y += 82
    draw.line((_LEFT, 478, SIZE[0] - _LEFT, 478), _LINE, 3)
    _figures(draw, found, phase)
    out = io.BytesIO()
    picture.quantize(64).save(out, "PNG", optimize=True)
    return out.getvalue()


def _brand(draw: ImageDraw.ImageDraw) -> None:
    for left, top in ((0, 26), (22, 0), (44, 14)):
        draw.rectangle((_LEFT + left, 84 + top, _LEFT + left + 17, 136), _ACCENT)
    draw.text((_LEFT + 84, 88), "Clara Eval", _MUTED, font=_font(40))


def _figures(draw: ImageDraw.ImageDraw, found: ChallengeDetail, phase: Phase) -> None:
    """Prize, entries, state, and how sure the pay line is."""
    scores = found.leaderboard
    told = [
        (_plain(amount(found.prizePool, found.token)), "prize pool"),
        (f"{found.submissionCount:,}", "entries"),
        (phase.label, "state"),
    ]
    if scores is not None and scores.margin is not None:
        told[2] = (share(scores.margin.probability), "sure of the pay line")
    for place, (figure, name) in enumerate(told):
        x = _LEFT + (0, 470, 700)[place]
        draw.text((x, 506), _cut(figure, _font(46), (440, 210, 400)[place]), _INK, font=_font(46))
        draw.text((x, 562), name, _MUTED, font=_font(26))
