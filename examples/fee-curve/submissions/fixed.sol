// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

contract Submission {
    /// In millionths: three tenths of a percent, whatever happens.
    function fee(uint256, uint256, uint256, uint256) external pure returns (uint256) {
        return 3_000;
    }
}
