"""What a test says about a contract: this must be refused, with that error.

Comes in: the error's name and values. Goes out: a context manager that fails unless exactly this refusal is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clara_eval.devnet.anvil import NodeRefused


@contextmanager
def refuses(name: str, *values: object) -> Iterator[None]:
    """The block must be refused with this custom error and these values."""
    try:
        yield
    except NodeRefused as refused:
        found = refused.refusal
        if found is None or (found.name, found.values) != (name, values):
            raise AssertionError(f"expected {name}{values}, but: {refused}") from refused
    else:
        raise AssertionError(f"expected {name}{values}, but nothing was refused")
