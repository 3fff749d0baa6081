"""What an instance used is free again when it ends, whatever its submission did."""

from __future__ import annotations

from pathlib import Path

import pytest

from clara_eval.harness import Harness, HarnessSubmission, Language, Machine

MEGABYTE = 1024 * 1024
FILL: dict[Language, str] = {
    "python": "kept = [bytes([n]) * 1000000 for n in range(30)]\ndef one(): return 1\n",
    "javascript": "const kept = [];\nfor (let n = 0; n < 30; n++) kept.push(new Uint8Array(1000000).fill(n + 1));\n"
    "export const one = () => 1;\n",
}
BROKEN: dict[Language, str] = {
    "python": FILL["python"] + "raise ValueError('no')\n",
    "javascript": FILL["javascript"] + "throw new Error('no');\n",
}
HARNESSES: dict[Language, str] = {
    "python": "".join(f"def test_{n}(s): assert s.one() == 1\n" for n in range(4)),
    "javascript": "".join(f"export function test_{n}(s) {{ if (s.one() !== 1) throw 1; }}\n" for n in range(4)),
}


def resident(machine: Machine) -> int:
    """Bytes of memory of the only worker process."""
    (worker,) = machine._workers._idle
    return int(Path(f"/proc/{worker._process.pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_instances_that_fill_their_memory_leave_none_of_it_in_use(language: Language) -> None:
    """Thirty megabytes in each of a dozen instances, loaded or refused, do not add up in the process that runs them."""
    machine = Machine(workers=1)
    harness = Harness(language, HARNESSES[language])

    def job(source: str) -> str:
        return machine.run(harness, HarnessSubmission(language, source)).outcome

    try:
        assert job(FILL[language]) == "passed"
        before = resident(machine)
        assert job(FILL[language]) == "passed"
        assert [job(BROKEN[language]) for _ in range(4)] == ["does_not_load"] * 4
        assert resident(machine) - before < 45 * MEGABYTE
    finally:
        machine.close()
