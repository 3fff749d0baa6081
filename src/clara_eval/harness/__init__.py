"""Run submissions in a sandbox, under the poster's harness, and report what was measured."""

from clara_eval.harness.machine import Machine, MissingEngine
from clara_eval.harness.model import Executed, Harness, HarnessSubmission, Language, RunOutcome

__all__ = ["Executed", "Harness", "HarnessSubmission", "Language", "Machine", "MissingEngine", "RunOutcome"]
