"""`clara-eval demo`: the whole lifecycle on a local chain, for a person or as one JSON document."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from clara_eval.cli.options import JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.progress import LiveProgress
from clara_eval.cli.screen import console
from clara_eval.demo.lifecycle import demo_document, run_demo
from clara_eval.demo.show import show_story
from clara_eval.errors import BadInput


def demo(
    *,
    json: JsonFlag = False,
    trace_dir: Annotated[Path, typer.Option(help="Where the trace file goes.")] = Path("var/traces"),
) -> None:
    """Run one challenge from escrow to claimed prizes on a local chain, and verify its trace."""
    _prepare(trace_dir)
    screen = console()
    with LiveProgress(screen) as progress:
        told = asyncio.run(run_demo(trace_dir, progress.tell, progress))
    document = demo_document(told)
    if json:
        emit_json(document)
    else:
        show_story(console(stderr=False), told)
    if not document["verified"]:
        raise typer.Exit(1)


def _prepare(trace_dir: Path) -> None:
    """Make the folder before anything runs: a place that cannot be written is known at once."""
    try:
        trace_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=trace_dir):
            pass
    except OSError as bad:
        raise BadInput(
            f"Traces cannot be written to {trace_dir}: {bad.strerror or bad}.",
            remedy="Name a writable folder with --trace-dir.",
        ) from None
