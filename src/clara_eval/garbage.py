"""How often a serving process looks for garbage that reference counts cannot free.

Nothing comes in or goes out; the collector of this process is set. Only the doors that own their process call it, never
a library's caller. What is loaded by then lives as long as the process and is not looked through again.
"""

from __future__ import annotations

import gc

OBJECTS = 20_000
"""New objects between two looks; Python's own number is 700. An answer makes hundreds that go by themselves."""


def collect_seldom() -> None:
    """Looking was 6 % of the processor time of a round of models; every look stops the event loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, 10, 10)
