// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;
import "./Submission.sol";

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
