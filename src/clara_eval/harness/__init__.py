"""Executed facts: run a submission in a closed machine, under the poster's harness, and report what was measured.

In come a `Harness` (or none: then only whether the submission compiles or loads), a `Submission` and `Limits`; out
goes `Executed`. Must hold: the same bytes give the same numbers on every machine; a limit is gas or fuel, never time;
nothing outside the machine is read, written or reached; what one submission does changes nothing for another.
"""

from __future__ import annotations

from clara_eval.harness.hidden import HarnessDocument, hide, read_harness_document
from clara_eval.harness.machine import Machine, MissingEngine
from clara_eval.harness.model import (
    Call,
    Executed,
    Harness,
    Language,
    Limits,
    Outcome,
    Submission,
)

__all__ = [
    "Call",
    "Executed",
    "Harness",
    "HarnessDocument",
    "Language",
    "Limits",
    "Machine",
    "MissingEngine",
    "Outcome",
    "Submission",
    "hide",
    "read_harness_document",
]
