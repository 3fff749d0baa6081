"""Measure a draft before it is submitted: the challenge's public harness and every measured feature, on this machine.

In: a challenge and the draft's text. Out: what an evaluation would measure, feature by feature, and which features only
a model reads. Nothing is sent, nothing is kept, no wallet is needed. Only for callers at this machine: running a
stranger's code is the evaluator's business, not that of a server for everybody.
"""

from __future__ import annotations

import asyncio

from typing_extensions import TypedDict

from clara_eval.actions.challenges import challenge_at
from clara_eval.app import Caller, open_machine
from clara_eval.code import guess_language
from clara_eval.config.eval_config import EvalConfig, FeatureSchema, compile_schema, read_metadata
from clara_eval.core.errors import BadInput
from clara_eval.core.untrusted import Untrusted, fence
from clara_eval.evaluation.execution import program_of, run_here
from clara_eval.evaluation.features.executed import executed_values
from clara_eval.evaluation.features.measured import measure
from clara_eval.harness import Executed, Harness, Machine
from clara_eval.harness.model import Fact


class TryResult(TypedDict):
    challengeAddress: str
    harness: str
    """`public`, `none`, or `hidden`: then only the public part of it, if there is one, was run."""
    outcome: str | None
    """How the run ended; null where nothing was run."""
    detail: str
    features: dict[str, float | int | bool | str | None]
    """What would be measured, by the names of the config."""
    readByModel: list[str]
    """Features that no tool measures."""
    used: int | None
    unit: str | None
    calls: list[dict[str, object]]
    logs: Untrusted | None


async def try_draft(caller: Caller, address: str, text: str) -> TryResult:
    if not caller.is_local:
        raise BadInput(
            "A draft is measured on your own machine, not by this server.",
            remedy="Use challenge_try of a server at your own machine.",
        )
    challenge = await challenge_at(caller, address)
    config = read_metadata(await caller.contents.fetch(challenge.challenge_uri), challenge.eval_config_hash).config
    machine = open_machine(caller.settings)
    try:
        return await measure_draft(machine, challenge.address, config, text)
    finally:
        machine.close()


async def measure_draft(machine: Machine, address: str, config: EvalConfig, text: str) -> TryResult:
    schema, _ = compile_schema(config)
    spec = config.harness
    harness = Harness(spec.language, spec.source) if spec and spec.source is not None else None
    language = config.language or guess_language(text)
    program = program_of(harness, language, schema, text)
    executed = await run_here(machine, harness, program) if program else None
    static = await asyncio.to_thread(measure, text, language)
    values = {name: static[name] for name in schema.names if name in static} | executed_values(schema, executed)
    kind = "none" if spec is None else "hidden" if spec.hidden else "public"
    return _result(address, kind, schema, values, executed)


def _result(
    address: str, kind: str, schema: FeatureSchema, values: dict[str, Fact | str], executed: Executed | None
) -> TryResult:
    logs = "\n".join(executed.logs) if executed else ""
    return TryResult(
        challengeAddress=address,
        harness=kind,
        outcome=executed.outcome.value if executed else None,
        detail=executed.detail if executed else "",
        features={
            feature.name: values.get(feature.name) for feature in schema.features if feature.source == "measured"
        },
        readByModel=[feature.name for feature in schema.features if feature.source != "measured"],
        used=executed.used if executed else None,
        unit=executed.unit if executed else None,
        calls=[dict(call.to_json()) for call in executed.calls] if executed else [],
        logs=fence(logs, "the draft") if logs else None,
    )


def in_words(found: TryResult) -> str:
    """The result in a few lines."""
    lines = [f"Measured here for {found['challengeAddress']}, harness: {found['harness']}."]
    if found["outcome"]:
        lines.append(f"It ended as {found['outcome'].replace('_', ' ')}. {found['detail']}".rstrip())
    for name, value in found["features"].items():
        shown = "unknown" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        lines.append(f"  {name:28} {shown}")
    if found["readByModel"]:
        lines.append(f"Read by a model, not measured: {', '.join(found['readByModel'])}.")
    if found["harness"] == "hidden":
        lines.append("The hidden harness is run after the deadline; this says nothing about it.")
    if found["logs"]:
        lines.append(found["logs"]["text"])
    return "\n".join(lines)
