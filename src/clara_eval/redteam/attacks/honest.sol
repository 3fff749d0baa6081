// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;
contract Submission {
    function sum(uint256[] calldata xs) external returns (uint256 s) {
        xs; assembly {
            let end := add(xs.offset, shl(5, xs.length))
            for { let i := xs.offset } lt(i, end) { i := add(i, 32) } {
                let x := calldataload(i)
                s := add(s, x)
                if lt(s, x) { revert(0, 0) }
            }
        }
    }
}
