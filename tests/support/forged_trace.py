"""Traces with a lie in them: bodies changed at will and every hash made right again; only the meaning is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clara_eval.evaluation.trace import TraceWriter, read_entries, render

Entries = dict[str, Any]
Change = Callable[[Entries], None]


def forged(lines: list[str], change: Change) -> list[str]:
    """The same trace with changed bodies and all hashes made right again."""
    bodies = {entry.key: entry.body for entry in read_entries(lines)}
    change(bodies)
    return sealed(bodies)


def sealed(bodies: Entries) -> list[str]:
    """The lines of a trace of these entries, with right hashes."""
    writer = TraceWriter()
    changed = [writer.line(key, body) for key, body in bodies.items()]
    return "".join(render(changed, writer.digest)).splitlines(keepends=True)
