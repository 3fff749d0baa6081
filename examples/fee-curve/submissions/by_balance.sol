// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// The further the pool is out of balance, the more it asks for going on.
contract Submission {
    function fee(uint256 x, uint256 y, uint256 amount, uint256 volume) external pure returns (uint256) {
        uint256 more = x > y ? x : y;
        uint256 less = x > y ? y : x;
        uint256 tilt = less == 0 ? 100_000 : ((more - less) * 20_000) / more;
        uint256 share = x == 0 ? 0 : (amount * 1_000_000) / x;
        uint256 busy = volume > 1e15 ? 500 : 0;
        uint256 found = 3_500 + tilt + share * 2 + busy;
        return found > 100_000 ? 100_000 : found;
    }
}
