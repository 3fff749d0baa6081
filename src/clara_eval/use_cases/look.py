"""Looking at challenges on the chain: which there are, and what each contract says now.

Comes in: an address, or nothing. Goes out: `Challenge`s as they stand at the newest block, without their submissions.
An address that the network's factory did not create is NotFound: anybody can deploy a contract that looks like a
challenge and holds no prize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clara_eval.challenge.model import (
    Address,
    Block,
    Challenge,
    ChallengeStatus,
    Submission,
    Token,
    short,
    to_address,
)
from clara_eval.errors import NotFound, Temporary
from clara_eval.hashing import keccak_hex
from clara_eval.money.dollars import poses_as_dollar
from clara_eval.use_cases.contract_calls import answer, look, view
from clara_eval.use_cases.port import Desk

_GETTERS = (
    "poster", "evaluator", "token", "prizePool", "posterBond", "deadline", "scoringDeadline", "challengeURI",
    "evalConfigHash", "privateSetHash", "winnerCount", "getPayoutBps", "identityRegistry", "maxParticipants",
    "status", "submissionCount", "scorePostedAt",
)  # fmt: skip

PostedBy = Literal["evaluator", "poster", "unknown"]
SCORES_POSTED = keccak_hex(b"ScoresPosted(address,uint256)")
BLOCK_SECONDS = 2
UNSETTLED = 20
"""The newest challenges are always read again: a reorg may have replaced them."""


@dataclass(frozen=True, slots=True)
class Winner:
    """A winner as posted on chain."""

    account: Address
    agent_id: int
    score: int
    prize_amount: int


async def newest_block(desk: Desk) -> dict[str, Any]:
    """The newest block as the node tells it; Temporary if it tells none."""
    block: dict[str, Any] | None = await desk.node.ask("eth_getBlockByNumber", "latest", False)
    if block is None:
        raise Temporary("The node does not know its newest block.", remedy="Try again, or set another CLARA_RPC_URL.")
    return block


async def head(desk: Desk) -> Block:
    """The newest block; its time is the only time contracts know."""
    block = await newest_block(desk)
    return Block(int(block["number"], 16), block["hash"], int(block["timestamp"], 16))


async def token_at(desk: Desk, address: Address) -> Token:
    """Symbol and decimals; NotFound if no token stands there."""
    if address not in desk.tokens:
        calls = [view("TestUSDC", address, "symbol"), view("TestUSDC", address, "decimals")]
        symbol, decimals = await desk.node.views(calls)
        places = answer("TestUSDC", "decimals", decimals)
        if places is None:
            raise NotFound(
                f"No token stands at {address} on {desk.settings.network_name}.",
                remedy="Give the address of an ERC-20 token on this network.",
            )
        text = str(answer("TestUSDC", "symbol", symbol) or short_text(symbol))
        desk.tokens[address] = Token(address, _symbol(desk, address, text), places)
    return desk.tokens[address]


def _symbol(desk: Desk, address: Address, text: str) -> str:
    """What a token calls itself, short and plain; one that only claims to be the network's dollar gets its address."""
    shown = "".join(c for c in text if c.isascii() and c.isalnum())[:12]
    if poses_as_dollar(address, shown, desk.settings.network):
        return short(address)
    return shown or "tokens"


def short_text(data: str | None) -> str:
    """The symbol of an older token: one word of bytes, filled up with zeros."""
    word = bytes.fromhex(data.removeprefix("0x")) if data and len(data) == 66 else b""
    return word.rstrip(b"\0").decode("utf-8", errors="ignore")


async def _token_or_unknown(desk: Desk, address: Address) -> Token:
    """A poster may choose a token that says nothing about itself: that must not hide the other challenges."""
    try:
        return await token_at(desk, address)
    except (NotFound, Temporary):
        return Token(address, "units", 0)


async def addresses(desk: Desk) -> list[Address]:
    """Every challenge of the factory, oldest first."""
    count = await look(desk, "ChallengeFactory", desk.factory, "getChallengeCount")
    known = desk.known[: max(0, count - UNSETTLED)]
    calls = [view("ChallengeFactory", desk.factory, "challenges", number) for number in range(len(known), count)]
    found = [answer("ChallengeFactory", "challenges", data) for data in await desk.node.views(calls)]
    known += [to_address(item) for item in found if item is not None]
    desk.known[:] = known
    return known


async def challenge_at(desk: Desk, address: str) -> Challenge:
    """One challenge of the factory; NotFound if it is none."""
    wanted = to_address(address, what="challenge")
    if wanted not in await addresses(desk):
        raise NotFound(
            f"{wanted} is not a challenge of the factory {desk.factory} on {desk.settings.network_name}.",
            remedy="Check the address and CLARA_NETWORK; challenge_browse lists the challenges there are.",
        )
    return (await challenges_at(desk, [wanted]))[0]


async def challenges_at(desk: Desk, wanted: Sequence[Address]) -> list[Challenge]:
    """Many at one block, in as few requests as the node allows."""
    block = await head(desk)
    calls = [view("Challenge", address, name) for address in wanted for name in _GETTERS]
    found = await desk.node.views(calls, hex(block.number))
    width = len(_GETTERS)
    rows = [found[start : start + width] for start in range(0, len(found), width)]
    return [await _challenge(desk, block, address, row) for address, row in zip(wanted, rows, strict=True)]


async def _challenge(desk: Desk, block: Block, address: Address, row: Sequence[str | None]) -> Challenge:
    say: dict[str, Any] = {name: answer("Challenge", name, data) for name, data in zip(_GETTERS, row, strict=True)}
    missing = next((name for name, value in say.items() if value is None), None)
    if missing:
        raise NotFound(f"The contract at {address} does not answer {missing}().", remedy="It is not a challenge.")
    return Challenge(
        chain_id=desk.settings.network.chain_id,
        address=address,
        block=block,
        poster=to_address(say["poster"]),
        evaluator=to_address(say["evaluator"]),
        token=await _token_or_unknown(desk, to_address(say["token"])),
        prize_pool=say["prizePool"],
        poster_bond=say["posterBond"],
        deadline=say["deadline"],
        scoring_deadline=say["scoringDeadline"],
        challenge_uri=say["challengeURI"],
        eval_config_hash=say["evalConfigHash"],
        private_set_hash=say["privateSetHash"],
        winner_count=say["winnerCount"],
        payout_bps=tuple(say["getPayoutBps"]),
        identity_registry=to_address(say["identityRegistry"]),
        max_participants=say["maxParticipants"],
        status=ChallengeStatus(say["status"]),
        submission_count=say["submissionCount"],
        score_posted_at=say["scorePostedAt"],
        submissions=(),
    )


async def winners_of(desk: Desk, challenge: Challenge) -> list[Winner]:
    """Those posted on chain, best first; none before the scores are posted."""
    if challenge.score_posted_at == 0:
        return []
    calls = [view("Challenge", challenge.address, "getWinner", place) for place in range(challenge.winner_count)]
    rows = [answer("Challenge", "getWinner", data) for data in await desk.node.views(calls)]
    return [Winner(to_address(row[0]), *row[1:]) for row in rows if row is not None]


async def posted_by(desk: Desk, challenge: Challenge) -> PostedBy:
    """Who sent the scores: the poster may always do it, and then it has to be said."""
    if challenge.score_posted_at == 0:
        return "unknown"
    first, last = _blocks_around(desk, challenge)
    wanted = {"address": challenge.address, "topics": [SCORES_POSTED], "fromBlock": first, "toBlock": last}
    try:
        logs = await desk.node.ask("eth_getLogs", wanted)
        sent = await desk.node.ask("eth_getTransactionByHash", logs[0]["transactionHash"]) if logs else None
    except Temporary:
        return "unknown"  # not every node has old events; the winners themselves are known all the same
    sender = str((sent or {}).get("from")).lower()
    kinds: dict[str, PostedBy] = {challenge.poster: "poster", challenge.evaluator: "evaluator"}
    return kinds.get(sender, "unknown")


def _blocks_around(desk: Desk, challenge: Challenge) -> tuple[str, str]:
    """Where the event must be: a public node answers only for short ranges, and the networks' blocks have a beat."""
    if desk.settings.network_name == "local":
        return hex(desk.settings.first_block), "latest"
    head = challenge.block
    place = head.number - (head.timestamp - challenge.score_posted_at) // BLOCK_SECONDS
    return hex(max(0, place - 50)), hex(min(head.number, place + 50))


async def submission_of(desk: Desk, challenge: Challenge, submitter: Address) -> Submission | None:
    """What that address submitted last, if anything."""
    row = await look(desk, "Challenge", challenge.address, "getSubmission", submitter)
    agent_id, uri, content_hash, submitted_at, version = row
    if version == 0:
        return None
    return Submission(submitter, agent_id, uri, content_hash, submitted_at, version)
