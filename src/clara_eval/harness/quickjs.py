"""Run JavaScript: QuickJS as WebAssembly, with every import of the module defined here."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, cast

from clara_eval.core.extras import install
from clara_eval.harness import wasm
from clara_eval.harness.model import ProgramText, RunLimits, RunOutcome

if TYPE_CHECKING:
    from wasmtime import Caller, Func, Memory

PACKAGE = "quickjs-wasi"
SHA256 = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
REMEDY = f"Run `{install('javascript')}` and `npm install {PACKAGE}@3.6.2`."
STACK_BYTES = 192 * 1024  # QuickJS counts its own stack, so that the limit holds on every processor
MODULE_FLAG, REJECTED = 1, 2
GUESTS = (Path(__file__).with_name("guest.js"),)
TREE = Path(__file__).with_name("tree.js")
MOST_LOOKUPS, MOST_NESTED = 2_000, 20  # imported files: a lookup costs time but no fuel, a nested one our own stack


def find_module() -> Path | None:
    return wasm.find_npm_file(f"{PACKAGE}/quickjs.wasm", SHA256)


def load(path: Path, cache: Path) -> wasm.Loaded:
    return wasm.load(path, wasm.compiled_path(cache, "quickjs", SHA256))


class JavaScriptGuest(wasm.Guest):
    """A fresh instance with a source loaded; raises LoadFailed or Stopped."""

    def __init__(
        self, quickjs: wasm.Loaded, source: ProgramText, role: str, limits: RunLimits, ask: wasm.Ask | None
    ) -> None:
        super().__init__(quickjs, limits, ask)
        self._export = wasm.instantiate(quickjs, self._store, _host_functions(self))
        self.memory = cast("Memory", self._export("memory"))
        self._call("_initialize")
        self._call("qjs_init")
        self._call("qjs_set_max_stack_size", STACK_BYTES)
        made = self._eval(GUESTS[0].read_text(encoding="utf-8"), 0)
        name = self._bytes(b"host")
        host, text = self._call("qjs_new_host_function", name, 4, 0), self._string(role)
        guest = self._call_function(made, host, text)
        for one in (host, text, made):
            self._free(one)
        self._begin, self._send, self._answer = self._properties(guest, b"begin", b"send", b"answer")
        self._lookups, self._nested = MOST_LOOKUPS, 0
        try:
            if not isinstance(source, str):
                made, host = self._eval(TREE.read_text("utf-8"), 0), self._call("qjs_new_host_function", name, 4, 0)
                tree = self._call_function(made, host, self._string(json.dumps(dict(source))))
                self._resolve, self._source = self._properties(tree, b"resolve", b"source")
                self._call("qjs_set_module_loader", 1)
            self.refuel(limits.fuel)
            self._load(source)
        except BaseException:
            self.close()
            raise

    def exchange(self, message: str) -> str:
        """Send a message, finish every job that it starts, and return the answer."""
        text = self._string(message)
        sent = self._call_function(self._send, text)
        self._free(text)
        if self._call("qjs_is_exception", sent):
            raise wasm.LoadFailed(self._exception())
        self._finish_jobs()
        answer = self._call_function(self._answer)
        found = self._text(answer)
        self._free(answer)
        return found

    def _properties(self, value: int, *names: bytes) -> list[int]:
        return [self._call("qjs_get_prop_string", value, self._bytes(name)) for name in names]

    def _load(self, source: ProgramText) -> None:
        name = "code.js" if isinstance(source, str) else next(iter(source))
        text = source if isinstance(source, str) else self._call_tree(self._source, self._bytes(name.encode()))
        if text is None:
            raise wasm.LoadFailed(self._exception())
        promise = self._eval(text, MODULE_FLAG, name)
        self._finish_jobs()
        state = self._call("qjs_promise_state", promise)
        found = self._call("qjs_promise_result", promise)
        if state != 1:
            raise wasm.LoadFailed(self._text(found) if state == REJECTED else "It never finishes loading.")
        self._call_function(self._begin, found)

    def _eval(self, source: str, flags: int, path: str = "code.js") -> int:
        made = self._try_eval(source, flags, path)
        if made == 0:
            raise wasm.LoadFailed(self._exception())
        return made

    def _try_eval(self, source: str, flags: int, path: str) -> int:
        """Evaluate a source; 0 if it threw."""
        code = source.encode("utf-8", "replace")
        text, name = self._bytes(code), self._bytes(path.encode())
        made = self._call("qjs_eval", text, len(code), name, flags)
        self._call("wasm_free", text)
        self._call("wasm_free", name)
        return 0 if self._call("qjs_is_exception", made) else made

    def _exception(self) -> str:
        return self._text(self._call("qjs_get_exception"))

    def _finish_jobs(self) -> None:
        while self._call("qjs_is_job_pending"):
            if self._call("qjs_execute_pending_job") < 0:
                raise wasm.LoadFailed(self._exception())

    def _call(self, name: str, *args: int) -> int:
        return cast("int", wasm.catch_traps(lambda: cast("Func", self._export(name))(self._store, *args)))

    def _call_function(self, function: int, *args: int) -> int:
        listed = self._bytes(struct.pack(f"<{len(args)}I", *args))
        found = self._call("qjs_call", function, self._call("qjs_get_undefined"), len(args), listed)
        self._call("wasm_free", listed)
        return found

    def _string(self, text: str) -> int:
        raw = text.encode("utf-8", "replace")
        at = self._bytes(raw)
        made = self._call("qjs_new_string", at, len(raw))
        self._call("wasm_free", at)
        return made

    def _bytes(self, raw: bytes) -> int:
        """Write bytes and a final zero to the guest's memory, and return their address."""
        at = self._call("wasm_malloc", len(raw) + 1)
        if at == 0:
            raise wasm.Stopped(RunOutcome.OUT_OF_MEMORY)
        self.memory.write(self._store, raw + b"\0", at)
        return at

    def _text(self, value: int) -> str:
        length_at = self._bytes(b"\0" * 4)
        at = self._call("qjs_get_string_len", value, length_at)
        (length,) = struct.unpack("<I", bytes(self.memory.read(self._store, length_at, length_at + 4)))
        self._call("wasm_free", length_at)
        if at == 0:
            raise wasm.Stopped(RunOutcome.OUT_OF_MEMORY)
        if length > wasm.MAX_MESSAGE_BYTES:
            raise wasm.Stopped(RunOutcome.TOO_MUCH_OUTPUT)
        found = bytes(self.memory.read(self._store, at, at + length)).decode("utf-8", "replace")
        self._call("qjs_free_cstring", at)
        return found

    def _free(self, value: int) -> None:
        self._call("qjs_free_value", value)

    def handle_host_call(self, argc: int, argv: int) -> int:
        """Handle `host(name, text)`, as the guest calls it."""
        if argc != 2:
            raise wasm.Stopped(RunOutcome.ILLEGAL_INSTRUCTION)
        name, text = map(self._text, struct.unpack("<2I", bytes(self.memory.read(self._store, argv, argv + 8))))
        if name.startswith(("script ", "module ")):
            return self._eval_file(text, *name.split(" ", 1))
        self.charge(len(text))
        if name != "print":
            return self._string(self.ask(text))
        self.log(text.encode("utf-8", "replace") + b"\n")
        return self._string("")

    def _eval_file(self, source: str, kind: str, path: str) -> int:
        """Evaluate a source for `tree.js`; 0 if it threw."""
        self._count_lookup()
        if self._nested == MOST_NESTED:
            raise wasm.Stopped(RunOutcome.STACK_OVERFLOW)
        self._nested += 1
        made = self._try_eval(source, MODULE_FLAG if kind == "module" else 0, path)
        self._nested -= 1
        if made and kind == "module" and self._call("qjs_promise_state", made) == REJECTED:
            self._call("qjs_throw", self._call("qjs_promise_result", made))
            return 0
        return made

    def resolve(self, base: int, name: int) -> int:
        """Return the address of the path of an imported file; 0 if an error was thrown."""
        path = self._call_tree(self._resolve, base, name)
        return 0 if path is None else self._bytes(path.encode())

    def load(self, path: int, length_at: int) -> int:
        """Return the address of the text of an ES module; 0 if an error was thrown."""
        text = self._call_tree(self._source, path)
        if text is None:
            return 0
        code = text.encode("utf-8", "replace")
        self.memory.write(self._store, struct.pack("<I", len(code)), length_at)
        return self._bytes(code)

    def _call_tree(self, function: int, *addresses: int) -> str | None:
        """Call a function of `tree.js` with the texts at these addresses; None if it threw."""
        self._count_lookup()
        texts = [self._call("qjs_new_string", at, self._call("strlen", at)) for at in addresses]
        found = self._call_function(function, *texts)
        for text in texts:
            self._free(text)
        return None if self._call("qjs_is_exception", found) else self._text(found)

    def _count_lookup(self) -> None:
        self._lookups -= 1
        if self._lookups < 0:
            raise wasm.Stopped(RunOutcome.OUT_OF_FUEL)


open_guest = JavaScriptGuest


def _host_functions(guest: JavaScriptGuest) -> dict[str, wasm.HostFunction]:
    """Return the imports of the engine: a constant clock, and no files but the submission's."""

    def clock(caller: Caller, _clock: int, _precision: int, at: int) -> int:
        guest.charge()
        return wasm.write_memory(caller, at, struct.pack("<Q", wasm.CLOCK_SECONDS * 10**9))

    def write(caller: Caller, _fd: int, vectors: int, count: int, at: int) -> int:
        guest.charge()
        return wasm.forward_write(caller, vectors, count, at, guest.log)

    return {
        **dict.fromkeys(("host_get_timezone_offset", "host_interrupt"), lambda *_: 0),
        "host_module_normalize": lambda _caller, base, name: guest.resolve(base, name),
        "host_module_load": lambda _caller, path, length: guest.load(path, length),
        "host_promise_rejection": lambda *_: None,
        "host_call": lambda _caller, _name, _length, _this, argc, argv: guest.handle_host_call(argc, argv),
        "clock_time_get": clock,
        "fd_fdstat_get": lambda *_: wasm.BADF,
        "fd_write": write,
        "random_get": lambda caller, at, length: wasm.write_memory(caller, at, guest.random(length)),
    }
