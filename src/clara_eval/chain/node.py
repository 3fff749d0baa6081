"""The chain as the rooms see it: blocks, challenges, submissions, results; over JSON-RPC, in few requests.

Fulfils `Chain` and `Events` of the challenge room and `Results` of the publish room. Must hold: every detail of one
reading is asked at one block, by its hash where the nodes can; as many submitters are found as the contract counts, or
the reading is not used. Refuses addresses without code and contracts that do not answer as contracts.md says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from clara_eval.chain import abi
from clara_eval.chain.abi import GETTERS, Undecodable, calldata, decoded
from clara_eval.chain.logs import Filter, Logs
from clara_eval.chain.rpc import Call, Node, NodeRefusal, Rpc, quantity
from clara_eval.chain.rpc_errors import Meaning
from clara_eval.challenge.discover import NewChallenge, NewSubmission, Page
from clara_eval.challenge.model import (
    Address,
    Block,
    Challenge,
    ChallengeStatus,
    Checkpoint,
    Submission,
    Token,
    short,
)
from clara_eval.errors import NotFound, Temporary
from clara_eval.money.dollars import poses_as_dollar
from clara_eval.networks import Network
from clara_eval.publish.posted import Posted, PostedBy, Standing
from clara_eval.winners import Winner

LAG_BLOCKS = 3
"""A node this far behind another is not the one to ask."""
LATE_SECONDS = 3_600
"""From this distance on it is cheaper to look for the deadline's block than to read the blocks after it."""
SECTIONS = 16


class EthereumChain:
    """One network through its nodes."""

    def __init__(self, rpc: Rpc, network: Network, *, first_block: int | None = None) -> None:
        self.rpc = rpc
        self._network = network
        self._first_block = network.from_block if first_block is None else first_block
        self._logs = Logs(rpc)
        self._can_pin_by_hash = True

    @property
    def chain_id(self) -> int:
        return self.rpc.chain_id

    @property
    def confirmations(self) -> int:
        return self._network.confirmations

    async def close(self) -> None:
        await self.rpc.close()

    # blocks

    async def head(self) -> Block:
        """The newest block of the node that is ahead; that node is asked first from now on."""
        if len(self.rpc.nodes) == 1:
            return _block(await self.rpc.ask("eth_getBlockByNumber", "latest", False))
        told = await self.rpc.ask_every_node("eth_getBlockByNumber", "latest", False)
        heads = [(node, block) for node, raw in told if (block := _block_or_none(raw)) is not None]
        if not heads:
            raise Temporary("No node tells the newest block.", remedy="Check CLARA_RPC_URL.")
        return self._choose(heads)

    def _choose(self, heads: Sequence[tuple[Node, Block]]) -> Block:
        best = max(block.number for _, block in heads)
        node, block = next(pair for pair in heads if pair[1].number >= best - LAG_BLOCKS)
        self.rpc.prefer(node)
        return block

    async def safe_block(self) -> Block:
        """The block at the network's finality tag; without the tag, as many blocks back as we wait for ourselves."""
        head = await self.head()
        if self._network.finality_tag == "latest":
            return head
        try:
            raw = await self.rpc.ask_maybe("eth_getBlockByNumber", self._network.finality_tag, False)
        except NodeRefusal as refusal:
            if refusal.meaning not in {Meaning.UNSUPPORTED, Meaning.OTHER}:
                raise
            raw = None
        if raw is not None:
            return _block(raw)
        return await self._block_by_number(max(0, head.number - self._network.confirmations))

    async def is_canonical(self, block: Block | Checkpoint) -> bool:
        number, known = (
            (block.number, block.hash) if isinstance(block, Block) else (block.block_number, block.block_hash)
        )
        return (await self._block_by_number(number)).hash == known

    async def _block_by_number(self, number: int) -> Block:
        raw = await self.rpc.ask_maybe("eth_getBlockByNumber", hex(number), False)
        if raw is None:
            raise Temporary(f"No node has block {number}: they are behind.", remedy="Ask again when they are not.")
        return _block(raw)

    async def first_block_at(self, moment: int, last: Block) -> int:
        """The first block whose time is not before `moment`, up to `last`; a few requests for any chain length."""
        low, high = 0, last.number
        while low < high:
            step = max(1, (high - low) // SECTIONS)
            marks = list(range(low, high, step))[:SECTIONS]
            answers = await self.rpc.ask_many([Call("eth_getBlockByNumber", (hex(n), False)) for n in marks])
            before = [n for n, raw in zip(marks, answers, strict=True) if _block(_required(raw)).timestamp < moment]
            after = [n for n in marks if n not in before]
            low = max(before) + 1 if before else low
            high = min([high, *after])
        return low

    # views

    async def view(self, to: Address, data: str, block: Block) -> Any:
        return (await self.views([(to, data)], block))[0]

    async def views(self, calls: Sequence[tuple[Address, str]], block: Block) -> list[Any]:
        """Return data or refusal of each call, all at `block`."""
        if self._can_pin_by_hash:
            at: Any = {"blockHash": block.hash, "requireCanonical": True}
            answers = await self.rpc.ask_many([_eth_call(to, data, at) for to, data in calls])
            if not any(_is(answer, Meaning.UNSUPPORTED) or _is(answer, Meaning.OTHER) for answer in answers):
                return _present(answers, block)
            self._can_pin_by_hash = False
        answers = await self.rpc.ask_many([_eth_call(to, data, hex(block.number)) for to, data in calls])
        if not await self.is_canonical(block):
            raise Temporary(f"Block {block.number} was replaced while it was read.", remedy="Read again.")
        return _present(answers, block)

    async def deadline(self, address: Address) -> int:
        found = await self._getters(address, await self.head(), ["deadline"])
        return int(found["deadline"])

    async def balance(self, address: Address) -> int:
        """What an address has for gas, in wei."""
        return quantity(await self.rpc.ask("eth_getBalance", address, "latest"))

    async def evaluator(self, address: Address, block: Block) -> Address:
        return Address((await self._getters(address, block, ["evaluator"]))["evaluator"])

    async def standing(self, address: Address) -> Standing:
        """Status and time of the post at the newest block, of a challenge that was read before."""
        try:
            found = await self._getters(address, await self.head(), ["status", "scorePostedAt"])
        except NotFound:
            # A node that is replacing blocks has moments without the contract: nobody may take that for its end.
            await asyncio.sleep(0.2)
            found = await self._getters(address, await self.head(), ["status", "scorePostedAt"])
        return Standing(_status(address, found["status"]), found["scorePostedAt"])

    async def _getters(self, address: Address, block: Block, names: Sequence[str]) -> dict[str, Any]:
        answers = await self.views([(address, calldata(f"{name}()")) for name in names], block)
        return {name: _value(address, name, answer) for name, answer in zip(names, answers, strict=True)}

    async def challenge_at(self, address: Address, block: Block) -> Challenge:
        """Everything the contract says at `block`."""
        found = await self._getters(address, block, list(GETTERS))
        submitters = await self._submitters(address, block, found)
        token, payout_bps, submissions = await self._details(address, block, found, submitters)
        return Challenge(
            chain_id=self.chain_id,
            address=address,
            block=block,
            poster=Address(found["poster"]),
            evaluator=Address(found["evaluator"]),
            token=token,
            prize_pool=found["prizePool"],
            poster_bond=found["posterBond"],
            deadline=found["deadline"],
            scoring_deadline=found["scoringDeadline"],
            challenge_uri=found["challengeURI"],
            eval_config_hash=found["evalConfigHash"],
            private_set_hash=found["privateSetHash"],
            winner_count=found["winnerCount"],
            payout_bps=payout_bps,
            identity_registry=Address(found["identityRegistry"]),
            max_participants=found["maxParticipants"],
            status=_status(address, found["status"]),
            submission_count=found["submissionCount"],
            score_posted_at=found["scorePostedAt"],
            submissions=submissions,
        )

    async def _submitters(self, address: Address, block: Block, found: dict[str, Any]) -> list[Address]:
        """Read the events backwards until as many submitters are known as the contract counts."""
        wanted, known = found["submissionCount"], set[Address]()
        if wanted == 0:
            return []
        last = block.number
        if block.timestamp - found["deadline"] > LATE_SECONDS:
            last = await self.first_block_at(found["deadline"], block)
        received = Filter((address,), (abi.SUBMISSION_RECEIVED,))
        async for group in self._logs.groups(received, self._first_block, last, backwards=True):
            known.update(abi.topic_address(entry["topics"][1]) for entry in group.entries)
            if len(known) >= wanted:
                return sorted(known)
        raise Temporary(
            f"The contract {address} counts {wanted} submitters, but the nodes' events name only {len(known)}.",
            remedy="Check CLARA_FROM_BLOCK, or use a node that keeps all logs.",
        )

    async def _details(
        self, address: Address, block: Block, found: dict[str, Any], submitters: Sequence[Address]
    ) -> tuple[Token, tuple[int, ...], tuple[Submission, ...]]:
        token, places = Address(found["token"]), found["winnerCount"]
        calls = [
            (token, calldata("symbol()")),
            (token, calldata("decimals()")),
            (address, calldata("getPayoutBps()")),
            *((address, calldata("payoutBps(uint256)", place)) for place in range(places)),
            *((address, calldata("getSubmission(address)", submitter)) for submitter in submitters),
        ]
        symbol, decimals, shares_at_once, *rest = await self.views(calls, block)
        shares = _shares(address, shares_at_once, rest[:places])
        submissions = await self._submissions(address, block, submitters, rest[places:])
        return self._token(token, symbol, decimals), shares, submissions

    async def _submissions(
        self, address: Address, block: Block, submitters: Sequence[Address], answers: Sequence[Any]
    ) -> tuple[Submission, ...]:
        read = [_submission(who, answer, is_struct=True) for who, answer in zip(submitters, answers, strict=True)]
        missing = [who for who, submission in zip(submitters, read, strict=True) if submission is None]
        again = await self.views([(address, calldata("submissions(address)", who)) for who in missing], block)
        repaired = {who: _submission(who, answer, is_struct=False) for who, answer in zip(missing, again, strict=True)}
        complete = [submission or repaired[who] for who, submission in zip(submitters, read, strict=True)]
        lost = [who for who, submission in zip(submitters, complete, strict=True) if submission is None]
        if lost:
            raise NotFound(
                f"{address} does not tell the submission of {lost[0]}.",
                remedy="It must answer getSubmission(address) or submissions(address).",
            )
        return tuple(submission for submission in complete if submission is not None)

    def _token(self, address: Address, symbol: Any, decimals: Any) -> Token:
        is_usdc = address == self._network.usdc
        try:
            places = decoded(("uint8",), decimals)[0]
        except Undecodable:
            # Unknown scale: read as base units. The prize then looks large, and large prizes get a review.
            places = 6 if is_usdc else 0
        name = abi.read_symbol(symbol) or ("USDC" if is_usdc else short(address))
        return Token(address, short(address) if poses_as_dollar(address, name, self._network) else name, places)

    # events

    async def challenges_created(self, factory: Address, first: int, last: Block) -> AsyncIterator[Page[NewChallenge]]:
        wanted = Filter((factory,), (abi.CHALLENGE_CREATED,))
        async for group in self._logs.groups(wanted, first, last.number):
            yield Page(tuple(abi.read_challenge_created(entry) for entry in group.entries), group.upto)

    async def submissions_received(
        self, challenges: Sequence[Address], first: int, last: Block
    ) -> AsyncIterator[Page[NewSubmission]]:
        wanted = Filter(tuple(challenges), (abi.SUBMISSION_RECEIVED,))
        async for group in self._logs.groups(wanted, first, last.number):
            yield Page(tuple(abi.read_submission_received(entry) for entry in group.entries), group.upto)

    async def is_challenge_of(self, factory: Address, address: Address) -> bool:
        """Whether the factory announced this address; asks the factory's own list, newest first."""
        block = await self.head()
        count = _value(
            factory, "getChallengeCount", await self.view(factory, calldata("getChallengeCount()"), block), "uint256"
        )
        calls = [(factory, calldata("challenges(uint256)", number)) for number in reversed(range(count))]
        for start in range(0, len(calls), 500):
            answers = await self.views(calls[start : start + 500], block)
            if any(_value(factory, "challenges", answer, "address") == address for answer in answers):
                return True
        return False

    # results

    async def posted_by(self, challenge: Challenge) -> Posted | None:
        """The transaction that posted the scores and who sent it; None while nothing is posted."""
        head = await self.head()
        posted_at = (await self._getters(challenge.address, head, ["scorePostedAt"]))["scorePostedAt"]
        if posted_at == 0:
            return None
        first = await self.first_block_at(posted_at, head)
        wanted = Filter((challenge.address,), (abi.SCORES_POSTED,))
        async for group in self._logs.groups(wanted, first, min(head.number, first + 50)):
            for entry in group.entries:
                return await self._posted(challenge, entry, head)
        raise Temporary(f"Scores of {challenge.address} are posted, but no node shows the event.")

    async def _posted(self, challenge: Challenge, entry: Any, head: Block) -> Posted:
        raw = await self.rpc.ask("eth_getTransactionByHash", entry["transactionHash"])
        sender, number = Address(raw["from"].lower()), int(entry["blockNumber"], 16)
        return Posted(
            by=PostedBy.of(sender, evaluator=challenge.evaluator, poster=challenge.poster),
            sender=sender,
            tx_hash=entry["transactionHash"],
            block_number=number,
            calldata=bytes.fromhex(raw["input"].removeprefix("0x")),
            is_final=head.number - number + 1 >= self.confirmations,
        )

    async def winners_on_chain(self, address: Address, count: int) -> tuple[Winner, ...]:
        """The posted winners in their order; empty while nothing is posted."""
        block = await self.head()
        found = await self._getters(address, block, ["scorePostedAt"])
        if found["scorePostedAt"] == 0:
            return ()
        answers = await self.views([(address, calldata("winners(uint256)", place)) for place in range(count)], block)
        entries = [_decoded_or_missing(address, "winners", abi.WINNER, answer) for answer in answers]
        return tuple(Winner(Address(account), agent, score, prize) for account, agent, score, prize in entries)

    async def has_claimed(self, address: Address, accounts: Sequence[Address]) -> dict[Address, bool]:
        answers = await self.views(
            [(address, calldata("hasClaimed(address)", account)) for account in accounts], await self.head()
        )
        return {
            account: _value(address, "hasClaimed", answer, "bool")
            for account, answer in zip(accounts, answers, strict=True)
        }


def _eth_call(to: Address, data: str, at: Any) -> Call:
    return Call("eth_call", ({"to": to, "data": data}, at))


def _is(answer: Any, meaning: Meaning) -> bool:
    return isinstance(answer, NodeRefusal) and answer.meaning is meaning


def _present(answers: list[Any], block: Block) -> list[Any]:
    """Reverts are answers; anything else a node refuses means that this block cannot be read here."""
    for answer in answers:
        if _is(answer, Meaning.MISSING):
            raise Temporary(
                f"No node has the state of block {block.number}: it was replaced, or is too old for them.",
                remedy="Read again; for old blocks use an archive node.",
            )
        if isinstance(answer, NodeRefusal) and answer.meaning is not Meaning.REVERTED:
            raise answer
    return answers


def _required(answer: Any) -> Any:
    if isinstance(answer, NodeRefusal):
        raise answer
    return answer


def _block(raw: Any) -> Block:
    try:
        return Block(number=quantity(raw["number"]), hash=str(raw["hash"]), timestamp=quantity(raw["timestamp"]))
    except (KeyError, TypeError):
        raise Temporary("A node answered with something that is no block.") from None


def _block_or_none(raw: Any) -> Block | None:
    try:
        return _block(raw)
    except Temporary:
        return None


def _value(address: Address, name: str, answer: Any, kind: str | None = None) -> Any:
    return _decoded_or_missing(address, name, (kind or GETTERS[name],), answer)[0]


def _decoded_or_missing(address: Address, name: str, types: tuple[str, ...], answer: Any) -> tuple[Any, ...]:
    try:
        return decoded(types, answer)
    except Undecodable:
        what = "has no code there" if answer == "0x" else f"does not answer {name}() as a challenge does"
        raise NotFound(
            f"No challenge at {address}: the chain {what}.",
            remedy="Check the address and CLARA_NETWORK.",
        ) from None


def _submission(submitter: Address, answer: Any, *, is_struct: bool) -> Submission | None:
    try:
        submission = abi.read_submission(submitter, answer, is_struct=is_struct)
    except Undecodable:
        return None
    return submission if submission.submitted_at else None


def _shares(address: Address, at_once: Any, singly: Sequence[Any]) -> tuple[int, ...]:
    """The payout shares from the getter for all, or else from the getter for each."""
    try:
        return tuple(decoded(("uint16[]",), at_once)[0])
    except Undecodable:
        return tuple(_value(address, "payoutBps", answer, "uint16") for answer in singly)


def _status(address: Address, value: int) -> ChallengeStatus:
    try:
        return ChallengeStatus(value)
    except ValueError:
        raise NotFound(f"No challenge at {address}: its status is {value}.") from None
