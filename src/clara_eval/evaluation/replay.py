"""Check a trace by evaluating its round again with the recorded answers and venue facts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from clara_eval.core.errors import BadTrace, ClaraError
from clara_eval.core.version import RULES
from clara_eval.evaluation.result import PLAN, EvaluationResult, VenueRecords, entries
from clara_eval.evaluation.round import EvaluationPlan, Round, is_by_default, ruled_plan
from clara_eval.evaluation.run import evaluate_round
from clara_eval.evaluation.sources import Bodies, TraceSources
from clara_eval.evaluation.trace import Evidence, Notes, Restart
from clara_eval.harness import Machine
from clara_eval.judge.attestation import INSTALL, Quotes, SigningKey

MUTABLE = "that {count} submission{s} at an address whose content can change had this content at the deadline: {who}"
UNREACHED = "that {count} submission{s} recorded as unreachable could not be reached: {who}"
WITHHELD = "that the hidden harness, recorded as not revealed, was not handed in"
RULED = "that a person made the recorded rulings, where no objection asks for them: they are not signed"
CRITERIA = "that the criteria are good: the poster wrote them"
UNSIGNED = "that these models really gave the recorded answers, which are not signed: {judges}"
SIGNED_LIMITS = (
    "that a signed answer came from the named model: the signature shows the enclave, its measurement what runs in it",
    "that a model whose answers are only passed on by the enclave really gave them",
    "that nobody broke into the enclave: physical attacks on TDX are known",
)
TOLERANCE = 0.02  # of intervals and chances: matrix operations differ in the last digits between processors
_TAKEN = frozenset({"challenge", "folder", "plan", "rulings", "objections", "attestation", "executed"})
"""Entries whose integers the replay takes from the trace; none may be negative."""
_SHAPE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError)
"""Errors that forged entries of a wrong shape can raise."""
_ESTIMATES = frozenset(
    {"low", "high", "pTop", "pRank", "theta", "thetaLow", "thetaHigh", "rankLow", "rankHigh", "probability"}
    | {"misallocation", "positionBias", "positionBiasSd", "margin", "margins", "consistency"}
)


class Venue(Protocol):
    """A source of rounds, such as a chain or a folder, as recorded in a trace."""

    @property
    def given(self) -> Round: ...

    def records(self, result: EvaluationResult) -> VenueRecords: ...


@dataclass(frozen=True, slots=True)
class JudgeEvidence:
    judge: str
    answers: int
    signed: int
    keys: tuple[SigningKey, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace that was checked entry by entry and is valid."""

    plan: EvaluationPlan
    result: EvaluationResult
    digest: str
    entries: int
    unchecked: tuple[str, ...]  # runs that could not be repeated here and are taken as recorded
    keys: Mapping[tuple[str, str], SigningKey]  # keys that signed answers, by judge and name
    notes: Notes  # not covered by the digest
    venue: Venue

    @property
    def executed(self) -> int:
        return len(self.result.execution.executed) if self.result.execution else 0

    @property
    def is_execution_checked(self) -> bool | None:
        """Whether all runs were repeated here with equal results; None if there were none."""
        return not self.unchecked if self.executed else None

    @property
    def execution_warning(self) -> str:
        """Warning to show first; empty if all runs were repeated or there were none."""
        if not self.unchecked:
            return ""
        return f"execution was not checked: {len(self.unchecked)} of {self.executed} runs are taken as recorded"

    @property
    def judges(self) -> list[JudgeEvidence]:
        answered, signed = Counter[str](), Counter[str]()
        for paid in self.result.answers.values():
            answered[paid.llm] += 1
            signed[paid.llm] += paid.answer.signed is not None
        keys = {judge: tuple(self.keys[key] for key in sorted(self.keys) if key[0] == judge) for judge in answered}
        return [JudgeEvidence(judge, count, signed[judge], keys[judge]) for judge, count in sorted(answered.items())]

    @property
    def open_points(self) -> tuple[str, ...]:
        """Claims that a replay cannot check."""
        found = []
        if self.plan.max_games is not None:
            found.append(f"that money and time allowed only {self.plan.max_games} comparisons, as the plan says")
        if count := len(self.result.unanswered):
            found.append(f"that no model answered the {count} request{'s' if count > 1 else ''} recorded as unanswered")
        by_default = is_by_default(self.result.rulings)
        if by_default:
            found.append("that no person reviewed the result before its default was posted")
        if any(ruling.kind != "default" for ruling in self.result.rulings):
            found.append(RULED)
        if self.notes.approvals:
            found.append("that the person who is named approved this result: approvals are not signed")
        elif not by_default and any(flag.severity == "review" for flag in self.result.flags):
            found.append("that a person approved this result, which its flags ask for: no approval is recorded")
        found.extend(self.unchecked)
        unsigned = [one.judge for one in self.judges if one.signed < one.answers]
        if unsigned:
            found.append(UNSIGNED.format(judges=", ".join(unsigned)))
        if self.keys:
            found.extend(SIGNED_LIMITS)
        if any(not key.enclave.status for key in self.keys.values()):
            found.append(f"that the quotes of the signing keys are Intel's: nothing checks them here ({INSTALL})")
        return (*found, *self._unchecked_content, CRITERIA)

    @property
    def _unchecked_content(self) -> list[str]:
        """Claims about fetched content that a replay cannot check."""
        unpinned = [one for one in self.result.pieces if one.is_unpinned]
        unreached, execution = [one for one in self.result.pieces if one.is_outage], self.result.execution
        found = []
        for sentence, pieces in ((MUTABLE, unpinned), (UNREACHED, unreached)):
            if pieces:
                who = ", ".join(piece.submission.submitter for piece in pieces[:5]) + ("…" if pieces[5:] else "")
                found.append(sentence.format(count=len(pieces), s="s" if pieces[1:] else "", who=who))
        if execution and execution.chosen and execution.chosen.is_withheld:
            found.append(WITHHELD)
        return found


R = TypeVar("R", bound=Replay)


async def replay(
    kind: type[R],
    lines: Iterable[str],
    venue_of: Callable[[Bodies], Venue],
    machine: Machine | None = None,
    quotes: Quotes | None = None,
) -> R:
    """Check every entry of a trace; BadTrace names the first one that differs.

    `venue_of` reads the venue from the entries. Programs run again on `machine`, by default with the local engines.
    """
    recorded = Evidence(lines)
    _check_rules(recorded.get("header"))
    sources = TraceSources(recorded, machine or Machine(), quotes=quotes or Quotes())
    try:
        plan = PLAN.read(sources.body("plan"))
    except ValueError as bad:
        raise BadTrace(f"The plan cannot be read: {bad}", entry="plan") from bad
    try:
        venue = venue_of(recorded)
        ruled = ruled_plan(plan, sources.rulings)
        result = await evaluate_round(venue.given, ruled, sources, lambda _stage, _done, _total: None)
        _compare(recorded, plan, result, venue.records(result))
    except BadTrace:
        raise
    except ClaraError as bad:
        raise BadTrace(f"The recorded evidence cannot be replayed: {bad}", entry="evidence") from bad
    except _SHAPE_ERRORS as bad:
        problem = f"The recorded evidence has another shape than it was given ({type(bad).__name__}: {str(bad)[:200]})."
        raise BadTrace(problem, entry="evidence") from bad
    _check_restarts(recorded.notes.restarts, recorded, len(result.answers))
    unchecked, keys, notes = tuple(sources.unchecked), sources.keys, recorded.notes
    return kind(plan, result, recorded.digest, recorded.count, unchecked, keys, notes, venue)


def _check_restarts(restarts: list[Restart], recorded: Bodies, answers: int) -> None:
    """Check that the restarts follow one another and end with the version of the header."""
    header, challenge = recorded["header"], recorded.get("challenge")
    at, version = challenge["block"]["timestamp"] if challenge else 0, restarts[0].begun_by if restarts else ""
    for one in restarts:
        if not (at <= one.at and version == one.begun_by != one.finished_by and 0 <= one.answers <= answers):
            problem = "A restart does not follow the one before it, or uses answers that are not there."
            raise BadTrace(problem, entry="restarts")
        at, version = one.at, one.finished_by
    ours = f"{header['software'].removeprefix('clara-eval ')} rules {header['rules']} "
    if restarts and not version.startswith(ours):
        raise BadTrace("The last restart is by another version than the header's.", entry="restarts")


def _check_rules(header: object) -> None:
    """Raise BadTrace for a trace of other rules, which this version cannot check."""
    body = header if isinstance(header, dict) else {}
    rules = body.get("rules")
    if type(rules) is not int or rules != RULES:
        raise BadTrace(
            f"The trace was written by {str(body.get('software'))[:60]!r} under rules {str(rules)[:20]}; this version "
            f"checks by rules {RULES}. Its hashes hold together, nothing else was checked.",
            entry="header",
            remedy="Check it with the version that wrote it.",
        )


def _compare(recorded: Evidence, plan: EvaluationPlan, result: EvaluationResult, venue: VenueRecords) -> None:
    """Compare the recorded with the computed entries, one at a time."""
    for seq, (key, body) in enumerate(entries(plan, result, venue)):
        if seq >= recorded.count:
            continue
        recorded_key, recorded_body = recorded.at(seq)
        name = f"#{seq} {recorded_key}"
        if recorded_key.partition("/")[0] in _TAKEN and not _is_non_negative(recorded_body):
            raise BadTrace(f"Entry {name} has an integer below 0.", entry=name)
        if recorded_key != key:
            raise BadTrace(f"Entry {name} is in the place of {key}.", entry=name)
        if not is_same(key, recorded_body, body):
            raise BadTrace(f"Entry {name} is not what its evidence gives.", entry=name)
    if recorded.count != seq + 1:
        raise BadTrace(f"The trace has {recorded.count} entries; its evidence gives {seq + 1}.", entry="end")


def _is_non_negative(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_non_negative, value.values()))
    if isinstance(value, list):
        return all(map(_is_non_negative, value))
    return type(value) is not int or value >= 0


def is_same(key: str, recorded: object, computed: object) -> bool:
    """Return whether an entry is as computed; the version in the header may differ."""
    if key == "header" and isinstance(recorded, dict) and isinstance(recorded.get("software"), str):
        computed = {**computed, "software": recorded["software"]} if isinstance(computed, dict) else computed
    return _is_equal(recorded, computed, _ESTIMATES if key == "ranking" else frozenset())


def _is_equal(recorded: object, computed: object, estimates: frozenset[str], *, approx: bool = False) -> bool:
    """Return whether values and types are equal; those under `estimates` within TOLERANCE."""
    if isinstance(recorded, dict) and isinstance(computed, dict):
        return recorded.keys() == computed.keys() and all(
            _is_equal(recorded[key], computed[key], estimates, approx=approx or key in estimates) for key in recorded
        )
    if isinstance(recorded, list) and isinstance(computed, list):
        return len(recorded) == len(computed) and all(
            _is_equal(a, b, estimates, approx=approx) for a, b in zip(recorded, computed, strict=True)
        )
    if type(recorded) is not type(computed):
        return False
    if approx and isinstance(recorded, (int, float)) and isinstance(computed, (int, float)):
        return math.isclose(recorded, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(recorded == computed)
