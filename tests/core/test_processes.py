"""Whether a process lives is told with proof or not at all."""

from __future__ import annotations

import os
import subprocess
import sys

from clara_eval.core.processes import is_gone, this_process

SAY = "from clara_eval.core.processes import this_process; print(this_process(), flush=True); input()"


def test_a_process_lives_until_it_is_dead() -> None:
    """This one lives; a killed one is gone at once, also before its parent has collected it."""
    assert not is_gone(this_process())
    with subprocess.Popen(
        [sys.executable, "-c", SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert not is_gone(f"taker:{name}:7")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(f"taker:{name}:7"), "dead and not collected"
    assert is_gone(name)


def test_what_cannot_be_known_may_be_alive() -> None:
    """Another machine, another container, another boot, a name without proof: nobody is called dead."""
    _, boot, space, number, began = this_process().split("-")
    gone = "999999999"
    assert is_gone(f"pid-{boot}-{space}-{gone}-{began}")
    assert is_gone(f"pid-{boot}-{space}-{number}-1"), "the number was given to another process"
    for other in (
        f"pid-{'0' * 32}-{space}-{gone}-1",
        f"pid-{boot}-1-{gone}-1",
        "host-1-abc",
        "",
        f"pid-unknown-{gone}",
    ):
        assert not is_gone(other)
