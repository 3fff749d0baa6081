"""A hackathon in a folder: thirty entries of several files each."""

from __future__ import annotations

from pathlib import Path

ENTRIES = 30


def essay(number: int) -> str:
    """An entry that says its own quality, in words like no other's."""
    words = " ".join(f"w{number * 97 + place * 13:x}" for place in range(40))
    return f"quality: {number}\nThe answer of entry {number} is this: {words}.\n"


def hackathon(place: Path) -> Path:
    """Thirty entries of three files each, one of them binary."""
    for number in range(ENTRIES):
        team = place / f"team {number:02}"
        (team / "docs").mkdir(parents=True)
        (team / "docs" / "answer.md").write_text(essay(number), encoding="utf-8")
        (team / "notes.md").write_text(f"Note {number}.\n", encoding="utf-8")
        (team / "logo.png").write_bytes(b"\x89PNG\x00\x01")
    return place
