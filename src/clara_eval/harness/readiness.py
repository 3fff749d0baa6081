"""Check that an engine works here, by running the smallest program and writing to its cache."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clara_eval.harness.machine import Machine, MissingEngine
from clara_eval.harness.model import HarnessSubmission, Language

SMALLEST: dict[Language, str] = {
    "solidity": "// SPDX-License-Identifier: MIT\npragma solidity >=0.8.0;\ncontract Submission {}\n",
    "javascript": "export const nothing = null;\n",
    "python": "nothing = None\n",
}
State = Literal["ready", "slow", "failed", "missing"]
"""`slow`: it runs, and compiles anew every time; `failed`: it is installed and did not run."""


@dataclass(frozen=True, slots=True)
class Readiness:
    state: State
    reason: str = ""
    remedy: str = ""


def look_at(machine: Machine, language: Language) -> Readiness:
    try:
        executed = machine.run(None, HarnessSubmission(language, SMALLEST[language]))
    except MissingEngine as missing:
        return Readiness("missing", missing.message, missing.remedy)
    if executed.outcome != "passed":
        again = "Free memory or processor time and run `clara-eval harness prepare` again."
        return Readiness("failed", executed.detail or f"The smallest program ended as {executed.outcome}.", again)
    if problem := _unkept(machine, language):
        keep = f"Let only this user write to {machine.cache_folder}, or name another folder with CLARA_CACHE_DIR."
        return Readiness("slow", problem, keep)
    return Readiness("ready")


def _unkept(machine: Machine, language: Language) -> str | None:
    """Why what was compiled is not found next time; None if it is."""
    if language == "javascript":
        return None  # compiled in a moment, never kept
    if problem := _unwritable(machine.cache_folder):
        return f"Nothing can be kept in {machine.cache_folder} ({problem}): it is compiled anew every time."
    if not machine.is_prepared(language):
        return f"Others may write to {machine.cache_folder}: what was compiled there is not used."
    return None


def _unwritable(folder: Path) -> str | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return None
    except OSError as bad:
        return bad.strerror or str(bad)
