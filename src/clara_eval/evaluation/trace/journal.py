"""The journal of one run. The first write of a key counts, so a second run continues the first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import Disagrees
from clara_eval.core.hashing import plain_json
from clara_eval.judge.port import JournalEntries

T = TypeVar("T")
_RESTART = (
    "The code or its data changed while this evaluation was running: use the version that began it, or start the "
    "evaluation again with `evaluate --restart`."
)


class Journal:
    def __init__(self, entries: JournalEntries, run: str) -> None:
        self._entries = entries
        self.run = run

    async def saved(self, key: str, form: JsonCodec[T]) -> T | None:
        text = await self._entries.entry(self.run, key)
        return None if text is None else self._read(key, form, text)

    async def has(self, prefix: str) -> bool:
        return bool(await self._entries.entries(self.run, prefix))

    async def all(self, prefix: str, form: JsonCodec[T]) -> tuple[T, ...]:
        return tuple(self._read(key, form, text) for key, text in await self._entries.entries(self.run, prefix))

    async def keep(self, key: str, form: JsonCodec[T], value: T) -> T:
        """Save this result unless there is one already; return the saved one."""
        return self._read(key, form, await self._entries.add_entry(self.run, key, form.text(value)))

    async def once(self, key: str, form: JsonCodec[T], make: Callable[[], Awaitable[T]]) -> T:
        """The saved result, or the one made now and saved."""
        saved = await self.saved(key, form)
        return await self.keep(key, form, await make()) if saved is None else saved

    def _read(self, key: str, form: JsonCodec[T], text: str) -> T:
        try:
            return form.read_text(text)
        except ValueError as bad:
            told = f"The step {key!r} of run {self.run} was recorded in another form than this version reads."
            raise Disagrees(told, remedy=_RESTART) from bad

    async def note(self, key: str, value: object) -> None:
        """Save a pure result as JSON; a second run must give the same."""
        text = plain_json(value)
        if await self._entries.add_entry(self.run, key, text) != text:
            raise Disagrees(f"The step {key!r} of run {self.run} gives another result than before.", remedy=_RESTART)

    async def drop(self, *keys: str, prefix: str | None = None) -> None:
        below = await self._entries.entries(self.run, prefix) if prefix else []
        for key in (*keys, *(key for key, _ in below)):
            await self._entries.forget_entry(self.run, key)

    async def drop_unreadable(self, key: str, form: JsonCodec[T]) -> None:
        """Drop an entry that another version wrote in a form that this one does not read."""
        try:
            await self.saved(key, form)
        except Disagrees:
            await self.drop(key)

    async def forget(self) -> None:
        """Start anew. Paid answers are kept elsewhere and stay."""
        await self._entries.forget_run(self.run)
