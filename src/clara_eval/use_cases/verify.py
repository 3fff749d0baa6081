"""Checking the public record of an evaluation, for every door.

Comes in: a trace file, or a challenge's address whose trace this store has; with a node also the posted transaction is
checked. Goes out: what was recomputed, or BadTrace with the entry that does not hold.
"""

from __future__ import annotations

from pathlib import Path

from clara_eval.app import open_chain
from clara_eval.challenge.model import to_address
from clara_eval.errors import BadInput, BadTrace, NotFound
from clara_eval.execution.machine import open_machine
from clara_eval.networks import NETWORKS, Network
from clara_eval.pipeline.replay import Checked, check_trace
from clara_eval.settings import Settings
from clara_eval.store.open import opened_store
from clara_eval.trace.archive import stream_trace
from clara_eval.trace.document import read_entries, trace_lines


async def verify_trace(source: str, settings: Settings, *, rpc: str | None = None) -> Checked:
    """Walk the trace again and recompute everything but the models' words; BadTrace names what does not hold."""
    lines = _file_lines(Path(source))
    if lines is None and source.lower().startswith("0x"):
        lines = await _stored(source, settings)
    if lines is None:
        raise NotFound(f"There is no file {source!r}.", remedy="Give a trace file or a challenge's address.")
    machine = open_machine(settings)
    try:
        if rpc is None:
            return await check_trace(lines, machine=machine)
        async with open_chain(_network_of(lines), rpc) as chain:
            return await check_trace(lines, chain, machine)
    finally:
        machine.close()


def _file_lines(path: Path) -> list[str] | None:
    """The lines of the file, or None where there is no such file."""
    try:
        return trace_lines(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as bad:
        raise BadInput(f"{path} cannot be read: {bad.strerror or bad}.", remedy="Name a trace file.") from None


async def _stored(source: str, settings: Settings) -> list[str]:
    target = to_address(source)
    async with opened_store(settings.database_url) as store:
        text = "".join([part async for part in stream_trace(store, settings.network.chain_id, target)])
    if not text:
        raise NotFound(f"No trace of {target} is in this store.", remedy="Give a trace file instead.")
    return trace_lines(text.encode())


def _network_of(lines: list[str]) -> Network:
    """The network that the trace speaks of."""
    header = next((entry.body for entry in read_entries(lines)), None)
    chain_id = header.get("chainId") if isinstance(header, dict) else None
    for network in NETWORKS.values():
        if str(network.chain_id) == str(chain_id):
            return network
    raise BadTrace(f"The trace is of chain {str(chain_id)[:40]}, which is not a known network.", entry="header")
