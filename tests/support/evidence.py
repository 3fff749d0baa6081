"""Set-up shared by tests: what test_evidence.py and others use."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

ANSWERS = 800


def answers(count: int) -> Iterator[tuple[str, object]]:
    """What a large round of models says, made while it is written; some 14 kB each, as signed answers are."""
    yield "header", {"rules": 6}
    for number in range(count):
        yield f"answer/0x{number:064x}", {"llm": "openai:x", "answer": {"text": f"{number} " * 3500, "stop": "end"}}
    yield "calldata", "0x"


@contextmanager
def peak() -> Iterator[list[int]]:
    """The most memory that was held at once inside, in bytes, beyond what was held before."""
    gc.collect()
    tracemalloc.start()
    most: list[int] = []
    try:
        yield most
    finally:
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
