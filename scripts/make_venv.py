"""Create the virtual environment with `uv`, on a machine that has only python3 and pip.

Run as `python3 scripts/make_venv.py DIR`. Uses the standard `venv`, or `virtualenv` from pip if the system's
Python has no `venv`. An environment that already works is kept.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

UV = "uv==0.13.7"


def main(target: Path) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - this may run on any python3
        sys.exit(f"Clara Eval needs Python 3.11 or newer; python3 is {sys.version.split()[0]}.")
    python = target / "bin" / "python"
    if not works(python, "import pip"):
        make(target)
    if not works(python, "import uv"):
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV], check=True)


def works(python: Path, code: str) -> bool:
    return python.exists() and subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def make(target: Path) -> None:
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", target], check=False)
    if made.returncode != 0:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--user", "virtualenv"], check=True)
        subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", "--clear", target], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
