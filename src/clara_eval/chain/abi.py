"""The contracts' functions and events as bytes, from their signatures alone.

Comes in: names and values in Python. Goes out: calldata, and back from return data and logs our own types. Nothing here
depends on our bytecode: any contract with these signatures is understood. Text is decoded leniently, because a stranger
may store bytes that are not UTF-8: the bad bytes become U+FFFD and the text is refused where it is used.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from clara_eval.challenge.discover import NewChallenge, NewSubmission
from clara_eval.challenge.model import Address, Submission
from clara_eval.errors import ClaraError
from clara_eval.hashing import keccak_hex

SUBMISSION = ("uint256", "bytes", "bytes32", "uint256", "uint256")
WINNER = ("address", "uint256", "uint256", "uint256")

# bytes for string: same encoding, and no failure on bytes that are not UTF-8
GETTERS: dict[str, str] = {
    "poster": "address",
    "evaluator": "address",
    "token": "address",
    "prizePool": "uint256",
    "deadline": "uint256",
    "scoringDeadline": "uint256",
    "challengeURI": "bytes",
    "evalConfigHash": "bytes32",
    "privateSetHash": "bytes32",
    "posterBond": "uint256",
    "maxParticipants": "uint256",
    "winnerCount": "uint8",
    "identityRegistry": "address",
    "status": "uint8",
    "submissionCount": "uint256",
    "scorePostedAt": "uint256",
}


class Undecodable(ClaraError):
    """The bytes are not what the signature says."""


@cache
def selector(signature: str) -> str:
    return keccak_hex(signature.encode())[:10]


@cache
def topic(signature: str) -> str:
    return keccak_hex(signature.encode())


CHALLENGE_CREATED = topic("ChallengeCreated(address,address,address,uint256,uint256,uint256,uint256,string,string[])")
SUBMISSION_RECEIVED = topic("SubmissionReceived(address,uint256,uint256,bytes32)")
SCORES_POSTED = topic("ScoresPosted(address,uint256)")


def calldata(signature: str, *values: Any) -> str:
    """0x text of a call; the argument types are those in the signature."""
    inside = signature[signature.index("(") + 1 : -1]
    types = inside.split(",") if inside else []
    return selector(signature) + encode(types, values).hex()


def decoded(types: tuple[str, ...], data: Any) -> tuple[Any, ...]:
    """Values of return data, or Undecodable; an empty answer is what an address without such a function gives."""
    try:
        raw = bytes.fromhex(data.removeprefix("0x"))
        values = decode(types, raw)
    except (AttributeError, ValueError, DecodingError, OverflowError) as bad:
        raise Undecodable(f"The data is not ({','.join(types)}).") from bad
    return tuple(_ours(value, kind) for value, kind in zip(values, types, strict=True))


def _ours(value: Any, kind: str) -> Any:
    if kind == "bytes32":
        return "0x" + value.hex()
    if kind == "bytes":
        return value.decode("utf-8", errors="replace")
    return value


def read_submission(submitter: Address, data: Any, *, is_struct: bool) -> Submission:
    """From `getSubmission` (a struct behind an offset) or from the getter `submissions` (its fields)."""
    values = decoded((f"({','.join(SUBMISSION)})",), data)[0] if is_struct else decoded(SUBMISSION, data)
    fields = [_ours(v, k) for v, k in zip(values, SUBMISSION, strict=True)] if is_struct else values
    agent_id, uri, content_hash, submitted_at, version = fields
    return Submission(
        submitter=submitter,
        agent_id=agent_id,
        solution_uri=uri,
        solution_hash=content_hash,
        submitted_at=submitted_at,
        version=version,
    )


def read_challenge_created(entry: Any) -> NewChallenge:
    fields = decoded(("address", "uint256", "uint256", "uint256", "uint256", "bytes", "bytes[]"), entry["data"])
    token, prize_pool, poster_bond, deadline, scoring_deadline, uri, tags = fields
    return NewChallenge(
        address=topic_address(entry["topics"][1]),
        poster=topic_address(entry["topics"][2]),
        token=Address(token),
        prize_pool=prize_pool,
        poster_bond=poster_bond,
        deadline=deadline,
        scoring_deadline=scoring_deadline,
        challenge_uri=uri,
        skill_tags=tuple(tag.decode("utf-8", errors="replace") for tag in tags),
        block_number=int(entry["blockNumber"], 16),
    )


def read_submission_received(entry: Any) -> NewSubmission:
    version, content_hash = decoded(("uint256", "bytes32"), entry["data"])
    return NewSubmission(
        challenge=Address(entry["address"].lower()),
        submitter=topic_address(entry["topics"][1]),
        agent_id=int(entry["topics"][2], 16),
        version=version,
        solution_hash=content_hash,
        block_number=int(entry["blockNumber"], 16),
    )


def topic_address(word: str) -> Address:
    return Address("0x" + word[-40:].lower())


def read_symbol(data: Any) -> str | None:
    """A token's symbol as text or as bytes32, printable and short; None when it has none."""
    try:
        text: str = decoded(("bytes",), data)[0]
    except Undecodable:
        try:
            text = bytes.fromhex(decoded(("bytes32",), data)[0][2:]).rstrip(b"\0").decode("utf-8", errors="replace")
        except Undecodable:
            return None
    shown = "".join(char for char in text if char.isprintable() and char != "\ufffd")[:16].strip()
    return shown or None
