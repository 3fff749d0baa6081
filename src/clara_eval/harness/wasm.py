"""Run WebAssembly with fuel, a memory limit, a fixed clock and seeded randomness, and nothing else."""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from clara_eval.harness.model import RunLimits, RunOutcome

if TYPE_CHECKING:
    from wasmtime import Caller, Engine, FuncType, Memory, Module, Store, TrapCode

CLOCK_SECONDS = 1_767_225_600  # the constant time of every clock
SEED = "clara-eval"
UNMETERED = 2**62
STACK_BYTES = 1024 * 1024
HOST_CALL_FUEL = 40_000  # per call of the host, whose time the guest's own fuel does not count
HOST_BYTE_FUEL = 20
MAX_MESSAGE_BYTES = 1_048_576
LEAST_WRITE_BYTES = 16  # minimum length that a write counts as, because empty lines take time too
BADF, NOSYS = 8, 52  # WASI errors: no such descriptor, not implemented
Ask = Callable[[str], str]
HostFunction = Callable[..., int | None]  # an import of a guest, called with the instance and numbers
T = TypeVar("T")


class Stopped(Exception):
    """A limit ended the instance; it cannot be used any more."""

    def __init__(self, outcome: RunOutcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


class LoadFailed(Exception):
    """The source cannot be loaded; the text says why."""


class Loaded(NamedTuple):
    """An interpreter, compiled for this machine."""

    engine: Engine
    module: Module


class Guest:
    """An instance with its limits, fuel, output and random numbers."""

    def __init__(self, loaded: Loaded, limits: RunLimits, ask: Ask | None = None) -> None:
        import wasmtime

        self._printed, self._output_left = bytearray(), limits.output_bytes
        self._ask, self._random_blocks = ask, 0
        self._store = wasmtime.Store(loaded.engine)
        self._store.set_limits(memory_size=limits.memory_bytes)
        self._store.set_fuel(UNMETERED)

    @property
    def fuel_left(self) -> int:
        return self._store.get_fuel()

    def refuel(self, fuel: int) -> None:
        """Set the fuel, only while the guest waits: it reads its fuel when it continues."""
        self._store.set_fuel(fuel)

    def charge(self, length: int = 0) -> None:
        """Charge fuel for one call of the host that moves this many bytes."""
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
        """Return pseudo-random bytes, in a sequence that every run repeats."""
        self.charge(length)
        found = bytearray()
        while len(found) < length:
            found += hashlib.sha256(f"{SEED}:{self._random_blocks}".encode()).digest()
            self._random_blocks += 1
        return bytes(found[:length])

    def ask(self, message: str) -> str:
        """Return the answer of the other instance; only a harness has one."""
        if self._ask is None:
            raise Stopped(RunOutcome.ILLEGAL_INSTRUCTION)
        return self._ask(message)

    def close(self) -> None:
        """End the instance and free its memory, which its own imports would keep alive."""
        self._store.close()


def npm_files(path: str) -> Iterator[Path]:
    places = [Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents]
    return (file for place in places if (file := place / "node_modules" / path).is_file())


def find_npm_file(path: str, sha256: str) -> Path | None:
    """Find the file of an npm package that has this hash."""
    return next((file for file in npm_files(path) if _sha256(file, file.stat().st_mtime_ns) == sha256), None)


@lru_cache(maxsize=16)
def _sha256(file: Path, _changed: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def memory_of(caller: Caller) -> Memory:
    """Return the guest's memory, which every engine exports under this name."""
    return cast("Memory", caller["memory"])


def write_memory(caller: Caller, at: int, raw: bytes) -> int:
    """Write to the guest's memory; return 0, WASI's code for success."""
    memory_of(caller).write(caller, raw, at)
    return 0


def read_vectors(caller: Caller, at: int, count: int) -> list[tuple[int, int]]:
    """Read a list of WASI vectors: addresses and lengths."""
    raw = bytes(memory_of(caller).read(caller, at, at + 8 * count))
    return [struct.unpack_from("<2I", raw, 8 * number) for number in range(count)]


def forward_write(caller: Caller, vectors: int, count: int, at: int, receive: Callable[[bytes], None]) -> int:
    """Pass on what the guest writes, part by part, and report the length to the guest."""
    parts = read_vectors(caller, vectors, count)
    for start, length in parts:
        receive(bytes(memory_of(caller).read(caller, start, start + length)))
    return write_memory(caller, at, struct.pack("<I", sum(length for _, length in parts)))


def instantiate(
    loaded: Loaded, store: Store, given: Mapping[str, HostFunction], before: Callable[[], None] = lambda: None
) -> Callable[[str], object]:
    """Create an instance with the given imports, others answering NOSYS; return its exports by name."""
    import wasmtime

    def call(function: HostFunction, caller: Caller, *args: int) -> int | None:
        before()
        return function(caller, *args)

    linker = wasmtime.Linker(loaded.engine)
    for wanted in loaded.module.imports:
        name, kind = wanted.name or "", cast("FuncType", wanted.type)
        function = partial(call, given.get(name, lambda *_: NOSYS))
        linker.define_func(wanted.module, name, kind, function, access_caller=True)
    linker.define_instance(store, "guest", linker.instantiate(store, loaded.module))
    return lru_cache(partial(linker.get, store, "guest"))  # listing all of hundreds of exports takes longer


def compiled_path(cache: Path, name: str, sha256: str, stack_bytes: int = STACK_BYTES) -> Path:
    """Return where a compiled module is cached: by its hash, the compiler version and the settings."""
    return cache / f"{name}-{sha256[:32]}-{version('wasmtime')}-{stack_bytes}.cwasm"


def is_private_file(file: Path) -> bool:
    """Return whether only this user can have written a file; cached code is run unchecked."""
    try:
        stats = [file.lstat(), file.parent.lstat()]
    except OSError:
        return False
    return all(stat.st_uid == os.getuid() and not stat.st_mode & 0o022 for stat in stats)


def load(source: Path, cached: Path, stack_bytes: int = STACK_BYTES) -> Loaded:
    """Load a module, compiled once for this machine; a cache that cannot be written only costs time."""
    import wasmtime
    from wasmtime import _ffi

    config = wasmtime.Config()
    config.consume_fuel = True
    config.max_wasm_stack = stack_bytes
    # One form of NaN on every processor; the binding has no setter for it.
    _ffi.wasmtime_config_cranelift_nan_canonicalization_set(config.ptr(), True)
    config.wasm_threads = False
    config.wasm_relaxed_simd = False
    config.macos_use_mach_ports = False  # a fork has no thread that would handle them
    engine = wasmtime.Engine(config)
    if is_private_file(cached):
        return Loaded(engine, wasmtime.Module.deserialize_file(engine, str(cached)))
    module = wasmtime.Module(engine, source.read_bytes())
    with suppress(OSError):
        write_private_file(cached, bytes(module.serialize()))
    return Loaded(engine, module)


def write_private_file(file: Path, content: bytes) -> None:
    """Write a file that only this user can write, atomically."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
        part.write(content)
    Path(part.name).replace(file)


def catch_traps(call: Callable[[], T]) -> T:
    """Run guest code; a trap becomes `Stopped` with its outcome."""
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
        # Exceptions of host functions are raised unchanged; these are errors of the guest.
        if "fuel" in str(bad):
            raise Stopped(RunOutcome.OUT_OF_FUEL) from None
        raise Stopped(RunOutcome.ILLEGAL_INSTRUCTION) from None
