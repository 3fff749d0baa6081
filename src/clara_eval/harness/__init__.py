"""Executed facts: run a submission in a closed machine, under the poster's harness, and report what was measured."""

from __future__ import annotations

from clara_eval.harness.machine import Machine, MissingEngine
from clara_eval.harness.model import (
    Call,
    Executed,
    Harness,
    HarnessDocument,
    HarnessSubmission,
    Language,
    RunLimits,
    RunOutcome,
    hide,
    read_harness_document,
)

__all__ = [
    "Call",
    "Executed",
    "Harness",
    "HarnessDocument",
    "HarnessSubmission",
    "Language",
    "Machine",
    "MissingEngine",
    "RunLimits",
    "RunOutcome",
    "hide",
    "read_harness_document",
]
