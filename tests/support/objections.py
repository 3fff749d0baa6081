"""Set-up shared by tests: what test_objections.py and others use."""

from __future__ import annotations

import asyncio
from pathlib import Path

VERIFIER = Path(__file__).parents[2] / "verifier" / "verify.mjs"


async def by_node(place: Path, lines: list[str]) -> int:
    """What the independent verifier ends with."""
    (place / "trace.json").write_text("".join(lines))
    ran = await asyncio.create_subprocess_exec("node", VERIFIER, place / "trace.json", stdout=asyncio.subprocess.PIPE)
    await asyncio.wait_for(ran.communicate(), 60)
    return ran.returncode if ran.returncode is not None else -1
