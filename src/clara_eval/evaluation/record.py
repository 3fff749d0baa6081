"""A finished walk as trace entries, in one canonical order: no clock, no arrival order, nothing random.

In: the challenge, the plan and the walk. Out: (key, body) pairs, ready for `trace.document`. The same inputs give the
same entries byte for byte, which is what makes a trace checkable by walking again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from clara_eval.chain.model import Challenge
from clara_eval.core.codec import JsonCodec, to_camel_json
from clara_eval.core.version import __version__
from clara_eval.evaluation.objections import DISPUTED_FORM
from clara_eval.evaluation.plan import EvaluationPlan
from clara_eval.evaluation.ruled import RuledComparisons
from clara_eval.evaluation.rulings import RULINGS
from clara_eval.evaluation.run import EvaluationResult, SubmissionResult
from clara_eval.evaluation.sources import KEY_REPORT, RECEIVED
from clara_eval.judge.port import PaidAnswer
from clara_eval.submissions import Rejected, Solution

Entry = tuple[str, object]
CHALLENGE = JsonCodec(Challenge)
PLAN = JsonCodec(EvaluationPlan)
RULES = 8
"""Raised by every change after which the same evidence gives other entries: a trace is checked by its own rules."""


def entries(challenge: Challenge, plan: EvaluationPlan, walk: EvaluationResult) -> Iterator[Entry]:
    """Every entry of the trace, from the pinned block to the calldata."""
    yield (
        "header",
        {
            "software": f"clara-eval {__version__}",
            "rules": RULES,
            "chainId": challenge.chain_id,
            "challenge": challenge.address,
        },
    )
    yield "challenge", CHALLENGE.body(challenge)
    yield "plan", _plan(plan)
    yield "rulings", RULINGS.body(walk.rulings)
    if walk.disputed is not None:
        yield "objections", DISPUTED_FORM.body(walk.disputed)
    yield "metadata", _metadata(challenge, walk)
    yield "schema", {**walk.schema.to_json(), "typedByModel": list(walk.typed_by_model)}
    yield "prompts", walk.prompts
    for piece in walk.pieces:
        yield f"solution/{piece.submission.submitter}", _solution(piece)
    yield "rejected", [_rejection(rejected) for rejected in walk.rejected]
    yield "similar", to_camel_json(walk.likeness.similar)
    yield "families", dict(sorted(walk.likeness.families.items()))
    yield from _execution(walk)
    for account, features in sorted(walk.features.items()):
        yield f"features/{account}", features.to_json()
    if walk.key_reports:
        yield "attestation", [KEY_REPORT.body(report) for report in walk.key_reports]
    yield "answers", {"count": len(walk.answers)}
    for request in sorted(walk.answers):
        yield f"answer/{request}", _answer(walk.answers[request])
    yield "unanswered", dict(sorted(walk.unanswered.items()))
    yield "schedule", {"name": walk.schedule, "reason": walk.schedule_reason, "games": len(walk.comparisons)}
    if isinstance(walk.comparisons, RuledComparisons):
        yield "verdicts", ruled_verdicts(walk.comparisons)
    else:
        for number, comparison in enumerate(walk.comparisons):
            yield f"comparison/{number:07}", to_camel_json(comparison)
    yield "ranking", to_camel_json(walk.ranking) if walk.ranking else None
    yield "placed", to_camel_json(walk.placed)
    yield "flags", to_camel_json(walk.flags)
    yield "winners", to_camel_json(walk.winners.entries)
    yield "calldata", "0x" + walk.calldata.hex()


def _plan(plan: EvaluationPlan) -> dict[str, object]:
    """Without `tokens` and `reading` if the round was planned without them."""
    body: dict[str, object] = to_camel_json(plan)
    return {key: value for key, value in body.items() if value is not None or key not in {"tokens", "reading"}}


def ruled_verdicts(comparisons: RuledComparisons) -> dict[str, object]:
    """All verdicts of a large round by rules: who was compared, how often, and one hash over what came out."""
    table = comparisons.table
    return {
        "judge": table.judges[0],
        "items": list(table.items),
        "count": len(comparisons),
        "sha256": comparisons.commitment,
    }


def _execution(walk: EvaluationResult) -> Iterator[Entry]:
    """Only where something was run: which harness, on which machine, and what each run came to."""
    execution = walk.execution
    if execution is None:
        return
    chosen = execution.chosen
    yield (
        "execution",
        {
            "harness": chosen.kind if chosen else "none",
            "language": chosen.harness.language if chosen and chosen.harness else None,
            "reason": chosen.reason if chosen else "The config has no harness.",
            "hidden": bool(chosen and chosen.reveal),
            "reveal": chosen.reveal.content if chosen and chosen.reveal else None,
            "machine": execution.machine,
        },
    )
    for account, executed in sorted(execution.executed.items()):
        yield f"executed/{account}", {key: item for key, item in executed.to_json().items() if key != "machine"}


def _metadata(challenge: Challenge, walk: EvaluationResult) -> dict[str, object]:
    return {
        "content": base64.b64encode(walk.metadata_bytes).decode(),
        "evalConfig": walk.metadata.config_bytes.decode(),
        "evalConfigHash": challenge.eval_config_hash,
        "hashKind": walk.metadata.hash_kind,
        "title": walk.metadata.title,
        "adapted": to_camel_json(walk.metadata.adapted),
    }


def _solution(piece: SubmissionResult) -> dict[str, object]:
    """One submission: what came, what its hashes are, and whether it is judged."""
    body: dict[str, object] = {
        "received": RECEIVED.body(piece.received),
        "solutionHash": piece.submission.solution_hash,
    }
    verdict = piece.verdict
    if isinstance(verdict, Solution):
        body |= {
            "accepted": True,
            "keccak": verdict.content_keccak,
            "sha256": verdict.content_sha256,
            "hashKind": verdict.hash_kind,
            "pinned": verdict.pinned,
            "language": verdict.language,
        }
    else:
        body |= {"accepted": False, "code": verdict.code, "reason": verdict.reason}
    return body


def _rejection(rejected: Rejected) -> dict[str, object]:
    return {
        "account": rejected.submission.submitter,
        "code": rejected.code,
        "reason": rejected.reason,
        "isOutage": rejected.is_outage,
    }


def _answer(paid: PaidAnswer) -> dict[str, object]:
    answer = to_camel_json(paid.answer)
    signed = answer.pop("signed")
    return {"llm": paid.llm, "purpose": paid.purpose, "answer": answer, **({"signed": signed} if signed else {})}
