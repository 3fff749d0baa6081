"""Rehearse a config: judge samples in a folder that is thrown away, and type every feature."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from clara_eval.actions.judge import Judged, JudgeRequest, judge_entries
from clara_eval.actions.quote import missing_model
from clara_eval.config.eval_config import EvalConfig, FeatureSchema, compile_schema, parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.evaluation.folder import account_of
from clara_eval.judge.comparison import describe
from clara_eval.judge.provider import models_of, parse_jury

_ONLY_FOR = {"min": ("number", "integer"), "max": ("number", "integer"), "values": ("enum",), "anchors": ("integer",)}


@dataclass(frozen=True, slots=True)
class Rehearsal:
    judged: Judged
    document: dict[str, object]  # what `--json` prints
    descriptions: list[str]  # each feature as the judge is told about it
    typed_config: str  # the poster's document with every feature typed; reading it again gives this very schema


async def rehearse(config: EvalConfig, request: JudgeRequest, settings: Settings) -> Rehearsal:
    """Judge the samples of a request, whose config may hold a harness that `config` hides; nothing is kept."""
    judges = request.judges or settings.judges
    with TemporaryDirectory(prefix="clara-rehearsal-") as folder:
        found = await judge_entries(replace(request, is_rehearsal=True), settings, Path(folder))
    result, warnings = found.result, missing_model(config, judges)
    typed_by = {name: models_of(parse_jury(judges))[0].text for name in result.typed_by_model}
    is_ranked = len(request.contents) > 1 and not warnings
    runs, readings = result.execution.executed if result.execution else {}, []
    for file in (one.id for one in request.contents):
        facts, run = result.features.get(account_of(file)), runs.get(account_of(file))
        readings.append(
            {
                "file": file,
                "facts": facts.vector.as_dict() if facts else {},
                "texts": dict(facts.text) if facts else {},
                "flags": [flag.sentence for flag in facts.flags] if facts else [],
                "tests": [call.to_json() for call in run.calls if call.kind != "setUp"] if run else [],
                "said": [*([run.detail] if run.detail else []), *run.logs] if run else [],
            }
        )
    document = {
        **result.schema.to_json(),
        "typedBy": typed_by,
        "readings": readings,
        "ranking": [to_camel_json(row) for row in found.ranking if is_ranked],
        "warnings": warnings,
    }
    told = {one.name: describe(one) for one in result.schema.features}
    lines = [text + (f"  (typed by {typed_by[name]})" if name in typed_by else "") for name, text in told.items()]
    return Rehearsal(found, document, lines, typed_config(config, result.schema))


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
