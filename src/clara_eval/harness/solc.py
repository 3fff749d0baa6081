"""Compile Solidity in a subprocess that gets nothing but the sources, and cache the results.

Invariant: no text of a submission is compiled with a harness. `CompilerBroke` is an outage, `TooHard` an outcome.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from clara_eval.core.errors import ConfigError
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.harness.model import Kind, RunOutcome, function_kind
from clara_eval.harness.solidity import EXPANSION_LIMITS, NAME, expansion_problem, link, stand_in
from clara_eval.harness.wasm import npm_files, write_private_file

EVM_VERSION = "cancun"
SOLC_SETTINGS: dict[str, object] = {
    "evmVersion": EVM_VERSION,
    "optimizer": {"enabled": True, "runs": 200},
    "viaIR": False,
    # No hash of the sources in the code: a comment must not change the cost of deployment.
    "metadata": {"appendCBOR": False, "bytecodeHash": "none"},
    "debug": {"revertStrings": "default"},
}
SUBMISSION_FILE = "Submission.sol"
HARNESS_FILE = "Harness.sol"
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
MEMORY_BYTES = 384 * 1024**2  # for the compiler itself; 88 kB of text with a thousand functions takes 60 MB
PROCESS_BYTES = 3 * 1024**3
NODE_HEAP_MEGABYTES = 1024
CPU_SECONDS = 30  # of processor time; ordinary text takes less than three
OUTPUTS = ["abi", "evm.bytecode.object", "evm.deployedBytecode.object", "evm.methodIdentifiers"]
_IMPORT_NOT_FOUND = "6275"
COMPILE_RULES: dict[str, object] = {  # how a submission is compiled, and its limits: part of the trace
    "harness": "apart",
    "memoryBytes": MEMORY_BYTES,
    "cpuSeconds": CPU_SECONDS,
    **EXPANSION_LIMITS,
}
SCOPE = f"A harness sees of a submission the contract {NAME} with its functions, structs and errors, and nothing else."
_OVERLOAD_SIGNALS = frozenset({signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSEGV, signal.SIGABRT})
"""Signals that end a compiler whose input is too much for it; the OOM killer sends another one."""
_RUNNER = Path(__file__).with_name("solc_runner.cjs")
KEPT_ON_DISK = 4_096
REMEDY = "Run `npm install solc`, or set CLARA_SOLC to a solc binary."


class Compiler(NamedTuple):
    """The compiler: a native binary, or node with the npm package."""

    native: str | None
    node: str | None = None
    package: str | None = None
    seconds: float = 120.0


class HarnessFunction(TypedDict):
    name: str
    kind: Kind
    selector: str
    returns: list[str]


class CompiledHarness(TypedDict):
    code: str
    functions: list[HarnessFunction]


class Compiled(TypedDict):
    outcome: str | None  # None if all of it compiled
    detail: str
    compiler: str
    submission: str | None
    runtimeBytes: int
    harness: CompiledHarness | None


class _DoesNotFit(Exception):
    """The harness cannot be compiled with this submission; the text says why."""


class CompilerBroke(Exception):
    """The compiler gave no result; the text says why."""


class TooHard(Exception):
    """The source made the compiler exceed its memory, processor time or output."""


def run_job(compiler: Sequence[Any], submission: str, harness: str | None) -> Compiled:
    try:
        return compile_solidity(Compiler(*compiler), submission, harness)
    except CompilerBroke as broke:
        return compile_result("", RunOutcome.INFRASTRUCTURE, str(broke))


def compile_solidity(compiler: Compiler, submission: str, harness: str | None) -> Compiled:
    if problem := expansion_problem(submission):
        return compile_result(_version(compiler), RunOutcome.DOES_NOT_COMPILE, problem)
    try:
        version, (alone,) = _compile(compiler, [_standard_input({SUBMISSION_FILE: submission})])
    except TooHard as hard:
        return compile_result(_version(compiler), RunOutcome.DOES_NOT_COMPILE, str(hard))
    found = compile_result(version)
    if wrong := _first_error(alone):
        missing = wrong.get("errorCode") == _IMPORT_NOT_FOUND
        outcome = RunOutcome.FORBIDDEN_IMPORT if missing else RunOutcome.DOES_NOT_COMPILE
        return {**found, "outcome": outcome.value, "detail": _error_line(wrong)}
    contracts = {name: one for name, one in alone.get("contracts", {}).get(SUBMISSION_FILE, {}).items() if _code(one)}
    named = contracts.get(NAME)
    # Without a contract of that name take the only one, or none if there are several.
    if chosen := named or (next(iter(contracts.values())) if len(contracts) == 1 else None):
        found["submission"] = _code(chosen)
        found["runtimeBytes"] = len(chosen["evm"]["deployedBytecode"]["object"]) // 2
    if harness is None:
        return found
    try:
        return {**found, "harness": _link_harness(compiler, named, harness)}
    except (_DoesNotFit, TooHard) as bad:
        return {**found, "outcome": RunOutcome.DOES_NOT_FIT.value, "detail": str(bad)}


def _link_harness(compiler: Compiler, submission: Mapping[str, Any] | None, harness: str) -> CompiledHarness:
    """Compile the harness with a stand-in, and put the submission's code in its place."""
    if submission is None:
        raise _DoesNotFit(f"There is no contract {NAME} that can be deployed: harnesses build `new {NAME}(…)`.")
    part, assembly = _compile_harness(compiler, stand_in(submission["abi"], harness), harness)
    whole = link(assembly, _code(submission))
    # The compiler can also assemble code from its own output `evm.legacyAssembly`.
    settings = {name: SOLC_SETTINGS[name] for name in ("evmVersion", "metadata")}
    settings |= {"experimental": True, "outputSelection": {"*": {"": ["evm.bytecode.object"]}}}
    inputs: list[dict[str, object]] = [
        {"language": "EVMAssembly", "sources": {"linked": {"assemblyJson": one}}, "settings": settings}
        for one in (assembly, whole)
    ]
    _, outputs = _compile(compiler, inputs)
    if wrong := next((problem for one in outputs if (problem := _first_error(one))), None):
        raise _DoesNotFit(f"The submission cannot be put into the harness: {wrong.get('message', '')}")
    reassembled, code = (one["contracts"]["linked"][""]["evm"]["bytecode"]["object"] for one in outputs)
    if reassembled != part["code"]:
        raise CompilerBroke("The compiler's assembler gives other code than the compiler.")
    return {**part, "code": code}


def compile_result(compiler: str, outcome: RunOutcome | None = None, detail: str = "") -> Compiled:
    value = outcome.value if outcome else None
    return Compiled(outcome=value, detail=detail, compiler=compiler, submission=None, runtimeBytes=0, harness=None)


def _standard_input(sources: Mapping[str, str]) -> dict[str, object]:
    selection = {"*": {"*": OUTPUTS}, HARNESS_FILE: {"": ["ast"], "*": [*OUTPUTS, "evm.legacyAssembly"]}}
    return {
        "language": "Solidity",
        "sources": {name: {"content": text} for name, text in sources.items()},
        "settings": {**SOLC_SETTINGS, "outputSelection": selection},
    }


@lru_cache(maxsize=1)
def _version(compiler: Compiler) -> str:
    return _compile(compiler, [])[0]


def _compile(compiler: Compiler, inputs: list[dict[str, object]]) -> tuple[str, list[dict[str, Any]]]:
    if compiler.native is not None:
        version = _plain_version(_run_program([compiler.native, "--version"], "", compiler.seconds))
        outputs: list[dict[str, Any]] = []
        for one in inputs:
            command = [compiler.native, "--standard-json", "--no-import-callback"]
            outputs.append(json.loads(_run_program(command, json.dumps(one), compiler.seconds)))
            if _first_error(outputs[-1]):
                break
        return version, outputs
    command = [str(compiler.node), f"--max-old-space-size={NODE_HEAP_MEGABYTES}", str(_RUNNER)]
    job = {"solc": compiler.package, "inputs": inputs, "memory": MEMORY_BYTES, "output": MAX_OUTPUT_BYTES}
    answer = json.loads(_run_program(command, json.dumps(job), compiler.seconds))
    return _plain_version(answer["version"]), answer["outputs"]


def _plain_version(text: str) -> str:
    """Extract `0.8.37+commit.1234abcd`, which all builds of a release have in common."""
    found = re.search(r"\d+\.\d+\.\d+\+commit\.[0-9a-f]{8}", text)
    if found is None:
        raise CompilerBroke("The compiler does not say its version.")
    return found.group()


def _run_program(command: list[str], text: str, seconds: float) -> str:
    """Run a program without environment, in an empty folder, with limits; return its standard output."""
    with tempfile.TemporaryDirectory(prefix="clara-solc-") as folder, tempfile.TemporaryFile() as out:
        try:
            done = subprocess.run(  # noqa: S603  # a fixed program; only its input is untrusted
                command,
                input=text.encode(),
                stdout=out,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                timeout=seconds,
                check=False,
                preexec_fn=_limit_child,  # the worker has one thread
            )
        except subprocess.TimeoutExpired:
            raise CompilerBroke(f"The compiler took longer than {seconds:g} s.") from None
        except OSError as bad:
            raise CompilerBroke(f"The compiler {command[0]} cannot be started: {bad.strerror}.") from None
        out.seek(0)
        content = out.read(MAX_OUTPUT_BYTES + 1)
    if -done.returncode in _OVERLOAD_SIGNALS or len(content) > MAX_OUTPUT_BYTES:
        raise TooHard(f"The compiler needs more than {CPU_SECONDS} s, too much memory or too much output for it.")
    if done.returncode != 0:
        raise CompilerBroke(f"The compiler ended with code {done.returncode} and {len(content):,} bytes.")
    return content.decode("utf-8", "replace")


def _limit_child() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (PROCESS_BYTES, PROCESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_OUTPUT_BYTES + 1, MAX_OUTPUT_BYTES + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _first_error(output: Mapping[str, Any]) -> dict[str, Any] | None:
    return next((one for one in output.get("errors", ()) if one.get("severity") == "error"), None)


def _error_line(problem: Mapping[str, Any]) -> str:
    place = problem.get("sourceLocation") or {}
    return f"{problem.get('type', 'Error')} in {place.get('file', '?')}: {problem.get('message', '')}"


def _code(contract: Mapping[str, Any]) -> str:
    """Return the creation code of a contract; empty if it is abstract or needs a linked library."""
    code: str = contract["evm"]["bytecode"]["object"]
    return code if re.fullmatch(r"(?:[0-9a-f]{2})+", code) else ""


@lru_cache(maxsize=8)
def _compile_harness(compiler: Compiler, stand_in: str, harness: str) -> tuple[CompiledHarness, Mapping[str, Any]]:
    """Compile a harness with a stand-in, and return it with its assembly; cached by stand-in."""
    _, (output,) = _compile(compiler, [_standard_input({SUBMISSION_FILE: stand_in, HARNESS_FILE: harness})])
    if wrong := _first_error(output):
        raise _DoesNotFit(f"{_error_line(wrong)} {SCOPE if wrong.get('type') == 'DeclarationError' else ''}".rstrip())
    contracts = output.get("contracts", {}).get(HARNESS_FILE, {})
    tree = output["sources"][HARNESS_FILE]["ast"]
    nodes = [node for node in tree.get("nodes", ()) if node.get("nodeType") == "ContractDefinition"]
    ids = {one["id"] for one in nodes}
    for one in nodes:
        if set(one["linearizedBaseContracts"]) - ids:
            remedy = f"Hold it in a variable: `{NAME} it = new {NAME}();`."
            raise _DoesNotFit(f"The harness's contract {one['name']} inherits from the submission. {remedy}")
    _refuse_runtime_code(tree)
    # Only functions that the harness file itself declares count, not inherited ones.
    own = {
        node["name"]: [one["name"] for one in node["nodes"] if one.get("nodeType") == "FunctionDefinition"]
        for node in nodes
    }
    with_functions = [name for name, names in own.items() if any(map(function_kind, names)) and name in contracts]
    chosen = "Harness" if "Harness" in with_functions else with_functions[0] if len(with_functions) == 1 else None
    if chosen is None:
        wanted = "one contract with setUp, test_… or metric_… functions, or one that is called Harness"
        raise _DoesNotFit(f"The harness does not have {wanted}.")
    contract = contracts[chosen]
    if not (code := _code(contract)):
        raise _DoesNotFit(f"The contract {chosen} cannot be deployed: it is abstract, or needs a linked library.")
    return {"code": code, "functions": _functions(contract, own[chosen])}, contract["evm"]["legacyAssembly"]


def _refuse_runtime_code(tree: Mapping[str, Any]) -> None:
    """Refuse `type(Submission).runtimeCode`, which would be the code of the stand-in."""
    waiting: list[object] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            asked = node.get("expression", {}) if node.get("memberName") == "runtimeCode" else {}
            if f"contract$_{NAME}_$" in asked.get("typeDescriptions", {}).get("typeIdentifier", ""):
                remedy = "Use creationCode, or the code of one that was built."
                raise _DoesNotFit(f"The harness asks for type({NAME}).runtimeCode. {remedy}")
        waiting += node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()


def _functions(contract: Mapping[str, Any], own: list[str]) -> list[HarnessFunction]:
    outputs = {one["name"]: one.get("outputs", []) for one in contract["abi"] if one["type"] == "function"}
    found: list[HarnessFunction] = []
    for name in sorted(set(own)):
        selector, kind = contract["evm"]["methodIdentifiers"].get(f"{name}()"), function_kind(name)
        if selector is not None and kind is not None:
            types = [one["type"] for one in outputs[name]]
            found.append({"name": name, "kind": kind, "selector": selector, "returns": types})
    return found


def find_compiler(setting: str | None) -> Compiler | None:
    if setting:
        path = Path(setting).expanduser().resolve()
        if path.is_dir() and (path / "package.json").is_file():
            return _npm_compiler(path)
        if not path.is_file() or not os.access(path, os.X_OK):
            raise ConfigError(f"CLARA_SOLC={setting!r} is not a program.", remedy="Name a solc binary, or unset it.")
        return Compiler(native=str(path))
    found = next(npm_files("solc/package.json"), None)
    return _npm_compiler(found.parent) if found else None


def _npm_compiler(package: Path) -> Compiler | None:
    node = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent))
    return Compiler(native=None, node=node, package=str(package.resolve())) if node else None


def compiler_identity(compiler: Compiler) -> str:
    """Return the hash of the compiler, which identifies it without running it."""
    path = Path(compiler.native) if compiler.native else Path(str(compiler.package)) / "soljson.js"
    with path.open("rb") as program:
        return hashlib.file_digest(program, "sha256").hexdigest()


class CompileCache:
    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @staticmethod
    def key(identity: str, submission: str, harness: str | None) -> str:
        return sha256_hex(plain_json([identity, COMPILE_RULES, SOLC_SETTINGS, OUTPUTS, submission, harness]).encode())

    def get(self, key: str) -> Compiled | None:
        found: Compiled | None = None
        with suppress(OSError, ValueError):  # missing or broken: compile again
            found = json.loads((self._folder / f"{key}.json").read_text("utf-8")) if self._folder else None
        return found

    def put(self, key: str, answer: Compiled) -> None:
        """Cache a result on disk; a cache that cannot be written only costs time."""
        if self._folder is None:
            return
        with suppress(OSError):
            write_private_file(self._folder / f"{key}.json", json.dumps(answer).encode())
            files = list(self._folder.glob("*.json"))
            if len(files) > KEPT_ON_DISK:
                for old in sorted(files, key=lambda one: one.stat().st_mtime)[: len(files) // 4]:
                    old.unlink(missing_ok=True)
