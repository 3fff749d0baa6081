"""Render templates, make untrusted text safe, and describe states and costs for the pages.

Invariant: every text is escaped for HTML; control, bidirectional and invisible characters are shown as numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from clara_eval.actions.amounts import show_amount, show_wait
from clara_eval.actions.published import SpendLine
from clara_eval.core.address import short
from clara_eval.core.model import MICRO
from clara_eval.core.untrusted import escaped
from clara_eval.core.version import __version__
from clara_eval.documents.rest import ChallengeSummary
from clara_eval.documents.results import MEANINGS, REJECTED_IN_REVIEW, EvalStatus, State, Token
from clara_eval.interfaces.words import feature_label, plain

STATIC = Path(__file__).parent / "static"
MAX_DIGITS = 15
_CODE = re.compile(r"`(?=\S)([^`\n]{1,200})(?<=\S)`")
_HEX = re.compile(r"0x[0-9a-fA-F]{40,64}")
_REJECTIONS = {
    "copy": "Copy of an earlier entry",
    "wrong_hash": "Hash mismatch",
    "binary": "Not text",
    "empty": "Empty",
    "too_large": "Too large",
    "unreachable": "Could not be fetched",
    "excluded": "Excluded in review",
}


_REWORDED = (
    ("cannot be told from the chain", "is not known"),
    ("Run under the limits of the round it ended as", "It ended as"),
    (r"the submission of (\w+) at [-\d: ]+ UTC, which is ranked", r"the earlier submission of \1"),
    (r"\((\d+) spreads off\)", r"(\1 times their usual spread)"),
    (r"The chain committed to (\w+); the content hashes to (\w+), and the URI does not fit either",
     r"The content does not match the hash committed on chain: it hashes to \2, committed is \1"),
)  # fmt: skip  # Patterns in recorded sentences, and their wording on pages.


def page(
    name: str,
    values: Mapping[str, object] | None = None,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> HTMLResponse:
    """Render a template as a response that browsers revalidate each time."""
    text = rendered(name, **{**(values or {}), **more})
    return HTMLResponse(text, status, {"cache-control": "no-cache", "vary": "HX-Request, Cookie", **(headers or {})})


def rendered(name: str, **values: object) -> str:
    return _environment().get_template(name).render(**values)


def visible(value: object) -> object:
    """Write invisible and bidirectional characters as numbers; leave numbers, None and markup as they are."""
    if isinstance(value, Markup):
        return Markup(_spell_out(str(value)))  # noqa: S704 - it was markup before, and no markup is added
    if hasattr(value, "__html__") or isinstance(value, bool | int | float | None):
        return value
    return _spell_out(str(value))


def _spell_out(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").expandtabs(4)
    return escaped(lines.encode("utf-8", errors="replace").decode(), keep_lines=True)


def moment(seconds: int | None) -> str:
    """Return a time for people; a contract can hold deadlines beyond any calendar."""
    return (iso(seconds, "%d %b %Y, %H:%M UTC") or "beyond any calendar") if seconds else "–"


def iso(seconds: int, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Return a time for programs; empty if it is beyond any calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return ""


def amount(units: str | int | None, token: Token) -> str:
    """Return an amount for people: two decimals from 1 on, and scientific notation above 15 digits."""
    if units is None:
        return "–"
    number, _, symbol = show_amount(int(units), token).partition(" ")
    whole, dot, rest = number.partition(".")
    if len(whole) > MAX_DIGITS:
        return f"{Decimal(whole):.3e} {symbol}"
    rest = (rest[:2] if int(whole) else rest).rstrip("0")
    return f"{int(whole):,}{dot if rest else ''}{rest} {symbol}"


def fact(value: object, name: str = "") -> str:
    if name == "tests_passed" and isinstance(value, int | float):
        return share(float(value))
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def share(value: float | None) -> str:
    """Return a share in percent; 0 % and 100 % only if it is exactly that."""
    if value is None:
        return "–"
    if 0 < value < 0.01:
        return "<1 %"
    return ">99 %" if 0.99 < value < 1 else f"{100 * value:.0f} %"


def usd(dollars: float) -> str:
    """Return dollars with two decimals, or three below $1."""
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.3f}"


def judge(name: str) -> str:
    """Return a judge's name without its endpoint, which may be in the operator's private network."""
    return name.partition("@")[0]


def coded(text: str) -> Markup:
    """Mark up `code` in a poster's text, after escaping all of it."""
    harmless = str(escape(_spell_out(text)))
    return Markup(_CODE.sub(r"<code>\1</code>", harmless))  # noqa: S704 - escaped in the line before


def rejection(code: str | None) -> str:
    return _REJECTIONS.get(code or "", (code or "not ranked").replace("_", " ").capitalize())


def shortened(text: str, named: Callable[[str], str] = short) -> str:
    """Reword a recorded sentence for pages, with short addresses."""
    for pattern, wording in _REWORDED:
        text = re.sub(pattern, wording, text)
    return _HEX.sub(lambda match: named(match.group()), text)


def show_names(names: Mapping[str, str]) -> None:
    """Show folder entries by name, and nothing about a chain, on every page of this process."""

    def named(address: str) -> str:
        return names.get(address) or short(address)

    environment = _environment()
    environment.filters["short"] = named
    environment.globals["is_view"] = True
    environment.globals["shortened"] = lambda text: shortened(text, named).replace("pay line", "last winning place")


def badge(account: str) -> Markup:
    """Draw a small icon from an address, so that people recognise it."""
    digest = hashlib.sha256(account.encode()).digest()
    squares = "".join(
        f"M{x} {y}h1v1h-1z" + (f"M{4 - x} {y}h1v1h-1z" if x < 2 else "")
        for x in range(3)
        for y in range(5)
        if digest[x * 5 + y] & 1
    )
    return Markup(
        '<svg class="badge" viewBox="-1 -1 7 7" aria-hidden="true"><path fill="hsl({} 55% 52%)" d="{}"/></svg>'
    ).format(int.from_bytes(digest[20:22]) % 360, squares)


@cache
def asset(name: str) -> str:
    """Return the URL of a static file, which changes with its content."""
    return f"/static/{name}?v={hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("clara_eval.interfaces.api"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
        extensions=["jinja2.ext.do"],
    )
    made.filters.update(
        moment=moment, iso=iso, amount=amount, fact=fact, share=share, words=feature_label, short=short, badge=badge,
        wait=show_wait, usd=usd, plain=plain, judge=judge, coded=coded,
    )  # fmt: skip
    made.globals.update(version=__version__, asset=asset, shortened=shortened, rejection=rejection, is_view=False)
    return made


Tone = Literal["open", "busy", "wait", "good", "bad", "quiet"]
Group = Literal["open", "judging", "review", "posted", "ended"]
GROUPS: dict[Group, str] = {
    "open": "Open",
    "judging": "Being judged",
    "review": "In review",
    "posted": "Scores posted",
    "ended": "No result",
}  # The filters of the list of challenges, with their headings.
RUNNING = frozenset(("extracting", "comparing", "publishing"))


class Phase(NamedTuple):
    label: str
    tone: Tone
    sentence: str
    next: str = ""  # what happens next, and who can act
    group: Group = "judging"


_THEN = "Then the scores are posted; prizes can be claimed 12 hours later."
_REFUND = "Without scores by the scoring deadline every submitter can claim an equal share."
_OF_CHAIN = {
    "cancelled": Phase("Cancelled", "quiet", "The poster cancelled the challenge and has the prize back.",
                       "Nothing was judged, and nothing can be claimed.", "ended"),
    "expired": Phase("Expired", "bad", "No scores came in time: every submitter can claim an equal share.",
                     "Submitters claim with `clara-eval challenge claim` or the tool challenge_claim.", "ended"),
    "finalized": Phase("Final", "good", "The result is final and winners can claim.", group="posted"),
}  # fmt: skip
_OF_STATUS: dict[State, tuple[str, Tone, str, Group]] = {
    "pending": ("Queued", "wait", _THEN, "judging"),
    "extracting": ("Reading", "busy", _THEN, "judging"),
    "comparing": ("Comparing", "busy", _THEN, "judging"),
    "publishing": ("Posting", "busy", "Prizes can be claimed 12 hours after the post.", "judging"),
    "complete": ("Scores posted", "good", "", "posted"),
    "review": ("In review", "wait", _REFUND, "review"),
    "deferred": ("Deferred", "wait", _REFUND, "judging"),
    "failed": ("Not evaluated", "bad", _REFUND, "ended"),
    "unscorable": ("No result", "bad", "", "ended"),
    "elsewhere": ("Scored elsewhere", "quiet", "", "judging"),
}
_OF_STAGE = {
    "collecting": Phase("Collecting", "busy", "Submissions are being fetched and checked.", _THEN),
    "executing": Phase("Running", "busy", "The tests are being run on every submission.", _THEN),
}  # Phases by stage, for stages within the status `extracting`.
_REJECTED = "A person rejected the result: nothing is posted. The poster may post scores."
_ANNOUNCED = "The result is announced; submitters may object before it is posted."


def phase(row: ChallengeSummary, now: float) -> Phase:
    """Return the phase of a challenge, by its status on chain or else by its evaluation."""
    evaluation = row.evaluation
    state, stage = evaluation.status, evaluation.stage
    if row.chainStatus in _OF_CHAIN:
        return _OF_CHAIN[row.chainStatus]
    if state in {"pending", "elsewhere"} and now < row.deadline:
        return Phase("Open", "open", "Entries are accepted.", evaluation.reason or "", "open")
    if state == "failed" and (evaluation.reason or "").startswith(REJECTED_IN_REVIEW):
        return Phase("Rejected in review", "bad", _REJECTED, _REFUND, "ended")
    if state == "publishing" and (evaluation.objectionsUntil or 0) > now:
        return Phase("Objections open", "wait", _ANNOUNCED, _THEN)
    if state == "extracting" and stage and stage.name in _OF_STAGE:
        return _OF_STAGE[stage.name]
    label, tone, after, group = _OF_STATUS[state]
    return Phase(label, tone, MEANINGS[state], after, group)


def counted(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def money(found: SpendLine | None, evaluation: EvalStatus, cap: float | None) -> dict[str, str]:
    """Return the costs of an evaluation; while it runs, its own meter is newer than the ledger."""
    has_begun, expected = bool(evaluation.startedAt), evaluation.estimateUsd
    if expected is None:
        estimate = "Not known" if has_begun and found else "Nothing" if has_begun else "Known when scoring starts"
    else:
        estimate = f"About {usd(expected)}" if expected else "$0 (no model used)"
    whole, reserved = (found.micro_usd / MICRO, found.open_micro_usd / MICRO) if found else (0.0, 0.0)
    spent = whole - reserved
    if reserved:
        so_far = max(spent, (evaluation.stage.costUsd if evaluation.stage else None) or 0.0)
        cost = f"{usd(so_far)} so far, {usd(reserved)} reserved"
    else:
        cost = usd(spent) if has_begun else "Nothing yet"
    return {"estimate": estimate, "spent": cost, "cap": f"{usd(cap)} for one challenge" if cap is not None else "None"}
