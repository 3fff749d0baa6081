"""Programs of Debian's that tests use: found on this machine, or installed as root, by one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_INSTALL_SECONDS = 300


def program(names: Sequence[str], package: str) -> str | None:
    """The path of the first of these programs; as root the package is installed where none is there.

    Test processes ask at the same time, and apt refuses whoever comes second: they take turns.
    """
    found = _found(names)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "clara-eval-apt.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            found = _found(names) or _installed(names, package)
    return found


def _installed(names: Sequence[str], package: str) -> str | None:
    wait = ["-o", "DPkg::Lock::Timeout=120"]
    for words in (["update", "-qq"], ["install", "-y", "-qq", package]):
        subprocess.run(["apt-get", *wait, *words], check=False, capture_output=True, timeout=_INSTALL_SECONDS)
    return _found(names)


def _found(names: Sequence[str]) -> str | None:
    places = f"{os.environ['PATH']}:/usr/sbin"
    return next((path for name in names if (path := shutil.which(name, path=places))), None)
