// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Challenge} from "./Challenge.sol";

/// @title Makes challenges: checks the terms, clones the implementation, escrows prize and bond.
contract ChallengeFactory {
    using SafeERC20 for IERC20;

    struct CreateParams {
        address token;
        address evaluator;
        uint256 prizePool;
        uint256 deadline;
        uint256 scoringDeadline;
        string challengeURI;
        bytes32 evalConfigHash;
        bytes32 privateSetHash;
        uint8 winnerCount;
        uint16[] payoutBps;
        uint256 maxParticipants;
        string[] skillTags;
    }

    /// @notice Highest bond the owner can ask for, in hundredths of a percent of the prize.
    uint256 public constant MAX_BOND_RATE = 2_000;

    uint256 private constant BPS = 10_000;
    uint8 private constant MAX_WINNERS = 25;

    address public immutable implementation;
    address public immutable identityRegistry;
    address public immutable owner;
    /// @notice Bond of new challenges, in hundredths of a percent of the prize.
    uint256 public posterBondRate = 500;
    address[] public challenges;

    event ChallengeCreated(
        address indexed challengeAddress,
        address indexed poster,
        address token,
        uint256 prizePool,
        uint256 posterBond,
        uint256 deadline,
        uint256 scoringDeadline,
        string challengeURI,
        string[] skillTags
    );
    event BondRateUpdated(uint256 oldRate, uint256 newRate);

    error ZeroImplementation();
    error ZeroRegistry();
    error NotOwner();
    error BondRateTooHigh();
    error InvalidPayoutBpsLength();
    error InvalidPayoutBpsSum();
    error WinnerCountTooHigh();
    error DeadlineTooSoon();
    error ScoringDeadlineTooSoon();

    constructor(address implementation_, address identityRegistry_) {
        if (implementation_ == address(0)) revert ZeroImplementation();
        if (identityRegistry_ == address(0)) revert ZeroRegistry();
        implementation = implementation_;
        identityRegistry = identityRegistry_;
        owner = msg.sender;
    }

    /// @notice Post a challenge. The caller must have approved prize and bond for this contract.
    /// @return challenge Address of the new challenge, which holds prize and bond from now on.
    /// @dev The transfer comes last: a token that calls back meets a finished challenge.
    function createChallenge(CreateParams calldata params) external returns (address challenge) {
        _checkTerms(params);
        uint256 bond = params.prizePool * posterBondRate / BPS;
        challenge = Clones.clone(implementation);
        challenges.push(challenge);
        Challenge(challenge).initialize(_initParams(params, bond));
        emit ChallengeCreated(
            challenge,
            msg.sender,
            params.token,
            params.prizePool,
            bond,
            params.deadline,
            params.scoringDeadline,
            params.challengeURI,
            params.skillTags
        );
        IERC20(params.token).safeTransferFrom(msg.sender, challenge, params.prizePool + bond);
    }

    /// @notice Change the bond of challenges posted from now on.
    function setPosterBondRate(uint256 newRate) external {
        if (msg.sender != owner) revert NotOwner();
        if (newRate > MAX_BOND_RATE) revert BondRateTooHigh();
        emit BondRateUpdated(posterBondRate, newRate);
        posterBondRate = newRate;
    }

    function getChallengeCount() external view returns (uint256) {
        return challenges.length;
    }

    function _checkTerms(CreateParams calldata params) private view {
        if (params.deadline <= block.timestamp) revert DeadlineTooSoon();
        if (params.scoringDeadline <= params.deadline) revert ScoringDeadlineTooSoon();
        if (params.winnerCount > MAX_WINNERS) revert WinnerCountTooHigh();
        if (params.payoutBps.length != params.winnerCount) revert InvalidPayoutBpsLength();
        uint256 sum = 0;
        for (uint256 i = 0; i < params.payoutBps.length; ++i) {
            sum += params.payoutBps[i];
        }
        if (sum != BPS) revert InvalidPayoutBpsSum();
    }

    function _initParams(CreateParams calldata params, uint256 bond)
        private
        view
        returns (Challenge.InitParams memory)
    {
        return Challenge.InitParams({
            poster: msg.sender,
            evaluator: params.evaluator,
            token: params.token,
            prizePool: params.prizePool,
            deadline: params.deadline,
            scoringDeadline: params.scoringDeadline,
            challengeURI: params.challengeURI,
            evalConfigHash: params.evalConfigHash,
            privateSetHash: params.privateSetHash,
            winnerCount: params.winnerCount,
            payoutBps: params.payoutBps,
            identityRegistry: identityRegistry,
            posterBond: bond,
            maxParticipants: params.maxParticipants
        });
    }
}
