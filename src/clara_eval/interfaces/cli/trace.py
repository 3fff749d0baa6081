"""`trace`: get the public record of an evaluation."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.interfaces.cli.output import emit_json, fail
from clara_eval.interfaces.cli.result import print_next
from clara_eval.interfaces.cli.screen import print_labelled
from clara_eval.store.open import existing_store
from clara_eval.store.trace_archive import stream_trace


def trace(
    address: Annotated[str, typer.Argument(help="The challenge's address.")],
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="With --out: print what was written as JSON; the trace itself is JSON already."),
    ] = False,
) -> None:
    """Print the trace of an evaluated challenge."""
    target = to_address(address)
    written = asyncio.run(_copy(Settings.from_env(), target, out))
    if not written:
        remedy = f"`clara-eval evaluate {target}` makes one; `clara-eval verify {target}` finds one that is elsewhere."
        fail(NotFound(f"No trace of {target} is in this store.", remedy=remedy), as_json=json)
    if out is not None:
        _tell_written(target, out, written, as_json=json)


def _tell_written(target: str, out: Path, size: int, *, as_json: bool) -> None:
    """What was written, and how to check it."""
    if as_json:
        emit_json({"challenge": target, "file": str(out), "bytes": size})
        return
    print_labelled("Wrote", f"{size:,} bytes to {out}")
    print_next([f"verify {shlex.quote(str(out))}"])


async def _copy(settings: Settings, target: str, out: Path | None) -> int:
    """Bytes as they are, on every terminal and system; no trace leaves no file."""
    written = 0
    try:
        async with existing_store(settings.database_url) as store:
            if store is None:
                return 0
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
