"""A judge that is a Python function, passed to `clara_eval.judge`."""

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

JsonAnswer = str | Mapping[str, object]
JudgeFunction = Callable[[Prompt], JsonAnswer | Awaitable[JsonAnswer]]
"""Answers a prompt with JSON that fits `prompt.schema_json`, as text or a mapping; sync or async."""


class CallableLlm:
    """Calls the function: a plain one in a thread, so it may block."""

    def __init__(self, name: str, function: JudgeFunction) -> None:
        self.name = name
        self._function = function

    async def complete(self, prompt: Prompt) -> Answer:
        if inspect.iscoroutinefunction(self._function):
            answer = await self._function(prompt)
        else:
            answer = await asyncio.to_thread(self._function, prompt)
            answer = await answer if inspect.isawaitable(answer) else answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return Answer(text, self.name.partition(":")[2], "end", input_tokens=0, output_tokens=0)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def _build(judge: JudgeName, _settings: Settings) -> NoReturn:
    raise ConfigError(
        f"{judge.text} is a function of a Python program.", remedy="Give it to clara_eval.judge(..., judges=function)."
    )


PROVIDER = Provider(name="callable", form="callable:NAME (from Python)", build=_build, price=lambda _judge, _at: FREE)
