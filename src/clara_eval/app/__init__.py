"""The one place where settings become adapters: an `App` for the evaluator, a `Caller` for everybody else."""

from clara_eval.app.adapters import (
    Connections,
    evaluator_address,
    open_chain,
    open_fetch,
    open_machine,
    reputation_registry,
    trace_fetch,
)
from clara_eval.app.judges import check_judges, open_jury
from clara_eval.app.roles import App, Caller, make_caller, open_app, open_caller
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.context import Options

__all__ = [
    "App", "Caller", "Connections", "Options", "SendTimeouts", "check_judges", "evaluator_address", "make_caller",
    "open_app", "open_caller", "open_chain", "open_fetch", "open_jury", "open_machine", "reputation_registry",
    "trace_fetch",
]  # fmt: skip
