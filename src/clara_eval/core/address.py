"""Ethereum addresses in lower case."""

from __future__ import annotations

from typing import NewType

from clara_eval.core.errors import BadInput

Address = NewType("Address", str)
"""0x and 40 lower-case hex digits."""


ZERO_ADDRESS = Address("0x" + "0" * 40)


_HEX = frozenset("0123456789abcdef")


def to_address(text: str, *, what: str = "address") -> Address:
    """Lower the case of an address, or raise BadInput."""
    lowered = text.strip().lower()
    if len(lowered) == 42 and lowered.startswith("0x") and _HEX.issuperset(lowered[2:]):
        return Address(lowered)
    raise BadInput(
        f"{what} {text[:80]!r} is not an address.",
        value=text,
        remedy="An address is 0x followed by 40 hex digits.",
    )


def short(address: str) -> str:
    """Shorten an address, or any hex, for people."""
    return f"{address[:6]}…{address[-4:]}"
