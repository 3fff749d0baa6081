"""Ask, before anything is paid, whether the lease of the running work is still held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Check = Callable[[], Awaitable[None]]
_check: ContextVar[Check | None] = ContextVar("lease_check", default=None)


@contextmanager
def checking_lease(check: Check) -> Iterator[None]:
    """Have `check_lease` call `check` in everything that runs inside."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


async def check_lease() -> None:
    """Raise if the work that runs now has lost its lease, as after a frozen process thaws."""
    check = _check.get()
    if check is not None:
        await check()
