"""What a judge can say about two entries that are shown one after the other."""

from __future__ import annotations

from typing import Literal

Winner = Literal["first", "second", "tie"]
