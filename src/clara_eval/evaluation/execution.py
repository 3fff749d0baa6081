"""Run the submissions of a round, with its harness or only to compile or load them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clara_eval.config.eval_config import EXECUTED, EvalConfig, FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput
from clara_eval.core.tasks import gather_or_raise
from clara_eval.evaluation.harness import ChosenHarness
from clara_eval.harness import Executed, Harness, Language, Machine
from clara_eval.harness import HarnessSubmission as Program
from clara_eval.harness.model import language_of
from clara_eval.submissions import Solution

TRIES = 2
"""A machine that fails is tried once more; then it is said, and a person looks."""
_FACTS: dict[str, tuple[Language, ...]] = {
    "compiles": ("solidity",),
    "deploy_gas": ("solidity",),
    "bytecode_bytes": ("solidity",),
    "loads": ("javascript", "python"),
}
assert set(_FACTS) == set(EXECUTED), "every fact says of which languages it is"


class Executor(Protocol):
    async def executed(self, account: Address, harness: Harness | None, program: Program) -> Executed: ...


@dataclass(frozen=True, slots=True)
class Execution:
    chosen: ChosenHarness | None
    executed: Mapping[Address, Executed]

    @property
    def machine(self) -> dict[str, object]:
        """Versions and settings: equal for every submission that a machine ran."""
        return dict(next((one.machine for _, one in sorted(self.executed.items()) if one.machine), {}))

    @property
    def summaries(self) -> dict[Address, dict[str, object]]:
        return {account: one.summary() for account, one in self.executed.items()}


async def run_all(
    executor: Executor,
    chosen: ChosenHarness | None,
    config: EvalConfig,
    schema: FeatureSchema,
    solutions: Sequence[Solution],
    on_run: Callable[[int, int], None] = lambda _done, _total: None,
) -> Execution | None:
    """Run what is to be run; None if nothing is. `on_run` gets how many have run, of how many."""
    harness = chosen.harness if chosen else None
    programs = {
        s.submission.submitter: program_of(harness, config.language or s.language, schema, s.text) for s in solutions
    }
    wanted = {account: program for account, program in programs.items() if program is not None}
    if chosen is None and not wanted:
        return None
    done = 0

    async def run(account: Address, program: Program) -> Executed:
        nonlocal done
        executed = await executor.executed(account, harness, program)
        done += 1
        on_run(done, len(wanted))
        return executed

    found = await gather_or_raise(run(account, program) for account, program in wanted.items())
    return Execution(chosen, dict(zip(wanted, found, strict=True)))


def program_of(harness: Harness | None, language: str | None, schema: FeatureSchema, text: str) -> Program | None:
    """The submission as a program; None if nothing is asked of it that running tells."""
    if harness is not None:
        return Program(harness.language, text)
    try:
        known = language_of(language or "", "The language")
    except BadInput:
        return None
    asked = any(known in _FACTS.get(name, ()) for name in schema.names)
    return Program(known, text) if asked else None


async def run_here(machine: Machine, harness: Harness | None, program: Program) -> Executed:
    """Run it now, in a thread; a machine that fails is tried again."""
    for _ in range(TRIES):
        executed = await asyncio.to_thread(machine.run, harness, program)
        if executed.is_measured:
            break
    return executed
