"""`trace`: get the public record of an evaluation."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from clara_eval.challenge.model import to_address
from clara_eval.cli.output import fail
from clara_eval.errors import BadInput
from clara_eval.settings import Settings
from clara_eval.store.open import opened_store
from clara_eval.trace.archive import stream_trace


def trace(
    address: Annotated[str, typer.Argument(help="The challenge's address.")],
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="The trace is JSON already; same as without.")] = False,
) -> None:
    """Print the trace of an evaluated challenge."""
    target = to_address(address)
    written = asyncio.run(_copy(Settings.from_env(), target, out))
    if not written:
        fail(f"No trace of {target} is in this store.", code=1, as_json=json)


async def _copy(settings: Settings, target: str, out: Path | None) -> int:
    """Bytes as they are, on every terminal and system; no trace leaves no file."""
    written = 0
    try:
        async with opened_store(settings.database_url) as store:
            with ExitStack() as files:
                stream: BinaryIO | None = None
                async for part in stream_trace(store, settings.network.chain_id, target):
                    stream = stream or (sys.stdout.buffer if out is None else files.enter_context(out.open("wb")))
                    written += stream.write(part.encode())
    except OSError as bad:
        if out is None or isinstance(bad, BrokenPipeError):
            raise
        raise BadInput(f"{out} cannot be written: {bad.strerror or bad}.", remedy="Name another file.") from None
    return written
