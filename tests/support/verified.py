"""The trace of a challenge, verified."""

from __future__ import annotations

from clara_eval.actions.verify import Checked, verify_any
from clara_eval.config.settings import Settings


async def verify_trace(source: str, settings: Settings, *, rpc: str | None = None) -> Checked:
    """Replay the trace of a challenge, which is not one of a folder."""
    checked = await verify_any(source, settings, rpc=rpc)
    assert isinstance(checked, Checked)
    return checked
