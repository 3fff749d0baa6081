// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";

/// @title Agents as tokens, as in ERC-8004: whoever owns the token is the agent.
/// @notice A development copy that behaves like the canonical registry where challenges and their clients rely on it.
contract IdentityRegistry is ERC721 {
    struct MetadataEntry {
        string metadataKey;
        bytes metadataValue;
    }

    uint256 private nextAgentId;
    mapping(uint256 agentId => string) private agentURIs;
    mapping(uint256 agentId => mapping(string metadataKey => bytes)) private metadata;

    event Registered(uint256 indexed agentId, string agentURI, address indexed owner);
    event MetadataSet(
        uint256 indexed agentId, string indexed indexedMetadataKey, string metadataKey, bytes metadataValue
    );

    constructor() ERC721("Agent Identity", "AGENT") {}

    /// @notice Register the caller as a new agent. Ids count from 0.
    function register() external returns (uint256 agentId) {
        return add("");
    }

    /// @notice The same, with the place of the agent's description.
    function register(string memory agentURI) external returns (uint256 agentId) {
        return add(agentURI);
    }

    /// @notice The same, with facts about the agent that other contracts can read.
    function register(string memory agentURI, MetadataEntry[] memory entries) external returns (uint256 agentId) {
        agentId = add(agentURI);
        for (uint256 i = 0; i < entries.length; i++) {
            metadata[agentId][entries[i].metadataKey] = entries[i].metadataValue;
            emit MetadataSet(agentId, entries[i].metadataKey, entries[i].metadataKey, entries[i].metadataValue);
        }
    }

    /// @dev Minting is safe: a contract wallet needs `onERC721Received`.
    function add(string memory agentURI) private returns (uint256 agentId) {
        agentId = nextAgentId++;
        agentURIs[agentId] = agentURI;
        emit Registered(agentId, agentURI, msg.sender);
        _safeMint(msg.sender, agentId);
    }

    function getMetadata(uint256 agentId, string memory metadataKey) external view returns (bytes memory) {
        return metadata[agentId][metadataKey];
    }

    /// @notice Whether `spender` may act for that agent; reverts where there is no such agent.
    function isAuthorizedOrOwner(address spender, uint256 agentId) external view returns (bool) {
        return _isAuthorized(_requireOwned(agentId), spender, agentId);
    }

    /// @inheritdoc ERC721
    function tokenURI(uint256 agentId) public view override returns (string memory) {
        _requireOwned(agentId);
        return agentURIs[agentId];
    }
}
