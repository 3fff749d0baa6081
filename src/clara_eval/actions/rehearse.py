"""Rehearse a config: what an evaluation will look at, before any money is escrowed.

In: a config, and texts to read as if they were submissions. Out: the schema as an evaluation would compile it, with the
first model of the jury for names that no catalogue knows; what is read in each text; and the config with every feature
typed. Nothing is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from clara_eval.actions.model_needed import missing_model
from clara_eval.app import open_machine, open_reader
from clara_eval.code.language import guess_language
from clara_eval.config.eval_config import (
    EvalConfig,
    Feature,
    FeatureSchema,
    compile_schema,
    parse_eval_config,
    with_types,
)
from clara_eval.config.settings import Settings
from clara_eval.core.address import ZERO_ADDRESS
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex, sha256_hex
from clara_eval.core.submission import Submission
from clara_eval.evaluation.execution import program_of, run_here
from clara_eval.evaluation.features.extract import ReadingContext, extract_features
from clara_eval.evaluation.features.features import SubmissionFacts
from clara_eval.harness import Harness, Machine
from clara_eval.judge.feature_types import type_names
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.submissions.model import Solution

_ONLY_FOR = {"min": ("number", "integer"), "max": ("number", "integer"), "values": ("enum",), "anchors": ("integer",)}


@dataclass(frozen=True, slots=True)
class Rehearsal:
    schema: FeatureSchema
    typed_by: dict[str, str]
    """The model that typed a feature, by the feature's name."""
    readings: dict[str, SubmissionFacts]
    """What was read in each text."""
    typed_config: str
    """The poster's document with every feature typed; reading it again gives this very schema."""
    warnings: list[str]


async def rehearse(config: EvalConfig, texts: Mapping[str, str], settings: Settings, judges: str = "") -> Rehearsal:
    """Compile, type and read as an evaluation would; `judges` in the place of the operator's jury."""
    schema, untyped = compile_schema(config)
    typed_by: dict[str, str] = {}
    async with open_reader(settings, judges) as asker:
        if untyped and asker is not None:
            schema = with_types(schema, await type_names(asker, config, untyped))
            typed_by = dict.fromkeys(untyped, asker.name)
        with closing(open_machine(settings)) as machine:
            readings = {name: await _read(asker, machine, schema, config, name, text) for name, text in texts.items()}
    lacking = missing_model(config, judges or settings.judges)
    return Rehearsal(schema, typed_by, readings, typed_config(config, schema), [lacking] if lacking else [])


def typed_config(config: EvalConfig, schema: FeatureSchema) -> str:
    """The poster's document with every feature typed."""
    document = json.loads(config.canonical)
    document["features"] = [_item(feature) for feature in schema.features]
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    again, untyped = compile_schema(parse_eval_config(text.encode()))
    if again != schema or untyped:
        raise BadInput("The typed config does not read back as the same schema.", remedy="Type the features by hand.")
    return text


def _item(feature: Feature) -> dict[str, object]:
    """A feature as the config format writes it: only the keys that mean something for its type."""
    return {
        key: value
        for key, value in feature.to_json().items()
        if feature.type in _ONLY_FOR.get(key, (feature.type,)) and value is not None and value != []
    }


async def _read(
    asker: StructuredLlm | None, machine: Machine, schema: FeatureSchema, config: EvalConfig, name: str, text: str
) -> SubmissionFacts:
    """Measured, run under the public harness and, where there is a model, read."""
    content = text.encode()
    digest = keccak_hex(content)
    submission = Submission(ZERO_ADDRESS, 0, name, digest, 0, 1)
    solution = Solution(
        submission, content, text, "text/plain", digest, sha256_hex(content), "content", True, config.language
    )
    spec = config.harness
    harness = Harness(spec.language, spec.source) if spec and spec.source is not None else None
    program = program_of(harness, config.language or guess_language(text), schema, text)
    executed = await run_here(machine, harness, program) if program else None
    reading = ReadingContext(ZERO_ADDRESS, "0x" + "00" * 32, config.language, harness=harness)
    return await extract_features(asker, schema, solution, reading, executed)
