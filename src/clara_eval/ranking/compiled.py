"""The two long loops of Elo as compiled code (`elo.wat`, run by wasmtime), where wasmtime is installed.

In come the same columns as in `elo`; out go the same bits, five times as soon: WebAssembly knows only the exact
operations that `elo` uses, in the order in which they are written. What must hold: nothing depends on whether it is
there. `has_loops` says so; what would not fit into one memory is left to numpy, and so is everything where this machine
lets the engine not run (no room for its addresses, no right to make code).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from clara_eval.extras import is_installed
from clara_eval.tournament.tally import Floats, Ints

if TYPE_CHECKING:
    from wasmtime import Engine, Func, Memory, Module

_PAGE = 65_536
_MOST_BYTES = 1 << 30
_GAME_BYTES = 16
Bytes = npt.NDArray[np.uint8]


def has_loops() -> bool:
    return is_installed("fast")


def deal(size: int, first: Ints, second: Ints) -> tuple[Ints, int] | None:
    """The first round for each result in which neither of its items plays yet, and the number of rounds."""
    most = int(np.bincount(first, minlength=size).max() + np.bincount(second, minlength=size).max())
    words, count = 2 * most // 64 + 1, len(first)
    if not has_loops() or 8 * words * size + 12 * count > _MOST_BYTES:
        return None
    taken = _Part(8 * words * size)
    a, b, level = _Part(4 * count), _Part(4 * count), _Part(4 * count)
    loops = _started((taken, a, b, level))
    if loops is None:
        return None
    loops.of(a).view(np.int32)[:] = first
    loops.of(b).view(np.int32)[:] = second
    rounds = loops.call("deal", a.start, b.start, count, level.start, taken.start, words)
    return loops.of(level).view(np.int32).astype(np.int64), rounds


def play(
    begin: Floats, games: tuple[Ints, Ints, Floats], table: Ints, orders: Iterable[Ints], powers: Floats
) -> Floats | None:
    """Ratings after playing the rounds of `table` in each of the orders from the same begin, one row each.

    `table` lists the games of each round, −1 where nothing is.
    """
    is_game = table >= 0
    played = table[is_game]
    if not has_loops() or _GAME_BYTES * len(played) > _MOST_BYTES:
        return None
    rated, known = _Part(8 * len(begin)), _Part(8 * len(powers))
    listed, starts, order = _Part(_GAME_BYTES * len(played)), _Part(4 * len(table) + 4), _Part(4 * len(table))
    loops = _started((rated, known, listed, starts, order))
    if loops is None:
        return None
    loops.of(known).view(np.float64)[:] = powers
    loops.of(starts).view(np.int32)[:] = np.append(0, np.cumsum(is_game.sum(axis=1)))
    row = loops.of(listed).reshape(-1, _GAME_BYTES)
    row[:, :8].view(np.int32)[:] = rated.start + 8 * np.stack((games[0][played], games[1][played]), axis=1)
    row[:, 8:].view(np.float64)[:, 0] = games[2][played]
    after = []
    for rounds in orders:
        loops.of(rated).view(np.float64)[:] = begin
        loops.of(order).view(np.int32)[:] = rounds
        loops.call("play", order.start, len(rounds), starts.start, listed.start, known.start)
        after.append(loops.of(rated).view(np.float64).copy())
    return np.array(after)


class _Part:
    """A part of the memory; `_Loops` gives it a place."""

    def __init__(self, length: int) -> None:
        self.length, self.start = length, 0


class _Loops:
    """One instance with memory for the given parts, one behind the other."""

    def __init__(self, parts: Iterable[_Part]) -> None:
        import wasmtime

        engine, module = _module()
        self._store = wasmtime.Store(engine)
        self._exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        end = 0
        for part in parts:
            part.start = end
            end += -(-part.length // 16) * 16
        memory = cast("Memory", self._exports["memory"])
        memory.grow(self._store, -(-end // _PAGE))
        self._bytes = np.ctypeslib.as_array(memory.data_ptr(self._store), (memory.data_len(self._store),))

    def of(self, part: _Part) -> Bytes:
        """A view; nothing is copied."""
        return self._bytes[part.start : part.start + part.length]

    def call(self, name: str, *numbers: int) -> int:
        found: int | None = cast("Func", self._exports[name])(self._store, *numbers)
        return found or 0


def _started(parts: Iterable[_Part]) -> _Loops | None:
    """None where the engine has no build for this machine, or where the machine refuses it memory."""
    try:
        import wasmtime
    except (ImportError, OSError, RuntimeError):
        return None
    try:
        return _Loops(parts)
    except wasmtime.WasmtimeError:
        return None


def _module() -> tuple[Engine, Module]:
    """Compiled anew each time: a hundredth of a second, and nothing is left to be torn down when Python ends."""
    import wasmtime

    engine = wasmtime.Engine()
    return engine, wasmtime.Module(engine, (files("clara_eval") / "ranking" / "elo.wat").read_text(encoding="utf-8"))
