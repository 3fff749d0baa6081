"""A shell for the commands of the docs, in which `clara-eval` starts at once: it is forked from a process that has it.

SIGUSR1 to the program kills the forked process (SIGKILL), as `kill -9` of a real one does.

`python -m tests.support.shell SOCKET` is that process; `Shell` starts it, and runs scripts in real bash.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[2]
CLIENT = """\
import json, os, signal, socket, struct, sys
line = socket.socket(socket.AF_UNIX)
line.connect({socket!r})
asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(line, [struct.pack("I", len(asked))], [0, 1, 2])
line.sendall(asked)
(pid,) = struct.unpack("i", line.recv(4))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda sent, _: os.kill(pid, sent))
signal.signal(signal.SIGUSR1, lambda *_: os.kill(pid, signal.SIGKILL))
sys.exit(struct.unpack("i", line.recv(4))[0])
"""


class Shell:
    """Bash with this checkout's programs and no settings."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.program = str(programs / "clara-eval")
        self.path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(self, script: str, place: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", script],
            cwd=place,
            env={"PATH": self.path, "HOME": str(place), **environ},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )


@contextmanager
def opened_shell(place: Path) -> Iterator[Shell]:
    """A shell whose programs live in `place`."""
    address = str(place / "line")
    (place / "client.py").write_text(CLIENT.format(socket=address), encoding="utf-8")
    client = place / "clara-eval"
    client.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{place}/client.py" "$@"\n', encoding="utf-8")
    client.chmod(0o755)
    words = [sys.executable, "-m", "tests.support.shell", address]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        try:
            yield Shell(place)
        finally:
            server.terminate()


def _serve(address: str) -> None:
    import eth_account  # noqa: F401 - commands that sign import it late, in half a second

    from clara_eval.core.version import code_version
    from clara_eval.interfaces.cli import COMMANDS, load

    code_version()  # it reads all of the code, once a process
    for entry in COMMANDS.values():
        if entry.target and not entry.target.startswith("clara_eval.redteam"):
            load(entry.target)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        line, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _attend(line)
        line.close()


def _attend(line: socket.socket) -> NoReturn:
    """Run one command as asked, and end it with the one who asked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(line, 4, 3)
    (length,) = struct.unpack("I", head)
    text = b""
    while len(text) < length:
        text += line.recv(length - len(text))
    argv, folder, environ = json.loads(text)
    pid = os.fork()
    if pid == 0:
        line.close()
        _run(argv, folder, environ, streams)
    for stream in streams:
        os.close(stream)
    line.sendall(struct.pack("i", pid))
    ended = os.pidfd_open(pid)
    while ended not in select.select([line.fileno(), ended], [], [])[0]:
        os.kill(pid, signal.SIGTERM)  # the client is gone
        select.select([ended], [], [])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):
        line.sendall(struct.pack("i", code if code >= 0 else 128 - code))
    os._exit(0)


def _run(argv: list[str], folder: str, environ: dict[str, str], streams: list[int]) -> NoReturn:
    from clara_eval.interfaces.cli import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = argv
    sys.modules["__main__"].__spec__ = None  # or usage errors name this module
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
