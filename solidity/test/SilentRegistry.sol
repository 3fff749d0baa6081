// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title The registry of agents as it stands on Base Sepolia: it emits no events at all.
/// @dev An agent's id can only be found by asking who owns it. Ids start at 0.
contract SilentRegistry {
    address[] private owners;
    mapping(address owner => uint256) public balanceOf;
    mapping(uint256 agentId => string) public tokenURI;

    function register(string calldata agentURI) external returns (uint256 agentId) {
        agentId = owners.length;
        owners.push(msg.sender);
        balanceOf[msg.sender] += 1;
        tokenURI[agentId] = agentURI;
    }

    function ownerOf(uint256 agentId) public view returns (address) {
        require(agentId < owners.length, "no such agent");
        return owners[agentId];
    }

    function isAuthorizedOrOwner(address spender, uint256 agentId) external view returns (bool) {
        return ownerOf(agentId) == spender;
    }
}
