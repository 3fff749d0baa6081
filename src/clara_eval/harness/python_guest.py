"""Runs beside the submission under CPython 3.12, inside the sandbox; never imported here.

The submission can reach everything in its interpreter, so nothing here can be changed to its gain: `serve` is one
running frame, all its names are local, and its tools are C functions that were taken before the submission was loaded.
It calls everything else through one of them (`call`), so that nothing but itself runs at its own depth of the stack.
Messages come on descriptor 0 and go on descriptor 1 in the form of `marshal`, which holds plain values only. The host
answers these two descriptors only to this frame (`cpython.Guest`), so nothing else can speak in its place.
"""

from __future__ import annotations

from typing import Any


def serve() -> None:  # noqa: C901, PLR0915 - one frame, so that there is nothing to replace
    import builtins
    import sys
    from _operator import call, contains, delitem, getitem, setitem, truth
    from marshal import dumps, loads
    from posix import _exit as leave
    from posix import read, write

    piece = 65536
    run, code_of, length, failure, invalid = builtins.exec, builtins.compile, len, BaseException, ValueError
    name_of = type.__dict__["__name__"].__get__
    kind_of = type
    module = type(sys)("submission")
    kept: list[Any] = [module]
    plain = frozenset(id(kind) for kind in (type(None), bool, int, float, str, bytes))
    # What the two functions below work with: an object that is no plain value stays here and goes out as (..., number).
    tools = (kept, {id(module): 0}, type, id, len, list, tuple, set, frozenset, dict, plain, ValueError)
    # In the order of `cpython.OPERATIONS`.
    operations: tuple[Any, ...] = (
        *(getattr, setattr, call, len, iter, next, str, repr, int, float, truth),
        *(contains, getitem, setitem, delitem),
    )

    def refuse(event: str, _args: Any) -> None:
        # A tracer could change the variables of a running frame, the collector could find this function.
        if event in {
            "sys.settrace",
            "sys.setprofile",
            "sys._settraceallthreads",
            "sys._setprofileallthreads",
            "sys.monitoring.register_callback",
            "gc.get_objects",
            "gc.get_referrers",
            "gc.get_referents",
        }:
            1 // 0  # noqa: B018 - raises without looking up a name

    sys.addaudithook(refuse)
    sys.stdout = sys.stderr
    sys.modules["__main__"] = sys.modules["submission"] = module
    del refuse, builtins, sys
    answer = b" "
    try:
        while True:
            while answer:
                answer = answer[write(1, answer) :]
            data = read(0, piece)
            while length(data) % piece == 0:
                data += read(0, piece)
            number, on, args, named, has_references = loads(data)  # noqa: S302 - the host wrote it
            try:
                if number < 0:
                    value = run(code_of(args[0], "<submission>", "exec"), module.__dict__)
                else:
                    if has_references:

                        def inward(value: Any, again: Any, tools: Any) -> Any:
                            kept, _, kind_of, _, length, items, fixed, group, frozen, mapping, _, _ = tools
                            kind = kind_of(value)
                            if kind is fixed and length(value) == 2 and value[0] is ...:
                                return kept[value[1]]
                            if kind is mapping:
                                return {again(k, again, tools): again(v, again, tools) for k, v in value.items()}
                            if kind is items or kind is fixed or kind is group or kind is frozen:
                                return kind([again(v, again, tools) for v in value])
                            return value

                        args, named = call(inward, args, inward, tools), call(inward, named, inward, tools)
                    value = call(operations[number], kept[on], *args, **named)
                try:
                    answer = dumps((True, value), 2)
                except invalid:

                    def outward(value: Any, depth: int, again: Any, tools: Any) -> Any:
                        kept, numbers, kind_of, ident, length, items, fixed, group, frozen, mapping, plain, deep = tools
                        kind = kind_of(value)
                        if depth > 32:
                            raise deep("The value is nested too deeply.")
                        if kind is mapping:
                            pairs = [(again(k, depth + 1, again, tools), v) for k, v in value.items()]
                            return {k: again(v, depth + 1, again, tools) for k, v in pairs}
                        # Never `in` or `==`: a class may claim to be equal to list.
                        if kind is items or kind is fixed or kind is group or kind is frozen:
                            return kind([again(v, depth + 1, again, tools) for v in value])
                        if ident(kind) in plain:
                            return value
                        number = numbers.setdefault(ident(value), length(kept))
                        if number == length(kept):
                            kept.append(value)
                        return (..., number)

                    answer = dumps((True, call(outward, value, 0, outward, tools)), 2)
            except failure as error:
                try:
                    said = f"{error!s:.2000} "
                except failure:  # an exception that raises when it is shown
                    said = " "
                answer = dumps((False, name_of(kind_of(error)), said), 2)
            value = args = named = None
    finally:
        leave(1)  # nothing of the submission runs on a stack without this frame
