// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

interface IAgents {
    function isAuthorizedOrOwner(address spender, uint256 agentId) external view returns (bool);
}

/// @title Feedback on agents, as in ERC-8004.
/// @notice A development copy that behaves like the canonical registry where the evaluator relies on it.
contract ReputationRegistry {
    struct Feedback {
        int128 value;
        uint8 valueDecimals;
        bool isRevoked;
        string tag1;
        string tag2;
    }

    address private immutable IDENTITY_REGISTRY;
    mapping(uint256 agentId => mapping(address clientAddress => Feedback[])) private feedback;

    event NewFeedback(
        uint256 indexed agentId,
        address indexed clientAddress,
        uint64 feedbackIndex,
        int128 value,
        uint8 valueDecimals,
        string indexed indexedTag1,
        string tag1,
        string tag2,
        string endpoint,
        string feedbackURI,
        bytes32 feedbackHash
    );
    event FeedbackRevoked(uint256 indexed agentId, address indexed clientAddress, uint64 feedbackIndex);

    constructor(address identityRegistry) {
        IDENTITY_REGISTRY = identityRegistry;
    }

    function getIdentityRegistry() external view returns (address) {
        return IDENTITY_REGISTRY;
    }

    /// @notice Anybody but the agent's owner and operators may give feedback; the first has the index 1.
    function giveFeedback(
        uint256 agentId,
        int128 value,
        uint8 valueDecimals,
        string memory tag1,
        string memory tag2,
        string memory endpoint,
        string memory feedbackURI,
        bytes32 feedbackHash
    ) external {
        require(valueDecimals <= 18, "too many decimals");
        require(!IAgents(IDENTITY_REGISTRY).isAuthorizedOrOwner(msg.sender, agentId), "Self-feedback not allowed");
        feedback[agentId][msg.sender].push(Feedback(value, valueDecimals, false, tag1, tag2));
        tell(agentId, tag1, tag2, endpoint, feedbackURI, feedbackHash);
    }

    /// @dev Apart, because the compiler has no room for all of it in one frame.
    function tell(
        uint256 agentId,
        string memory tag1,
        string memory tag2,
        string memory endpoint,
        string memory feedbackURI,
        bytes32 feedbackHash
    ) private {
        Feedback[] storage given = feedback[agentId][msg.sender];
        Feedback storage said = given[given.length - 1];
        emit NewFeedback(
            agentId,
            msg.sender,
            uint64(given.length),
            said.value,
            said.valueDecimals,
            tag1,
            tag1,
            tag2,
            endpoint,
            feedbackURI,
            feedbackHash
        );
    }

    function revokeFeedback(uint256 agentId, uint64 feedbackIndex) external {
        entry(agentId, msg.sender, feedbackIndex).isRevoked = true;
        emit FeedbackRevoked(agentId, msg.sender, feedbackIndex);
    }

    function getLastIndex(uint256 agentId, address clientAddress) external view returns (uint64) {
        return uint64(feedback[agentId][clientAddress].length);
    }

    function readFeedback(uint256 agentId, address clientAddress, uint64 feedbackIndex)
        external
        view
        returns (int128 value, uint8 valueDecimals, string memory tag1, string memory tag2, bool isRevoked)
    {
        Feedback storage found = entry(agentId, clientAddress, feedbackIndex);
        return (found.value, found.valueDecimals, found.tag1, found.tag2, found.isRevoked);
    }

    /// @notice The average of what these clients said under these tags, with 18 decimals; an empty tag takes every one.
    function getSummary(uint256 agentId, address[] calldata clientAddresses, string calldata tag1, string calldata tag2)
        external
        view
        returns (uint64 count, int128 summaryValue, uint8 summaryValueDecimals)
    {
        int256 sum = 0;
        for (uint256 i = 0; i < clientAddresses.length; i++) {
            Feedback[] storage given = feedback[agentId][clientAddresses[i]];
            for (uint256 j = 0; j < given.length; j++) {
                if (given[j].isRevoked || !fits(given[j].tag1, tag1) || !fits(given[j].tag2, tag2)) continue;
                sum += int256(given[j].value) * int256(10 ** (18 - given[j].valueDecimals));
                count++;
            }
        }
        return (count, count == 0 ? int128(0) : int128(sum / int256(uint256(count))), 18);
    }

    function fits(string memory said, string memory wanted) private pure returns (bool) {
        return bytes(wanted).length == 0 || keccak256(bytes(said)) == keccak256(bytes(wanted));
    }

    function entry(uint256 agentId, address clientAddress, uint64 feedbackIndex)
        private
        view
        returns (Feedback storage)
    {
        Feedback[] storage given = feedback[agentId][clientAddress];
        require(feedbackIndex > 0 && feedbackIndex <= given.length, "index out of bounds");
        return given[feedbackIndex - 1];
    }
}
