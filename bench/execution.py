"""What running submissions costs: 25 Solidity submissions under ten tests each, compiled once, then run again.

Prints one JSON document: seconds to compile, to run and in all, per submission and for the round, with the target that
a round whose compilations are cached adds less than 10 s.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clara_eval.execution import Executed, Harness, Machine, Submission

SUBMISSIONS = 25
TESTS = 10
AT_ONCE = 2
TARGET_SECONDS = 10.0
HEAD = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"


def harness() -> Harness:
    tests = "".join(
        f"function test_{n}() external view {{ require(s.sum(numbers({n})) == {n * (n + 1) // 2}); }}\n"
        for n in range(TESTS)
    )
    source = f"""{HEAD}import "./Submission.sol";
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


def submission(number: int) -> Submission:
    body = f"for (uint256 i = 0; i < xs.length; i++) {{ s += xs[i]; }} s += {number} - {number};"
    function = f"function sum(uint256[] calldata xs) external pure returns (uint256 s) {{ {body} }}"
    return Submission("solidity", f"{HEAD}contract Submission {{ {function} }}")


def round_of(machine: Machine, count: int) -> tuple[float, list[Executed]]:
    started, program = time.perf_counter(), harness()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda number: machine.run(program, submission(number)), range(count)))
    return time.perf_counter() - started, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five submissions instead of 25")
    count = 5 if parser.parse_args().quick else SUBMISSIONS
    with tempfile.TemporaryDirectory() as place:
        machine = Machine(cache=Path(place), workers=AT_ONCE)
        cold, first = round_of(machine, count)
        warm, second = round_of(machine, count)
        machine.close()
    assert first == second, "the same submissions measured differently"
    assert all(one.outcome == "passed" for one in first)
    row = {
        "submissions": count,
        "tests": TESTS,
        "seconds": {"compileAndRun": round(cold, 3), "run": round(warm, 3), "compile": round(cold - warm, 3)},
        "perSubmission": {"compile": round((cold - warm) / count, 4), "run": round(warm / count, 5)},
        "target": f"a round adds less than {TARGET_SECONDS:g} s once compiled",
        "pass": warm < TARGET_SECONDS,
    }
    print(json.dumps({"rows": [row]}, indent=2))


if __name__ == "__main__":
    main()
