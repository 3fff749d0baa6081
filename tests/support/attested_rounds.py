"""Set-up shared by tests: what test_attestation.py and others use."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.model_rounds import CONFIG, model_round
from tests.support.rounds import opened
from tests.support.signing_endpoint import SigningEndpoint

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.retrying_llm import RetryPolicy

QUALITY = {"name": "quality", "type": "integer", "min": 0, "max": 9, "better": "higher", "source": "llm"}


Bodies = dict[str, Any]


async def signed_round(
    chain: LocalChain, place: Path, endpoint: SigningEndpoint, how: str
) -> tuple[Evaluation, list[str]]:
    """Evaluate as the service does, with a judge at this endpoint; the trace as lines. `how` may be empty: unsigned."""
    address = await model_round(chain, {**CONFIG, "features": ["max_complexity", QUALITY]})
    judge = f"openai:m@{endpoint.url}" + (f"#{how}" if how else "")
    changes = {"judges_as_set": judge, "prices": f"openai:m@{endpoint.url}=1/10", "pccs_url": endpoint.root}
    async with opened(chain, place, **changes) as app:
        app.models.quote_root = endpoint.enclave.root
        app.models.patience = RetryPolicy(tries=2, first_pause_seconds=0.01, most_probes=1)
        done = await evaluate(app, address, EvaluationRequest(plan=EvaluationPlan((judge,)), dry_run=True))
        lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)
    return done, lines


def _first(bodies: Bodies) -> Bodies:
    found: Bodies = next(body for key, body in bodies.items() if key.startswith("answer/"))
    return found


def _other_byte(part: str) -> Callable[[Bodies], None]:
    def change(bodies: Bodies) -> None:
        content = bytearray(base64.b64decode(_first(bodies)["signed"][part]))
        content[len(content) // 2] ^= 1
        _first(bodies)["signed"][part] = base64.b64encode(content).decode()

    return change


def _other_words(bodies: Bodies) -> None:
    _first(bodies)["answer"]["text"] += " "


def _no_signature(bodies: Bodies) -> None:
    del _first(bodies)["signed"]


def _no_attestation(bodies: Bodies) -> None:
    del bodies["attestation"]


def _other_quote(bodies: Bodies) -> None:
    report = bodies["attestation"][0]
    report["report"] = report["report"].replace("0001020304", "0001020305")


def _other_run(bodies: Bodies) -> None:
    bodies["attestation"][0]["run"] += "0"


def _exchanged_answers(bodies: Bodies) -> None:
    one, other = [body for key, body in bodies.items() if key.startswith("answer/")][:2]
    one["signed"], other["signed"] = other["signed"], one["signed"]
    one["answer"], other["answer"] = other["answer"], one["answer"]


FORGERIES = {
    "request byte": _other_byte("request"),
    "response byte": _other_byte("response"),
    "words": _other_words,
    "no signature": _no_signature,
    "no attestation": _no_attestation,
    "quote": _other_quote,
    "run": _other_run,
    "exchanged": _exchanged_answers,
}
