// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// Large trades are informed ones: the fee grows with the share of the pool that is traded.
contract Submission {
    function fee(uint256 x, uint256, uint256 amount, uint256) external pure returns (uint256) {
        uint256 share = (amount * 1_000_000) / x;
        uint256 found = 2_500 + share * 3;
        return found > 100_000 ? 100_000 : found;
    }
}
