"""Constants and types that several packages share."""

from __future__ import annotations

from typing import Literal, TypeAlias

HarnessLanguage: TypeAlias = Literal["solidity", "javascript", "python"]
LARGEST_NUMBER = 1e12
"""No bound and no feature value is larger than this, in either direction: 1e308 in a range is an attack."""
INTERFACES = ("near", "aci")
Winner = Literal["first", "second", "tie"]
