"""The result of an evaluation, and its trace entries in canonical order."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec, to_camel_json
from clara_eval.core.model import Flag, Placed
from clara_eval.core.version import RULES, __version__
from clara_eval.evaluation.execution import Execution
from clara_eval.evaluation.features.extract import SubmissionFacts
from clara_eval.evaluation.play import Comparison, RuledComparisons
from clara_eval.evaluation.review_rules import ranking_flags
from clara_eval.evaluation.round import EvaluationPlan, Round, Ruling
from clara_eval.evaluation.sources import SubmissionResult
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.port import PaidAnswer
from clara_eval.ranking import Ranking
from clara_eval.submissions.copies import Likeness
from clara_eval.submissions.model import Rejected, Solution


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    given: Round
    schema: FeatureSchema
    typed_by_model: tuple[str, ...]
    prompts: dict[str, dict[str, str]]
    rulings: tuple[Ruling, ...]
    pieces: tuple[SubmissionResult, ...]
    likeness: Likeness
    rejected: tuple[Rejected, ...]
    execution: Execution | None  # None if there was nothing to run
    features: dict[Address, SubmissionFacts]
    answers: Mapping[str, PaidAnswer]  # read one at a time from a file
    unanswered: dict[str, str]
    key_reports: tuple[KeyReport, ...] = ()  # attestations of the keys that signed answers
    schedule: str = ""
    schedule_reason: str = ""
    comparisons: Sequence[Comparison] = ()
    ranking: Ranking | None = None  # None if every submission was rejected
    placed: tuple[Placed, ...] = ()
    behind_by_default: Mapping[Address, str] = field(default_factory=dict)
    """Accounts that give way if no person decides, each with the code of the flag."""
    flags: tuple[Flag, ...] = ()

    @property
    def paid(self) -> set[Address]:
        return {place.account for place in self.placed[: self.given.winner_count]}

    @property
    def near_money(self) -> set[Address]:
        return {place.account for place in self.placed[: self.given.winner_count + 1]}


def judges_of(comparisons: Sequence[Comparison]) -> list[str]:
    if isinstance(comparisons, RuledComparisons):
        return list(comparisons.table.judges)
    return sorted({comparison.judge for comparison in comparisons})


Entry = tuple[str, object]
PLAN = JsonCodec(EvaluationPlan)
_OPTIONAL = frozenset({"tokens", "reading", "elo", "jury"})


@dataclass(frozen=True, slots=True)
class VenueRecords:
    header: Mapping[str, object]  # ids of the round at the venue
    facts: tuple[Entry, ...]  # facts about the round; after the header
    disputes: tuple[Entry, ...]  # objections to an earlier result; after the rulings
    outcome: tuple[Entry, ...]  # winners as the venue pays them; at the end


def entries(plan: EvaluationPlan, result: EvaluationResult, venue: VenueRecords) -> Iterator[Entry]:
    """Yield every entry of the trace, without clock or randomness; `plan` is the one before rulings."""
    yield "header", {"software": f"clara-eval {__version__}", "rules": RULES, **venue.header}
    yield from venue.facts
    # Unset optional fields are left out, as in plans that were made before the fields existed.
    planned: dict[str, object] = to_camel_json(plan)
    yield "plan", {key: one for key, one in planned.items() if one is not None or key not in _OPTIONAL}
    yield "rulings", to_camel_json(result.rulings)
    yield from venue.disputes
    yield "metadata", _metadata(result.given)
    yield "schema", {**result.schema.to_json(), "typedByModel": list(result.typed_by_model)}
    yield "prompts", result.prompts
    for piece in result.pieces:
        yield f"solution/{piece.submission.submitter}", _solution(piece)
    rejected = [
        {"account": one.submission.submitter, "code": one.code, "reason": one.reason, "isOutage": one.is_outage}
        for one in result.rejected
    ]
    yield "rejected", rejected
    yield "similar", to_camel_json(result.likeness.similar)
    yield "families", dict(sorted(result.likeness.families.items()))
    yield from _execution(result)
    for account, features in sorted(result.features.items()):
        yield f"features/{account}", features.to_json()
    if result.key_reports:
        yield "attestation", [to_camel_json(report) for report in result.key_reports]
    yield "answers", {"count": len(result.answers)}
    for request in sorted(result.answers):
        paid = result.answers[request]
        answer = to_camel_json(paid.answer)
        signed = answer.pop("signed")
        if answer["sampling"] is None:
            del answer["sampling"]
        recorded = {"llm": paid.llm, "purpose": paid.purpose, "answer": answer}
        yield f"answer/{request}", {**recorded, "signed": signed} if signed else recorded
    yield "unanswered", dict(sorted(result.unanswered.items()))
    yield "schedule", {"name": result.schedule, "reason": result.schedule_reason, "games": len(result.comparisons)}
    if isinstance(result.comparisons, RuledComparisons):
        yield "verdicts", ruled_verdicts(result.comparisons)
    else:
        for number, comparison in enumerate(result.comparisons):
            yield f"comparison/{number:07}", to_camel_json(comparison)
    flags = to_camel_json(list(ranking_flags(result.ranking, by_arrival=True))) if result.ranking else []
    yield "ranking", {**to_camel_json(result.ranking), "flags": flags} if result.ranking else None
    yield "placed", to_camel_json(result.placed)
    yield "flags", to_camel_json(result.flags)
    yield from venue.outcome


def ruled_verdicts(comparisons: RuledComparisons) -> dict[str, object]:
    """Summarise the verdicts of a large round by rules: items, count, and one hash of all verdicts."""
    judge, items = comparisons.table.judges[0], list(comparisons.table.items)
    return {"judge": judge, "items": items, "count": len(comparisons), "sha256": comparisons.commitment}


def _execution(result: EvaluationResult) -> Iterator[Entry]:
    execution = result.execution
    if execution is None:
        return
    chosen, runs = execution.chosen, sorted(execution.executed.items())
    yield (
        "execution",
        {
            "harness": chosen.kind if chosen else "none",
            "language": chosen.harness.language if chosen and chosen.harness else None,
            "reason": chosen.reason if chosen else "The config has no harness.",
            "hidden": bool(chosen and chosen.reveal),
            "reveal": chosen.reveal.content if chosen and chosen.reveal else None,
            # Versions and settings, which are equal for all runs.
            "machine": dict(next((run.machine for _, run in runs if run.machine), {})),
        },
    )
    for account, executed in runs:
        yield f"executed/{account}", {key: item for key, item in executed.to_json().items() if key != "machine"}


def _metadata(given: Round) -> dict[str, object]:
    metadata = given.metadata
    return {
        "content": base64.b64encode(given.metadata_bytes).decode(),
        "evalConfig": metadata.config_bytes.decode(),
        "evalConfigHash": given.config_hash,
        "hashKind": metadata.hash_kind,
        "title": metadata.title,
        "adapted": to_camel_json(metadata.adapted),
    }


def _solution(piece: SubmissionResult) -> dict[str, object]:
    body: dict[str, object] = {
        "received": to_camel_json(piece.received),
        "solutionHash": piece.submission.solution_hash,
    }
    if piece.linked is not None:
        body["linked"] = to_camel_json(piece.linked)
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
        if verdict.tree:
            body["files"] = [one.to_json() for one in verdict.tree.files]
    else:
        body |= {"accepted": False, "code": verdict.code, "reason": verdict.reason}
    return body
