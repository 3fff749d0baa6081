"""Freed memory, given back to the system.

The C library keeps what large tables leave behind, because more may come; a service that rates a large round now and
then would hold for good what the round took. Comes in: nothing. Goes out: nothing; where the C library has no such
call, it keeps what it keeps.
"""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """A few milliseconds: to be called between the large steps of large rounds."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not
        if trim is not None:
            trim(0)
