"""Open event streams, counted: many at once cannot use up the service."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from clara_eval.interfaces.api.problems import Refusal

MOST_STREAMS = 256
EVENT_SECONDS = 0.5


def counted_stream(state: State, changes: AsyncIterator[ServerSentEvent]) -> EventSourceResponse:
    """A stream that takes one of the places; Refusal 503 where none is left."""
    if state.streams >= MOST_STREAMS:
        raise Refusal(
            503, "Too many event streams are open.", remedy="Poll eval-status.", headers={"retry-after": "30"}
        )
    # Counted before anything is awaited, so that many at once cannot pass the limit together.
    state.streams += 1
    return _CountedStream(changes, ping=15)


class _CountedStream(EventSourceResponse):
    """Gives its place back when it ends, however it ends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            scope["app"].state.streams -= 1
