"""The chain as the rooms see it: blocks, challenges, submissions, results; over JSON-RPC, in few requests.

Fulfils `Chain` and `Events` of the challenge room and `Results` of the publish room. Must hold: every detail of one
reading is asked at one block, by its hash where the nodes can; as many submitters are found as the contract counts, or
the reading is not used. Refuses addresses without code and contracts that do not answer as contracts.md says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clara_eval.chain.contracts.clients import (
    ChallengeContract,
    ChallengeFactoryContract,
    ChallengeState,
    GivenFeedback,
    IdentityRegistryContract,
    ReputationRegistryContract,
    TokenContract,
    View,
    describe_tokens,
)
from clara_eval.chain.contracts.versions import contract_version
from clara_eval.chain.discovery import NewChallenge, NewClaim, NewSubmission, Page
from clara_eval.chain.logs import LogFilter, Logs
from clara_eval.chain.model import (
    Block,
    Challenge,
    Checkpoint,
    PrizeToken,
)
from clara_eval.chain.posted import Posted, PostedBy, ScoringState
from clara_eval.chain.rpc import (
    Node,
    NodeRefusal,
    Rpc,
    RpcCall,
    quantity,
)
from clara_eval.chain.rpc_errors import Meaning
from clara_eval.chain.winners import WinnerPrize
from clara_eval.config.networks import Network
from clara_eval.core.address import Address
from clara_eval.core.errors import NotFound, Temporary
from clara_eval.core.submission import Submission, Version

LAG_BLOCKS = 3
"""A node this far behind another is not the one to ask."""
LATE_SECONDS = 3_600
"""From this distance on it is cheaper to look for the deadline's block than to read the blocks after it."""
SECTIONS = 16
_LOOKS_FOR_POST = 3
"""For the event of a post, while there are newer and newer blocks."""
LOOK_AGAIN_SECONDS = (0.1, 0.3, 0.6)
"""Between questions for the newest block while an older one is told than we know: some node is behind."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """What a block says about one transaction."""

    tx_hash: str
    block_number: int
    block_hash: str
    gas_used: int
    has_succeeded: bool
    logs: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, raw: Any) -> TransactionReceipt:
        """From a node's answer."""
        try:
            number, used, is_good = quantity(raw["blockNumber"]), quantity(raw["gasUsed"]), quantity(raw["status"]) == 1
            return cls(raw["transactionHash"], number, raw["blockHash"], used, is_good, tuple(raw["logs"]))
        except (KeyError, TypeError):
            raise Temporary("A node answered with something that is not a receipt.") from None


class EthereumChain:
    """One network through its nodes."""

    def __init__(self, rpc: Rpc, network: Network, *, first_block: int | None = None) -> None:
        self.rpc = rpc
        self._network = network
        self._version = contract_version(network.contracts)
        self._first_block = network.from_block if first_block is None else first_block
        self._logs = Logs(rpc)
        self._can_pin_by_hash = True
        self._newest: Block | None = None

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
        """The newest block, and none older than one we have seen, unless all that answer have gone back for a while."""
        for pause in (*LOOK_AGAIN_SECONDS, None):
            block = await self._head_now()
            if pause is None or self._newest is None or block.number >= self._newest.number:
                break
            await asyncio.sleep(pause)
        self._newest = block
        return block

    def named(self, block: Block) -> Any:
        """How a node is asked about exactly this block."""
        return {"blockHash": block.hash, "requireCanonical": True} if self._can_pin_by_hash else hex(block.number)

    async def _head_now(self) -> Block:
        """The newest block of the node that is ahead; that node is asked first from now on."""
        if len(self.rpc.nodes) == 1:
            raw = await self.rpc.ask_maybe("eth_getBlockByNumber", "latest", False)
            if raw is None:
                raise Temporary("The node does not know its newest block.", remedy="Set another CLARA_RPC_URL.")
            return _block(raw)
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
        return await self.block_at(max(0, head.number - self._network.confirmations))

    async def is_canonical(self, block: Block | Checkpoint) -> bool:
        number, known = (
            (block.number, block.hash) if isinstance(block, Block) else (block.block_number, block.block_hash)
        )
        return (await self.block_at(number)).hash == known

    async def block_at(self, number: int) -> Block:
        """A block that is there; Temporary where it is not yet."""
        (raw,) = await self._present_answers([RpcCall("eth_getBlockByNumber", (hex(number), False))])
        if _is(raw, Meaning.MISSING):
            raise Temporary(f"No node has block {number}: they are behind.", remedy="Ask again when they are not.")
        return _block(_required(raw))

    async def first_block_at(self, moment: int, last: Block) -> int:
        """The first block whose time is not before `moment`, from the first one of challenges up to `last`."""
        low, high = min(self._first_block, last.number), last.number
        while low < high:
            step = max(1, (high - low) // SECTIONS)
            marks = list(range(low, high, step))[:SECTIONS]
            answers = await self.rpc.ask_many([RpcCall("eth_getBlockByNumber", (hex(n), False)) for n in marks])
            before = [n for n, raw in zip(marks, answers, strict=True) if _block(_required(raw)).timestamp < moment]
            after = [n for n in marks if n not in before]
            low = max(before) + 1 if before else low
            high = min([high, *after])
        return low

    async def receipt(self, tx_hash: str) -> TransactionReceipt | None:
        """None while no node shows it in a block."""
        raw = await self.rpc.ask_maybe("eth_getTransactionReceipt", tx_hash)
        return None if raw is None else TransactionReceipt.read(raw)

    # contracts

    def challenge(self, address: Address) -> ChallengeContract:
        return ChallengeContract(self, address, self._version.challenge)

    def factory(self, address: Address) -> ChallengeFactoryContract:
        return ChallengeFactoryContract(self, address, self._version.factory)

    def token(self, address: Address) -> TokenContract:
        return TokenContract(self, address)

    def registry(self, address: Address) -> IdentityRegistryContract:
        return IdentityRegistryContract(self, address)

    def reputation(self, address: Address) -> ReputationRegistryContract:
        return ReputationRegistryContract(self, address)

    async def views(self, calls: Sequence[View], block: Block) -> list[object]:
        """Return data or refusal of each call, all at `block`."""
        if self._can_pin_by_hash:
            at = self.named(block)
            answers = await self._present_answers([RpcCall("eth_call", (call.request(), at)) for call in calls])
            # A stranger's contract must not talk us out of it: what it provokes is never a word about pinning.
            unpinned = [
                _is(answer, Meaning.UNSUPPORTED) or (_is(answer, Meaning.OTHER) and not call.is_foreign)
                for call, answer in zip(calls, answers, strict=True)
            ]
            if not any(unpinned):
                return _present(answers, calls, block)
            self._can_pin_by_hash = False
        number = hex(block.number)
        answers = await self._present_answers([RpcCall("eth_call", (call.request(), number)) for call in calls])
        if not await self.is_canonical(block):
            raise Temporary(f"Block {block.number} was replaced while it was read.", remedy="Try again.")
        return _present(answers, calls, block)

    async def ask_present(self, method: str, *params: Any) -> Any:
        """One result about a named block, asked again where a node is late; a refusal is raised."""
        (answer,) = await self._present_answers([RpcCall(method, params)])
        return _required(answer)

    async def _present_answers(self, calls: Sequence[RpcCall]) -> list[Any]:
        """Behind one address there are often several nodes, some of them late: what one lacks is asked again."""
        answers = await self.rpc.ask_many(calls)
        for pause in LOOK_AGAIN_SECONDS:
            lacking = [number for number, answer in enumerate(answers) if _is(answer, Meaning.MISSING)]
            if not lacking:
                break
            await asyncio.sleep(pause)
            again = await self.rpc.ask_many([calls[number] for number in lacking])
            for number, answer in zip(lacking, again, strict=True):
                answers[number] = answer
        return answers

    async def deadline(self, address: Address) -> int:
        return (await self.challenge(address).state(await self.head(), ("deadline",))).number("deadline")

    async def balance(self, address: Address) -> int:
        """What an address has for gas, in wei."""
        return quantity(await self.rpc.ask("eth_getBalance", address, "latest"))

    async def evaluator(self, address: Address, block: Block) -> Address:
        return (await self.challenge(address).state(block, ("evaluator",))).address("evaluator")

    async def scoring_state(self, address: Address) -> ScoringState:
        """Status and time of the post at the newest block, of a challenge that was read before."""
        try:
            return await self.challenge(address).scoring_state(await self.head())
        except NotFound:
            # A node that is replacing blocks has moments without the contract: nobody may take that for its end.
            await asyncio.sleep(0.2)
            return await self.challenge(address).scoring_state(await self.head())

    async def token_at(self, address: Address, block: Block) -> PrizeToken | None:
        """A token's symbol and scale; None if none stands there."""
        return await self.token(address).describe(block, self._network)

    async def challenge_at(self, address: Address, block: Block) -> Challenge:
        """Everything the contract says at `block`."""
        contract = self.challenge(address)
        state = await contract.state(block)
        submitters = await self._submitters(address, block, state)
        submissions = await contract.submissions(block, submitters)
        challenge = (await self._challenges(block, [(contract, state)], {address: submissions}))[0]
        return replace(challenge, replaced=await self._replaced(challenge))

    async def challenges_at(self, addresses: Sequence[Address], block: Block) -> list[Challenge]:
        """Many at one block, without their submissions, in as few requests as the nodes allow."""
        contracts = [self.challenge(address) for address in addresses]
        names = ChallengeContract.GETTERS
        answers = await self.views([contract.view(name) for contract in contracts for name in names], block)
        rows = [answers[start : start + len(names)] for start in range(0, len(answers), len(names))]
        found = [(contract, contract.state_in(names, row)) for contract, row in zip(contracts, rows, strict=True)]
        return await self._challenges(block, found, {})

    async def posters_of(self, addresses: Sequence[Address]) -> list[Address]:
        block, contracts = await self.head(), [self.challenge(address) for address in addresses]
        answers = await self.views([contract.view("poster") for contract in contracts], block)
        return [
            contract.state_in(["poster"], [answer]).address("poster")
            for contract, answer in zip(contracts, answers, strict=True)
        ]

    async def _challenges(
        self,
        block: Block,
        found: Sequence[tuple[ChallengeContract, ChallengeState]],
        submissions: Mapping[Address, tuple[Submission, ...]],
    ) -> list[Challenge]:
        tokens = await describe_tokens(self, block, [state.address("token") for _, state in found], self._network)
        asked = [contract.payout_views(state.number("winnerCount")) for contract, state in found]
        answers = iter(await self.views([call for calls in asked for call in calls], block))
        shares = [
            contract.payout_in([next(answers) for _ in calls])
            for (contract, _), calls in zip(found, asked, strict=True)
        ]
        return [
            Challenge(
                chain_id=self.chain_id,
                address=contract.address,
                block=block,
                poster=state.address("poster"),
                evaluator=state.address("evaluator"),
                token=tokens[state.address("token")],
                prize_pool=state.number("prizePool"),
                poster_bond=state.number("posterBond"),
                deadline=state.number("deadline"),
                scoring_deadline=state.number("scoringDeadline"),
                challenge_uri=state.text("challengeURI"),
                eval_config_hash=state.text("evalConfigHash"),
                private_set_hash=state.text("privateSetHash"),
                winner_count=state.number("winnerCount"),
                payout_bps=payout,
                identity_registry=state.address("identityRegistry"),
                max_participants=state.number("maxParticipants"),
                status=contract.status_in(state),
                submission_count=state.number("submissionCount"),
                score_posted_at=state.number("scorePostedAt"),
                submissions=submissions.get(contract.address, ()),
                contract_version=self._network.contracts,
            )
            for (contract, state), payout in zip(found, shares, strict=True)
        ]

    async def _submitters(self, address: Address, block: Block, state: ChallengeState) -> list[Address]:
        """Read the events backwards until as many submitters are known as the contract counts."""
        wanted, known = state.number("submissionCount"), set[Address]()
        if wanted == 0:
            return []
        last = block.number
        if block.timestamp - state.number("deadline") > LATE_SECONDS:
            last = await self.first_block_at(state.number("deadline"), block)
        contract = self.challenge(address)
        received = LogFilter((address,), (self._version.challenge.event("SubmissionReceived").topic,))
        async for group in self._logs.groups(received, self._first_block, last, backwards=True):
            known.update(contract.submission_received(entry).submitter for entry in group.entries)
            if len(known) >= wanted:
                return sorted(known)
        raise Temporary(
            f"The contract {address} counts {wanted} submitters, but the nodes' events name only {len(known)}.",
            remedy="Check CLARA_FROM_BLOCK, or use a node that keeps all logs.",
        )

    async def _replaced(self, challenge: Challenge) -> tuple[Version, ...]:
        """Versions that were replaced, from the events; none are looked for where there are none."""
        current = {one.submitter: one.version for one in challenge.submissions}
        missing = sum(version - 1 for version in current.values())
        found: list[NewSubmission] = []
        if missing <= 0:
            return ()
        contract = self.challenge(challenge.address)
        received = LogFilter((challenge.address,), (contract.abi.event("SubmissionReceived").topic,))
        async for group in self._logs.groups(received, self._first_block, challenge.block.number, backwards=True):
            read = [contract.submission_received(entry) for entry in group.entries]
            found += [one for one in read if one.version < current.get(one.submitter, 0)]
            if len(found) >= missing:
                break
        return await self._dated(found)

    async def _blocks_of(self, found: Iterable[NewSubmission | NewChallenge | NewClaim]) -> dict[int, Any]:
        """What nodes say about the blocks of events, which carry no time of their own."""
        numbers = sorted({one.block_number for one in found})
        answers = await self.rpc.ask_many([RpcCall("eth_getBlockByNumber", (hex(n), False)) for n in numbers])
        return dict(zip(numbers, answers, strict=True))

    async def _times(self, found: Iterable[NewChallenge | NewClaim]) -> dict[int, int]:
        """When the blocks of events were; 0 where no node has one of them, because the event counts all the same."""
        blocks = {number: _block_or_none(raw) for number, raw in (await self._blocks_of(found)).items()}
        return {number: block.timestamp if block else 0 for number, block in blocks.items()}

    async def _dated(self, found: Sequence[NewSubmission]) -> tuple[Version, ...]:
        """With the time of their block, which is when they were handed in."""
        times = {n: _block(_required(raw)).timestamp for n, raw in (await self._blocks_of(found)).items()}
        dated = [Version(one.submitter, one.solution_hash, times[one.block_number], one.version) for one in found]
        return tuple(sorted(dated, key=lambda one: (one.submitted_at, one.submitter, one.version)))

    # events

    async def challenges_created(self, factory: Address, first: int, last: Block) -> AsyncIterator[Page]:
        contract = self.factory(factory)
        wanted = LogFilter((factory,), (contract.abi.event("ChallengeCreated").topic,))
        async for group in self._logs.groups(wanted, first, last.number):
            found = [contract.challenge_created(entry) for entry in group.entries]
            times = await self._times(found)
            yield Page(tuple(replace(one, created_at=times[one.block_number]) for one in found), group.upto)

    async def prizes_claimed(
        self, challenges: Sequence[Address], first: int, last: Block
    ) -> AsyncIterator[tuple[tuple[NewClaim, ...], int]]:
        """Claims from those challenges, page by page, each with the last block that it covers."""
        spoken = self._version.challenge
        wanted = LogFilter(tuple(challenges), (spoken.event("PrizeClaimed").topic,))
        async for group in self._logs.groups(wanted, first, last.number):
            found = [ChallengeContract.prize_claimed(spoken, entry) for entry in group.entries]
            times = await self._times(found)
            yield tuple(replace(one, claimed_at=times[one.block_number]) for one in found), group.upto.block_number

    async def changed_challenges(self, first: int, last: Block) -> set[Address]:
        """List the contracts that emitted an event of a challenge; anybody can emit one, so it is only a hint."""
        names = ("SubmissionReceived", "ScoresPosted", "ChallengeFinalized", "ChallengeExpired", "ChallengeCancelled")
        topics = tuple(self._version.challenge.event(name).topic for name in names)
        found: set[Address] = set()
        async for group in self._logs.groups(LogFilter((), (topics,)), first, last.number):
            found.update(Address(str(entry["address"]).lower()) for entry in group.entries)
        return found

    async def is_challenge_of(self, factory: Address, address: Address) -> bool:
        """Whether the factory announced this address; asks the factory's own list, newest first."""
        block, contract = await self.head(), self.factory(factory)
        numbers = list(reversed(range(await contract.count(block))))
        for start in range(0, len(numbers), 500):
            if address in await contract.challenges(block, numbers[start : start + 500]):
                return True
        return False

    # results

    async def posted_by(self, challenge: Challenge) -> Posted | None:
        """The transaction that posted the scores and who sent it; None while nothing is posted."""
        for _ in range(_LOOKS_FOR_POST):
            head = await self.head()
            posted_at = (await self.challenge(challenge.address).scoring_state(head)).score_posted_at
            if posted_at == 0:
                return None
            found = await self._post_until(challenge, posted_at, head)
            if found is not None:
                return found
            if (await self.head()).number <= head.number:
                break  # else the node told the state of a block that it was just making
        raise Temporary(f"Scores of {challenge.address} are posted, but no node shows the event.")

    async def _post_until(self, challenge: Challenge, posted_at: int, head: Block) -> Posted | None:
        """The post that was made at this time, if its event stands up to this block."""
        first = await self.first_block_at(posted_at, head)
        wanted = LogFilter((challenge.address,), (self._version.challenge.event("ScoresPosted").topic,))
        async for group in self._logs.groups(wanted, first, min(head.number, first + 50)):
            for entry in group.entries:
                return await self._posted(challenge, entry, head)
        # Where blocks do not stand in the order of their times, as after a reorg of a development chain.
        since = self._first_block if challenge.score_posted_at else challenge.block.number
        async for group in self._logs.groups(wanted, since, head.number, backwards=True):
            for entry in group.entries:
                return await self._posted(challenge, entry, head)
        return None

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

    async def winners_on_chain(self, address: Address, count: int) -> tuple[WinnerPrize, ...]:
        return await self.winners_at(address, count, await self.head())

    async def winners_at(self, address: Address, count: int, block: Block) -> tuple[WinnerPrize, ...]:
        return await self.challenge(address).winners(block, count)

    async def has_claimed(self, address: Address, accounts: Sequence[Address]) -> dict[Address, bool]:
        return await self.challenge(address).has_claimed(await self.head(), accounts)

    async def feedback_since(
        self, registry: Address, agent_id: int, client: Address, since: int
    ) -> tuple[GivenFeedback, ...]:
        """What a client said about an agent, from events since that moment; deep or not."""
        head = await self.head()
        if await self.reputation(registry).last_index(head, agent_id, client) == 0:
            return ()
        topic, who = ReputationRegistryContract.ABI.event("NewFeedback").topic, "0x" + client[2:].rjust(64, "0")
        wanted = LogFilter((registry,), (topic, f"0x{agent_id:064x}", who))
        found: list[GivenFeedback] = []
        first = await self.first_block_at(since, head)
        async for group in self._logs.groups(wanted, first, head.number):
            found += ReputationRegistryContract.given(group.entries)
        return tuple(found)

    async def agents_of(self, registry: Address, owner: Address, block: Block) -> list[int]:
        """Agent ids that the registry's events gave to an address and that it still owns, oldest first.

        Empty where the registry emits no events, or the nodes do not have them.
        """
        topics = tuple(event.topic for event in IdentityRegistryContract.OWNING_EVENTS)
        wanted = LogFilter((registry,), (topics, None, "0x" + owner[2:].rjust(64, "0")))
        try:
            async for group in self._logs.groups(wanted, self._first_block, block.number, backwards=True):
                ids = IdentityRegistryContract.agents_in(group.entries, registry, owner)
                owners = await self.registry(registry).owners_of(block, ids)
                owned = [number for number, found in zip(ids, owners, strict=True) if found == owner]
                if owned:
                    return owned
        except NodeRefusal:
            return []  # not every node has old events; the caller is asked for the id then
        return []


def _is(answer: Any, meaning: Meaning) -> bool:
    return isinstance(answer, NodeRefusal) and answer.meaning is meaning


def _present(answers: list[Any], calls: Sequence[View], block: Block) -> list[object]:
    """Reverts are answers; anything else a node refuses means that this block cannot be read here.

    What a stranger's contract provokes is never more than a refusal of that one call.
    """
    for call, answer in zip(calls, answers, strict=True):
        if _is(answer, Meaning.MISSING):
            raise Temporary(
                f"No node has the state of block {block.number}: it was replaced, or is too old for them.",
                remedy="Read again; for old blocks use an archive node.",
            )
        is_answer = call.is_foreign or not isinstance(answer, NodeRefusal) or answer.meaning is Meaning.REVERTED
        if not is_answer:
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
        raise Temporary("A node answered with something that is not a block.") from None


def _block_or_none(raw: Any) -> Block | None:
    try:
        return _block(raw)
    except Temporary:
        return None
