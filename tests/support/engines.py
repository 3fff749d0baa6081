"""Engines that tests share: a compiler loaded once, a Python engine compiled once, a machine that repeats no run."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fasteners import InterProcessLock

from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine, MissingEngine
from clara_eval.harness.model import RunLimits
from clara_eval.harness.solc import find_compiler

_SERVER = Path(__file__).with_name("solc_server.mjs")
_PROGRAM = """\
#!/bin/bash
if [ "$1" = --version ]; then echo "Version: {version}"; exit; fi
[ "$2" = --no-import-callback ] || exit 3
exec 3<>/dev/tcp/127.0.0.1/{port}
/bin/cat >&3
echo >&3
exec /bin/cat <&3
"""


@pytest.fixture(scope="session")
def solc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """A program that speaks like a native solc, for tests that are not about compiling; None without a compiler.

    The npm package takes half a second of the processor to load and a fiftieth of that to compile a small contract.
    """
    compiler = find_compiler(None)
    if compiler is None:
        yield None
        return
    command = [str(compiler.node), str(_SERVER), str(compiler.package)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        program = tmp_path_factory.mktemp("compiler") / "solc"
        program.write_text(_PROGRAM.format(**json.loads(server.stdout.readline())), encoding="utf-8")
        program.chmod(0o755)
        yield str(program)
        server.stdin.close()


class RememberingMachine(Machine):
    """Runs each program under each harness once: equal runs are equal, which the tests of the engines show."""

    def __init__(self, solc: str | None = None) -> None:
        super().__init__(solc=solc)
        self._known: dict[str, Executed] = {}

    def run(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits | None = None) -> Executed:
        self.require(submission.language)
        key = repr((harness, submission, limits))
        if key not in self._known:
            self._known[key] = super().run(harness, submission, limits)
        return self._known[key]


@pytest.fixture(scope="session")
def python_engine() -> None:
    """The Python engine, compiled for this machine where it was not yet: by one of all test workers."""
    machine = Machine()
    try:
        machine.require("python")
    except MissingEngine as missing:
        pytest.skip(str(missing))
    with InterProcessLock(Path(tempfile.gettempdir()) / f"clara-python-engine-{os.getuid()}.lock"):
        machine.run(None, HarnessSubmission("python", ""))
    machine.close()
