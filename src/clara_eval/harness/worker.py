"""The process that does all hostile work: one JSON job a line in, one JSON answer a line out, no environment."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from clara_eval.harness.model import RunLimits, RunOutcome
from clara_eval.harness.workers import Compiler, EvmAnswer, EvmJob, Job

MAX_OPEN_FILES = 64
MAX_FILE_BYTES = 512 * 1024 * 1024
"""A compiled module of CPython is the largest file that is ever written."""


def answer(job: Job) -> Mapping[str, object]:
    """One job's answer. What goes wrong inside a machine is the caller's to name: it gets the words."""
    if job["kind"] == "compile":
        from clara_eval.harness.solc import CompilerBroke, compile_solidity, compiled

        try:
            return compile_solidity(Compiler(*job["compiler"]), job["submission"], job["harness"])
        except CompilerBroke as broke:
            return compiled("", RunOutcome.INFRASTRUCTURE, str(broke))
    if job["kind"] == "evm":
        return _evm(job)
    from clara_eval.harness import cpython, scripts

    if job["kind"] == "script":
        return scripts.answer(job)
    cpython.CPython(Path(job["module"]), Path(job["cache"]))
    return {}


def _evm(job: EvmJob) -> EvmAnswer:
    from clara_eval.harness import evm

    limits = RunLimits(**job["limits"])
    code = job["submission"]
    alone = evm.deploy_cost(code, job["runtimeBytes"], limits) if code else None
    if not job["harness"]:
        return {"deployGas": alone, "calls": [], "logs": []}
    found = evm.run_harness(job["harness"], limits, code)
    costs = [cost for cost in (alone, found.deploy_gas) if cost is not None]
    deploy_gas = max(costs) if costs and found.is_deploy_gas_known else None
    return {"deployGas": deploy_gas, "calls": [call.to_json() for call in found.calls], "logs": found.logs}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(answer(json.loads(line)), allow_nan=False) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
