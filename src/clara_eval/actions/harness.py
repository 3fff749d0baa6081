"""Run a submission under a harness, check and hide a harness, and look at the engines."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from clara_eval.actions.check_harness import HarnessCheck, check_harness
from clara_eval.app import open_machine
from clara_eval.code import guess_language
from clara_eval.config.eval_config import EvalConfig, FeatureSchema
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput
from clara_eval.evaluation.execution import program_of, run_here
from clara_eval.harness import (
    Executed,
    Harness,
    HarnessDocument,
    HarnessSubmission,
    Machine,
    hide,
    read_harness_document,
)
from clara_eval.harness.machine import look_at
from clara_eval.harness.model import LANGUAGES, NO_SEED, SUFFIXES, language_of

__all__ = [
    "NO_SEED",
    "Executed",
    "check_file",
    "engines",
    "hidden_harness",
    "is_document",
    "run_document",
    "run_file",
    "run_public",
]
MAX_FILE_BYTES = 1_048_576


def run_file(settings: Settings, harness: Path, submission: Path, *, seed: str, language: str) -> Executed:
    """Run a submission under a harness."""
    read = replace(_harness(harness, language), seed=seed)
    with closing(open_machine(settings)) as machine:
        return machine.run(read, HarnessSubmission(read.language, _text(submission)))


def check_file(settings: Settings, harness: Path, reference: Path, *, hidden: bool, language: str) -> HarnessCheck:
    """Run a harness on its reference solution, twice."""
    read, text = _harness(harness, language), _text(reference)
    with closing(open_machine(settings)) as machine:
        return check_harness(machine, read, text, is_hidden=is_document(harness) or hidden)


def run_document(executed: Executed) -> dict[str, object]:
    return {
        "outcome": executed.outcome.value,
        "detail": executed.detail,
        "features": executed.features,
        executed.unit: executed.used,
        "calls": [call.to_json() for call in executed.calls],
        "logs": list(executed.logs),
        "machine": dict(executed.machine),
    }


async def run_public(
    machine: Machine, config: EvalConfig, schema: FeatureSchema, text: str
) -> tuple[Harness | None, Executed | None]:
    """Run a text under the public harness of a config, as far as there is something to run."""
    spec = config.harness
    harness = Harness(spec.language, spec.source) if spec and spec.source is not None else None
    program = program_of(harness, config.language or guess_language(text), schema, text)
    return harness, await run_here(machine, harness, program) if program else None


def engines(settings: Settings) -> dict[str, dict[str, str]]:
    """Make every engine ready and run the smallest program on it: state, reason and remedy of each."""
    with closing(open_machine(settings)) as machine:
        return {language: asdict(look_at(machine, language)) for language in LANGUAGES}


def hidden_harness(file: Path, salt: str, language: str) -> HarnessDocument:
    """Read a harness document, or hide a source."""
    if not is_document(file):
        return hide(_harness(file, language), salt or None)
    if salt:
        raise BadInput(f"{file} has a salt already.", remedy="Leave out --salt.")
    return read_harness_document(_bytes(file))


def is_document(file: Path) -> bool:
    return file.suffix.lower() == ".json"


def _harness(file: Path, language: str) -> Harness:
    if is_document(file):
        return read_harness_document(_bytes(file)).harness
    name = language or SUFFIXES.get(file.suffix.lower(), "")
    if not name:
        raise BadInput(f"{file} does not say its language.", remedy="Name it .sol or .js, or give --language.")
    return Harness(language_of(name, "The language"), _text(file))


def _text(file: Path) -> str:
    try:
        return _bytes(file).decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text.", remedy="Save it as UTF-8.") from None


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as handle:
            return handle.read(MAX_FILE_BYTES)
    except OSError as bad:
        raise BadInput(f"{file} cannot be read: {bad.strerror or bad}.", remedy="Name a file.") from None
