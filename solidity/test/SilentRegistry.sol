// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title The registry of agents as it stands on Base Sepolia: it emits no events at all.
/// @dev One agent for each address: registering again gives back the id that there is. Ids start at 0.
contract SilentRegistry {
    address[] private owners;
    mapping(address owner => uint256) public balanceOf;
    mapping(uint256 agentId => string) public tokenURI;
    mapping(address owner => uint256) private agentOf;

    function register() external returns (uint256 agentId) {
        return add("");
    }

    function register(string calldata agentURI) external returns (uint256 agentId) {
        return add(agentURI);
    }

    function ownerOf(uint256 agentId) public view returns (address) {
        require(agentId < owners.length, "no such agent");
        return owners[agentId];
    }

    function isAuthorizedOrOwner(address spender, uint256 agentId) external view returns (bool) {
        return ownerOf(agentId) == spender;
    }

    function add(string memory agentURI) private returns (uint256 agentId) {
        if (balanceOf[msg.sender] != 0) return agentOf[msg.sender];
        agentId = owners.length;
        owners.push(msg.sender);
        balanceOf[msg.sender] = 1;
        agentOf[msg.sender] = agentId;
        tokenURI[agentId] = agentURI;
    }
}
