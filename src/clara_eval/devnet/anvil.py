"""Start anvil, a real EVM node, as a child process and end it.

Invariant: the node never outlives us: it is stopped on leaving the context and, on Linux, killed by the kernel when
this process dies in any other way. Its keys are public knowledge.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from clara_eval.core.errors import ConfigError, Temporary

LOCAL_CHAIN_ID = 31337
MNEMONIC = "test test test test test test test test test test test junk"
"""Anvil's well-known development phrase: everybody has these keys."""

_START_SECONDS = 30
_STOP_SECONDS = 5
_LISTENING = re.compile(rb"Listening on \S*?:(\d+)\s*$")
_PR_SET_PDEATHSIG = 1
_SCRIPTS = frozenset({".js", ".mjs", ".cjs", ".cmd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AnvilOptions:
    """How the node behaves; by default it mines each transaction at once, on a free port."""

    port: int = 0
    """0 lets the operating system choose."""
    accounts: int = 10
    """Funded development accounts of `MNEMONIC`."""
    chain_id: int = LOCAL_CHAIN_ID
    block_time: int | None = None
    """Seconds between blocks; None mines a block for each transaction."""
    first_block: int | None = None
    """Number of the first block; None is 0."""
    start_at: int | None = None
    """Timestamp of the first block; None is now."""
    load_state: Path | None = None
    dump_state: Path | None = None
    """Where the state is written when the node is stopped."""

    def arguments(self) -> list[str]:
        given: dict[str, object | None] = {
            "--port": self.port,
            "--accounts": self.accounts,
            "--chain-id": self.chain_id,
            "--mnemonic": MNEMONIC,
            "--block-time": self.block_time,
            "--number": self.first_block,
            "--timestamp": self.start_at,
            "--load-state": self.load_state,
            "--dump-state": self.dump_state,
        }
        return [part for name, value in given.items() if value is not None for part in (name, str(value))]


class Anvil:
    def __init__(self, options: AnvilOptions | None = None) -> None:
        self.options = options or AnvilOptions()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._cache: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    @property
    def rpc_url(self) -> str:
        if self._port == 0:
            raise ConfigError("The local node is not running.", remedy="Use it inside `async with Anvil() as node:`.")
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the node and wait until it listens."""
        binary = find_anvil()
        self._cache = tempfile.TemporaryDirectory(prefix="clara-anvil-")
        self._process = await asyncio.create_subprocess_exec(
            str(binary),
            *self.options.arguments(),
            "--cache-path",
            self._cache.name,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone: we decide when the node ends
            preexec_fn=_die_with_parent(),
        )
        try:
            self._port = await asyncio.wait_for(self._listening_port(self._process), _START_SECONDS)
        except BaseException as bad:
            await self.stop()
            if isinstance(bad, TimeoutError):
                raise Temporary(f"The local node did not start within {_START_SECONDS} seconds.") from None
            raise
        self._reader = asyncio.create_task(_drain(self._process))

    async def stop(self) -> None:
        """End the node; kill it if it does not end by itself."""
        process, self._process, self._port = self._process, None, 0
        if process is not None and process.returncode is None:
            await _end(process)
        if self._reader is not None:
            await self._reader
            self._reader = None
        if self._cache is not None:
            self._cache.cleanup()
            self._cache = None

    async def ended(self) -> int:
        """Wait until the node ends by itself; return its exit code."""
        if self._process is None:
            raise ConfigError("The local node is not running.", remedy="Start it first.")
        return await self._process.wait()

    async def _listening_port(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        said: list[str] = []
        async for line in process.stdout:
            found = _LISTENING.search(line)
            if found:
                return int(found.group(1))
            said.append(line.decode(errors="replace").strip())
        reason = " ".join(said)[-300:] or f"exit code {await process.wait()}"
        remedy = f"Is port {self.options.port} free? Use another one, or 0." if self.options.port else ""
        raise ConfigError(f"The local node did not start: {reason}.", remedy=remedy)


def find_anvil(near: Iterable[Path] | None = None) -> Path:
    """Find the node's own binary: in the nearest `node_modules` above these folders, else behind `anvil` on the PATH.

    Never npm's script, which would leave the node running when it is killed.
    """
    on_path = shutil.which("anvil")
    wrapped = Path(on_path).resolve() if on_path else None
    starts = [
        *((Path(__file__).resolve().parent, Path.cwd()) if near is None else near),
        *([wrapped] if wrapped else []),
    ]
    for folder in _node_modules(starts):
        binary = folder / "@foundry-rs" / f"anvil-{_platform_name()}" / "bin" / _file_name()
        if binary.is_file():
            return binary
    if on_path and wrapped and wrapped.suffix not in _SCRIPTS and ".bin" not in Path(on_path).parts:
        return Path(on_path)
    raise ConfigError("The local node (anvil) is not installed.", remedy=install_remedy(Path(__file__).parents[3]))


def install_remedy(project: Path) -> str:
    """Say what installs the node: the Makefile in a clone, else npm."""
    alone = "Run `npm install @foundry-rs/anvil`."
    return f"Run `make setup` in {project}, or `npm install @foundry-rs/anvil`." if _is_clone(project) else alone


def _is_clone(project: Path) -> bool:
    return (project / "Makefile").is_file() and (project / "package.json").is_file()


def _node_modules(near: Iterable[Path]) -> Iterator[Path]:
    for start in near:
        for folder in (start, *start.parents):
            if (folder / "node_modules").is_dir():
                yield folder / "node_modules"


def _platform_name() -> str:
    machine = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    return f"{sys.platform}-{machine.get(platform.machine().lower(), platform.machine().lower())}"


def _file_name() -> str:
    return "anvil.exe" if sys.platform == "win32" else "anvil"


def _die_with_parent() -> Callable[[], None] | None:
    """Return what the child runs first: ask the kernel to kill it when its parent dies."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded before the fork: the child must not load anything
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the request was in place
            os._exit(1)

    return ask


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read and drop what the node prints: a full pipe would stop it."""
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass
