"""Find the Solidity compiler, and keep its answers by the hash of sources, compiler and settings."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

from clara_eval.core.errors import ConfigError
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.harness.jobs import Compiled
from clara_eval.harness.solc import COMPILE_RULES, OUTPUTS, SOLC_SETTINGS, Compiler

KEPT_IN_MEMORY = 256
KEPT_ON_DISK = 4_096
REMEDY = "Run `npm install solc`, or set CLARA_SOLC to a solc binary."


def find_compiler(setting: str | None) -> Compiler | None:
    if setting:
        path = Path(setting).expanduser().resolve()
        if path.is_dir() and (path / "package.json").is_file():
            return _npm(path)
        if not path.is_file() or not os.access(path, os.X_OK):
            raise ConfigError(f"CLARA_SOLC={setting!r} is not a program.", remedy="Name a solc binary, or unset it.")
        return Compiler(native=str(path))
    places = [Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents]
    found = next((one for place in places if (one := place / "node_modules" / "solc" / "package.json").is_file()), None)
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
    """Answers of the compiler by what went in."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: OrderedDict[str, Compiled] = OrderedDict()

    @staticmethod
    def key(identity: str, submission: str, harness: str | None) -> str:
        return sha256_hex(plain_json([identity, COMPILE_RULES, SOLC_SETTINGS, OUTPUTS, submission, harness]).encode())

    def get(self, key: str) -> Compiled | None:
        found = self._memory.get(key) or self._read(key)
        if found is not None:
            self._keep(key, found)
        return found

    def put(self, key: str, answer: Compiled) -> None:
        self._keep(key, answer)
        if self._folder is not None:
            self._write(self._folder, key, answer)

    def _keep(self, key: str, answer: Compiled) -> None:
        self._memory[key] = answer
        self._memory.move_to_end(key)
        while len(self._memory) > KEPT_IN_MEMORY:
            self._memory.popitem(last=False)

    def _read(self, key: str) -> Compiled | None:
        if self._folder is None:
            return None
        try:
            found: Compiled = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None  # not there, or half written by somebody else: compile again
        return found

    def _write(self, folder: Path, key: str, answer: Compiled) -> None:
        """Best effort: a cache that cannot be written only costs time."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as part:
                part.write(json.dumps(answer))
            Path(part.name).replace(folder / f"{key}.json")
            _prune(folder)
        except OSError:
            return


def _prune(folder: Path) -> None:
    files = list(folder.glob("*.json"))
    if len(files) <= KEPT_ON_DISK:
        return
    files.sort(key=lambda one: one.stat().st_mtime)
    for old in files[: len(files) // 4]:
        old.unlink(missing_ok=True)
