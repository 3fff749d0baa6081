// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

interface ITransfer {
    function transfer(address to, uint256 amount) external returns (bool);
}

/// The loop without checks that can never fail.
contract Submission {
    error Lengths();
    error Refused();

    function send(address token, address[] calldata to, uint256[] calldata amounts) external {
        uint256 n = to.length;
        if (n != amounts.length) revert Lengths();
        for (uint256 i; i < n; ) {
            if (!ITransfer(token).transfer(to[i], amounts[i])) revert Refused();
            unchecked {
                ++i;
            }
        }
    }
}
