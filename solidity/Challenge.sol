// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IERC721} from "@openzeppelin/contracts/token/ERC721/IERC721.sol";

/// @title One challenge: an escrowed prize, the submissions, and the winners paid from it.
/// @notice Deployed once as an implementation and used through EIP-1167 clones made by ChallengeFactory.
/// @dev Every function checks first (custom errors), then writes its state, then makes its single outward
///      call as the last step. A token that calls back therefore meets the finished state, which is why no
///      reentrancy guard is needed. The one call made earlier, `ownerOf`, is a static call.
contract Challenge {
    using SafeERC20 for IERC20;

    enum Status {
        Open,
        Scoring,
        Finalized,
        Cancelled,
        Expired
    }

    struct Submission {
        uint256 agentId;
        string solutionURI;
        bytes32 solutionHash;
        uint256 submittedAt;
        uint256 version;
    }

    struct Winner {
        address account;
        uint256 agentId;
        uint256 score;
        uint256 prizeAmount;
    }

    struct InitParams {
        address poster;
        address evaluator;
        address token;
        uint256 prizePool;
        uint256 deadline;
        uint256 scoringDeadline;
        string challengeURI;
        bytes32 evalConfigHash;
        bytes32 privateSetHash;
        uint8 winnerCount;
        uint16[] payoutBps;
        address identityRegistry;
        uint256 posterBond;
        uint256 maxParticipants;
    }

    /// @notice A challenge with fewer submitters than this is cancelled instead of scored.
    uint256 public constant MIN_SUBMISSIONS = 2;
    /// @notice Time between the posting of scores and the earliest payment.
    uint256 public constant FINALIZATION_DELAY = 12 hours;
    /// @notice Time that one address must wait between two submissions.
    uint256 public constant SUBMISSION_COOLDOWN = 1 hours;

    uint256 private constant BPS = 10_000;

    address public poster;
    /// @notice May post scores beside the poster. Zero means that only the poster may.
    address public evaluator;
    address public token;
    uint256 public prizePool;
    /// @notice Submissions are accepted strictly before this time.
    uint256 public deadline;
    /// @notice After this time, and while no scores are posted, anyone may call `expire`.
    uint256 public scoringDeadline;
    string public challengeURI;
    bytes32 public evalConfigHash;
    bytes32 public privateSetHash;
    uint256 public posterBond;
    /// @notice Most submitters accepted; zero means no limit.
    uint256 public maxParticipants;
    uint8 public winnerCount;
    uint16[] public payoutBps;
    address public identityRegistry;
    Status public status;
    /// @notice Number of distinct submitters: a resubmission is not counted again.
    uint256 public submissionCount;
    /// @notice When scores were posted; zero while they are not.
    uint256 public scorePostedAt;
    Winner[] public winners;
    mapping(address submitter => Submission) public submissions;
    mapping(address account => bool) public hasClaimed;
    mapping(address submitter => uint256) public lastSubmissionTime;

    bool private initialized;

    event SubmissionReceived(
        address indexed submitter, uint256 indexed agentId, uint256 version, bytes32 solutionHash
    );
    event ScoresPosted(address indexed challenge, uint256 winnerCountPosted);
    /// @param rank Place of the winner, counted from 1.
    event PrizeClaimed(address indexed winner, uint256 rank, uint256 amount);
    event ChallengeFinalized(address indexed challenge);
    event ChallengeExpired(address indexed challenge, uint256 refundPerSubmitter);
    event ChallengeCancelled(address indexed challenge);

    error AlreadyInitialized();
    error NotPoster();
    error InvalidStatus(uint8 current, uint8 expected);
    error NotRegisteredAgent();
    error DeadlinePassed();
    error DeadlineNotReached();
    error ZeroAddress();
    error ZeroAmount();
    error DeadlineTooSoon();
    error ScoringDeadlineTooSoon();
    error MaxParticipantsReached();
    error SubmissionCooldown();
    error HasSubmissions();
    error ScoresNotPosted();
    error FinalizationDelayNotElapsed();
    error ScoringDeadlineNotReached();
    error NotAWinner();
    error AlreadyClaimed();
    error InvalidWinnerCount();
    error InvalidPrizeSum();
    error WinnerNotSubmitter();
    error ScoresAlreadyPosted();
    error DuplicateWinner();
    error InvalidPrizeAmount();
    error NotASubmitter();
    error NotEvaluator();

    modifier onlyIn(Status expected) {
        if (status != expected) revert InvalidStatus(uint8(status), uint8(expected));
        _;
    }

    /// @dev Locks the implementation itself: only clones, whose storage is empty, can be initialized.
    constructor() {
        initialized = true;
    }

    /// @notice Fill a fresh clone. The factory does it in the transaction that creates the clone.
    /// @dev The funds are sent by the factory: this function moves none.
    function initialize(InitParams calldata params) external {
        if (initialized) revert AlreadyInitialized();
        if (params.poster == address(0) || params.token == address(0) || params.identityRegistry == address(0)) {
            revert ZeroAddress();
        }
        if (params.prizePool == 0) revert ZeroAmount();
        if (params.deadline <= block.timestamp) revert DeadlineTooSoon();
        if (params.scoringDeadline <= params.deadline) revert ScoringDeadlineTooSoon();

        initialized = true;
        poster = params.poster;
        evaluator = params.evaluator;
        token = params.token;
        prizePool = params.prizePool;
        deadline = params.deadline;
        scoringDeadline = params.scoringDeadline;
        challengeURI = params.challengeURI;
        evalConfigHash = params.evalConfigHash;
        privateSetHash = params.privateSetHash;
        winnerCount = params.winnerCount;
        payoutBps = params.payoutBps;
        identityRegistry = params.identityRegistry;
        posterBond = params.posterBond;
        maxParticipants = params.maxParticipants;
    }

    /// @notice Hand in a solution, or replace the one handed in before.
    /// @param agentId Token of the identity registry; the caller must own it.
    /// @dev The first submission has version 1; the cap counts first submissions only.
    function submit(uint256 agentId, string calldata solutionURI, bytes32 solutionHash)
        external
        onlyIn(Status.Open)
    {
        if (block.timestamp >= deadline) revert DeadlinePassed();
        if (!_ownsAgent(msg.sender, agentId)) revert NotRegisteredAgent();
        uint256 last = lastSubmissionTime[msg.sender];
        if (last != 0 && block.timestamp < last + SUBMISSION_COOLDOWN) revert SubmissionCooldown();
        uint256 version = submissions[msg.sender].version + 1;
        if (version == 1) {
            if (maxParticipants != 0 && submissionCount >= maxParticipants) revert MaxParticipantsReached();
            submissionCount += 1;
        }

        lastSubmissionTime[msg.sender] = block.timestamp;
        submissions[msg.sender] = Submission(agentId, solutionURI, solutionHash, block.timestamp, version);
        emit SubmissionReceived(msg.sender, agentId, version, solutionHash);
    }

    /// @notice Close the challenge for submissions; with too few of them, cancel it and refund the poster.
    function advanceToScoring() external onlyIn(Status.Open) {
        if (block.timestamp <= deadline) revert DeadlineNotReached();
        if (submissionCount < MIN_SUBMISSIONS) {
            _cancelAndRefund();
        } else {
            status = Status.Scoring;
        }
    }

    /// @notice Name the winners, best first, once and for all. The poster may always do it.
    /// @dev The decoder ignores bytes after the array, so a caller can append its own mark to the calldata.
    function postScores(Winner[] calldata ranked) external onlyIn(Status.Scoring) {
        bool isEvaluator = evaluator != address(0) && msg.sender == evaluator;
        if (!isEvaluator && msg.sender != poster) revert NotEvaluator();
        if (scorePostedAt != 0) revert ScoresAlreadyPosted();
        if (ranked.length != winnerCount) revert InvalidWinnerCount();
        _checkAccounts(ranked);
        _checkPrizes(ranked);

        scorePostedAt = block.timestamp;
        for (uint256 i = 0; i < ranked.length; ++i) {
            winners.push(ranked[i]);
        }
        emit ScoresPosted(address(this), ranked.length);
    }

    /// @notice Make the prizes claimable, twelve hours after the scores, and return the poster's bond.
    function finalize() external onlyIn(Status.Scoring) {
        if (scorePostedAt == 0) revert ScoresNotPosted();
        if (block.timestamp < scorePostedAt + FINALIZATION_DELAY) revert FinalizationDelayNotElapsed();

        status = Status.Finalized;
        emit ChallengeFinalized(address(this));
        IERC20(token).safeTransfer(poster, posterBond);
    }

    /// @notice Give up on scoring: prize and bond become claimable in equal shares by every submitter.
    /// @dev What does not divide evenly stays here: fewer units of the token than there are submitters.
    function expire() external onlyIn(Status.Scoring) {
        if (scorePostedAt != 0) revert ScoresAlreadyPosted();
        if (block.timestamp <= scoringDeadline) revert ScoringDeadlineNotReached();

        status = Status.Expired;
        emit ChallengeExpired(address(this), _refundPerSubmitter());
    }

    /// @notice Pay the caller's prize.
    function claimPrize() external onlyIn(Status.Finalized) {
        (uint256 rank, uint256 amount) = _prizeOf(msg.sender);
        if (amount == 0) revert NotAWinner();
        if (hasClaimed[msg.sender]) revert AlreadyClaimed();

        hasClaimed[msg.sender] = true;
        emit PrizeClaimed(msg.sender, rank, amount);
        IERC20(token).safeTransfer(msg.sender, amount);
    }

    /// @notice Pay the caller's share of an expired challenge.
    function claimExpiredRefund() external onlyIn(Status.Expired) {
        if (submissions[msg.sender].version == 0) revert NotASubmitter();
        if (hasClaimed[msg.sender]) revert AlreadyClaimed();

        hasClaimed[msg.sender] = true;
        IERC20(token).safeTransfer(msg.sender, _refundPerSubmitter());
    }

    /// @notice Withdraw a challenge that nobody has answered yet.
    function cancel() external onlyIn(Status.Open) {
        if (msg.sender != poster) revert NotPoster();
        if (submissionCount != 0) revert HasSubmissions();
        _cancelAndRefund();
    }

    /// @notice Number of winners posted so far: zero, or `winnerCount`.
    function getWinnerCount() external view returns (uint256) {
        return winners.length;
    }

    function getPayoutBps() external view returns (uint16[] memory) {
        return payoutBps;
    }

    /// @param index Place of the winner, counted from 0.
    function getWinner(uint256 index) external view returns (Winner memory) {
        return winners[index];
    }

    function getSubmission(address submitter) external view returns (Submission memory) {
        return submissions[submitter];
    }

    function _cancelAndRefund() private {
        status = Status.Cancelled;
        emit ChallengeCancelled(address(this));
        IERC20(token).safeTransfer(poster, prizePool + posterBond);
    }

    /// @dev At most 25 winners come from the factory, so comparing each with those before it is cheap.
    function _checkAccounts(Winner[] calldata ranked) private view {
        for (uint256 i = 0; i < ranked.length; ++i) {
            address account = ranked[i].account;
            if (submissions[account].version == 0) revert WinnerNotSubmitter();
            for (uint256 j = 0; j < i; ++j) {
                if (ranked[j].account == account) revert DuplicateWinner();
            }
        }
    }

    /// @dev Each prize but the last is its share rounded down; the last takes what is left.
    function _checkPrizes(Winner[] calldata ranked) private view {
        uint256 left = prizePool;
        uint256 last = ranked.length - 1;
        for (uint256 i = 0; i < last; ++i) {
            uint256 prize = prizePool * payoutBps[i] / BPS;
            if (ranked[i].prizeAmount != prize) revert InvalidPrizeAmount();
            if (prize > left) revert InvalidPrizeSum();
            left -= prize;
        }
        if (ranked[last].prizeAmount != left) revert InvalidPrizeSum();
    }

    function _ownsAgent(address account, uint256 agentId) private view returns (bool) {
        try IERC721(identityRegistry).ownerOf(agentId) returns (address holder) {
            return holder == account;
        } catch {
            return false; // an ERC-721 reverts for a token that does not exist
        }
    }

    function _prizeOf(address account) private view returns (uint256 rank, uint256 amount) {
        for (uint256 i = 0; i < winners.length; ++i) {
            if (winners[i].account == account) return (i + 1, winners[i].prizeAmount);
        }
    }

    function _refundPerSubmitter() private view returns (uint256) {
        return (prizePool + posterBond) / submissionCount;
    }
}
