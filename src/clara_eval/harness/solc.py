"""Find the Solidity compiler, run it in a subprocess that gets nothing but the sources, and keep its answers.

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
from clara_eval.harness.solidity import MOST_COPIES, MOST_PARTS, NAME, linked, stand_in, too_much
from clara_eval.harness.wasm import keep_file, npm_files

EVM_VERSION = "cancun"
SOLC_SETTINGS: dict[str, object] = {
    "evmVersion": EVM_VERSION,
    "optimizer": {"enabled": True, "runs": 200},
    "viaIR": False,
    # No hash of the sources at the end of the code: a comment must not change what deploying costs.
    "metadata": {"appendCBOR": False, "bytecodeHash": "none"},
    "debug": {"revertStrings": "default"},
}
SUBMISSION_FILE = "Submission.sol"
HARNESS_FILE = "Harness.sol"
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
MEMORY_BYTES = 384 * 1024**2  # what the compiler itself may use; text of 88 kB with a thousand functions takes 60 MB
PROCESS_BYTES = 3 * 1024**3
NODE_HEAP_MEGABYTES = 1024
CPU_SECONDS = 30  # of the processor, not of the clock; ordinary text takes less than three
OUTPUTS = ["abi", "evm.bytecode.object", "evm.deployedBytecode.object", "evm.methodIdentifiers"]
_IMPORT_NOT_FOUND = "6275"
COMPILE_RULES: dict[str, object] = {  # how a submission is compiled, and what bounds it: part of the trace
    "harness": "apart",
    "memoryBytes": MEMORY_BYTES,
    "cpuSeconds": CPU_SECONDS,
    "parts": MOST_PARTS,
    "copies": MOST_COPIES,
}
SEEN = f"A harness sees of a submission the contract {NAME} with its functions, structs and errors, and nothing else."
_OWN_SIGNALS = frozenset({signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSEGV, signal.SIGABRT})
"""How a compiler ends whose input was too much for it; the system's own killer sends another one."""
_RUNNER = Path(__file__).with_name("solc_runner.cjs")
KEPT_ON_DISK = 4_096
REMEDY = "Run `npm install solc`, or set CLARA_SOLC to a solc binary."


class Compiler(NamedTuple):
    """Where the compiler is: a native binary, or node with the npm package."""

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
    outcome: str | None  # None where all of it compiled
    detail: str
    compiler: str
    submission: str | None
    runtimeBytes: int
    harness: CompiledHarness | None


class _DoesNotFit(Exception):
    """The harness cannot be made with this submission; the text says why."""


class CompilerBroke(Exception):
    """The compiler did not come to an answer; the text says how."""


class TooHard(Exception):
    """The text made the compiler pass a limit of memory, processor time or output: its own outcome."""


def answer(compiler: Sequence[Any], submission: str, harness: str | None) -> Compiled:
    try:
        return compile_solidity(Compiler(*compiler), submission, harness)
    except CompilerBroke as broke:
        return compiled("", RunOutcome.INFRASTRUCTURE, str(broke))


def compile_solidity(compiler: Compiler, submission: str, harness: str | None) -> Compiled:
    if problem := too_much(submission):
        return compiled(_version(compiler), RunOutcome.DOES_NOT_COMPILE, problem)
    try:
        version, (alone,) = _compile(compiler, [_standard_input({SUBMISSION_FILE: submission})])
    except TooHard as hard:
        return compiled(_version(compiler), RunOutcome.DOES_NOT_COMPILE, str(hard))
    found = compiled(version)
    if wrong := _first_error(alone):
        missing = wrong.get("errorCode") == _IMPORT_NOT_FOUND
        outcome = RunOutcome.FORBIDDEN_IMPORT if missing else RunOutcome.DOES_NOT_COMPILE
        return {**found, "outcome": outcome.value, "detail": _line(wrong)}
    contracts = {name: one for name, one in alone.get("contracts", {}).get(SUBMISSION_FILE, {}).items() if _code(one)}
    named = contracts.get(NAME)
    # Without that name it is the only contract there is; nothing if it is not clear which.
    if chosen := named or (next(iter(contracts.values())) if len(contracts) == 1 else None):
        found["submission"] = _code(chosen)
        found["runtimeBytes"] = len(chosen["evm"]["deployedBytecode"]["object"]) // 2
    if harness is None:
        return found
    try:
        return {**found, "harness": _with_harness(compiler, named, harness)}
    except (_DoesNotFit, TooHard) as bad:
        return {**found, "outcome": RunOutcome.DOES_NOT_FIT.value, "detail": str(bad)}


def _with_harness(compiler: Compiler, submission: Mapping[str, Any] | None, harness: str) -> CompiledHarness:
    """The harness, compiled with a stand-in of the submission, and the submission's code put in."""
    if submission is None:
        raise _DoesNotFit(f"There is no contract {NAME} that can be deployed: harnesses build `new {NAME}(…)`.")
    part, assembly = _harness_part(compiler, stand_in(submission["abi"], harness), harness)
    whole = linked(assembly, _code(submission))
    # The compiler's own assembler writes code from what the compiler gave as `evm.legacyAssembly`.
    settings = {name: SOLC_SETTINGS[name] for name in ("evmVersion", "metadata")}
    settings |= {"experimental": True, "outputSelection": {"*": {"": ["evm.bytecode.object"]}}}
    inputs: list[dict[str, object]] = [
        {"language": "EVMAssembly", "sources": {"linked": {"assemblyJson": one}}, "settings": settings}
        for one in (assembly, whole)
    ]
    _, outputs = _compile(compiler, inputs)
    if wrong := next((problem for one in outputs if (problem := _first_error(one))), None):
        raise _DoesNotFit(f"The submission cannot be put into the harness: {wrong.get('message', '')}")
    again, code = (one["contracts"]["linked"][""]["evm"]["bytecode"]["object"] for one in outputs)
    if again != part["code"]:
        raise CompilerBroke("The compiler's assembler gives other code than the compiler.")
    return {**part, "code": code}


def compiled(compiler: str, outcome: RunOutcome | None = None, detail: str = "") -> Compiled:
    told = outcome.value if outcome else None
    return Compiled(outcome=told, detail=detail, compiler=compiler, submission=None, runtimeBytes=0, harness=None)


def _standard_input(sources: Mapping[str, str]) -> dict[str, object]:
    selection = {"*": {"*": OUTPUTS}, HARNESS_FILE: {"": ["ast"], "*": [*OUTPUTS, "evm.legacyAssembly"]}}
    return {
        "language": "Solidity",
        "sources": {name: {"content": text} for name, text in sources.items()},
        "settings": {**SOLC_SETTINGS, "outputSelection": selection},
    }


def _version(compiler: Compiler) -> str:
    return _compile(compiler, [])[0]


def _compile(compiler: Compiler, inputs: list[dict[str, object]]) -> tuple[str, list[dict[str, Any]]]:
    if compiler.native is not None:
        version = _plain_version(_call([compiler.native, "--version"], "", compiler.seconds))
        outputs: list[dict[str, Any]] = []
        for one in inputs:
            command = [compiler.native, "--standard-json", "--no-import-callback"]
            outputs.append(json.loads(_call(command, json.dumps(one), compiler.seconds)))
            if _first_error(outputs[-1]):
                break
        return version, outputs
    command = [str(compiler.node), f"--max-old-space-size={NODE_HEAP_MEGABYTES}", str(_RUNNER)]
    job = {"solc": compiler.package, "inputs": inputs, "memory": MEMORY_BYTES, "output": MAX_OUTPUT_BYTES}
    answer = json.loads(_call(command, json.dumps(job), compiler.seconds))
    return _plain_version(answer["version"]), answer["outputs"]


def _plain_version(text: str) -> str:
    """`0.8.37+commit.1234abcd`, the same for every build of one release."""
    found = re.search(r"\d+\.\d+\.\d+\+commit\.[0-9a-f]{8}", text)
    if found is None:
        raise CompilerBroke("The compiler does not say its version.")
    return found.group()


def _call(command: list[str], text: str, seconds: float) -> str:
    """One run of a program with no environment, an empty working folder and limits; its standard output."""
    with tempfile.TemporaryDirectory(prefix="clara-solc-") as folder, tempfile.TemporaryFile() as out:
        try:
            done = subprocess.run(  # noqa: S603  # a fixed program; the hostile part is its input
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
    if -done.returncode in _OWN_SIGNALS or len(content) > MAX_OUTPUT_BYTES:
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


def _line(problem: Mapping[str, Any]) -> str:
    place = problem.get("sourceLocation") or {}
    return f"{problem.get('type', 'Error')} in {place.get('file', '?')}: {problem.get('message', '')}"


def _code(contract: Mapping[str, Any]) -> str:
    """Its creation code; empty if it is abstract or needs a linked library."""
    code: str = contract["evm"]["bytecode"]["object"]
    return code if re.fullmatch(r"(?:[0-9a-f]{2})+", code) else ""


@lru_cache(maxsize=8)
def _harness_part(compiler: Compiler, stand_in: str, harness: str) -> tuple[CompiledHarness, Mapping[str, Any]]:
    """A harness with a stand-in, and its assembly; once for all submissions with the functions that it names."""
    _, (output,) = _compile(compiler, [_standard_input({SUBMISSION_FILE: stand_in, HARNESS_FILE: harness})])
    if wrong := _first_error(output):
        raise _DoesNotFit(f"{_line(wrong)} {SEEN if wrong.get('type') == 'DeclarationError' else ''}".rstrip())
    contracts = output.get("contracts", {}).get(HARNESS_FILE, {})
    tree = output["sources"][HARNESS_FILE]["ast"]
    nodes = [node for node in tree.get("nodes", ()) if node.get("nodeType") == "ContractDefinition"]
    ids = {one["id"] for one in nodes}
    for one in nodes:
        if set(one["linearizedBaseContracts"]) - ids:
            remedy = f"Hold it in a variable: `{NAME} it = new {NAME}();`."
            raise _DoesNotFit(f"The harness's contract {one['name']} inherits from the submission. {remedy}")
    _refuse_running_code(tree)
    # What the harness file itself declares: functions that a submission brings along by inheritance do not count.
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


def _refuse_running_code(tree: Mapping[str, Any]) -> None:
    """`type(Submission).runtimeCode` would be that of the stand-in."""
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
            return _npm(path)
        if not path.is_file() or not os.access(path, os.X_OK):
            raise ConfigError(f"CLARA_SOLC={setting!r} is not a program.", remedy="Name a solc binary, or unset it.")
        return Compiler(native=str(path))
    found = next(npm_files("solc/package.json"), None)
    return _npm(found.parent) if found else None


def _npm(package: Path) -> Compiler | None:
    node = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent))
    return Compiler(native=None, node=node, package=str(package.resolve())) if node else None


def compiler_identity(compiler: Compiler) -> str:
    """What tells one compiler from another without asking it to compile: its bytes."""
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
        with suppress(OSError, ValueError):  # not there, or half written by somebody else: compile again
            found = json.loads((self._folder / f"{key}.json").read_text("utf-8")) if self._folder else None
        return found

    def put(self, key: str, answer: Compiled) -> None:
        """Keep an answer on disk by best effort: a cache that cannot be written only costs time."""
        if self._folder is None:
            return
        with suppress(OSError):
            keep_file(self._folder / f"{key}.json", json.dumps(answer).encode())
            files = list(self._folder.glob("*.json"))
            if len(files) > KEPT_ON_DISK:
                for old in sorted(files, key=lambda one: one.stat().st_mtime)[: len(files) // 4]:
                    old.unlink(missing_ok=True)
