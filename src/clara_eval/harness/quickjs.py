"""Run JavaScript: QuickJS as WebAssembly, one instance for the submission, one for the harness.

Invariant: every import of the module is defined here.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, cast

from clara_eval.core.extras import install
from clara_eval.harness.model import RunLimits, RunOutcome
from clara_eval.harness.wasm import (
    BADF,
    CLOCK_SECONDS,
    MAX_MESSAGE_BYTES,
    NOSYS,
    Ask,
    Guest,
    HostFunction,
    LoadFailed,
    Stopped,
    compiled_file,
    find_npm_file,
    guarded,
    load_module,
    memory_of,
    new_engine,
    put,
    vectors_at,
)

if TYPE_CHECKING:
    from wasmtime import Caller, Func, Linker, Memory

PACKAGE = "quickjs-wasi"
VERSION = "3.6.2"
SHA256 = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
REMEDY = f"Run `{install('javascript')}` and `npm install {PACKAGE}@{VERSION}`."
STACK_BYTES = 192 * 1024
"""QuickJS counts its own stack, so that its limit is the same on every processor."""
MODULE_FLAG = 1
GUESTS = (Path(__file__).with_name("guest.js"),)


def find_module() -> Path | None:
    return find_npm_file(f"{PACKAGE}/quickjs.wasm", SHA256)


class QuickJs:
    def __init__(self, path: Path, cache: Path) -> None:
        self.engine = new_engine()
        self.module = load_module(self.engine, path, compiled_file(cache, "quickjs", SHA256))

    def open(self, source: str, role: str, limits: RunLimits, ask: Ask | None = None) -> JavaScriptGuest:
        """A fresh instance with this source loaded; raises `LoadFailed` or `Stopped`."""
        return JavaScriptGuest(self, source, role, limits, ask)


class JavaScriptGuest(Guest):
    def __init__(self, quickjs: QuickJs, source: str, role: str, limits: RunLimits, ask: Ask | None) -> None:
        import wasmtime

        super().__init__(quickjs.engine, limits, ask)
        linker = wasmtime.Linker(quickjs.engine)
        _define(linker, self)
        self._exports = linker.instantiate(self._store, quickjs.module).exports(self._store)
        self.memory = cast("Memory", self._exports["memory"])
        self._call("_initialize")
        self._call("qjs_init")
        self._call("qjs_set_max_stack_size", STACK_BYTES)
        self._shim(role)
        self.refuel(limits.fuel)
        self._load(source)

    def exchange(self, message: str) -> str:
        """One message in, its answer out, after everything it started has come to rest."""
        text = self._string(message)
        sent = self._call_function(self._send, text)
        self._free(text)
        if self._call("qjs_is_exception", sent):
            raise LoadFailed(self._exception())
        self._finish_jobs()
        answer = self._call_function(self._answer)
        found = self._text(answer)
        self._free(answer)
        return found

    def close(self) -> None:
        """Nothing waits here: an instance ends with its last call."""

    def _shim(self, role: str) -> None:
        made = self._eval(GUESTS[0].read_text(encoding="utf-8"), 0)
        name = self._bytes(b"host")
        host, text = self._call("qjs_new_host_function", name, 4, 0), self._string(role)
        guest = self._call_function(made, host, text)
        for one in (host, text, made):
            self._free(one)
        self._begin, self._send, self._answer = (
            self._call("qjs_get_prop_string", guest, self._bytes(word)) for word in (b"begin", b"send", b"answer")
        )

    def _load(self, source: str) -> None:
        promise = self._eval(source, MODULE_FLAG)
        self._finish_jobs()
        state = self._call("qjs_promise_state", promise)
        found = self._call("qjs_promise_result", promise)
        if state != 1:
            raise LoadFailed(self._text(found) if state == 2 else "It never finishes loading.")
        self._call_function(self._begin, found)

    def _eval(self, source: str, flags: int) -> int:
        code = source.encode("utf-8", "replace")
        text, name = self._bytes(code), self._bytes(b"code.js")
        made = self._call("qjs_eval", text, len(code), name, flags)
        self._call("wasm_free", text)
        self._call("wasm_free", name)
        if self._call("qjs_is_exception", made):
            raise LoadFailed(self._exception())
        return made

    def _exception(self) -> str:
        return self._text(self._call("qjs_get_exception"))

    def _finish_jobs(self) -> None:
        while self._call("qjs_is_job_pending"):
            if self._call("qjs_execute_pending_job") < 0:
                raise LoadFailed(self._exception())

    def _call(self, name: str, *args: int) -> int:
        function = cast("Func", self._exports[name])
        found: int = guarded(lambda: function(self._store, *args))
        return found

    def _call_function(self, function: int, *args: int) -> int:
        listed = self._bytes(struct.pack(f"<{len(args)}I", *args))
        nothing = self._call("qjs_get_undefined")
        found = self._call("qjs_call", function, nothing, len(args), listed)
        self._call("wasm_free", listed)
        return found

    def _string(self, text: str) -> int:
        raw = text.encode("utf-8", "replace")
        at = self._bytes(raw)
        made = self._call("qjs_new_string", at, len(raw))
        self._call("wasm_free", at)
        return made

    def _bytes(self, raw: bytes) -> int:
        """Bytes in the guest's memory, ended by a zero."""
        at = self._call("wasm_malloc", len(raw) + 1)
        if at == 0:
            raise Stopped(RunOutcome.OUT_OF_MEMORY)
        self.memory.write(self._store, raw + b"\0", at)
        return at

    def _text(self, value: int) -> str:
        length_at = self._bytes(b"\0" * 4)
        at = self._call("qjs_get_string_len", value, length_at)
        (length,) = struct.unpack("<I", bytes(self.memory.read(self._store, length_at, length_at + 4)))
        self._call("wasm_free", length_at)
        if at == 0:
            return ""
        if length > MAX_MESSAGE_BYTES:
            raise Stopped(RunOutcome.TOO_MUCH_OUTPUT)
        found = bytes(self.memory.read(self._store, at, at + length)).decode("utf-8", "replace")
        self._call("qjs_free_cstring", at)
        return found

    def _free(self, value: int) -> None:
        self._call("qjs_free_value", value)

    def serve(self, argc: int, argv: int) -> int:
        """The host function as the guest calls it: `host(name, text)`."""
        if argc != 2:
            raise Stopped(RunOutcome.ILLEGAL_INSTRUCTION)
        places = struct.unpack("<2I", bytes(self.memory.read(self._store, argv, argv + 8)))
        name, text = map(self._text, places)
        self.pay(len(text))
        if name != "print":
            return self._string(self.asked(text))
        self.printed.write(text.encode("utf-8", "replace") + b"\n")
        return self._string("")


def _define(linker: Linker, guest: JavaScriptGuest) -> None:
    import wasmtime

    i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()

    def clock(caller: Caller, _clock: int, _precision: int, at: int) -> int:
        guest.pay()
        return put(caller, at, struct.pack("<Q", CLOCK_SECONDS * 10**9))

    def random(caller: Caller, at: int, length: int) -> int:
        return put(caller, at, guest.random(length))

    def write(caller: Caller, _fd: int, vectors: int, count: int, at: int) -> int:
        guest.pay()
        parts = vectors_at(caller, vectors, count)
        for start, length in parts:
            guest.printed.write(bytes(memory_of(caller).read(caller, start, start + length)))
        return put(caller, at, struct.pack("<I", sum(length for _, length in parts)))

    imports: dict[tuple[str, str], tuple[list[wasmtime.ValType], list[wasmtime.ValType], HostFunction, bool]] = {
        ("env", "host_get_timezone_offset"): ([i32, i32], [i32], lambda _high, _low: 0, False),
        ("env", "host_interrupt"): ([], [i32], lambda: 0, False),
        ("env", "host_promise_rejection"): ([i32, i32, i32], [], lambda *_: None, False),
        ("env", "host_module_normalize"): ([i32, i32], [i32], lambda *_: 0, False),
        ("env", "host_module_load"): ([i32, i32], [i32], lambda *_: 0, False),
        ("env", "host_call"): ([i32] * 5, [i32], lambda _n, _l, _t, argc, argv: guest.serve(argc, argv), False),
        ("wasi_snapshot_preview1", "clock_time_get"): ([i32, i64, i32], [i32], clock, True),
        ("wasi_snapshot_preview1", "fd_close"): ([i32], [i32], lambda _: NOSYS, False),
        ("wasi_snapshot_preview1", "fd_fdstat_get"): ([i32, i32], [i32], lambda *_: BADF, False),
        ("wasi_snapshot_preview1", "fd_seek"): ([i32, i64, i32, i32], [i32], lambda *_: NOSYS, False),
        ("wasi_snapshot_preview1", "fd_write"): ([i32] * 4, [i32], write, True),
        ("wasi_snapshot_preview1", "random_get"): ([i32, i32], [i32], random, True),
    }
    for (module, name), (takes, gives, function, needs_caller) in imports.items():
        linker.define_func(module, name, wasmtime.FuncType(takes, gives), function, access_caller=needs_caller)
