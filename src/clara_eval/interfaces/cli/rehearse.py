"""`clara-eval config rehearse`: what an evaluation will look at, before any money is escrowed.

A config file comes in. The schema is compiled as an evaluation would compile it; it is tried on sample files if asked,
and written as a config in which every feature is typed. Nothing is kept, and `--write` never overwrites a file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from clara_eval.actions import rehearse as use_case
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli.config_file import exists_already, print_warning, read_config, write_new
from clara_eval.interfaces.cli.options import ConfigFile, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.quote import Judges
from clara_eval.interfaces.cli.screen import console, safe
from clara_eval.judge.comparison import describe


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
        raise exists_already(write)  # before a model is paid for nothing
    texts = {str(path): _text(path) for path in sample or []}
    found = asyncio.run(use_case.rehearse(config, texts, Settings.from_env(), judges))
    if write is not None:
        write_new(write, found.typed_config.encode())
    if as_json:
        emit_json(
            {
                "file": str(file),
                **found.schema.to_json(),
                "typedBy": found.typed_by,
                "readings": [
                    {
                        "file": name,
                        "facts": read.vector.as_dict(),
                        "texts": dict(read.text),
                        "flags": [flag.sentence for flag in read.flags],
                    }
                    for name, read in found.readings.items()
                ],
                "written": None if write is None else str(write),
                "warnings": found.warnings,
            }
        )
        return
    _print(found)
    if write is not None:
        console(stderr=False).print(f"Wrote {safe(str(write))}.", soft_wrap=True)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise BadInput(f"{path} cannot be read as text: {type(bad).__name__}.", remedy="Name a UTF-8 file.") from None


def _print(found: use_case.Rehearsal) -> None:
    out = console(stderr=False)
    for feature in found.schema.features:
        typed_by = f"  (typed by {found.typed_by[feature.name]})" if feature.name in found.typed_by else ""
        out.print(describe(feature) + typed_by, markup=False, soft_wrap=True)
    for name, read in found.readings.items():
        out.print(f"\n{name}", markup=False, soft_wrap=True)
        for feature_name, value in read.vector.as_dict().items():
            out.print(f"  {feature_name:28} {value}", markup=False, soft_wrap=True)
        for flag in read.flags:
            out.print(f"  flag: {safe(flag.sentence, 400)}", soft_wrap=True)
    for warning in found.warnings:
        print_warning(warning)
