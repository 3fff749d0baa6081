"""Checking the public record of an evaluation, for every door.

Comes in: a trace file, or a challenge's address whose trace this store has; with a node also the posted transaction is
checked. Goes out: what was recomputed, or BadTrace with the entry that does not hold.
"""

from __future__ import annotations

from clara_eval.app import open_chain
from clara_eval.errors import BadTrace
from clara_eval.execution.machine import open_machine
from clara_eval.networks import NETWORKS, Network
from clara_eval.pipeline.replay import Checked, check_trace
from clara_eval.settings import Settings
from clara_eval.trace.document import read_entries
from clara_eval.use_cases.find_trace import find_trace


async def verify_trace(source: str, settings: Settings, *, rpc: str | None = None) -> Checked:
    """Walk the trace again and recompute everything but the models' words; BadTrace names what does not hold."""
    lines = await find_trace(source, settings)
    machine = open_machine(settings)
    try:
        if rpc is None:
            return await check_trace(lines, machine=machine)
        async with open_chain(_network_of(lines), rpc) as chain:
            return await check_trace(lines, chain, machine)
    finally:
        machine.close()


def _network_of(lines: list[str]) -> Network:
    """The network that the trace speaks of."""
    header = next((entry.body for entry in read_entries(lines)), None)
    chain_id = header.get("chainId") if isinstance(header, dict) else None
    for network in NETWORKS.values():
        if str(network.chain_id) == str(chain_id):
            return network
    raise BadTrace(f"The trace is of chain {str(chain_id)[:40]}, which is not a known network.", entry="header")
