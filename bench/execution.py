"""Measure what running submissions costs, and check that results do not depend on the load.

Prints one JSON document. First row: 25 Solidity submissions with ten tests each, seconds to compile, to run and in
total; target: a round with cached compilations adds less than 10 s. Then one row per engine: a hundred runs in each of
two processes while every core is busy; target: all give equal numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.harness import Executed, Harness, HarnessSubmission, Language, Machine
from clara_eval.harness.machine import look_at
from clara_eval.harness.model import LANGUAGES

SUBMISSIONS = 25
TESTS = 10
AT_ONCE = 2
TARGET_SECONDS = 10.0
REPEATS = 100
PROCESSES = 2
SPIN = "while True: sum(range(100_000))"
HEAD = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"


def harness() -> Harness:
    tests = "".join(
        f"function test_{n}() external view {{ require(s.sum(numbers({n})) == {n * (n + 1) // 2}); }}\n"
        for n in range(TESTS)
    )
    source = f"""{HEAD}import {{Submission}} from "./Submission.sol";
contract Harness {{
    Submission s;
    function setUp() external {{ s = new Submission(); }}
    function numbers(uint256 n) internal pure returns (uint256[] memory a) {{
        a = new uint256[](n);
        for (uint256 i = 0; i < n; ++i) a[i] = i + 1;
    }}
    {tests}
}}"""
    return Harness("solidity", source)


def submission(number: int) -> HarnessSubmission:
    body = f"for (uint256 i = 0; i < xs.length; i++) {{ s += xs[i]; }} s += {number} - {number};"
    function = f"function sum(uint256[] calldata xs) external pure returns (uint256 s) {{ {body} }}"
    return HarnessSubmission("solidity", f"{HEAD}contract Submission {{ {function} }}")


SCRIPTS: dict[Language, tuple[str, str]] = {
    "javascript": (
        """export const test_sum = (s) => { if (s.sum([1, 2]) !== 3) throw new Error("sum"); };
export const metric_chance = (s) => s.sum([Math.random(), s.chance()]);""",
        """export const sum = (list) => list.reduce((a, b) => a + b, 0);
export const chance = () => Math.random();""",
    ),
    "python": (
        """def test_sum(s):
    assert s.add([1, 2]) == 3

def metric_chance(s):
    return s.chance()
""",
        """import random

def add(numbers):
    return sum({str(n): n for n in numbers}.values())

def chance():
    return random.random()
""",
    ),
}


def repeated(language: Language, runs: int) -> None:
    """Return the hashes of all results of these runs; called in its own process."""
    program, work = harness(), submission(0)
    if language != "solidity":
        source, text = SCRIPTS[language]
        program, work = Harness(language, source), HarnessSubmission(language, text)
    machine = Machine(workers=1)
    found = [machine.run(program, work) for _ in range(runs)]
    machine.close()
    assert {one.outcome for one in found} == {"passed"}, {one.detail for one in found}
    print(json.dumps(sorted({sha256_hex(plain_json(one.to_json()).encode()) for one in found})))


def same_under_load(language: Language, runs: int) -> dict[str, Any]:
    """Return a row with the number of different results of one submission under load."""
    started = time.perf_counter()
    load = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    command = [sys.executable, __file__, "--repeat", language, "--runs", str(runs)]
    try:
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
        seen = {one for process in running for one in json.loads(process.communicate()[0])}
    finally:
        for process in load:
            process.kill()
            process.wait()
    return {
        "engine": language,
        "runs": runs,
        "processes": PROCESSES,
        "differentResults": len(seen),
        "seconds": round(time.perf_counter() - started, 1),
        "target": "the same numbers in every run, in every process, while every core is busy",
        "pass": len(seen) == 1,
    }


def round_of(machine: Machine, count: int) -> tuple[float, list[Executed]]:
    started, program = time.perf_counter(), harness()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda number: machine.run(program, submission(number)), range(count)))
    return time.perf_counter() - started, found


def cost_of_a_round(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        machine = Machine(cache=Path(place), workers=AT_ONCE)
        cold, first = round_of(machine, count)
        warm, second = round_of(machine, count)
        machine.close()
    assert first == second, "the same submissions measured differently"
    assert all(one.outcome == "passed" for one in first)
    return {
        "submissions": count,
        "tests": TESTS,
        "seconds": {"compileAndRun": round(cold, 3), "run": round(warm, 3), "compile": round(cold - warm, 3)},
        "perSubmission": {"compile": round((cold - warm) / count, 4), "run": round(warm / count, 5)},
        "target": f"a round adds less than {TARGET_SECONDS:g} s once compiled",
        "pass": warm < TARGET_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five submissions instead of 25, five runs instead of 100")
    parser.add_argument("--repeat", choices=LANGUAGES, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=REPEATS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.repeat:
        repeated(asked.repeat, asked.runs)
        return
    machine = Machine()
    engines = [language for language in LANGUAGES if look_at(machine, language).state != "missing"]
    machine.close()
    rows = [cost_of_a_round(5 if asked.quick else SUBMISSIONS)]
    rows += [same_under_load(language, 5 if asked.quick else asked.runs) for language in engines]
    print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
