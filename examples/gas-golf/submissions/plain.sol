// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

interface IToken {
    function transfer(address to, uint256 amount) external returns (bool);
}

contract Submission {
    function send(address token, address[] memory to, uint256[] memory amounts) external {
        require(to.length == amounts.length, "lengths");
        for (uint256 i = 0; i < to.length; i++) {
            require(IToken(token).transfer(to[i], amounts[i]), "transfer");
        }
    }
}
