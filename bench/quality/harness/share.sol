// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Submission} from "./Submission.sol";

interface Share {
    function share(uint256 total, uint256 people) external pure returns (uint256[] memory);
}

contract Harness {
    Share sharing;

    function setUp() external {
        sharing = Share(address(new Submission()));
    }

    function check(uint256 total, uint256 people) internal view {
        uint256[] memory parts = sharing.share(total, people);
        require(parts.length == people, "length");
        uint256 sum = 0;
        for (uint256 i = 0; i < people; ++i) sum += parts[i];
        require(sum == total, "sum");
    }

    function test_even() external view {
        check(12, 4);
    }

    function test_rest() external view {
        check(14, 4);
    }

    function test_less_than_people() external view {
        check(3, 5);
    }

    function test_nobody_reverts() external view {
        try sharing.share(5, 0) {
            revert("accepted");
        } catch {}
    }

    function metric_gas() external view returns (uint256) {
        uint256 before = gasleft();
        sharing.share(103, 10);
        return before - gasleft();
    }
}
