"""Both verifiers on many traces: what `clara-eval verify` and `verifier/verify.mjs` say of each."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path

from clara_eval.challenges.replay import check_trace
from clara_eval.core.errors import BadTrace
from clara_eval.evaluation.trace import TraceFile
from clara_eval.harness import Machine
from clara_eval.judge.attestation import Quotes

PROGRAM = Path(__file__).parents[2] / "verifier" / "verify.mjs"
AT_ONCE = 100
MOST_SECONDS = 120


async def refusal_of(trace: Iterable[str] | bytes, machine: Machine | None = None, quotes: Quotes | None = None) -> str:
    """Why our own verifier refuses a trace; empty where it holds."""
    lines = TraceFile(BytesIO(trace)) if isinstance(trace, bytes) else trace
    try:
        await check_trace(lines, machine=machine, quotes=quotes)
    except BadTrace as bad:
        return f"{bad.entry}: {bad.message}"
    return ""


def node_refusals(traces: Mapping[str, Iterable[str] | bytes], folder: Path) -> dict[str, str]:
    """By name, why the independent verifier refuses a trace; empty where it holds. One process reads all."""
    names = [f"{number}.json" for number in range(len(traces))]
    for name, trace in zip(names, traces.values(), strict=True):
        (folder / name).write_bytes(trace if isinstance(trace, bytes) else "".join(trace).encode())
    said: dict[str, str] = {}
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        command = ["node", str(PROGRAM), *some]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
        unnamed = some if len(some) == 1 else []  # of a single file the program does not say its name
        lines = [*unnamed, *ran.stdout.splitlines()]
        said |= {line: next_line for line, next_line in pairwise(lines) if line.endswith(".json")}
    found = dict(zip(traces, (said.get(name, "no answer") for name in names), strict=True))
    return {name: "" if line.startswith("holds ") else line for name, line in found.items()}
