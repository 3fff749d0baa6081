"""A fake endpoint of models that think before they answer, in the shapes of today's providers.

Input: how many tokens a model thinks about a request, and whether the limit counts them. Output: OpenAI chat
completions and Claude messages that are cut where the documents say so. `charged` holds what a provider would bill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from aiohttp import web
from tests.support.fake_endpoint import (
    FakeEndpoint,
    Fault,
    Seen,
    Words,
    completion_body,
    message_body,
)

Where = Literal["hidden", "field", "tags"]
"""Thinking that is only counted, that stands in a field or block of its own, or between tags in the answer's text."""
FALSE_ANSWER = '{"winner": "A", "confidence": 1, "reason": "a thought"}'
"""What the model considers while it thinks: it must not be read as its answer."""
REFUSED = {
    "temperature": "Unsupported value: 'temperature' does not support 0 with this model.",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
    "effort": "output_config.effort: this model does not support the effort parameter.",
}
"""How today's models refuse a parameter."""


class ThinkingEndpoint(FakeEndpoint):
    """`think` says how many tokens a model thinks about a request; `inside`: its limit counts them."""

    def __init__(
        self,
        think: Callable[[Seen], int],
        *,
        words: Words,
        inside: bool = True,
        where: Where = "hidden",
        refuses: tuple[str, ...] = (),
        context: int = 200_000,
    ) -> None:
        super().__init__(words=words, script=self._refusal)
        self.think, self.inside, self.where, self.refuses, self.context = think, inside, where, refuses, context
        self.charged: list[tuple[int, int]] = []

    def _refusal(self, seen: Seen) -> Fault | None:
        sent = {**seen.body, **seen.body.get("output_config", {})}
        for name in self.refuses:
            if name in sent:
                return Fault("status", 400, message=REFUSED[name])
        if self._limit(seen) + len(seen.text) // 4 > self.context:
            return Fault("status", 400, message=f"This model's maximum context length is {self.context} tokens.")
        return None

    @staticmethod
    def _limit(seen: Seen) -> int:
        return int(seen.body.get("max_completion_tokens") or seen.body["max_tokens"])

    def _body(self, seen: Seen, fault: Fault | None) -> dict[str, Any]:
        if fault is not None:
            return super()._body(seen, fault)
        text, thought, limit = self.words(seen), self.think(seen), self._limit(seen)
        room = max(0, limit - thought) if self.inside else limit
        is_cut = len(text) // 4 + 1 > room
        said, thought = text[: 4 * room], min(thought, limit) if self.inside else thought
        build = message_body if seen.path == "/v1/messages" else completion_body
        body = build(seen.body, said, "max_tokens" if is_cut else "text")
        spoken = min(len(said) // 4 + 1, room)
        place = self._claude if seen.path == "/v1/messages" else self._openai
        place(body, said, thought, spoken)
        return body

    async def _deliver(self, request: web.Request, seen: Seen, fault: Fault | None) -> web.StreamResponse:
        response = await super()._deliver(request, seen, fault)
        usage = self._body(seen, fault)["usage"]
        sent = ("prompt_tokens", "input_tokens", "cache_read_input_tokens")
        came = usage.get("completion_tokens") or usage["output_tokens"]
        self.charged.append((sum(usage.get(name, 0) for name in sent), came))
        return response

    def _openai(self, body: dict[str, Any], said: str, thought: int, spoken: int) -> None:
        usage, message = body["usage"], body["choices"][0]["message"]
        usage["completion_tokens"] = thought + spoken
        usage["completion_tokens_details"] = {"reasoning_tokens": thought}
        usage["total_tokens"] = usage["prompt_tokens"] + thought + spoken
        if self.where == "field":
            message["reasoning_content"] = FALSE_ANSWER
        elif self.where == "tags":
            message["content"] = f"<think>{FALSE_ANSWER}</think>\n{said}" if said else f"<think>{FALSE_ANSWER}"

    def _claude(self, body: dict[str, Any], said: str, thought: int, spoken: int) -> None:
        usage = body["usage"]
        usage["output_tokens"] = thought + spoken
        usage["output_tokens_details"] = {"thinking_tokens": thought}
        shown = FALSE_ANSWER if self.where == "field" else ""
        halves = [said[: len(said) // 2], said[len(said) // 2 :]]
        blocks = [{"type": "text", "text": half} for half in halves if half]
        body["content"] = [{"type": "thinking", "thinking": shown, "signature": "s"}, *blocks]
