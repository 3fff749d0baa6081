// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Submission} from "./Submission.sol";

interface Largest {
    function largest(uint256[] calldata list) external pure returns (uint256);
}

contract Harness {
    Largest found;

    function setUp() external {
        found = Largest(address(new Submission()));
    }

    function numbers(uint256 n, uint256 step) internal pure returns (uint256[] memory list) {
        list = new uint256[](n);
        for (uint256 i = 0; i < n; ++i) list[i] = (7 + i * step) % 101;
    }

    function test_one() external view {
        require(found.largest(numbers(1, 3)) == 7, "one");
    }

    function test_ascending() external view {
        require(found.largest(numbers(5, 3)) == 19, "ascending");
    }

    function test_mixed() external view {
        require(found.largest(numbers(20, 37)) == 94, "mixed");
    }

    function test_empty_reverts() external view {
        try found.largest(new uint256[](0)) {
            revert("accepted");
        } catch {}
    }

    function metric_gas_of_twenty() external view returns (uint256) {
        uint256[] memory list = numbers(20, 37);
        uint256 before = gasleft();
        found.largest(list);
        return before - gasleft();
    }
}
