"""One thing a reader of a result should know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Remark:
    """`review` means that a person looks before money moves; `account` is whom it is about."""

    code: str
    sentence: str
    severity: Literal["warn", "review"]
    account: str | None = None
