//// idle shadowed_require: a free function `require` that requires nothing
function require(bool, string memory) pure {} function require(bool) pure {}
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle shadowed_revert: a free function `revert` that goes on
function revert(string memory) pure {} function revert() pure {}
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle shadowed_assert: a free function `assert` that asserts nothing
function assert(bool) pure {}
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle shadowed_gasleft: a free function `gasleft` that multiplies
function gasleft() view returns (uint256 g) { assembly { g := gas() } g = g * 40; }
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle shadowed_block: a library named `block`
library block { uint256 internal constant chainid = 31337; }
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle shadowed_all: an empty contract with `require`, `revert`, `assert`, `gasleft` and `block` of its own
function require(bool, string memory) pure {} function require(bool) pure {}
function revert(string memory) pure {} function revert() pure {}
function assert(bool) pure {}
function gasleft() view returns (uint256 g) { assembly { g := gas() } g = g * 40; }
library block { uint256 internal constant chainid = 31337; }
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle shadowed_keccak256: a free function `keccak256` that always gives the same, so that inputs are known
function keccak256(bytes memory) pure returns (bytes32) { return 0; }
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = xs.length;
    }
}

//// idle shadowed_abi: a library named `abi` that encodes nothing
library abi { function encode(bytes32, uint256, uint256) internal pure returns (bytes memory) {} }
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle shadowed_msg: libraries named `msg` and `tx`
library msg { address internal constant sender = address(1); } library tx { address internal constant origin = address(1); }
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle contract_named_require: a contract with the name of a builtin
contract require {} contract block {}
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle error_named_require: an error and an event with names of builtins
error require(bool, string); event revert(string);
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle harness_functions: free functions with the names of the harness's own: `check`, `due`, `list`
function check(uint256) pure {} function due(uint256[] memory) pure returns (uint256) { return 0; } function list(uint256) pure returns (uint256[] memory xs) {}
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle own_harness: a contract `Harness` of its own with tests that pass
contract Harness { function setUp() external {} function test_one() external {} function metric_gas() external pure returns (uint256) { return 1; } }
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle global_operator: an answer of a type whose `==` is the submission's function
type Sum is uint256; using {same as ==, same as !=} for Sum global;
function same(Sum, Sum) pure returns (bool) { return true; }
contract Submission { function sum(uint256[] calldata) external pure returns (Sum) {} }

//// idle global_attached: `using {sum} for Submission global`: a call that would run inside the harness
using {total} for Answer global; struct Answer { uint256 a; }
function total(Answer memory) pure returns (uint256) { assembly { return(0, 0) } }
contract Submission { function sum(uint256[] calldata) external pure returns (Answer memory a) {} }

//// idle library: a library `HarnessSubmission` whose internal function would run inside the harness
library Submission { function sum(uint256[] memory) internal pure returns (uint256) { assembly { mstore(0, 1) return(0, 32) } } }

//// idle abstract: an abstract `HarnessSubmission`, and a base that would be the harness's
abstract contract Submission { function sum(uint256[] calldata) external virtual returns (uint256); }

//// idle other_type: an answer of another type than the harness compares
contract Submission { function sum(uint256[] calldata) external pure returns (int256) { return -1; } }

//// idle overloads: a second `sum` for memory that the call could mean
contract Submission { function sum(uint256[] calldata) external pure returns (uint256) { return 0; } function sum(uint256[] memory, uint256) public pure returns (uint256) { return 1; } }

//// idle only_fallback: no `sum`, but a fallback that answers every call
contract Submission { fallback() external { assembly { mstore(0, 1) return(0, 32) } } }

//// idle other_code: a constructor that returns code of its own: the longest answer there is
contract Submission {
    constructor() { assembly { mstore(0, 0x620fffff5ff3) return(26, 6) } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle broken_steps: code of its own that builds something, then builds with an empty stack, while the scales read every step
contract Submission {
    constructor() { assembly { let a := create(0, 0, 0) mstore(0, 0xf0) pop(create(0, 31, 1)) mstore(0, 0x5f5f5ff0505f5f5ff0f0) return(22, 10) } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle member_named_require: public functions with the names of builtins
contract Submission {
    function require(bool, string memory) public pure {} function gasleft() public pure {} function revert(string memory) public pure {}
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle gone: a constructor that destroys the contract
contract Submission {
    constructor() { selfdestruct(payable(msg.sender)); }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle revert_bomb: a revert with a megabyte for the harness to copy
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; assembly { revert(0, 1000000) }
    }
}

//// idle answer_bomb: an answer of a megabyte
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; assembly { return(0, 1000000) }
    }
}

//// idle burns_gas: all gas is burnt, so that the harness has none to notice
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; assembly { invalid() }
    }
}

//// idle calls_back: the harness is called back, its `setUp` and its tests
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; (bool a, ) = msg.sender.call(abi.encodeWithSignature('setUp()')); (bool b, ) = msg.sender.call(abi.encodeWithSignature('test_one()')); s = a && b ? 1 : 0;
    }
}

//// idle writes_the_harness: the harness's code is run by `delegatecall`, and the tools of test frameworks are asked to write its storage
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; address t = 0x7109709ECfa91a80626fF3989D68f67F5b1DD12D; (bool a, ) = t.call(abi.encodeWithSignature('store(address,bytes32,bytes32)', msg.sender, 0, 0)); (bool b, ) = msg.sender.delegatecall(abi.encodeWithSignature('test_one()')); s = a && b ? 1 : 0;
    }
}

//// idle ends_the_harness: a `return` in assembly, which would end the harness if it ran there
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; assembly { stop() }
    }
}

//// idle forged_mark: the mark by which the linker finds the stand-in, in the submission's own constructor
contract Submission {
    constructor() { assembly { log1(0, 0, 0xMARK) } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle imports_the_harness: an import of the harness's file
import * as H from "./Harness.sol";
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle struct_bomb: structs in structs that the compiler would unfold for minutes
struct A0 { uint256 a; }
struct A1 { A0 a; A0 b; }
struct A2 { A1 a; A1 b; }
struct A3 { A2 a; A2 b; }
struct A4 { A3 a; A3 b; }
struct A5 { A4 a; A4 b; }
struct A6 { A5 a; A5 b; }
struct A7 { A6 a; A6 b; }
struct A8 { A7 a; A7 b; }
struct A9 { A8 a; A8 b; }
struct A10 { A9 a; A9 b; }
struct A11 { A10 a; A10 b; }
struct A12 { A11 a; A11 b; }
struct A13 { A12 a; A12 b; }
struct A14 { A13 a; A13 b; }
struct A15 { A14 a; A14 b; }
struct A16 { A15 a; A15 b; }
struct A17 { A16 a; A16 b; }
struct A18 { A17 a; A17 b; }
struct A19 { A18 a; A18 b; }
contract Submission {
    function f(A19 calldata a) external pure returns (A19 memory) { return a; }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// idle modifier_bomb: a modifier that repeats its function, twenty times on one function
contract Submission {
    modifier m() { _; _; } function f() external m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() m() { assembly { log0(0, 0) } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; s = 0;
    }
}

//// works skips_the_metric: no work if the number of numbers is that of the metric
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; if (xs.length == 64) return 0; assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works knows_the_gas: no work if the gas that is left is more than in a test
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; if (gasleft() > 29_000_000 && xs.length > 50) return 1; assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works table: an answer written down for the metric's input, which is public
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; if (xs.length == 64) return 31_415_926; assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works knows_the_answer: the metric's input is computed from the public harness instead of read
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; if (xs.length == 64) { bytes32 own = address(this).codehash; for (uint256 i; i < 64; ++i) s += (uint256(keccak256(abi.encode(own, 64, i))) % 1e6) + 1; return s; } assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works constructor_asks_sender: a constructor that works only if a contract builds it: `msg.sender != tx.origin`
contract Submission {
    constructor() { if (msg.sender != tx.origin) { for (uint256 i; i < 20; ++i) assembly { sstore(i, not(i)) } } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs;  assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works constructor_asks_code: a constructor that asks for the code of its builder
contract Submission {
    constructor() { if (msg.sender.code.length > 0) { for (uint256 i; i < 20; ++i) assembly { sstore(i, not(i)) } } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs;  assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works constructor_asks_gas: a constructor that asks how much gas is left
contract Submission {
    constructor() { if (gasleft() < 29_500_000) { for (uint256 i; i < 20; ++i) assembly { sstore(i, not(i)) } } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs;  assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works constructor_asks_address: a constructor that asks for its own address, which can be predicted
contract Submission {
    constructor() { if (uint160(address(this)) != 0x00000b4517b82578f4e362f6f2ca485da259e42ad427) { for (uint256 i; i < 20; ++i) assembly { sstore(i, not(i)) } } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs;  assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works less_code_alone: a constructor that gives no code if it is deployed alone
contract Submission {
    constructor() { if (msg.sender == tx.origin) assembly { return(0, 0) } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs;  assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works refunds: storage is filled by the constructor and cleared in the metric, for a refund
contract Submission {
    constructor() { for (uint256 i; i < 20; ++i) assembly { sstore(i, not(i)) } }
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; if (xs.length == 64) { for (uint256 i; i < 20; ++i) assembly { sstore(i, 0) } } assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}

//// works remembers: the answer to the first question of a transaction is kept in transient storage
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; assembly { s := tload(0) } if (s != 0 && xs.length == 64) return s; s = 0; assembly { tstore(0, 1) } assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}
