"""`clara-eval demo`: the whole lifecycle on a local chain, for a person or as one JSON document."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from clara_eval.core.errors import BadInput
from clara_eval.devnet.demo.lifecycle import demo_document, run_demo
from clara_eval.devnet.demo.story import show_story
from clara_eval.interfaces.cli.evaluate import LiveProgress
from clara_eval.interfaces.cli.output import JsonFlag, emit_json
from clara_eval.interfaces.cli.screen import console


def demo(
    *,
    json: JsonFlag = False,
    trace_dir: Annotated[Path, typer.Option(help="Where the trace file goes.")] = Path("var/traces"),
) -> None:
    """Run one challenge from escrow to claimed prizes on a local chain, and verify its trace."""
    made = _prepare(trace_dir)
    screen = console()
    try:
        with LiveProgress(screen) as progress:
            told = asyncio.run(run_demo(trace_dir, progress.tell, progress))
    except BaseException:
        _remove_empty(made)
        raise
    document = demo_document(told)
    if json:
        emit_json(document)
    else:
        show_story(console(stderr=False), told)
    if not document["verified"]:
        raise typer.Exit(1)


def _prepare(trace_dir: Path) -> list[Path]:
    """Make the folder before anything runs: a place that cannot be written is known at once. Says what was made."""
    made = [folder for folder in (trace_dir, *trace_dir.parents) if not folder.exists()]
    try:
        trace_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=trace_dir):
            return made
    except OSError as bad:
        _remove_empty(made)
        raise BadInput(
            f"Traces cannot be written to {trace_dir}: {bad.strerror or bad}.",
            remedy="Name a writable folder with --trace-dir.",
        ) from None


def _remove_empty(folders: list[Path]) -> None:
    """A command that fails leaves no folder behind, and takes none that somebody else uses."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
