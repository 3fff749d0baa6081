"""Run the submissions of a round: with its harness, or only to compile or load them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from clara_eval.config.eval_config import EXECUTED, EvalConfig, FeatureSchema, HarnessSpec
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadInput, CannotPublish
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import HarnessLanguage
from clara_eval.core.tasks import gather_or_raise
from clara_eval.evaluation.round import ProgressListener, Round
from clara_eval.harness import Executed, Harness, Machine
from clara_eval.harness import HarnessSubmission as Program
from clara_eval.harness.model import HarnessDocument, ProgramText, language_of, read_harness_document
from clara_eval.submissions.model import Solution

ProgramSource: TypeAlias = Callable[[str], ProgramText]  # the program text of a submission by language
WITHHELD = "The poster committed to a hidden harness and did not reveal it in time."


@dataclass(frozen=True, slots=True)
class Reveal:
    """The revealed harness document as base64; None if the poster did not reveal it in time."""

    content: str | None


@dataclass(frozen=True, slots=True)
class ChosenHarness:
    kind: Literal["public", "revealed", "none"]
    harness: Harness | None
    reason: str
    reveal: Reveal | None = None

    @property
    def is_withheld(self) -> bool:
        return self.reveal is not None and self.reveal.content is None


REVEAL = JsonCodec(Reveal)


def revealed_document(content: bytes, private_set_hash: str, spec: HarnessSpec) -> HarnessDocument:
    """Read the revealed document; BadInput if it is not the committed one."""
    document = read_harness_document(content)
    committed = private_set_hash.lower()
    if document.private_set_hash != committed:
        problem = f"This harness hashes to {document.private_set_hash}; the challenge committed to {committed}."
        raise BadInput(problem, remedy="Reveal exactly the document that was hashed, with its salt.")
    if document.harness.language != spec.language:
        raise BadInput(f"The harness is in {document.harness.language}, the config says {spec.language}.")
    return document


def choose_harness(given: Round, reveal: Reveal | None) -> ChosenHarness | None:
    """Choose the harness, None without one; CannotPublish if it is withheld and the config says `fail`."""
    spec = given.config.harness
    if spec is None:
        return None
    # Seeds the inputs of the harness: unknown before the deadline, public after it.
    seed = keccak_hex(f"clara-eval harness seed {given.name.lower()} {given.beacon.lower()}".encode())
    public = Harness(spec.language, spec.source, seed) if spec.source is not None else None
    if not spec.hidden:
        return ChosenHarness("public", public, "The config holds the harness.")
    if reveal is not None and reveal.content is not None:
        document = revealed_document(base64.b64decode(reveal.content), given.private_set_hash, spec)
        harness = replace(document.harness, seed=seed)
        return ChosenHarness("revealed", harness, "The poster revealed the hidden harness.", reveal)
    if spec.if_not_revealed == "fail":
        why = f"The hidden harness of {given.name} was not revealed in time, and the config says: fail."
        raise CannotPublish(why, remedy="The poster may post scores; after scoringDeadline anybody may call expire().")
    reason = "The hidden harness was not revealed in time."
    return ChosenHarness("public" if public else "none", public, reason, reveal or Reveal(None))


MAX_RUNS = 2  # runs on a failing machine before the entry is flagged for review
_FACT_LANGUAGES: dict[str, tuple[HarnessLanguage, ...]] = {
    "compiles": ("solidity",),
    "deploy_gas": ("solidity",),
    "bytecode_bytes": ("solidity",),
    "loads": ("javascript", "python"),
}
assert set(_FACT_LANGUAGES) == set(EXECUTED), "every fact says of which languages it is"


@dataclass(frozen=True, slots=True)
class Execution:
    chosen: ChosenHarness | None
    executed: Mapping[Address, Executed]


async def run_all(
    execute: Callable[[Address, Harness | None, Program], Awaitable[Executed]],
    chosen: ChosenHarness | None,
    config: EvalConfig,
    schema: FeatureSchema,
    solutions: Sequence[Solution],
    listener: ProgressListener,
) -> Execution | None:
    """Run all submissions that the harness or the features need; None if there is nothing to run."""
    harness = chosen.harness if chosen else None
    wanted: dict[Address, Program] = {}
    for one in solutions:
        if program := program_of(harness, config.language or one.language, schema, one.program):
            wanted[one.submission.submitter] = program
    if chosen is None and not wanted:
        return None
    executed: dict[Address, Executed] = {}

    async def run(account: Address, program: Program) -> None:
        executed[account] = await execute(account, harness, program)
        listener("executing", len(executed), len(wanted))

    await gather_or_raise(run(account, program) for account, program in wanted.items())
    return Execution(chosen, {account: executed[account] for account in wanted})


def program_of(
    harness: Harness | None, language: str | None, schema: FeatureSchema, source: ProgramSource
) -> Program | None:
    """Return the program to run; None if no harness and no feature needs a run."""
    if harness is not None:
        return Program(harness.language, source(harness.language))
    try:
        runnable = language_of(language or "", "The language")
    except BadInput:
        return None
    asked = any(runnable in _FACT_LANGUAGES.get(name, ()) for name in schema.names)
    return Program(runnable, source(runnable)) if asked else None


async def run_here(machine: Machine, harness: Harness | None, program: Program) -> Executed:
    """Run the program in a thread; try again if the machine fails."""
    for _ in range(MAX_RUNS):
        executed = await asyncio.to_thread(machine.run, harness, program)
        if executed.is_measured:
            break
    return executed
