"""Runs inside the sandbox under CPython 3.12, in the submission's instance and in the harness's; never imported here.

Messages come on descriptor 0 and go on descriptor 1, one JSON text a line. `!` starts an answer, `?` a question to the
other instance. The two share nothing but these texts: what the harness gets from the submission is a copy of a plain
value, or a stand-in for an object that stays there. Only modules without a cost at start are imported.
"""

from __future__ import annotations

import _json
import builtins
import operator
import os
import sys
from typing import Any

DEPTH = 32
PIECE = 65536
ROLE = "submission"
kept: list[Any] = [None]
numbers: dict[int, int] = {}
"""Where an object is kept, by its identity: the same object has the same number."""
module: dict[str, Any] = {}
left = b""


class SubmissionError(Exception):
    """What the submission raised, where it is no built-in exception."""


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
    return _reference(value)


def _reference(value: Any) -> str:
    if type(value) is StandIn:
        return tagged("ref", str(number_of(value)))
    if ROLE == "harness":
        raise TypeError("Only plain values can be handed out of the harness.")
    if id(value) not in numbers:
        numbers[id(value)] = len(kept)
        kept.append(value)
    return tagged("ref", str(numbers[id(value)]))


def decode(found: Any) -> Any:
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
    return StandIn(value) if ROLE == "harness" else kept[value]


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


def ask(message: str) -> Any:
    """One question to the submission; its exception is raised here."""
    write("?", message)
    answer = scan(read_line(), 0)[0]
    if "error" not in answer:
        return decode(answer["value"])
    name, said = answer["error"]["name"], answer["error"]["message"]
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            error = known(said)
        except TypeError:  # an exception that needs more than words
            error = SubmissionError(f"{name}: {said}")
        raise error
    raise SubmissionError(f"{name}: {said}")


class StandIn:
    """An object of the submission, as the harness sees it."""

    def __init__(self, ref: int) -> None:
        object.__setattr__(self, "_ref", ref)

    def __eq__(self, other: object) -> bool:
        return type(other) is StandIn and number_of(self) == number_of(other)

    def __hash__(self) -> int:
        return hash(number_of(self))

    def __getattr__(self, name: str) -> Any:
        return use(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        use(self, "setattr", name, value)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return use(self, "call", list(args), named)


def number_of(on: Any) -> Any:
    return object.__getattribute__(on, "_ref")


def use(on: StandIn, operation: str, *args: Any) -> Any:
    return ask(f'{{"do": "use", "op": "{operation}", "ref": {number_of(on)}, "args": {listed(args, 0)}}}')


def called(on: Any, args: list[Any], named: dict[str, Any]) -> Any:
    return on(*args, **named)


def attribute(on: Any, name: str) -> Any:
    if on is not module:
        return getattr(on, name)
    if name not in on:
        raise AttributeError(f"The submission has no {name!r}.")
    return on[name]


def assigned(on: Any, name: str, value: Any) -> None:
    if on is module:
        on[name] = value
    else:
        setattr(on, name, value)


OPERATIONS: dict[str, Any] = {
    "getattr": attribute,
    "setattr": assigned,
    "call": called,
    "len": len,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "int": int,
    "float": float,
    "contains": operator.contains,
    "enter": lambda on: type(on).__enter__(on),
    "exit": lambda on, *_: type(on).__exit__(on, None, None, None),
}
OPERATIONS |= {name: getattr(operator, name) for name in ("getitem", "setitem", "delitem")}
# No comparison is among them: an object of the submission is never equal to a value that a test expects.


def special(name: str) -> Any:
    return lambda self, *args: use(self, name, *args)


for operation_name in OPERATIONS:
    if operation_name not in {"getattr", "setattr", "call"}:
        setattr(StandIn, f"__{operation_name}__", special(operation_name))
NAMES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
KINDS: dict[str, Any] = {name: kind for kind, name in NAMES.items()}


def load(source: str) -> Any:
    global module  # noqa: PLW0603 - one conversation in one process
    module = {"__name__": ROLE, "__builtins__": builtins}
    kept[0] = module
    exec(compile(source, f"<{ROLE}>", "exec"), module)  # noqa: S102 - this is what the sandbox is for
    return None


def run(name: str) -> Any:
    """One function of the harness; only a metric's value is of use to anybody."""
    found = module[name](StandIn(0))
    if type(found).__name__ == "coroutine":
        raise TypeError(f"{name} is an async function, which nobody awaits.")
    return found if name.startswith("metric_") else None


def handled(message: dict[str, Any]) -> Any:
    if message["do"] == "load":
        return load(message["source"])
    if message["do"] == "loaded":
        return [name for name, value in module.items() if callable(value)]
    if message["do"] == "run":
        return run(message["name"])
    return OPERATIONS[message["op"]](kept[message["ref"]], *[decode(item) for item in message["args"]])


def answered(message: dict[str, Any]) -> str:
    try:
        return f'{{"value": {encode(handled(message))}}}'
    except BaseException as error:  # noqa: BLE001 - whatever a stranger raises is an answer
        return failed(error)


def failed(error: BaseException) -> str:
    try:
        said = str(error)[:2000]
    except BaseException:  # noqa: BLE001 - an exception that raises when it is shown
        said = ""
    return f'{{"error": {{"name": {quoted(type(error).__name__[:80])}, "message": {quoted(said)}}}}}'


def serve(role: str) -> None:
    global ROLE  # noqa: PLW0603 - one conversation in one process
    ROLE = role
    sys.stdout = sys.stderr
    while True:
        write("!", answered(scan(read_line(), 0)[0]))
