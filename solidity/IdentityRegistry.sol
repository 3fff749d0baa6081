// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";

/// @title Agents as tokens, in the manner of ERC-8004: whoever owns the token is the agent.
/// @notice A development copy with the part of the standard that challenges rely on.
contract IdentityRegistry is ERC721 {
    uint256 private lastAgentId;
    mapping(uint256 agentId => string) private agentURIs;

    event Register(uint256 indexed agentId, address indexed owner, string agentURI);

    constructor() ERC721("Agent Identity", "AGENT") {}

    /// @notice Register the caller as a new agent. Ids count from 1.
    /// @dev Mints without asking the receiver, so that nothing is called and a contract can register itself.
    function register(string calldata agentURI) external returns (uint256 agentId) {
        agentId = ++lastAgentId;
        agentURIs[agentId] = agentURI;
        _mint(msg.sender, agentId);
        emit Register(agentId, msg.sender, agentURI);
    }

    /// @inheritdoc ERC721
    function tokenURI(uint256 agentId) public view override returns (string memory) {
        _requireOwned(agentId);
        return agentURIs[agentId];
    }
}
