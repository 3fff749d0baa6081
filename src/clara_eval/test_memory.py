"""Memory that was freed goes back to the system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clara_eval.memory import give_back


def resident() -> int:
    """Kilobytes that this process holds now."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_was_freed_goes_back_even_below_something_that_is_still_held() -> None:
    """A hole in the middle of the heap is given back; without the call it stays resident."""
    held = [bytearray(b"x") * 60_000 for _ in range(2_000)]
    last = held.pop()
    before = resident()
    held.clear()
    give_back()
    assert resident() < before - 80_000
    assert last
