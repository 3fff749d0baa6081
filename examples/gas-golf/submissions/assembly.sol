// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// One piece of memory for every call, written anew only where it differs.
contract Submission {
    function send(address token, address[] calldata to, uint256[] calldata amounts) external {
        assembly {
            let n := to.length
            if iszero(eq(n, amounts.length)) { revert(0, 0) }
            mstore(0, shl(224, 0xa9059cbb))
            let end := shl(5, n)
            for { let i := 0 } lt(i, end) { i := add(i, 32) } {
                mstore(4, calldataload(add(to.offset, i)))
                mstore(36, calldataload(add(amounts.offset, i)))
                if iszero(call(gas(), token, 0, 0, 68, 68, 32)) { revert(0, 0) }
                if iszero(mload(68)) { revert(0, 0) }
            }
            mstore(64, 128)
        }
    }
}
