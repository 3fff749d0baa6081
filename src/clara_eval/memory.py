"""How a process handles its memory: how often it looks for garbage, and what it gives back.

Nothing comes in or goes out. The C library keeps what large tables leave behind, because more may come; a service that
rates a large round now and then would hold for good what the round took. Python's collector looks through everything
again and again; only the doors that own their process set it, never a library's caller.
"""

from __future__ import annotations

import ctypes
import gc
import sys

OBJECTS = 20_000
"""New objects between two looks; Python's own number is 700. An answer makes hundreds that go by themselves."""


def collect_seldom() -> None:
    """Looking was 6 % of the processor time of a round of models; every look stops the event loop.

    What is loaded by now lives as long as the process and is not looked through again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, 10, 10)


def give_back() -> None:
    """What was freed goes back to the system: a few milliseconds, between the large steps of large rounds.

    Where the C library has no such call, it keeps what it keeps.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not
        if trim is not None:
            trim(0)
