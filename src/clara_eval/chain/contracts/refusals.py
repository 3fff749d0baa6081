"""Why a contract refused, in words a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clara_eval.chain.contracts.abi import CONTRACT_NAMES, Function, Undecodable, abi

STATUS_NAMES = ("Open", "Scoring", "Finalized", "Cancelled", "Expired")

_WORDS: dict[str, tuple[str, str]] = {
    # Challenge
    "AlreadyInitialized": ("The challenge is already set up.", "Post a new challenge through the factory."),
    "NotPoster": ("Only the poster may do this.", "Use the wallet that posted the challenge."),
    "NotRegisteredAgent": (
        "The sender does not own this agent id in the identity registry.",
        "Register the agent, or submit with the id that your wallet owns.",
    ),
    "DeadlinePassed": ("The deadline has passed.", "Submissions are accepted only before the deadline."),
    "DeadlineNotReached": ("The deadline is not reached yet.", "Try again after the deadline."),
    "ZeroAddress": ("An address that must be given is zero.", "Give poster, token and identity registry."),
    "ZeroAmount": ("The prize is zero.", "Give a prize above zero."),
    "DeadlineTooSoon": ("The deadline is not in the future.", "Choose a deadline after the current block's time."),
    "ScoringDeadlineTooSoon": (
        "The scoring deadline is not after the deadline.",
        "Choose a scoring deadline after the deadline.",
    ),
    "MaxParticipantsReached": (
        "The challenge has all the participants it accepts.",
        "Only those who have already submitted can submit again.",
    ),
    "SubmissionCooldown": (
        "Only one submission per hour and address is accepted.",
        "Try again one hour after your last submission.",
    ),
    "HasSubmissions": (
        "The challenge already has submissions.",
        "It can no longer be cancelled; let it run to its deadline.",
    ),
    "ScoresNotPosted": ("No scores are posted yet.", "Wait until the evaluator or the poster has posted them."),
    "FinalizationDelayNotElapsed": (
        "The 12 hours after the posting of scores are not over.",
        "Try again 12 hours after the scores were posted.",
    ),
    "ScoringDeadlineNotReached": (
        "The scoring deadline is not reached yet.",
        "The challenge can expire only after it.",
    ),
    "NotAWinner": ("The sender has no prize in this challenge.", "Claim with the wallet that won."),
    "AlreadyClaimed": ("The sender has already been paid.", "Nothing is left to claim."),
    "InvalidWinnerCount": (
        "The number of winners is not the challenge's winner count.",
        "Post exactly as many winners as the challenge pays.",
    ),
    "InvalidPrizeSum": ("The prizes do not add up to the prize pool.", "Let the last winner take what is left."),
    "WinnerNotSubmitter": ("A winner has not submitted anything.", "Name only submitters of this challenge."),
    "ScoresAlreadyPosted": ("Scores are already posted.", "They cannot be changed; read the posted winners."),
    "DuplicateWinner": ("A winner is named twice.", "Name each winner once."),
    "InvalidPrizeAmount": (
        "A prize is not its share of the prize pool.",
        "Use prizePool * payoutBps / 10000, rounded down, for every winner but the last.",
    ),
    "NotASubmitter": ("The sender has not submitted to this challenge.", "Claim with the wallet that submitted."),
    "NotEvaluator": (
        "The sender is neither the evaluator nor the poster of this challenge.",
        "Use the evaluator's key.",
    ),
    # ChallengeFactory
    "ZeroImplementation": ("The challenge implementation is the zero address.", "Deploy Challenge first."),
    "ZeroRegistry": ("The identity registry is the zero address.", "Deploy or name a registry first."),
    "NotOwner": ("Only the factory's owner may do this.", "Use the wallet that deployed the factory."),
    "BondRateTooHigh": ("The bond rate is above 20 %.", "Choose at most 2000 (of 10000)."),
    "InvalidPayoutBpsLength": (
        "The number of payout shares is not the winner count.",
        "Give one share for each winner.",
    ),
    "InvalidPayoutBpsSum": ("The payout shares do not add up to 10000.", "Make the shares sum to 10000 (100 %)."),
    "WinnerCountTooHigh": ("A challenge pays at most 25 winners.", "Choose a winner count of 25 or less."),
    # OpenZeppelin, as met through our contracts and USDC
    "SafeERC20FailedOperation": (
        "The prize token refused the transfer.",
        "Check that the token address is an ERC-20 contract on this chain.",
    ),
    "ERC20InsufficientAllowance": (
        "The token allowance is too small.",
        "Approve prize plus bond for the factory first.",
    ),
    "ERC20InsufficientBalance": ("The token balance is too small.", "Fund the wallet with prize plus bond."),
    "ERC721NonexistentToken": ("No agent has this id.", "Register the agent first."),
}


@dataclass(frozen=True, slots=True)
class ContractRefusal:
    """One decoded custom error; `str()` is the sentence for a person."""

    name: str
    values: tuple[object, ...]
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = ", ".join(str(value) for value in self.values if not isinstance(value, str) or value.isprintable())
        return f"{self.reason} {self.remedy} ({self.name}{f': {shown}' if shown else ''})".replace("  ", " ")


@cache
def known_errors() -> Mapping[bytes, Function]:
    """Return every error that a shipped contract or Solidity itself can raise, by selector."""
    own = [Function("Error", ({"name": "", "type": "string"},)), Function("Panic", ({"name": "", "type": "uint256"},))]
    return {
        error.selector: error for error in (*own, *(error for name in CONTRACT_NAMES for error in abi(name).errors))
    }


def decode_refusal(data: bytes | str | None) -> ContractRefusal | None:
    """Decode a revert's data (bytes, or 0x text as nodes send it); None if it is not an error that we know."""
    try:
        raw = bytes.fromhex(data.removeprefix("0x")) if isinstance(data, str) else data or b""
    except ValueError:
        raw = b""
    error = known_errors().get(raw[:4])
    if error is None:
        return None
    try:
        values = error.arguments(raw)
    except Undecodable:
        return None  # the data comes from whatever contract was called: a known selector proves nothing
    reason, remedy = _in_words(error.name, values)
    return ContractRefusal(name=error.name, values=values, reason=reason, remedy=remedy)


def _in_words(name: str, values: tuple[object, ...]) -> tuple[str, str]:
    if name == "InvalidStatus":
        current, expected = (_status_name(value) for value in values)
        return f"The challenge is {current}, but this needs it to be {expected}.", _status_remedy(*values)
    if name == "Error":
        return f"The contract refused: {str(values[0])[:200]!r}.", ""
    if name == "Panic":
        return f"The contract stopped on an internal check (panic {values[0]:#x}).", "Check the values of the call."
    return _WORDS.get(name, (f"The contract refused with {name}.", ""))


def _status_name(value: object) -> str:
    return STATUS_NAMES[value] if isinstance(value, int) and value < len(STATUS_NAMES) else f"in unknown status {value}"


def _status_remedy(current: object, expected: object) -> str:
    if current == 0 and expected == 1:
        return "After the deadline, call advanceToScoring first."
    if current == 1 and expected == 2:
        return "Call finalize first, 12 hours after the scores were posted."
    if current == 1 and expected == 4:
        return "It expires only when no scores are posted by the scoring deadline."
    return "Read the challenge's status before trying again."
