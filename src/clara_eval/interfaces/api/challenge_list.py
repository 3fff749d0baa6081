"""The list of challenges, filtered, searched and paged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from clara_eval.documents.rest import ChallengeSummary
from clara_eval.interfaces.api import wording
from clara_eval.interfaces.api.wording import Phase

PAGE_CARDS = 24
MOST_SKILLS = 12
GROUPS: dict[str, tuple[str, frozenset[str]]] = {
    "open": ("Open", frozenset(("Open",))),
    "judging": (
        "Being judged",
        frozenset(("Queued", "Collecting", "Running", "Reading", "Comparing", "Posting", "Deferred")),
    ),
    "review": ("In review", frozenset(("In review",))),
    "posted": ("Scores posted", frozenset(("Scores posted", "Final"))),
    "ended": ("Without a result", frozenset(("Cancelled", "Expired", "Not evaluated", "No result"))),
}
"""Filters: their headings, and the labels that pass."""


@dataclass(frozen=True, slots=True)
class Card:
    row: ChallengeSummary
    phase: Phase

    @property
    def is_live(self) -> bool:
        return self.row.evaluation.status in wording.RUNNING


@dataclass(frozen=True, slots=True)
class ListQuery:
    status: str = ""
    skill: str = ""
    words: str = ""
    page: int = 1

    def link(self, **changes: object) -> str:
        """The URL of this list with some of it changed."""
        asked = {"status": self.status, "skill": self.skill, "q": self.words, "page": self.page, **changes}
        kept = {name: value for name, value in asked.items() if value and not (name == "page" and value == 1)}
        return "/?" + urlencode(kept) if kept else "/"

    @property
    def is_narrowed(self) -> bool:
        return bool(self.status or self.skill or self.words)


@dataclass(frozen=True, slots=True)
class Listed:
    cards: tuple[Card, ...]
    known: int
    """Challenges before any filter."""
    matching: int
    page: int
    pages: int
    groups: dict[str, tuple[str, int]]
    skills: tuple[str, ...]


def card_of(row: ChallengeSummary, now: float) -> Card:
    return Card(row, wording.phase(row, now))


def listed(rows: Sequence[ChallengeSummary], wanted: ListQuery, now: float) -> Listed:
    """One page of the challenges that pass: those being judged first, then by deadline."""
    cards = [card_of(row, now) for row in rows]
    passing = sorted((card for card in cards if _passes(card, wanted)), key=lambda card: not card.is_live)
    pages = max(1, -(-len(passing) // PAGE_CARDS))
    page = min(max(1, wanted.page), pages)
    return Listed(
        cards=tuple(passing[(page - 1) * PAGE_CARDS : page * PAGE_CARDS]),
        known=len(cards),
        matching=len(passing),
        page=page,
        pages=pages,
        groups={name: (label, sum(card.phase.label in labels for card in cards))
                for name, (label, labels) in GROUPS.items()},
        skills=_skills(cards),
    )  # fmt: skip


def _passes(card: Card, wanted: ListQuery) -> bool:
    row = card.row
    if wanted.status in GROUPS and card.phase.label not in GROUPS[wanted.status][1]:
        return False
    if wanted.skill and wanted.skill.lower() not in (skill.lower() for skill in row.skills):
        return False
    text = f"{row.title} {row.problemStatement} {row.address} {row.poster}".lower()
    return all(word in text for word in wanted.words.lower().split())


def _skills(cards: Sequence[Card]) -> tuple[str, ...]:
    counted = Counter(skill.lower() for card in cards for skill in set(card.row.skills))
    return tuple(sorted(skill for skill, _ in counted.most_common(MOST_SKILLS)))
