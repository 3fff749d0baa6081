"""A judge that is a function of the program which calls `clara_eval.judge`."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn

from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError
from clara_eval.judge.costs.budgets import FREE
from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.provider import JudgeName, Provider

Words = str | Mapping[str, object]
JudgeFunction = Callable[[Prompt], Words | Awaitable[Words]]
"""Answers a prompt with JSON that fits `prompt.schema_json`: as text or as a mapping, at once or awaited."""


class CallableLlm:
    """A plain function runs in a thread, so it may block."""

    def __init__(self, name: str, function: JudgeFunction) -> None:
        self.name = name
        self._function = function

    async def complete(self, prompt: Prompt) -> Answer:
        if inspect.iscoroutinefunction(self._function):
            said = await self._function(prompt)
        else:
            said = await asyncio.to_thread(self._function, prompt)
            said = await said if inspect.isawaitable(said) else said
        text = said if isinstance(said, str) else json.dumps(said)
        return Answer(text, self.name.partition(":")[2], "end", input_tokens=0, output_tokens=0)

    async def close(self) -> None:
        """Nothing is held."""


def _build(judge: JudgeName, _settings: Settings) -> NoReturn:
    raise ConfigError(
        f"{judge.text} is a function of a Python program.", remedy="Give it to clara_eval.judge(..., judges=function)."
    )


PROVIDER = Provider(name="callable", form="callable:NAME (from Python)", build=_build, price=lambda _judge, _at: FREE)
