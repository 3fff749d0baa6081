"""Rehearse a config: compile it, try it on sample texts, and type every feature; nothing is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from clara_eval.actions.harness import run_public
from clara_eval.actions.quote import missing_model
from clara_eval.app import open_machine, open_reader
from clara_eval.config.eval_config import (
    EvalConfig,
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
from clara_eval.evaluation.features.extract import ReadingContext, SubmissionFacts, extract_features
from clara_eval.harness import Machine
from clara_eval.judge.comparison import describe
from clara_eval.judge.extraction import type_names
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

    @property
    def descriptions(self) -> dict[str, str]:
        """Each feature as the judge is told about it."""
        return {feature.name: describe(feature) for feature in self.schema.features}


async def rehearse(config: EvalConfig, texts: Mapping[str, str], settings: Settings, judges: str = "") -> Rehearsal:
    """Compile, type and read as an evaluation would; `judges` replace the operator's jury."""
    schema, untyped = compile_schema(config)
    typed_by: dict[str, str] = {}
    async with open_reader(settings, judges) as asker:
        if untyped and asker is not None:
            schema = with_types(schema, await type_names(asker, config, untyped))
            typed_by = dict.fromkeys(untyped, asker.name)
        with closing(open_machine(settings)) as machine:
            readings = {name: await _read(asker, machine, schema, config, name, text) for name, text in texts.items()}
    warnings = missing_model(config, judges or settings.judges)
    return Rehearsal(schema, typed_by, readings, typed_config(config, schema), warnings)


def typed_config(config: EvalConfig, schema: FeatureSchema) -> str:
    document = json.loads(config.canonical)
    document["features"] = [
        {
            key: value
            for key, value in feature.to_json().items()
            if feature.type in _ONLY_FOR.get(key, (feature.type,)) and value is not None and value != []
        }
        for feature in schema.features
    ]
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    again, untyped = compile_schema(parse_eval_config(text.encode()))
    if again != schema or untyped:
        raise BadInput("The typed config does not read back as the same schema.", remedy="Type the features by hand.")
    return text


async def _read(
    asker: StructuredLlm | None, machine: Machine, schema: FeatureSchema, config: EvalConfig, name: str, text: str
) -> SubmissionFacts:
    content = text.encode()
    digest = keccak_hex(content)
    submission = Submission(ZERO_ADDRESS, 0, name, digest, 0, 1)
    solution = Solution(
        submission, content, text, "text/plain", digest, sha256_hex(content), "content", True, config.language
    )
    harness, executed = await run_public(machine, config, schema, text)
    reading = ReadingContext(ZERO_ADDRESS, "0x" + "00" * 32, config.language, harness=harness)
    return await extract_features(asker, schema, solution, reading, executed)
