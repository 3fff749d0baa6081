"""Loading the signing library must leave the interpreter as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEEP = "data:application/json," + "[" * 100_000


@pytest.mark.parametrize("loaded", ["clara_eval.chain.accounts", "clara_eval.devnet.local_chain"])
def test_a_deeply_nested_title_does_not_end_a_process_that_can_sign(loaded: str) -> None:
    """A poster's metadata nested 100,000 levels deep is read as no title, not as the end of the service."""
    code = f"""
import {loaded}, sys
from clara_eval.actions.challenges import inline_metadata
print(sys.getrecursionlimit(), inline_metadata(sys.stdin.read()))
"""
    done = subprocess.run([sys.executable, "-c", code], input=DEEP, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "1000 {}"), done.stderr
