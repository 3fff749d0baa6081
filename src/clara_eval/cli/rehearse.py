"""`clara-eval config rehearse`: what an evaluation will look at, before any money is escrowed.

A config file comes in. The schema is compiled as an evaluation would compile it, with the first model of the jury for
names that no catalogue knows; it is tried on sample files if asked, and written as a config in which every feature is
typed. Nothing is kept, and `--write` never overwrites a file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from clara_eval.app import open_reader
from clara_eval.challenge.model import Address, Submission
from clara_eval.cli.config_file import print_warning, read_config
from clara_eval.cli.options import ConfigFile, JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.quote import Judges
from clara_eval.cli.screen import console, safe
from clara_eval.errors import BadInput
from clara_eval.eval_config import EvalConfig, Feature, FeatureSchema, compile_schema, parse_eval_config, with_types
from clara_eval.features.extract import Reading, extract_features
from clara_eval.hashing import keccak_hex, sha256_hex
from clara_eval.judge.comparison import describe
from clara_eval.judge.port import Asker
from clara_eval.judge.typing import type_names
from clara_eval.settings import Settings
from clara_eval.solutions.model import Solution
from clara_eval.use_cases.model_needed import missing_model


def rehearse(
    file: ConfigFile,
    sample: Annotated[list[Path] | None, typer.Option(help="Read this file as a submission (repeat for more).")] = None,
    write: Annotated[Path | None, typer.Option(help="Write the fully typed config here.")] = None,
    judges: Judges = "",
    as_json: JsonFlag = False,
) -> None:
    """Compile the schema as an evaluation would, try it on samples, and freeze it as a fully typed config."""
    config = read_config(file, as_json=as_json)
    if write is not None and write.exists():
        raise _exists(write)  # before a model is paid for nothing
    schema, by_model, readings = asyncio.run(_rehearse(config, sample or [], judges))
    lacking = missing_model(config, judges or Settings.from_env().judges)
    frozen = frozen_config(config, schema)
    if write is not None:
        _write_new(write, frozen)
    if as_json:
        document: dict[str, Any] = {"file": str(file), **schema.to_json(), "typedBy": by_model, "readings": readings}
        warnings = [lacking] if lacking else []
        emit_json({**document, "written": None if write is None else str(write), "warnings": warnings})
        return
    _print_schema(schema, by_model, readings)
    print_warning(lacking)
    if write is not None:
        console(stderr=False).print(f"Wrote {safe(str(write))}.", soft_wrap=True)


def frozen_config(config: EvalConfig, schema: FeatureSchema) -> str:
    """The poster's document with every feature typed; reading it again gives this very schema."""
    document = json.loads(config.canonical)
    document["features"] = [_item(feature) for feature in schema.features]
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    again, untyped = compile_schema(parse_eval_config(text.encode()))
    if again != schema or untyped:
        raise BadInput("The typed config does not read back as the same schema.", remedy="Type the features by hand.")
    return text


def _item(feature: Feature) -> dict[str, Any]:
    """A feature as the config format writes it: only the keys that mean something for its type."""
    item: dict[str, Any] = {"name": feature.name, "type": feature.type}
    if feature.type in ("number", "integer"):
        item.update({key: getattr(feature, key) for key in ("min", "max") if getattr(feature, key) is not None})
    if feature.type == "enum":
        item["values"] = list(feature.values)
    if feature.type == "integer" and feature.anchors:
        item["anchors"] = list(feature.anchors)
    if feature.better is not None:
        item["better"] = feature.better
    return {**item, "weight": feature.weight, "source": feature.source, "description": feature.description}


async def _rehearse(
    config: EvalConfig, samples: Sequence[Path], judges: str
) -> tuple[FeatureSchema, dict[str, str], list[dict[str, Any]]]:

    schema, untyped = compile_schema(config)
    by_model: dict[str, str] = {}
    async with open_reader(Settings.from_env(), judges) as asker:
        if untyped and asker is not None:
            schema = with_types(schema, await type_names(asker, config, untyped))
            by_model = dict.fromkeys(untyped, asker.name)
        readings = [await _try_out(asker, schema, config, path) for path in samples]
    return schema, by_model, readings


async def _try_out(asker: Asker | None, schema: FeatureSchema, config: EvalConfig, path: Path) -> dict[str, Any]:
    solution = _as_solution(path, config.language)
    reading = Reading("0x" + "00" * 20, "0x" + "00" * 32, config.language)
    found = await extract_features(asker, schema, solution, reading)
    return {
        "file": str(path),
        "facts": found.vector.as_dict(),
        "texts": dict(found.text),
        "flags": [flag.sentence for flag in found.flags],
    }


def _as_solution(path: Path, language: str | None) -> Solution:
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise BadInput(f"{path} cannot be read as text: {type(bad).__name__}.", remedy="Name a UTF-8 file.") from None
    digest = keccak_hex(content)
    submission = Submission(Address("0x" + "00" * 20), 0, path.name, digest, 0, 1)
    return Solution(submission, content, text, "text/plain", digest, sha256_hex(content), "content", True, language)


def _exists(path: Path) -> BadInput:
    return BadInput(f"{path} exists already.", remedy="Choose another name, or remove it first.")


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", newline="\n") as out:
            out.write(text)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as bad:
        raise BadInput(f"{path} cannot be written: {bad.strerror or bad}.") from None


def _print_schema(schema: FeatureSchema, by_model: dict[str, str], readings: list[dict[str, Any]]) -> None:

    out = console(stderr=False)
    for feature in schema.features:
        typed_by = f"  (typed by {by_model[feature.name]})" if feature.name in by_model else ""
        out.print(describe(feature) + typed_by, markup=False, soft_wrap=True)
    for reading in readings:
        out.print(f"\n{reading['file']}", markup=False, soft_wrap=True)
        for name, value in reading["facts"].items():
            out.print(f"  {name:28} {value}", markup=False, soft_wrap=True)
        for flag in reading["flags"]:
            out.print(f"  flag: {safe(flag, 400)}", soft_wrap=True)
