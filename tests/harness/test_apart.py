"""A submission is compiled apart: what the harness gets of it is types from its ABI and its code, to the byte."""

from __future__ import annotations

import pytest
from tests.support.evm import HEAD, PLAIN, submission

from clara_eval.harness import solc
from clara_eval.harness.solc import Compiler, compile_solidity, find_compiler

CALLED = """import {Submission} from "./Submission.sol";
contract Maker {
    function make() external returns (Submission) { return new Submission{salt: 0}(4, "four"); }
}
contract Harness {
    Submission it = new Submission(3, "three");
    bytes32 immutable seed = keccak256(type(Submission).creationCode);
    function test_one() external {
        Submission.Point memory p = it.move(Submission.Point(1, 2));
        Submission other = new Maker().make();
        require(p.x == 2 && other.n() == 4 && seed != 0, "moved");
        try it.refuse() { revert("took it"); } catch (bytes memory why) { require(bytes4(why) == Submission.No.selector); }
        (bool ok, ) = payable(address(it)).call{value: 1}("");
        require(ok, "paid");
    }
}
"""
POINTS = """contract Submission {
    struct Point { uint256 x; uint256 y; }
    error No(uint256 why);
    uint256 public immutable n;
    string name;
    constructor(uint256 a, string memory b) payable { (n, name) = (a, b); }
    function move(Point calldata p) external pure returns (Point memory) { return Point(p.y, p.x); }
    function refuse() external pure { revert No(1); }
    receive() external payable {}
}
"""
SHAPES = {
    "a plain call": (
        PLAIN,
        HEAD + 'import "./Submission.sol"; contract Harness { Submission s = new Submission(); '
        "function test_x() external view { require(s.sum(new uint256[](1)) == 0); } }",
    ),
    "arguments, structs, errors and a maker": (HEAD + POINTS, HEAD + CALLED),
}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    found = find_compiler(None)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_an_honest_submission_gives_the_code_of_a_common_compilation(compiler: Compiler, name: str) -> None:
    """The harness with the code put in is byte for byte what compiling both together would give."""
    source, harness = SHAPES[name]
    apart = compile_solidity(compiler, source, harness)
    assert apart["harness"] is not None, apart["detail"]
    together = solc._standard_input({solc.SUBMISSION_FILE: source, solc.HARNESS_FILE: harness})
    _, (output,) = solc._compile(compiler, [together])
    assert apart["harness"]["code"] == output["contracts"]["Harness.sol"]["Harness"]["evm"]["bytecode"]["object"]


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (
            "function f() external pure returns (bytes memory) { return type(Submission).runtimeCode; }",
            "Use creationCode",
        ),
        ("function f() external { helper(); }", "sees of a submission the contract Submission"),
        ("Submission.Kind k;", "sees of a submission the contract Submission"),
    ],
)
def test_what_would_need_more_of_the_submission_does_not_fit(compiler: Compiler, use: str, reason: str) -> None:
    """Its running code, its free functions and its enums are out of the harness's reach."""
    source = submission("s = 1;", before="function helper() pure {}\n", inside="enum Kind { A }")
    harness = HEAD + f'import "./Submission.sol"; contract Harness {{ {use} function test_x() external {{}} }}'
    found = compile_solidity(compiler, source, harness)
    assert found["outcome"] == "does_not_fit"
    assert reason in found["detail"]
