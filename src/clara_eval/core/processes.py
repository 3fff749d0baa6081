"""A process's name that proves its death: whoever reads it on the same machine can tell whether it still lives.

Comes in: nothing, or a text with such a name in it. Goes out: the name of this process, or whether the named one is
gone. Must hold: "gone" is said only with proof: the same boot of the same kernel, the same process namespace, and no
process with that number, or another one that began at another moment. Where that cannot be known, it may be alive.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

_NAME = re.compile(r"pid-(?P<boot>[0-9a-f]{32})-(?P<space>\d+)-(?P<number>\d+)-(?P<began>\d+)")
_DEAD_STATES = frozenset("ZXx")


def this_process() -> str:
    """The name of this process; one that proves nothing where the system does not tell enough."""
    machine, began = _machine(), _began(os.getpid())
    if machine is None or began is None:
        return f"pid-unknown-{os.getpid()}"
    return f"pid-{machine}-{os.getpid()}-{began}"


def is_gone(text: str) -> bool:
    """Whether the process that is named in this text is certainly dead."""
    found = _NAME.search(text)
    if found is None or f"{found['boot']}-{found['space']}" != _machine():
        return False
    number = int(found["number"])
    # A process of somebody else's, or none that can be: its beginning tells whether it is the one.
    with suppress(PermissionError, OverflowError):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
    began = _began(number)
    return began is not None and began != found["began"]


@cache
def _machine() -> str | None:
    """This boot of this kernel, and the space in which process numbers count."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
        space = re.search(r"\d+", str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        return None
    return f"{boot}-{space[0]}" if space and len(boot) == 32 else None


def _began(number: int) -> str | None:
    """When that process began, in the kernel's own count; "dead" for one that waits to be collected."""
    try:
        told = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if told[0] in _DEAD_STATES else told[19]
