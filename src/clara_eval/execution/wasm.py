"""WebAssembly as a closed machine: fuel, a memory limit, a clock that stands still, seeded randomness, nothing else.

In come a compiled module and limits; out goes an instance with the few imports it is given. The same module and
messages use the same fuel on every machine: NaN has one form, and no import tells anything about the world outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from clara_eval.execution.model import Outcome

CLOCK_SECONDS = 1_767_225_600
"""What every clock says, always."""
SEED = "clara-eval"
UNMETERED = 2**62
STACK_BYTES = 1024 * 1024


class Stopped(Exception):
    """A limit ended the instance; it cannot be used any more."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


class Printed:
    """What an instance wrote, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.text = bytearray()

    def write(self, part: bytes) -> None:
        self.text += part
        if len(self.text) > self.limit:
            raise Stopped(Outcome.TOO_MUCH_OUTPUT)

    def lines(self) -> list[str]:
        return self.text.decode("utf-8", "replace").splitlines()


class Randomness:
    """Bytes that are the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def bytes(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            found += hashlib.sha256(f"{SEED}:{self._count}".encode()).digest()
            self._count += 1
        return bytes(found[:length])


def new_engine() -> Any:
    import wasmtime
    from wasmtime import _ffi

    config = wasmtime.Config()
    config.consume_fuel = True
    config.max_wasm_stack = STACK_BYTES
    # One form of NaN on every processor; the binding has no word for it.
    _ffi.wasmtime_config_cranelift_nan_canonicalization_set(config.ptr(), True)
    config.wasm_threads = False
    config.wasm_relaxed_simd = False
    return wasmtime.Engine(config)


def guarded(call: Callable[[], Any]) -> Any:
    """Run guest code; a trap becomes `Stopped` with the name of its limit."""
    import wasmtime

    try:
        return call()
    except wasmtime.Trap as trap:
        raise Stopped(_name(trap)) from None
    except wasmtime.WasmtimeError as bad:
        # An exception of a host function arrives as itself; what remains are errors of the guest.
        if "fuel" in str(bad):
            raise Stopped(Outcome.OUT_OF_FUEL) from None
        raise Stopped(Outcome.ILLEGAL_INSTRUCTION) from None


def _name(trap: Any) -> Outcome:
    import wasmtime

    codes = {
        wasmtime.TrapCode.OUT_OF_FUEL: Outcome.OUT_OF_FUEL,
        wasmtime.TrapCode.STACK_OVERFLOW: Outcome.STACK_OVERFLOW,
    }
    return codes.get(trap.trap_code, Outcome.ILLEGAL_INSTRUCTION)
