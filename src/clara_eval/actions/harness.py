"""Run a submission under a harness; check, hide and reveal a harness; check the engines."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from clara_eval.actions.amounts import show_moment
from clara_eval.actions.objections import send_to_service
from clara_eval.app import open_app, open_machine
from clara_eval.challenges.context import Ports
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.code import guess_language
from clara_eval.config.eval_config import EvalConfig, FeatureSchema, read_metadata
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, sign_text, signer_of
from clara_eval.core.errors import BadInput, ConfigError, NotYet
from clara_eval.core.syntax import Edit, edited, parse, walk
from clara_eval.documents.store_keys import harness_key
from clara_eval.evaluation.execution import ProgramSource, program_of, revealed_document, run_here
from clara_eval.evaluation.features.extract import executed_values
from clara_eval.evaluation.features.measured import measure
from clara_eval.harness import Executed, Harness, HarnessSubmission, Language, Machine, RunOutcome
from clara_eval.harness.machine import look_at
from clara_eval.harness.model import (
    LANGUAGES,
    MAX_DOCUMENT_BYTES,
    NO_SEED,
    SUFFIXES,
    HarnessDocument,
    feature_name,
    hide,
    language_of,
    read_harness_document,
)

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["NO_SEED", "Executed"]
MAX_FILE_BYTES = 1_048_576
_FUNCTIONS = frozenset({
    "function_definition", "modifier_definition", "fallback_receive_definition", "lambda",
    "arrow_function", "function_expression", "function_declaration", "method_definition",
    "generator_function", "generator_function_declaration",
})  # fmt: skip  # Syntax nodes of functions in the grammars of all languages; no type has two meanings.
NOTHING = ""
ANSWERS: dict[Language, dict[str, str]] = {
    "solidity": {"are all empty": NOTHING},
    "javascript": {
        "are all empty": NOTHING,
        "all give true": "true",
        "all give 0": "0",
        "all give []": "[]",
        "all give an object that agrees with everything": "new Proxy(function () {}, { get: () => () => true })",
    },
    "python": {
        "are all empty": NOTHING,
        "all give True": "True",
        "all give 0": "0",
        "all give []": "[]",
        "all give an object that agrees with everything": (
            "type('Yes', (), {'__contains__': lambda *_: True, '__eq__': lambda *_: True, '__len__': lambda _: 1, "
            "'__getattr__': lambda *_: lambda *_: True})()"
        ),
        "all end an iteration": "next(iter(()))",
    },
}  # What the functions of a submission without work return, by description; empty is no value.
_CONSTRUCTORS = frozenset({b"constructor", b"__init__", b"__new__"})
_DID_NOT_RUN = frozenset(
    {RunOutcome.INFRASTRUCTURE, RunOutcome.DOES_NOT_COMPILE, RunOutcome.DOES_NOT_LOAD, RunOutcome.DOES_NOT_FIT}
)
_NOT_A_TYPE_USE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\bimport\b[^;]*;|\bnew\s+Submission\b|\btype\s*\(\s*Submission\b", re.DOTALL
)
TYPED_BY_SUBMISSION = (
    "The harness calls the submission by types that the submission declares (`Submission it`): an answer may be"
    " signed or smaller than you think. Declare an interface in the harness and hold the submission as that:"
    " `Task it = Task(address(new Submission()));`."
)
REMEDY = "Check the result after the measured call, and revert or throw where it is wrong: then there is no number."
SEED_REMEDY = "Draw its inputs from `seed`, the second argument of the function, or hide the harness."
MEASURES_NOTHING = "The harness has no test_… and no metric_… function: it measures nothing."
OTHER_SEED = "0x" + "5e" * 32


def hollow_out(source: str, language: Language, answer: str = NOTHING) -> str | None:
    """Replace every function body by `answer`; None if the source does not parse."""
    parsed = parse(source.encode("utf-8", "replace"), language)
    if parsed is None or parsed.errors:
        return None
    edits: list[Edit] = []
    for node in (node for node, _ in walk(parsed.tree) if node.type in _FUNCTIONS):
        body, name = node.child_by_field_name("body"), node.child_by_field_name("name")
        if body is not None and (name is None or name.text not in _CONSTRUCTORS):
            edits.append((body.start_byte, body.end_byte, _hollow_body(node, body, language, answer)))
    return edited(parsed.source, edits)


def _hollow_body(function: Node, body: Node, language: Language, answer: str) -> str:
    if language == "python":
        return (answer or "None") if function.type == "lambda" else f"return {answer}"
    if function.type == "modifier_definition":
        return "{ _; }"
    if body.type not in {"function_body", "statement_block"}:
        return f"({answer or 'undefined'})"
    return f"{{ return {answer}; }}" if answer else "{}"


@dataclass(frozen=True, slots=True)
class HarnessCheck:
    executed: Executed
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()  # ways to be paid without doing the work, each with its remedy


def check_harness(machine: Machine, harness: Harness, reference: str, *, is_hidden: bool = False) -> HarnessCheck:
    """Check that the reference passes twice with equal numbers, and empty submissions earn nothing."""
    submission = HarnessSubmission(harness.language, reference)
    first, second = machine.run(harness, submission), machine.run(harness, submission)
    problems = tuple(_find_problems(first, second))
    if problems:
        return HarnessCheck(first, problems)
    warnings = [*_find_unearned(machine, harness, reference)]
    if harness.language == "solidity":
        if re.search(r"\bSubmission\b", _NOT_A_TYPE_USE.sub("", harness.source)):
            warnings.append(TYPED_BY_SUBMISSION)
    elif not is_hidden:
        # A metric whose value and cost do not change with the seed has a known input.
        other = machine.run(replace(harness, seed=OTHER_SEED), submission)
        warnings += [
            f"{call.name} has an input that everybody knows: a table of its answers costs no work. {SEED_REMEDY}"
            for call, reseeded in zip(first.calls, other.calls, strict=True)
            if call.kind == "metric" and call == reseeded
        ]
        if other.outcome != RunOutcome.PASSED:
            warnings.append(f"With another seed the reference does not pass: {other.outcome.value}.")
    return HarnessCheck(first, (), tuple(warnings))


def _find_unearned(machine: Machine, harness: Harness, reference: str) -> Iterator[str]:
    """Yield a warning for each metric or test that a submission without work passes."""
    seen: set[str] = set()
    for description, answer in ANSWERS[harness.language].items():
        source = hollow_out(reference, harness.language, answer)
        found = machine.run(harness, HarnessSubmission(harness.language, source)) if source is not None else None
        if found is None or found.outcome in _DID_NOT_RUN:
            if not answer:
                why = found.detail if found else "its reference cannot be read"
                yield f"Whether its metrics check what they measure could not be tried: {why}".rstrip(".") + "."
            continue
        for call in found.calls:
            if call.kind == "metric" and call.outcome == RunOutcome.PASSED and call.name not in seen:
                seen.add(call.name)
                yield f"{call.name} gives {call.value:,} to a submission whose functions {description}. {REMEDY}"
        tests = [call.outcome for call in found.calls if call.kind == "test"]
        if tests and set(tests) == {RunOutcome.PASSED} and "tests" not in seen:
            seen.add("tests")
            yield f"A submission whose functions {description} passes every test. Add one that it fails."


def _find_problems(first: Executed, second: Executed) -> list[str]:
    if not first.is_measured or not second.is_measured:
        return [f"The harness could not be run here: {first.detail or second.detail}"]
    found: list[str] = []
    if first.outcome != RunOutcome.PASSED:
        failed = [call.name for call in first.calls if call.outcome != RunOutcome.PASSED]
        names = f" ({', '.join(failed)})" if failed else ""
        found.append(f"The reference does not pass: {first.outcome.value}{names}. {first.detail}".strip())
    if first.to_json() != second.to_json():
        found.append("Two runs of the same reference gave different numbers.")
    functions = [call.name for call in first.calls if call.kind != "setUp"]
    if first.outcome == RunOutcome.PASSED and not functions:
        found.append(MEASURES_NOTHING)
    costs = [f"{first.unit}_{name.partition('_')[2]}" for name in functions]
    for name, count in Counter(feature_name(name) for name in (*functions, *costs)).items():
        if count > 1:
            found.append(f"Two functions would both be the feature {name}. Give them different names.")
    return found


def run_file(settings: Settings, harness: Path, submission: Path, *, seed: str, language: str) -> Executed:
    seeded = replace(_read_harness(harness, language), seed=seed)
    with closing(open_machine(settings)) as machine:
        found = machine.run(seeded, HarnessSubmission(seeded.language, _read_text(submission)))
    if found.outcome == RunOutcome.PASSED and all(call.kind == "setUp" for call in found.calls):
        raise BadInput(f"{harness}: {MEASURES_NOTHING}", remedy="Add a function test_… or metric_….")
    return found


def check_file(settings: Settings, harness: Path, reference: Path, *, hidden: bool, language: str) -> HarnessCheck:
    parsed, text = _read_harness(harness, language), _read_text(reference)
    with closing(open_machine(settings)) as machine:
        return check_harness(machine, parsed, text, is_hidden=is_document(harness) or hidden)


def starter_files(language: str) -> dict[str, bytes]:
    """Return a starter harness in this language and a solution that passes it, by file name."""
    known = language_of(language, "The language")
    ending = next(suffix for suffix, one in SUFFIXES.items() if one == known)
    folder = resources.files("clara_eval.harness").joinpath("starters")
    return {f"{name}{ending}": (folder / f"{name}{ending}.txt").read_bytes() for name in ("harness", "solution")}


def with_harness(config: bytes, file: Path | None) -> bytes:
    """Return the config with its harness replaced by this source or hidden document."""
    if file is None:
        return config
    harness = _read_harness(file, "")
    changed = json.loads(config) | {"harness": {"language": harness.language, "source": harness.source}}
    return json.dumps(changed, ensure_ascii=False).encode()


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


async def measure_public(
    machine: Machine, config: EvalConfig, schema: FeatureSchema, text: str, source: ProgramSource | None = None
) -> tuple[Executed | None, dict[str, bool | int | float | str | None]]:
    """Run and measure a text, or the source of an archive, under the public harness of a config."""
    spec, language = config.harness, config.language or guess_language(text)
    harness = Harness(spec.language, spec.source) if spec and spec.source is not None else None
    program = program_of(harness, language, schema, source or (lambda _: text))
    executed = await run_here(machine, harness, program) if program else None
    return executed, {**await asyncio.to_thread(measure, text, language), **executed_values(schema, executed)}


def engines(settings: Settings) -> dict[str, dict[str, str]]:
    """Run a minimal program on every engine; return state, reason and remedy by language."""
    with closing(open_machine(settings)) as machine:
        return {language: asdict(look_at(machine, language)) for language in LANGUAGES}


def hidden_harness(file: Path, salt: str, language: str) -> HarnessDocument:
    if not is_document(file):
        return hide(_read_harness(file, language), salt or None)
    if salt:
        raise BadInput(f"{file} has a salt already.", remedy="Leave out --salt.")
    return read_harness_document(_read_bytes(file))


def is_document(file: Path) -> bool:
    return file.suffix.lower() == ".json"


def _read_harness(file: Path, language: str) -> Harness:
    if is_document(file):
        return read_harness_document(_read_bytes(file)).harness
    name = language or SUFFIXES.get(file.suffix.lower(), "")
    if not name:
        raise BadInput(f"{file} does not say its language.", remedy="Name it .py, .js or .sol, or give --language.")
    return Harness(language_of(name, "The language"), _read_text(file))


def _read_text(file: Path) -> str:
    try:
        return _read_bytes(file).decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text.", remedy="Save it as UTF-8.") from None


def _read_bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as handle:
            content = handle.read(MAX_FILE_BYTES + 1)
    except OSError as bad:
        raise BadInput(f"{file} cannot be read: {bad.strerror or bad}.", remedy="Name a file.") from None
    if len(content) > MAX_FILE_BYTES:
        raise BadInput(f"{file} has more than {MAX_FILE_BYTES:,} bytes.", remedy="Name a shorter file.")
    return content


def reveal_message(chain_id: int, address: str, private_set_hash: str) -> str:
    """Return the EIP-191 text that the poster signs."""
    return (
        f"Clara Eval: reveal the harness\nchain: {chain_id}\nchallenge: {address}\nprivateSetHash: {private_set_hash}"
    )


async def reveal_harness(ports: Ports, address: Address, document: str, signature: str) -> str:
    """Store the harness that this challenge committed to, and return its hash."""
    challenge = await look_at_challenge(ports.chain, address)
    if challenge.block.timestamp < challenge.deadline:
        raise NotYet(
            f"Submissions to {address} are open until {show_moment(challenge.deadline)}; "
            "a harness revealed now would be no secret.",
            remedy="Reveal it after the deadline.",
        )
    if len(document.encode()) > MAX_DOCUMENT_BYTES:
        raise BadInput(f"The harness document is larger than {MAX_DOCUMENT_BYTES:,} bytes.", path="document")
    message = reveal_message(challenge.chain_id, challenge.address, challenge.private_set_hash.lower())
    if signer_of(message, signature) != challenge.poster:
        raise BadInput(
            "The reveal is not signed by the poster of the challenge.",
            path="signature",
            remedy=f"Sign with the key of {challenge.poster}: `clara-eval harness reveal`.",
        )
    fetched = await ports.fetch.fetch(challenge.challenge_uri)
    spec = read_metadata(fetched.content, challenge.eval_config_hash).config.harness
    if spec is None or not spec.hidden:
        raise BadInput(f"The config of {address} has no hidden harness.", remedy="There is nothing to reveal.")
    found = revealed_document(document.encode(), challenge.private_set_hash, spec)
    await ports.store.put(challenge.chain_id, harness_key(address), document)
    return found.private_set_hash


async def reveal_document(settings: Settings, address: Address, document: HarnessDocument) -> None:
    """Sign with the wallet key, and reveal to the service of CLARA_API_URL or to the local store."""
    if settings.wallet_key is None:
        raise ConfigError("A reveal is signed by the poster.", remedy="Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE.")
    message = reveal_message(settings.network.chain_id, address, document.private_set_hash)
    text, signature = document.content.decode(), sign_text(settings.wallet_key, message)
    if settings.api_url is None:
        async with open_app(settings) as app:
            await reveal_harness(app, address, text, signature)
    else:
        body = {"document": text, "signature": signature}
        await send_to_service(settings.api_url, address, "harness", body, "reveal")
