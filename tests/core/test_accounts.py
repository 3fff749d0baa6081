"""Loading the signing library must leave the interpreter as it was."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import clara_eval

DEEP = "data:application/json," + "[" * 100_000
SOURCE = Path(clara_eval.__file__).parent
SIGNED = "from clara_eval.core.address import signer_of; signer_of('text', '0x' + '11' * 64 + '1b')"


@pytest.mark.parametrize(
    "load", [SIGNED, "import clara_eval.actions.objections", "import clara_eval.devnet.local_chain"]
)
def test_a_deeply_nested_title_does_not_end_a_process_that_can_sign(load: str) -> None:
    """A poster's metadata nested 100,000 levels deep is read as no title, not as the end of the service."""
    code = f"""
import sys
{load}
from clara_eval.actions.challenges import inline_metadata
print(sys.getrecursionlimit(), inline_metadata(sys.stdin.read()))
"""
    done = subprocess.run([sys.executable, "-c", code], input=DEEP, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "1000 {}"), done.stderr


def test_the_signing_library_is_loaded_in_one_place() -> None:
    """No other module imports `eth_account`, which raises the limit again."""
    loads = re.compile(r"^\s*(?:from|import) (?:eth_account|eth_keyfile|py_ecc)\b", re.MULTILINE)
    found = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if loads.search(path.read_text("utf-8"))]
    assert found == ["core/accounts.py"]
