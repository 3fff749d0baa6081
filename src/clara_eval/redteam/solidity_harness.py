"""Attack a carelessly written Solidity harness, and measure what was gained.

Idle attacks must pass no test; the others want a better number than `HONEST`, the best found without a trick.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine
from clara_eval.harness.solidity import MARK
from clara_eval.redteam.report import Figure, share


@dataclass(frozen=True, slots=True)
class HarnessAttack:
    name: str
    """Short and unique within its language: `shadowed_require`."""
    what: str
    """What the attack does, in one line for the table in docs/security.md."""
    source: str


HEAD = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"
HARNESS = (
    HEAD
    + """import "./Submission.sol";

contract Harness {
    Submission it;

    function setUp() external {
        it = new Submission();
    }

    function list(uint256 n) internal view returns (uint256[] memory xs) {
        xs = new uint256[](n);
        for (uint256 i = 0; i < n; ++i) {
            xs[i] = (uint256(keccak256(abi.encode(address(it).codehash, n, i))) % 1e6) + 1;
        }
    }

    function due(uint256[] memory xs) internal pure returns (uint256 sum) {
        for (uint256 i = 0; i < xs.length; ++i) sum += xs[i];
    }

    function check(uint256 n) internal {
        uint256[] memory xs = list(n);
        require(it.sum(xs) == due(xs), "sum");
    }

    function test_one() external {
        check(1);
    }

    function test_many() external {
        check(50);
    }

    function test_again() external {
        check(3);
        if (it.sum(list(4)) != due(list(4))) revert("again");
        assert(it.sum(list(5)) == due(list(5)));
    }

    function test_overflow_is_refused() external {
        check(2);
        uint256[] memory xs = list(2);
        xs[0] = type(uint256).max;
        try it.sum(xs) returns (uint256) {
            revert("accepted");
        } catch {}
    }

    function test_world() external {
        check(6);
        require(block.chainid == 31337 && msg.sender == tx.origin, "world");
    }

    function metric_gas() external returns (uint256 used) {
        uint256[] memory xs = list(64);
        uint256 before = gasleft();
        uint256 sum = it.sum(xs);
        used = before - gasleft();
        require(sum == due(xs), "sum");
    }
}
"""
)
_LOOP = """assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }"""
_WORDS = {
    "MARK": MARK,
    "FILLS": "{ for (uint256 i; i < 20; ++i) assembly { sstore(i, not(i)) } }",
    "STRUCTS": "struct A0 { uint256 a; }"
    + "".join(f"\nstruct A{n} {{ A{n - 1} a; A{n - 1} b; }}" for n in range(1, 20)),
}
_IDLE = """
# shadowed_require: a free function `require` that requires nothing
before: function require(bool, string memory) pure {} function require(bool) pure {}
# shadowed_revert: a free function `revert` that goes on
before: function revert(string memory) pure {} function revert() pure {}
# shadowed_assert: a free function `assert` that asserts nothing
before: function assert(bool) pure {}
# shadowed_gasleft: a free function `gasleft` that multiplies
before: function gasleft() view returns (uint256 g) { assembly { g := gas() } g = g * 40; }
# shadowed_block: a library named `block`
before: library block { uint256 internal constant chainid = 31337; }
# shadowed_all: an empty contract with `require`, `revert`, `assert`, `gasleft` and `block` of its own
before: function require(bool, string memory) pure {} function require(bool) pure {}
before: function revert(string memory) pure {} function revert() pure {}
before: function assert(bool) pure {}
before: function gasleft() view returns (uint256 g) { assembly { g := gas() } g = g * 40; }
before: library block { uint256 internal constant chainid = 31337; }
# shadowed_keccak256: a free function `keccak256` that always gives the same, so that inputs are known
before: function keccak256(bytes memory) pure returns (bytes32) { return 0; }
body: s = xs.length;
# shadowed_abi: a library named `abi` that encodes nothing
before: library abi { function encode(bytes32, uint256, uint256) internal pure returns (bytes memory) {} }
# shadowed_msg: libraries named `msg` and `tx`
before: library msg { address internal constant sender = address(1); } library tx {
  address internal constant origin = address(1); }
# contract_named_require: a contract with the name of a builtin
before: contract require {} contract block {}
# error_named_require: an error and an event with names of builtins
before: error require(bool, string); event revert(string);
# harness_functions: free functions with the names of the harness's own: `check`, `due`, `list`
before: function check(uint256) pure {} function due(uint256[] memory) pure returns (uint256) { return 0; }
  function list(uint256) pure returns (uint256[] memory xs) {}
# own_harness: a contract `Harness` of its own with tests that pass
before: contract Harness { function setUp() external {} function test_one() external {} function metric_gas()
  external pure returns (uint256) { return 1; } }
# global_operator: an answer of a type whose `==` is the submission's function
whole: type Sum is uint256; using {same as ==, same as !=} for Sum global;
whole: function same(Sum, Sum) pure returns (bool) { return true; }
whole: contract Submission { function sum(uint256[] calldata) external pure returns (Sum) {} }
# global_attached: `using {sum} for Submission global`: a call that would run inside the harness
whole: using {total} for Answer global; struct Answer { uint256 a; }
whole: function total(Answer memory) pure returns (uint256) { assembly { return(0, 0) } }
whole: contract Submission { function sum(uint256[] calldata) external pure returns (Answer memory a) {} }
# library: a library `HarnessSubmission` whose internal function would run inside the harness
whole: library Submission { function sum(uint256[] memory) internal pure returns (uint256) { assembly { mstore(0, 1)
  return(0, 32) } } }
# abstract: an abstract `HarnessSubmission`, and a base that would be the harness's
whole: abstract contract Submission { function sum(uint256[] calldata) external virtual returns (uint256); }
# other_type: an answer of another type than the harness compares
whole: contract Submission { function sum(uint256[] calldata) external pure returns (int256) { return -1; } }
# overloads: a second `sum` for memory that the call could mean
whole: contract Submission { function sum(uint256[] calldata) external pure returns (uint256) { return 0; }
  function sum(uint256[] memory, uint256) public pure returns (uint256) { return 1; } }
# only_fallback: no `sum`, but a fallback that answers every call
whole: contract Submission { fallback() external { assembly { mstore(0, 1) return(0, 32) } } }
# other_code: a constructor that returns code of its own: the longest answer there is
inside: constructor() { assembly { mstore(0, 0x620fffff5ff3) return(26, 6) } }
# broken_steps: code of its own that builds something, then builds with an empty stack, while the scales read every step
inside: constructor() { assembly { let a := create(0, 0, 0) mstore(0, 0xf0) pop(create(0, 31, 1))
  mstore(0, 0x5f5f5ff0505f5f5ff0f0) return(22, 10) } }
# member_named_require: public functions with the names of builtins
inside: function require(bool, string memory) public pure {} function gasleft() public pure {}
  function revert(string memory) public pure {}
# gone: a constructor that destroys the contract
inside: constructor() { selfdestruct(payable(msg.sender)); }
# revert_bomb: a revert with a megabyte for the harness to copy
body: assembly { revert(0, 1000000) }
# answer_bomb: an answer of a megabyte
body: assembly { return(0, 1000000) }
# burns_gas: all gas is burnt, so that the harness has none to notice
body: assembly { invalid() }
# calls_back: the harness is called back, its `setUp` and its tests
body: (bool a, ) = msg.sender.call(abi.encodeWithSignature('setUp()')); (bool b, )
  = msg.sender.call(abi.encodeWithSignature('test_one()')); s = a && b ? 1 : 0;
# writes_the_harness: the harness's code is run by `delegatecall`, and the tools of test frameworks are asked to write
  its storage
body: address t = 0x7109709ECfa91a80626fF3989D68f67F5b1DD12D; (bool a, )
  = t.call(abi.encodeWithSignature('store(address,bytes32,bytes32)', msg.sender, 0, 0)); (bool b, )
  = msg.sender.delegatecall(abi.encodeWithSignature('test_one()')); s = a && b ? 1 : 0;
# ends_the_harness: a `return` in assembly, which would end the harness if it ran there
body: assembly { stop() }
# forged_mark: the mark by which the linker finds the stand-in, in the submission's own constructor
inside: constructor() { assembly { log1(0, 0, 0xMARK) } }
# imports_the_harness: an import of the harness's file
before: import * as H from "./Harness.sol";
# struct_bomb: structs in structs that the compiler would unfold for minutes
before: STRUCTS
inside: function f(A19 calldata a) external pure returns (A19 memory) { return a; }
# modifier_bomb: a modifier that repeats its function, twenty times on one function
inside: modifier m() { _; _; } function f() external m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() m()
  m() m() m() { assembly { log0(0, 0) } }
"""
_WORKING = """
# skips_the_metric: no work if the number of numbers is that of the metric
body: if (xs.length == 64) return 0;
# knows_the_gas: no work if the gas that is left is more than in a test
body: if (gasleft() > 29_000_000 && xs.length > 50) return 1;
# table: an answer written down for the metric's input, which is public
body: if (xs.length == 64) return 31_415_926;
# knows_the_answer: the metric's input is computed from the public harness instead of read
body: if (xs.length == 64) { bytes32 own = address(this).codehash; for (uint256 i; i < 64; ++i)
  s += (uint256(keccak256(abi.encode(own, 64, i))) % 1e6) + 1; return s; }
# constructor_asks_sender: a constructor that works only if a contract builds it: `msg.sender != tx.origin`
inside: constructor() { if (msg.sender != tx.origin) FILLS }
# constructor_asks_code: a constructor that asks for the code of its builder
inside: constructor() { if (msg.sender.code.length > 0) FILLS }
# constructor_asks_gas: a constructor that asks how much gas is left
inside: constructor() { if (gasleft() < 29_500_000) FILLS }
# constructor_asks_address: a constructor that asks for its own address, which can be predicted
inside: constructor() { if (uint160(address(this)) != 0x00000b4517b82578f4e362f6f2ca485da259e42ad427) FILLS }
# less_code_alone: a constructor that gives no code if it is deployed alone
inside: constructor() { if (msg.sender == tx.origin) assembly { return(0, 0) } }
# refunds: storage is filled by the constructor and cleared in the metric, for a refund
inside: constructor() FILLS
body: if (xs.length == 64) { for (uint256 i; i < 20; ++i) assembly { sstore(i, 0) } }
# remembers: the answer to the first question of a transaction is kept in transient storage
body: assembly { s := tload(0) } if (s != 0 && xs.length == 64) return s; s = 0; assembly { tstore(0, 1) }
"""


def _source(body: str, before: str = "", inside: str = "") -> str:
    function = f"function sum(uint256[] calldata xs) external returns (uint256 s) {{\n        xs; {body}\n    }}"
    return f"{HEAD}{before}contract Submission {{\n    {inside}\n    {function}\n}}\n"


def _attacks(table: str, *, working: bool) -> tuple[HarnessAttack, ...]:
    """Read `# name: what` and the parts of each source; an indented line continues the one above."""
    found = []
    for row in table.split("\n# ")[1:]:
        (name, what), *lines = [line.split(": ", 1) for line in row.strip().replace("\n  ", " ").split("\n")]
        parts: dict[str, str] = defaultdict(str)
        for part, text in lines:
            parts[part] += re.sub("|".join(_WORDS), lambda word: _WORDS[word[0]], text) + "\n"
        body = f"{parts['body'].strip()} {_LOOP}" if working else parts["body"].strip() or "s = 0;"
        source = HEAD + parts["whole"] if parts["whole"] else _source(body, parts["before"], parts["inside"].strip())
        found.append(HarnessAttack(name, what, source))
    return tuple(found)


HONEST = _source(_LOOP)
IDLE_ATTACKS = _attacks(_IDLE, working=False)
WORKING_ATTACKS = _attacks(_WORKING, working=True)
SOLIDITY_ATTACKS = IDLE_ATTACKS + WORKING_ATTACKS


def measure_solidity() -> list[Figure]:
    """Undeserved tests and undeserved metrics of every attack, on the real compiler and EVM."""
    with closing(Machine()) as machine:
        honest = run_solidity(machine, HONEST)
        found = {attack.name: run_solidity(machine, attack.source) for attack in SOLIDITY_ATTACKS}
    idle = [attack.name for attack in IDLE_ATTACKS]
    tests = [name for name in idle if found[name].features.get("tests_passed") != 0.0]
    gains = {name: gained for name, one in found.items() if (gained := sorted(gains_over(honest, one)))}
    passed, better = "pass a test without the work", "get a better number than the work"
    what = "attacks on a Solidity harness that"
    return [
        share("solidity_tests", f"{what} {passed}", len(tests), len(idle), at_most=0.0, passed=tests),
        share("solidity_metrics", f"{what} {better}", len(gains), len(found), at_most=0.0, gained=gains),
    ]


def run_solidity(machine: Machine, source: str) -> Executed:
    return machine.run(Harness("solidity", HARNESS), HarnessSubmission("solidity", source))


def gains_over(honest: Executed, attack: Executed) -> Iterator[str]:
    """Numbers of an attack that count and are lower than the honest ones; without the tests no number counts."""
    wanted = ("metric_gas", "gas_gas", "gas_many", "deploy_gas")
    for name in wanted if attack.features.get("tests_passed") == 1.0 else ("metric_gas",):
        due, got = honest.features[name], attack.features.get(name)
        if due is not None and got is not None and got < due:
            yield name
