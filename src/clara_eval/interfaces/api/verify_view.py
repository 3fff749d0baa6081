"""Check a posted trace for a visitor, one at a time and once for each digest."""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from clara_eval.actions.published import ResultReader
from clara_eval.actions.verify import Checked, verify_trace
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import BadTrace, ClaraError

MOST_PARTS = 4
"""Megabytes of trace that are checked here; longer ones are left to the command."""
_KEPT = 256


@dataclass
class Checks:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: OrderedDict[str, dict[str, object]] = field(default_factory=OrderedDict)


async def verify_view(checks: Checks, reader: ResultReader, address: Address, settings: Settings) -> dict[str, object]:
    found = await reader.detail(address, admin=False)
    trace = await reader.trace(address, admin=False)
    values: dict[str, object] = {"found": found, "digest": trace.digest}
    if trace.parts > MOST_PARTS:
        return {**values, "result": None}
    async with checks.turn:
        result = checks.known.get(trace.digest)
        if result is None:
            result = await _check(trace.pieces, settings)
            checks.known[trace.digest] = result
            if len(checks.known) > _KEPT:
                checks.known.popitem(last=False)
    return {**values, "result": result}


async def _check(pieces: AsyncIterator[str], settings: Settings) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="clara-verify-") as place:
        path = Path(place) / "trace.json"
        with path.open("wb") as file:
            async for piece in pieces:
                await asyncio.to_thread(file.write, piece.encode())
        try:
            node = settings.rpc_url.split(",")[0].strip()
            # A loop of its own in a thread: the check computes, and the service goes on answering.
            return _held(await asyncio.to_thread(asyncio.run, verify_trace(str(path), settings, rpc=node)))
        except BadTrace as bad:
            return {"ok": False, "entry": bad.entry, "problem": bad.message}
        except ClaraError as bad:
            return {"ok": False, "entry": "node", "problem": f"The check could not be made: {bad.message}"}


def _held(checked: Checked) -> dict[str, object]:
    result = checked.result
    held = [
        f"All {checked.entries:,} entries of the trace hang together by their hashes.",
        f"The contents of {len(checked.challenge.submissions):,} entries fit what was committed on chain.",
        "The criteria are those that the poster committed to.",
        f"{len(result.features):,} entries were measured again, to the same facts.",
        f"{len(result.comparisons):,} games were read again, to the same verdicts.",
        "Rating, order, winners and prizes come out the same.",
    ]
    if checked.is_execution_checked:
        held.insert(4, f"{checked.executed:,} entries were run again, to the same numbers.")
    held += [f"The chain agrees: {point}." for point in checked.compared]
    return {
        "ok": True,
        "warning": checked.execution_warning,
        "held": held,
        "open": list(checked.not_proven),
        "tx": checked.posted,
    }
