"""The JSON messages between the product and its workers: a job in, an answer out, one a line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal, TypeAlias, TypedDict, cast

from clara_eval.harness.model import CallDocument, Kind, Language, RunLimits


class CompilerDocument(TypedDict):
    native: str | None
    node: str | None
    package: str | None
    seconds: float


class CompileJob(TypedDict):
    kind: Literal["compile"]
    compiler: CompilerDocument
    submission: str
    harness: str | None


class HarnessFunction(TypedDict):
    name: str
    kind: Kind
    selector: str
    returns: list[str]


class CompiledHarness(TypedDict):
    code: str
    functions: list[HarnessFunction]


class Compiled(TypedDict):
    outcome: str | None
    """None where all of it compiled."""
    detail: str
    compiler: str
    submission: str | None
    runtimeBytes: int
    harness: CompiledHarness | None


class LimitsDocument(TypedDict):
    source_bytes: int
    gas: int
    fuel: int
    memory_bytes: int
    output_bytes: int
    seconds: float


class EvmJob(TypedDict):
    kind: Literal["evm"]
    submission: str | None
    runtimeBytes: int
    harness: CompiledHarness | None
    limits: LimitsDocument


class EvmAnswer(TypedDict):
    deployGas: int | None
    calls: list[CallDocument]
    logs: list[str]


class PrepareJob(TypedDict):
    kind: Literal["prepare"]
    module: str
    cache: str


class ScriptJob(TypedDict):
    kind: Literal["script"]
    language: Language
    module: str
    cache: str
    harness: str | None
    submission: str
    seed: str
    limits: LimitsDocument


class ScriptAnswer(TypedDict):
    outcome: str | None
    """None where the functions say it."""
    detail: str
    loads: bool
    calls: list[CallDocument]
    logs: list[str]


def limits_document(limits: RunLimits) -> LimitsDocument:
    return cast("LimitsDocument", asdict(limits))


Job: TypeAlias = CompileJob | EvmJob | PrepareJob | ScriptJob
