"""`check`: what is ready to run and what is missing."""

from __future__ import annotations

import asyncio

import typer

from clara_eval.actions.check import preflight
from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli.options import JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe


def check(*, json: JsonFlag = False) -> None:
    """Check settings, node, wallet, store and judges, and say what is ready and what is not."""
    findings = asyncio.run(preflight(Settings.from_env()))
    if json:
        emit_json(
            {
                "ok": all(f.ok for f in findings),
                "checks": [{"name": f.name, "ok": f.ok, "detail": f.detail} for f in findings],
            }
        )
    else:
        for finding in findings:
            mark = "[green]ok[/green]  " if finding.ok else "[red]no[/red]  "
            console(stderr=False).print(f"{mark}{finding.name:<10} {safe(finding.detail, 1000)}", soft_wrap=True)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
