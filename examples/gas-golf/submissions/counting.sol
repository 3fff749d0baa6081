// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

interface IToken20 {
    function transfer(address to, uint256 amount) external returns (bool);
}

/// Right, but it keeps a ledger that nobody asked for.
contract Submission {
    uint256 public sent;
    mapping(address => uint256) public paid;
    event Paid(address indexed to, uint256 amount);

    function send(address token, address[] memory to, uint256[] memory amounts) public {
        require(to.length == amounts.length, "lengths differ");
        for (uint256 index = 0; index < to.length; index++) {
            bool done = IToken20(token).transfer(to[index], amounts[index]);
            require(done, "the token refused");
            sent += amounts[index];
            paid[to[index]] += amounts[index];
            emit Paid(to[index], amounts[index]);
        }
    }
}
