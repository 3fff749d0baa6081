"""Measure a draft before it is submitted, on the caller's own machine; nothing is sent or kept."""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

import asyncio
from contextlib import closing

from clara_eval.actions.challenges import challenge_at
from clara_eval.actions.harness import run_public
from clara_eval.app import Caller, open_machine
from clara_eval.code import guess_language
from clara_eval.config.eval_config import EvalConfig, compile_schema, read_metadata
from clara_eval.core.errors import BadInput
from clara_eval.core.untrusted import Untrusted, fence
from clara_eval.documents.results import Document
from clara_eval.evaluation.features.features import executed_values
from clara_eval.evaluation.features.measured import measure
from clara_eval.harness import Machine


class TryResult(Document):
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
            "A draft is measured on your own machine, not by this server.", remedy="Run it at your own machine."
        )
    challenge = await challenge_at(caller, address)
    config = read_metadata(await caller.contents.fetch(challenge.challenge_uri), challenge.eval_config_hash).config
    with closing(open_machine(caller.settings)) as machine:
        return await measure_draft(machine, challenge.address, config, text)


async def measure_draft(machine: Machine, address: str, config: EvalConfig, text: str) -> TryResult:
    schema, _ = compile_schema(config)
    _, executed = await run_public(machine, config, schema, text)
    static = await asyncio.to_thread(measure, text, config.language or guess_language(text))
    values = {name: static[name] for name in schema.names if name in static} | executed_values(schema, executed)
    logs = "\n".join(executed.logs) if executed else ""
    return TryResult(
        challengeAddress=address,
        harness="none" if config.harness is None else "hidden" if config.harness.hidden else "public",
        outcome=executed.outcome.value if executed else None,
        detail=executed.detail if executed else "",
        features={one.name: values.get(one.name) for one in schema.features if one.source == "measured"},
        readByModel=[one.name for one in schema.features if one.source != "measured"],
        used=executed.used if executed else None,
        unit=executed.unit if executed else None,
        calls=[dict(call.to_json()) for call in executed.calls] if executed else [],
        logs=fence(logs, "the draft") if logs else None,
    )
