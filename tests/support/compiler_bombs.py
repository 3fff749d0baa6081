"""Short Solidity texts that keep a compiler busy, or take its memory."""

from __future__ import annotations

HEAD = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"


def _doubling(first: str, more: str, last: str) -> str:
    return HEAD + first + "".join(more.format(n, n - 1) for n in range(1, 24)) + last


def _contract(statement: str, inside: str = "") -> str:
    return (
        f"{HEAD}contract Submission {{ {inside} function work() external pure returns (uint256 s) {{ {statement} }} }}"
    )


COMPILER_BOMBS = {
    "one long block": _contract(
        "s = 1; assembly { " + "".join(f"mstore(add(s,{n}),mload(add(s,{7 * n % 3000})))" for n in range(2_960)) + " }"
    ),
    "one long modifier": _contract(
        "s = 1;",
        inside="modifier m(uint256 x) { assembly { "
        + "".join(f"mstore(add(x,{n}),mload(add(x,{7 * n % 250})))" for n in range(250))
        + " } _; } "
        + "".join(f"function f{n}() external m({n}) {{ }} " for n in range(200)),
    ),
    "many long blocks": _contract(
        "s = 1;",
        inside="".join(
            f"function f{m}(uint256 x) external pure {{ assembly {{ "
            + "".join(f"mstore(add(x,{n}),mload(add(x,{7 * n % 300})))" for n in range(300))
            + " } }"
            for m in range(9)
        ),
    ),
    "parentheses": _contract("s = " + "(" * 20_000 + "1" + ")" * 20_000 + ";"),
    "powers": _contract("s = " + "2**" * 3_000 + "2;"),
    "structs": _doubling(
        "struct A0 { uint256 a; }",
        "struct A{0} {{ A{1} a; A{1} b; }}",
        "contract Submission { A23 x; function f() external { delete x; } }",
    ),
    "structs in arrays": _doubling(
        "struct A0 { uint256[] a; }",
        "struct A{0} {{ A{1}[] a; }}",
        "contract Submission { function f(A23 calldata a) external pure returns (A23 memory) { return a; } }",
    ),
    "arrays": _contract("s = 1;", inside=f"function f(uint256{'[]' * 60} calldata) external {{}}"),
    "constants": _doubling(
        "uint256 constant C0 = 1;", "uint256 constant C{0} = C{1} + C{1};", _contract("s = C23;").removeprefix(HEAD)
    ),
    "contracts": _doubling(
        "contract C0 { uint256 public a = 1; }",
        "contract B{0} {{ C{1} a = new C{1}(); }} contract C{0} {{ C{1} a = new C{1}(); B{0} b = new B{0}(); }}",
        "contract Submission { C23 a = new C23(); }",
    ),
    "modifiers": _contract("s = 1;", inside="modifier m { _; _; } function f() external " + "m " * 30 + "{ this; }"),
    "a deep call stack": HEAD
    + "contract Submission { function g() external { assembly { function f0(a) -> b { b := add(a, 1) }"
    + "".join(f"function f{n}(a) -> b {{ b := f{n - 1}(f{n - 1}(a)) }}" for n in range(1, 40))
    + " sstore(0, f39(1)) } } }",
}
