"""One attack on a harness: a submission that wants tests or a metric it did not earn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HarnessAttack:
    name: str
    """Short and unique within its language: `shadowed_require`."""
    what: str
    """What the attack does, in one line for the table in docs/security.md."""
    source: str
    """The hostile submission."""
