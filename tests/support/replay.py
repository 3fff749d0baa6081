"""Set-up shared by tests: what test_replay.py and others use."""

from __future__ import annotations

from pathlib import Path

from tests.support.rounds import closed_round, opened, run

from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.local_chain import LocalChain


async def traced(chain: LocalChain, place: Path) -> list[str]:
    """The lines of a posted round's trace."""
    address = await closed_round(chain)
    async with opened(chain, place) as app:
        await run(app, address)
        path = await write_trace(app, address)
    return path.read_text(encoding="utf-8").splitlines(keepends=True)
