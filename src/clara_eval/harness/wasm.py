"""Run WebAssembly with fuel, a memory limit, a fixed clock and seeded randomness, and nothing else."""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from clara_eval.harness.model import RunLimits, RunOutcome

if TYPE_CHECKING:
    from wasmtime import Caller, Engine, FuncType, Memory, Module, Store, TrapCode

CLOCK_SECONDS = 1_767_225_600  # what every clock says, always
SEED = "clara-eval"
UNMETERED = 2**62
STACK_BYTES = 1024 * 1024
HOST_CALL_FUEL = 40_000  # for a call to the world outside: it takes time that the guest's own fuel does not count
HOST_BYTE_FUEL = 20
MAX_MESSAGE_BYTES = 1_048_576
LEAST_WRITE_BYTES = 16  # what a write counts as at least: a flood of empty lines takes time too
BADF, NOSYS = 8, 52  # what WASI answers: no such descriptor, and: that is not there
Ask = Callable[[str], str]
HostFunction = Callable[..., int | None]  # an import of a guest: it gets whoever calls, and numbers
T = TypeVar("T")


class Stopped(Exception):
    """A limit ended the instance; it cannot be used any more."""

    def __init__(self, outcome: RunOutcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


class LoadFailed(Exception):
    """The source is no module that can be loaded; the text says why."""


class Loaded(NamedTuple):
    """An interpreter, compiled for this machine."""

    engine: Engine
    module: Module


class Guest(ABC):
    """An instance with a source loaded: a store with limits and fuel, what it printed, and its own chance."""

    def __init__(self, loaded: Loaded, limits: RunLimits, ask: Ask | None) -> None:
        import wasmtime

        self._printed, self._output_left = bytearray(), limits.output_bytes
        self._ask, self._drawn = ask, 0
        self._store = wasmtime.Store(loaded.engine)
        self._store.set_limits(memory_size=limits.memory_bytes)
        self._store.set_fuel(UNMETERED)

    @property
    def fuel_left(self) -> int:
        found: int = self._store.get_fuel()
        return found

    def refuel(self, fuel: int) -> None:
        """Only while the guest waits: it reads its fuel anew when it goes on."""
        self._store.set_fuel(fuel)

    def pay(self, length: int = 0) -> None:
        """Fuel for one call of the host that moves this many bytes."""
        left = self.fuel_left - HOST_CALL_FUEL - HOST_BYTE_FUEL * length
        self._store.set_fuel(max(0, left))
        if left < 0:
            raise Stopped(RunOutcome.OUT_OF_FUEL)

    def log(self, part: bytes) -> None:
        self._printed += part
        self._output_left -= max(len(part), LEAST_WRITE_BYTES)
        if self._output_left < 0:
            raise Stopped(RunOutcome.TOO_MUCH_OUTPUT)

    @property
    def logs(self) -> list[str]:
        return self._printed.decode("utf-8", "replace").splitlines()

    def random(self, length: int) -> bytes:
        """Bytes that are the same in every run."""
        self.pay(length)
        found = bytearray()
        while len(found) < length:
            found += hashlib.sha256(f"{SEED}:{self._drawn}".encode()).digest()
            self._drawn += 1
        return bytes(found[:length])

    def asked(self, message: str) -> str:
        """What the other instance answers; only a harness has one to ask."""
        if self._ask is None:
            raise Stopped(RunOutcome.ILLEGAL_INSTRUCTION)
        return self._ask(message)

    @abstractmethod
    def exchange(self, message: str) -> str:
        """One message in, its answer out."""

    def close(self) -> None:
        """End the instance and free its memory, which its own imports would hold for ever."""
        self._store.close()


def npm_files(path: str) -> Iterator[Path]:
    places = [Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents]
    return (file for place in places if (file := place / "node_modules" / path).is_file())


def find_npm_file(path: str, sha256: str) -> Path | None:
    """A file of an npm package; one with other bytes is not it."""
    return next((file for file in npm_files(path) if _sha256(file, file.stat().st_mtime_ns) == sha256), None)


@lru_cache(maxsize=16)
def _sha256(file: Path, _changed: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def memory_of(caller: Caller) -> Memory:
    """The guest's own memory, to which every guest of ours gives this name."""
    return cast("Memory", caller["memory"])


def put(caller: Caller, at: int, raw: bytes) -> int:
    """Write to the guest's memory; 0, which is WASI's word for success."""
    memory_of(caller).write(caller, raw, at)
    return 0


def vectors_at(caller: Caller, at: int, count: int) -> list[tuple[int, int]]:
    """Places and lengths, as WASI lists them for reading and writing."""
    raw = bytes(memory_of(caller).read(caller, at, at + 8 * count))
    return [struct.unpack_from("<2I", raw, 8 * number) for number in range(count)]


def written(caller: Caller, vectors: int, count: int, at: int, take: Callable[[bytes], None]) -> int:
    """Hand over what the guest writes, part by part, and tell it how much that was."""
    parts = vectors_at(caller, vectors, count)
    for start, length in parts:
        take(bytes(memory_of(caller).read(caller, start, start + length)))
    return put(caller, at, struct.pack("<I", sum(length for _, length in parts)))


def instantiate(
    loaded: Loaded, store: Store, given: Mapping[str, HostFunction], before: Callable[[], None] = lambda: None
) -> Mapping[str, object]:
    """An instance; every import is defined: what is given, and for all others the answer that it is not there."""
    import wasmtime

    def call(function: HostFunction, caller: Caller, *args: int) -> int | None:
        before()
        return function(caller, *args)

    linker = wasmtime.Linker(loaded.engine)
    for wanted in loaded.module.imports:
        function = partial(call, given.get(wanted.name or "", lambda *_: NOSYS))
        kind = cast("FuncType", wanted.type)
        linker.define_func(wanted.module, wanted.name or "", kind, function, access_caller=True)
    return linker.instantiate(store, loaded.module).exports(store)


def compiled_file(cache: Path, name: str, sha256: str, stack_bytes: int = STACK_BYTES) -> Path:
    """Where a compiled module is kept: by its hash, the version of the compiler and the settings."""
    return cache / f"{name}-{sha256[:32]}-{version('wasmtime')}-{stack_bytes}.cwasm"


def is_own(file: Path) -> bool:
    """Compiled code is run as it is found: only a file that nobody else could have written is taken."""
    try:
        places = [file.lstat(), file.parent.lstat()]
    except OSError:
        return False
    return all(place.st_uid == os.getuid() and not place.st_mode & 0o022 for place in places)


def load(source: Path, kept: Path, stack_bytes: int = STACK_BYTES) -> Loaded:
    """Compile a module once for this machine; a folder that cannot be written only costs time."""
    import wasmtime
    from wasmtime import _ffi

    config = wasmtime.Config()
    config.consume_fuel = True
    config.max_wasm_stack = stack_bytes
    # One form of NaN on every processor; the binding has no word for it.
    _ffi.wasmtime_config_cranelift_nan_canonicalization_set(config.ptr(), True)
    config.wasm_threads = False
    config.wasm_relaxed_simd = False
    engine = wasmtime.Engine(config)
    if is_own(kept):
        return Loaded(engine, wasmtime.Module.deserialize_file(engine, str(kept)))
    module = wasmtime.Module(engine, source.read_bytes())
    with suppress(OSError):
        keep_file(kept, bytes(module.serialize()))
    return Loaded(engine, module)


def keep_file(file: Path, content: bytes) -> None:
    """Write a file that only this user can write, whole or not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
        part.write(content)
    Path(part.name).replace(file)


def guarded(call: Callable[[], T]) -> T:
    """Run guest code; a trap becomes `Stopped` with the name of its limit."""
    import wasmtime

    try:
        return call()
    except wasmtime.Trap as trap:
        codes: dict[TrapCode | None, RunOutcome] = {
            wasmtime.TrapCode.OUT_OF_FUEL: RunOutcome.OUT_OF_FUEL,
            wasmtime.TrapCode.STACK_OVERFLOW: RunOutcome.STACK_OVERFLOW,
        }
        raise Stopped(codes.get(trap.trap_code, RunOutcome.ILLEGAL_INSTRUCTION)) from None
    except wasmtime.WasmtimeError as bad:
        # An exception of a host function arrives as itself; what remains are errors of the guest.
        if "fuel" in str(bad):
            raise Stopped(RunOutcome.OUT_OF_FUEL) from None
        raise Stopped(RunOutcome.ILLEGAL_INSTRUCTION) from None
