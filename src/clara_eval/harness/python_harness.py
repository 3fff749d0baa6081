"""Runs the poster's harness under CPython 3.12, inside the sandbox, in an instance without the submission.

Messages come on descriptor 0 and go on descriptor 1, one JSON text a line. `!` starts an answer, `?` a question to the
submission's instance. What the harness gets from there is a copy of a plain value, or one of three stand-ins: `Part`
(what the submission names: it can be called), `Built` (an object that the harness built with a capitalised name: it
can be used like one) and `Given` (an object that was given where plain data belongs: it can only be read).
"""

from __future__ import annotations

import _json
import builtins
import os
import sys
from typing import Any

DEPTH = 32
PIECE = 65536
module: dict[str, Any] = {}
built: set[int] = set()
"""Objects that the harness built, by number: they stay what they are when a method gives them back."""
read_once: set[int] = set()
left = b""


class SubmissionError(Exception):
    """What the submission raised, where it is no built-in exception that a harness can expect."""


class _Scanning:
    """How JSON is read: plainly."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


_Scanning.memo = {}  # type: ignore[attr-defined] # only the scanner looks at it
scan = _json.make_scanner(_Scanning)  # type: ignore[arg-type] # any object with these attributes


def quoted(text: str) -> str:
    return _json.encode_basestring_ascii(text)


def tagged(tag: str, value: str) -> str:
    return f'{{"$": "{tag}", "v": {value}}}'


def listed(items: Any, depth: int) -> str:
    return "[" + ", ".join([encode(item, depth + 1) for item in items]) + "]"


def encode(value: Any, depth: int = 0) -> str:
    """A value as JSON text."""
    kind = type(value)
    if depth > DEPTH:
        raise ValueError("The value is nested too deeply.")
    if value is None or kind is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if kind is int:
        return str(value)
    if kind is float:
        return repr(value) if value - value == 0 else tagged("number", quoted(repr(value)))
    if kind is str:
        return quoted(value)
    if kind is bytes:
        return tagged("bytes", quoted(value.hex()))
    if kind is dict:
        pairs = [f"[{encode(key, depth + 1)}, {encode(item, depth + 1)}]" for key, item in value.items()]
        return tagged("map", "[" + ", ".join(pairs) + "]")
    if kind in NAMES:
        return tagged(NAMES[kind], listed(value, depth))
    if isinstance(value, Given):
        return tagged("ref", str(number_of(value)))
    raise TypeError("Only plain values can be handed out of the harness.")


def decode(found: Any) -> Any:
    """A plain value; an object in it is `Given`, or what the harness built before."""
    if type(found) is not dict:
        return found
    tag, value = found["$"], found["v"]
    if tag in KINDS:
        return KINDS[tag](decode(item) for item in value)
    if tag == "map":
        return {decode(key): decode(item) for key, item in value}
    if tag == "number":
        return float(value)
    if tag == "bytes":
        return bytes.fromhex(value)
    return Built(value) if value in built else Given(value)


def read_line() -> str:
    global left  # noqa: PLW0603 - one conversation in one process
    while b"\n" not in left:
        left += os.read(0, PIECE)
    line, _, left = left.partition(b"\n")
    return line.decode()


def write(mark: str, text: str) -> None:
    data = (mark + text).encode()
    while data:
        data = data[os.write(1, data) :]


def ask(message: str, may_end: bool) -> Any:
    """One question to the submission; its exception is raised here."""
    write("?", message)
    answer = scan(read_line(), 0)[0]
    if "error" not in answer:
        return decode(answer["value"])
    name, said = answer["error"]["name"], answer["error"]["message"]
    known = getattr(builtins, name, None)
    # The end of an iteration is one only where the harness asked for the next item: elsewhere it would end a loop here.
    if isinstance(known, type) and issubclass(known, Exception) and (may_end or not issubclass(known, ENDS)):
        try:
            error = known(said)
        except TypeError:  # an exception that needs more than words
            error = SubmissionError(f"{name}: {said}")
        raise error
    raise SubmissionError(f"{name}: {said}")


ENDS = (StopIteration, StopAsyncIteration)


class Given:
    """An object that a call or an attribute gave: its attributes are read, its items once, and it judges nothing."""

    def __init__(self, ref: int) -> None:
        object.__setattr__(self, "_ref", ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and number_of(self) == number_of(other)

    def __hash__(self) -> int:
        return hash(number_of(self))

    def __repr__(self) -> str:
        return "<an object of the submission>"

    def __bool__(self) -> bool:
        raise TypeError(f"An object of the submission is neither true nor false. {REMEDY}")

    def __getattr__(self, name: str) -> Any:
        return use(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        use(self, "setattr", name, value)

    def __call__(self, *_args: Any, **_named: Any) -> Any:
        raise TypeError(f"A method of an object that the submission gave is not called. {REMEDY}")

    def __iter__(self) -> Any:
        if number_of(self) in read_once:
            raise TypeError("The items of an object that the submission gave are read once. Make a list of them.")
        items = use(self, "iter")
        read_once.update((number_of(self), number_of(items)))
        return Items(number_of(items))


REMEDY = "Take plain data, or build the object in the harness: with a capitalised name, or as_object(...)."


class Items(Given):
    """The items of an object, one after the other."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return use(self, "next")


class Part(Given):
    """What the submission names, or a method of an object: it can be called."""

    def __init__(self, ref: int, is_class: bool) -> None:
        super().__init__(ref)
        object.__setattr__(self, "_is_class", is_class)

    def __getattr__(self, name: str) -> Any:
        found = use(self, "getattr", name)
        return Part(number_of(found), False) if builds(self) and is_given(found) else found

    def __call__(self, *args: Any, **named: Any) -> Any:
        found = use(self, "call", list(args), named)
        return as_object(found) if builds(self) else found


def builds(part: Part) -> Any:
    return object.__getattribute__(part, "_is_class")


class Module(Given):
    """The submission: what it names can be called; a capitalised name is a class."""

    def __getattr__(self, name: str) -> Any:
        found = use(self, "getattr", name)
        return Part(number_of(found), name[:1].isupper()) if is_given(found) else found


class Built(Given):
    """An object that the harness built: it is used as in its own program, but for comparisons."""

    def __getattr__(self, name: str) -> Any:
        found = use(self, "getattr", name)
        return Part(number_of(found), False) if is_given(found) else found

    def __call__(self, *args: Any, **named: Any) -> Any:
        return use(self, "call", list(args), named)

    def __iter__(self) -> Any:
        items = use(self, "iter")
        return Items(number_of(items)) if isinstance(items, Given) else items

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *_: object) -> Any:
        return self.__getattr__("__exit__")(None, None, None)


def special(name: str) -> Any:
    return lambda self, *args: use(self, name, *args)


for operation in ("len", "next", "str", "repr", "int", "float", "bool", "contains", "getitem", "setitem", "delitem"):
    setattr(Built, f"__{operation}__", special(operation))


def as_object(value: Any) -> Any:
    """Use what the submission gave as an object whose methods may be called."""
    if not isinstance(value, Given):
        return value
    built.add(number_of(value))
    return Built(number_of(value))


def is_given(value: Any) -> bool:
    return type(value) is Given


def number_of(on: Any) -> Any:
    return object.__getattribute__(on, "_ref")


def use(on: Given, operation: str, *args: Any) -> Any:
    message = f'{{"do": "use", "op": "{operation}", "ref": {number_of(on)}, "args": {listed(args, 0)}}}'
    return ask(message, operation == "next")


NAMES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
KINDS: dict[str, Any] = {name: kind for kind, name in NAMES.items()}


def load(source: str) -> Any:
    global module  # noqa: PLW0603 - one conversation in one process
    module = {"__name__": "harness", "__builtins__": builtins, "as_object": as_object}
    exec(compile(source, "<harness>", "exec"), module)  # noqa: S102 - this is what the sandbox is for
    return None


def run(name: str, seed: str) -> Any:
    """One function of the harness; only a metric's value is of use to anybody."""
    function = module[name]
    wants_seed = getattr(getattr(function, "__code__", None), "co_argcount", 1) > 1
    found = function(Module(0), seed) if wants_seed else function(Module(0))
    if type(found).__name__ == "coroutine":
        raise TypeError(f"{name} is an async function, which nobody awaits.")
    return found if name.startswith("metric_") else None


def handled(message: dict[str, Any]) -> Any:
    if message["do"] == "load":
        return load(message["source"])
    if message["do"] == "loaded":
        return [name for name, value in module.items() if callable(value)]
    return run(message["name"], message["seed"])


def answered(message: dict[str, Any]) -> str:
    try:
        return f'{{"value": {encode(handled(message))}}}'
    except BaseException as error:  # noqa: BLE001 - whatever a harness raises is an answer
        return failed(error)


def failed(error: BaseException) -> str:
    try:
        said = str(error)[:2000]
    except BaseException:  # noqa: BLE001 - an exception that raises when it is shown
        said = ""
    return f'{{"error": {{"name": {quoted(type(error).__name__[:80])}, "message": {quoted(said)}}}}}'


def serve() -> None:
    sys.stdout = sys.stderr
    while True:
        write("!", answered(scan(read_line(), 0)[0]))
