"""Set-up shared by tests: what test_evm.py and others use."""

from __future__ import annotations

HEAD = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"


def submission(body: str, *, before: str = "", inside: str = "") -> str:
    function = "function sum(uint256[] calldata xs) external virtual returns (uint256 s)"
    return f"{HEAD}{before}contract Submission {{ {inside} {function} {{ {body} }} }}\n"


PLAIN = submission("for (uint256 i = 0; i < xs.length; i++) { s += xs[i]; }").replace("virtual", "pure")
