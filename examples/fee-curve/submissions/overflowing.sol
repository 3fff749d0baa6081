// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// A curve from a textbook that nobody tried with large numbers: it leaves its bounds and divides by nothing.
contract Submission {
    function fee(uint256 x, uint256 y, uint256 amount, uint256 volume) external pure returns (uint256) {
        uint256 ratio = (x * 1e6) / y;
        uint256 pressure = (amount * 1e9) / (x / amount);
        return (ratio + pressure) / (1 + volume / 1e15);
    }
}
