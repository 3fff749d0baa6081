"""Moments and waits for people to read."""

from __future__ import annotations

from datetime import UTC, datetime


def show_moment(at: int) -> str:
    """`2026-12-01 12:00:00 UTC`; moments outside the calendar as their number."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {at}"


def show_wait(seconds: int) -> str:
    """`2 d 3 h`, `12 min`, `40 s`: the two largest parts."""
    parts = []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(max(0, seconds), size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"
