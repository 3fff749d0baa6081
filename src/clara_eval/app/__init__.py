"""The one place where settings become adapters: an `App` for the evaluator, a `Caller` for everybody else."""

from clara_eval.app.adapters import (
    Connections,
    evaluator_address,
    open_chain,
    open_fetch,
    open_machine,
    publication_places,
    reputation_registry,
    trace_fetch,
)
from clara_eval.app.judges import CALIBRATION_RUN, check_judges, open_jury
from clara_eval.app.roles import App, Caller, make_caller, open_app, open_caller
from clara_eval.chain.sender import SendTimeouts

__all__ = [
    "CALIBRATION_RUN", "App", "Caller", "Connections", "SendTimeouts", "check_judges", "evaluator_address",
    "make_caller", "open_app", "open_caller", "open_chain", "open_fetch", "open_jury", "open_machine",
    "publication_places", "reputation_registry", "trace_fetch",
]  # fmt: skip
