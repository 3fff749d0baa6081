"""Parts of a call to a model, in memory: a clock, a book of answers, a model that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from clara_eval.core.errors import Temporary
from clara_eval.judge.port import Answer, PaidAnswer, Prompt


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Book:
    """Answers in memory; counts the questions put to it."""

    def __init__(self) -> None:
        self.kept: dict[str, PaidAnswer] = {}
        self.queries = 0
        self.stumbles = 0

    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]:
        self.queries += 1
        return {request: self.kept[request] for request in requests if request in self.kept}

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        if self.stumbles:
            self.stumbles -= 1
            raise Temporary("database is locked")
        return self.kept.setdefault(paid.request, paid)


class Model:
    """Says what the script says: an error to raise, or None for an answer."""

    def __init__(self, script: Callable[[int], Exception | None] = lambda _: None, name: str = "openai:test") -> None:
        self.name = name
        self.script = script
        self.calls = 0
        self.at_once = 0
        self.most_at_once = 0
        self.wait: Callable[[], Awaitable[Any]] = lambda: asyncio.sleep(0)

    async def complete(self, prompt: Prompt) -> Answer:
        number, self.calls = self.calls, self.calls + 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.wait()
            bad = self.script(number)
        finally:
            self.at_once -= 1
        if bad is not None:
            raise bad
        return Answer(f"answer to {prompt.user}", "test-1", "end", 10, 5)
