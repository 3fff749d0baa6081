"""Checking a trace is walking it again: from its own evidence, through the same rooms, to the same bytes.

In: the lines of a trace file, and optionally a chain. Out: a `Checked` that says entry by entry what holds, or a
`BadTrace` that names the first entry that does not. Everything but the model's words is recomputed: hashes, config,
measured features, prompts and their hashes, the reading of every answer, verdicts, Elo, winners, prizes, calldata.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from eth_abi.exceptions import EncodingError

from clara_eval.chain.calldata import read_calldata
from clara_eval.chain.model import Challenge
from clara_eval.chain.posted import Posted
from clara_eval.challenges.evaluate import ChainOfRecord
from clara_eval.core.errors import BadInput, BadTrace, ClaraError
from clara_eval.evaluation.plan import EvaluationPlan, no_listener
from clara_eval.evaluation.record import CHALLENGE, PLAN, RULES, entries
from clara_eval.evaluation.rulings import is_by_default
from clara_eval.evaluation.run import EvaluationResult, walk
from clara_eval.evaluation.sources import TraceSources
from clara_eval.evaluation.trace.document import Approval
from clara_eval.evaluation.trace.evidence import Evidence
from clara_eval.harness import Machine
from clara_eval.judge.attestation import Quotes, SigningKey
from clara_eval.judge.attestation.quotes import INSTALL

NOT_PROVEN = (
    "that a submission at a mutable address was the same at the deadline, where its hash covers only the address",
    "that what is recorded for an ipfs: address is what the address stands for, where the hash covers only the address",
    "that the problem statement at a mutable address was the same at the deadline: the chain commits to the config",
    "that what is recorded as unreachable could not be reached",
    "that a hidden harness recorded as not revealed was not handed in",
    "that the criteria are good: they are the poster's",
)
OFFLINE = (
    "that the chain holds this challenge, these submissions with their agents and this result: nothing was compared "
    "with a chain, and nothing else tells the agent of an unpaid submission"
)
REPLACED = (
    "that block {number}, at which the challenge was read, was ever on the chain: another stands in its place since a "
    "reorg, and the block before the post tells the same facts"
)
UNSIGNED = "that the models really gave the recorded answers: most providers do not sign them, these did not: {judges}"
SIGNED_LIMITS = (
    "that a signed answer came from the named model: the signature shows the enclave, its measurement what runs in it",
    "that a model whose answers are only passed on by the enclave really gave them",
    "that nobody broke into the enclave: physical attacks on TDX are known",
)
TOLERANCE = 0.02
"""For intervals and chances only: they come from matrix work whose last digits differ between processors."""
_ADDRESS, _HASH = re.compile("0x[0-9a-f]{40}"), re.compile("0x[0-9a-f]{64}")
_FORM_WORDS = {_ADDRESS: "an address in lower case", _HASH: "a hash of 32 bytes in lower case"}
_TAKEN = frozenset({"challenge", "plan", "rulings", "objections", "attestation", "executed"})
"""Entries with integers that a walk takes from the trace."""
_MISSHAPEN = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError),
    EncodingError,  # a number or an address that no calldata can hold
)
"""What walking forged evidence can raise: whoever forges an entry also chooses its shape."""
_ESTIMATES = frozenset(
    {"low", "high", "pTop", "pRank", "theta", "thetaLow", "thetaHigh", "rankLow", "rankHigh", "probability"}
    | {"misallocation", "positionBias", "positionBiasSd", "margin", "margins", "consistency"}
)


@dataclass(frozen=True, slots=True)
class Checked:
    challenge: Challenge
    plan: EvaluationPlan
    walk: EvaluationResult
    digest: str
    entries: int
    posted: Posted | None
    unchecked: tuple[str, ...] = ()
    """Runs that were taken as recorded, because they could not be repeated here: one point for each."""
    keys: Mapping[tuple[str, str], SigningKey] = field(default_factory=dict)
    """Those that signed answers, by judge and name."""
    approvals: tuple[Approval, ...] = ()
    """Who approved exactly this result, by the trace's own word."""
    is_replaced: bool = False
    """A reorg replaced the block at which the challenge was read."""

    @property
    def executed(self) -> int:
        """How many submissions were run, by the trace."""
        return len(self.walk.execution.executed) if self.walk.execution else 0

    @property
    def is_execution_checked(self) -> bool | None:
        """Whether every run was repeated here to the same numbers; None where nothing was run."""
        return not self.unchecked if self.executed else None

    @property
    def execution_warning(self) -> str:
        """What to say before anything else; empty where every run was repeated, or nothing was run."""
        if not self.unchecked:
            return ""
        return f"execution was not checked: {len(self.unchecked)} of {self.executed} runs are taken as recorded"

    @property
    def compared(self) -> tuple[str, ...]:
        """What the chain agrees to."""
        if self.posted is None:
            return ()
        facts = "the block and the challenge with its submissions at that block"
        if self.is_replaced:
            facts = "the challenge with its submissions, as they were just before the post"
        return facts, "the posted transaction: its winners, and that it commits to this trace"

    @property
    def judges(self) -> list[JudgeEvidence]:
        """Per model that answered: how many of its answers are signed, by which keys, in which enclaves."""
        answered, signed = Counter[str](), Counter[str]()
        for paid in self.walk.answers.values():
            answered[paid.llm] += 1
            signed[paid.llm] += paid.answer.signed is not None
        return [
            JudgeEvidence(
                judge, count, signed[judge], tuple(key for (name, _), key in sorted(self.keys.items()) if name == judge)
            )
            for judge, count in sorted(answered.items())
        ]

    @property
    def not_proven(self) -> tuple[str, ...]:
        """What this check leaves open, the models' words among it where they are not signed."""
        unsigned = [one.judge for one in self.judges if one.signed < one.answers]
        points = [UNSIGNED.format(judges=", ".join(unsigned))] if unsigned else []
        if self.keys:
            points.extend(SIGNED_LIMITS)
        if any(not key.enclave.status for key in self.keys.values()):
            points.append(f"that the quotes of the signing keys are Intel's: nothing checks them here ({INSTALL})")
        return (*self._open, *self.unchecked, *points, *NOT_PROVEN)

    @property
    def _open(self) -> list[str]:
        """What a node, or the evaluator's own books, would have to tell."""
        found = [OFFLINE] if self.posted is None else []
        if self.is_replaced:
            found.append(REPLACED.format(number=self.challenge.block.number))
        if self.plan.max_games is not None:
            found.append(f"that money and time allowed only {self.plan.max_games} games, as the plan says")
        if silent := len(self.walk.unanswered):
            found.append(f"that nobody answered the {silent} request{'s' if silent > 1 else ''} recorded as unanswered")
        by_default = is_by_default(self.walk.rulings)
        if by_default:
            found.append("that nobody decided about the result that waited, until the clock ruled")
        if any(ruling.kind != "default" for ruling in self.walk.rulings):
            found.append(
                "that a person made the recorded rulings, where no objection asks for them: they are not signed"
            )
        if self.walk.disputed is not None:
            found.append("that the draft had the recorded places: who objected signed its digest, not the places")
        if self.approvals:
            found.append("that the person who is named approved this result: approvals are not signed")
        elif not by_default and any(flag.severity == "review" for flag in self.walk.flags):
            found.append("that a person approved this result, which its flags ask for: no approval is recorded")
        return found


@dataclass(frozen=True, slots=True)
class JudgeEvidence:
    judge: str
    answers: int
    signed: int
    keys: tuple[SigningKey, ...]


async def check_trace(
    lines: Iterable[str],
    chain: ChainOfRecord | None = None,
    machine: Machine | None = None,
    quotes: Quotes | None = None,
) -> Checked:
    """Check every entry offline; with a chain also that this trace is the one that was posted.

    Submissions that were run are run again on `machine`; without one, on the engines that are found here.
    """
    recorded = Evidence(lines)
    _check_rules(recorded.get("header"))
    challenge, plan = _parsed(recorded)
    sources = TraceSources(recorded, machine or Machine(), quotes=quotes or Quotes())
    try:
        walked = await walk(challenge, plan, sources, no_listener)
        _check_forms(challenge, walked)
        _compare(recorded, challenge, plan, walked)
    except BadTrace:
        raise
    except ClaraError as bad:
        raise BadTrace(f"The recorded evidence cannot be replayed: {bad}", entry="evidence") from bad
    except _MISSHAPEN as bad:
        said = f"{type(bad).__name__}: {str(bad)[:200]}"
        raise BadTrace(
            f"The recorded evidence has another shape than it was given ({said}).", entry="evidence"
        ) from bad
    posted = await _check_chain(challenge, walked, recorded.digest, chain) if chain else None
    is_replaced = chain is not None and not await chain.blocks.is_canonical(challenge.block)
    return Checked(
        challenge,
        plan,
        walked,
        recorded.digest,
        recorded.count,
        posted,
        tuple(sources.unchecked),
        sources.keys,
        tuple(recorded.approvals),
        is_replaced,
    )


def _check_rules(header: object) -> None:
    """A trace of other rules is neither right nor forged to us: only the version that knows them can tell."""
    told = header if isinstance(header, dict) else {}
    rules = told.get("rules")
    if type(rules) is not int or rules != RULES:
        raise BadTrace(
            f"The trace was written by {str(told.get('software'))[:60]!r} under rules {str(rules)[:20]}; this version "
            f"walks by rules {RULES}. Its hashes hold together, nothing else was checked.",
            entry="header",
            remedy="Check it with the version that wrote it.",
        )


def _parsed(bodies: Mapping[str, object]) -> tuple[Challenge, EvaluationPlan]:
    for key in ("challenge", "plan"):
        if key not in bodies:
            raise BadTrace(f"The trace has no entry {key}.", entry=key)
    try:
        return CHALLENGE.read(bodies["challenge"]), PLAN.read(bodies["plan"])
    except ValueError as bad:
        raise BadTrace(f"The challenge or the plan cannot be read: {bad}", entry="challenge") from bad


def _check_forms(challenge: Challenge, walked: EvaluationResult) -> None:
    """Addresses, hashes and numbers that nothing is computed from have their form, too."""
    disputed, replaced, submissions = walked.disputed, challenge.replaced, challenge.submissions
    addresses = [challenge.poster, challenge.evaluator, challenge.token.address, challenge.identity_registry]
    addresses += [one.submitter for one in replaced] + [one.address for one in (disputed.places if disputed else ())]
    hashes = [challenge.block.hash, challenge.private_set_hash, *(ruling.of for ruling in walked.rulings)]
    hashes += [one.solution_hash for one in submissions] + [one.solution_hash for one in replaced]
    hashes += [disputed.of] if disputed else []
    amounts = [challenge.prize_pool, challenge.poster_bond, challenge.deadline, challenge.scoring_deadline]
    amounts += [challenge.max_participants, *(one.agent_id for one in submissions)]
    if not all(0 <= amount < 2**256 for amount in amounts):
        raise BadTrace("A number of the challenge is not one that the contract can hold.", entry="challenge")
    for text, form in [*((text, _ADDRESS) for text in addresses), *((text, _HASH) for text in hashes)]:
        if not form.fullmatch(text):
            raise BadTrace(f"{text[:80]!r} is not {_FORM_WORDS[form]}.", entry="evidence")


def _compare(recorded: Evidence, challenge: Challenge, plan: EvaluationPlan, walked: EvaluationResult) -> None:
    """Entry by entry, what was recorded against what comes out now; one of each is in memory."""
    count = 0
    for seq, (key, body) in enumerate(entries(challenge, plan, walked)):
        count += 1
        if seq >= recorded.count:
            continue
        told, said = recorded.at(seq)
        name = f"#{seq} {told}"
        if told.partition("/")[0] in _TAKEN and not _is_natural(said):
            raise BadTrace(f"Entry {name} has an integer below 0.", entry=name)
        if told != key:
            raise BadTrace(f"Entry {name} stands where {key} belongs.", entry=name)
        if not is_same(key, said, body):
            raise BadTrace(f"Entry {name} is not what its evidence gives.", entry=name)
    if recorded.count != count:
        raise BadTrace(f"The trace has {recorded.count} entries; its evidence gives {count}.", entry="end")


def _is_natural(value: object) -> bool:
    """Whether no integer in it is below 0."""
    if isinstance(value, dict):
        return all(map(_is_natural, value.values()))
    if isinstance(value, list):
        return all(map(_is_natural, value))
    return type(value) is not int or value >= 0


def is_same(key: str, recorded: object, computed: object) -> bool:
    """Whether an entry is what its evidence gives."""
    return _same(_told(key, recorded), _told(key, computed), _ESTIMATES if key == "ranking" else frozenset())


def _told(key: str, body: object) -> object:
    """All of an entry but the name of the version that wrote it: a later one may check it."""
    if key == "header" and isinstance(body, dict) and isinstance(body.get("software"), str):
        return {**body, "software": ""}
    return body


def _same(recorded: object, computed: object, estimates: frozenset[str], *, loose: bool = False) -> bool:
    """Equal, type by type; what stands under the names of `estimates` may differ in its last digits."""
    if isinstance(recorded, dict) and isinstance(computed, dict):
        return recorded.keys() == computed.keys() and all(
            _same(recorded[key], computed[key], estimates, loose=loose or key in estimates) for key in recorded
        )
    if isinstance(recorded, list) and isinstance(computed, list):
        return len(recorded) == len(computed) and all(
            _same(a, b, estimates, loose=loose) for a, b in zip(recorded, computed, strict=True)
        )
    if type(recorded) is not type(computed):
        return False
    if loose and isinstance(recorded, (int, float)) and isinstance(computed, (int, float)):
        return math.isclose(recorded, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(recorded == computed)


async def _check_facts(challenge: Challenge, posted: Posted | None, chain: ChainOfRecord) -> None:
    """The challenge as it was at its block; where a reorg replaced that block, what is frozen as it was at the post."""
    is_there = await chain.blocks.is_canonical(challenge.block)
    if not is_there and posted is None:
        raise BadTrace(f"Block {challenge.block.number} of the trace is not on this chain.", entry="challenge")
    block = challenge.block if is_there or posted is None else await chain.blocks.block_at(posted.block_number - 1)
    again = await chain.challenges.challenge_at(challenge.address, block)
    if not is_there:
        again = replace(
            again, block=challenge.block, status=challenge.status, score_posted_at=challenge.score_posted_at
        )
    if again != challenge:
        raise BadTrace(f"The chain tells other facts about the challenge at block {block.number}.", entry="challenge")


async def _check_chain(challenge: Challenge, walked: EvaluationResult, digest: str, chain: ChainOfRecord) -> Posted:
    """The chain's own facts against the trace, and the digest in the transaction that posted."""
    if chain.chain_id != challenge.chain_id:
        raise BadTrace(f"The node is on chain {chain.chain_id}, the trace on {challenge.chain_id}.", entry="challenge")
    posted = await chain.results.posted_by(challenge)
    await _check_facts(challenge, posted, chain)
    if posted is None:
        raise BadTrace("No scores are posted for this challenge.", entry="calldata", remedy="Check without --rpc.")
    try:
        said = read_calldata(posted.calldata)
    except BadInput as bad:
        raise BadTrace(
            f"The transaction {posted.tx_hash} does not call postScores itself, so it commits to no trace: {bad}",
            entry="digest",
        ) from bad
    if said.trace_digest != digest:
        shown = said.trace_digest or "none"
        raise BadTrace(
            f"The transaction {posted.tx_hash}, posted by the {posted.by}, commits to the trace {shown}; "
            f"this one is {digest}.",
            entry="digest",
        )
    if said.winners != walked.winners or not posted.calldata.startswith(walked.calldata):
        raise BadTrace("The posted winners are not those of the trace.", entry="winners")
    return posted
