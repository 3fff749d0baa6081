"""One network through its nodes: challenges, their events and results, registries of agents.

Invariant: as many submitters are found as the contract counts, or the reading is not used. A reader's checkpoint moves
only after a page is kept, and steps back if its block was replaced: an event may come twice, and none is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from clara_eval.chain.blocks import Blocks, LogFilter, Logs, block_or_none, read_block, required
from clara_eval.chain.contracts.abi import contract_version
from clara_eval.chain.contracts.clients import (
    ChallengeContract,
    ChallengeFactoryContract,
    ChallengeState,
    GivenFeedback,
    IdentityRegistryContract,
    ReputationRegistryContract,
    TokenContract,
    describe_tokens,
)
from clara_eval.chain.model import (
    Block,
    Challenge,
    Checkpoint,
    NewChallenge,
    NewClaim,
    NewSubmission,
    Posted,
    PostedBy,
    PrizeToken,
    ScoringState,
)
from clara_eval.chain.node import NodeRefusal
from clara_eval.chain.rpc import Rpc
from clara_eval.chain.winners import WinnerPrize
from clara_eval.config.networks import Network
from clara_eval.core.address import Address
from clara_eval.core.errors import NotFound, Temporary
from clara_eval.core.submission import Submission, Version

LATE_SECONDS = 3_600
"""From this distance on it is cheaper to look for the deadline's block than to read the blocks after it."""


class ChallengeReader:
    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self._blocks = blocks
        self._logs = logs
        self._version = contract_version(blocks.network.contracts)

    def contract(self, address: Address) -> ChallengeContract:
        return ChallengeContract(self._blocks, address, self._version.challenge)

    def factory(self, address: Address) -> ChallengeFactoryContract:
        return ChallengeFactoryContract(self._blocks, address, self._version.factory)

    def token(self, address: Address) -> TokenContract:
        return TokenContract(self._blocks, address)

    async def token_at(self, address: Address, block: Block) -> PrizeToken | None:
        """Return a token's symbol and scale; None if no token answers there."""
        return await self.token(address).describe(block, self._blocks.network)

    async def deadline(self, address: Address) -> int:
        """Return when submissions close; NotFound if no challenge answers there."""
        return (await self.contract(address).state(await self._blocks.head(), ("deadline",))).number("deadline")

    async def evaluator(self, address: Address, block: Block) -> Address:
        return (await self.contract(address).state(block, ("evaluator",))).address("evaluator")

    async def posters_of(self, addresses: Sequence[Address]) -> list[Address]:
        block, contracts = await self._blocks.head(), [self.contract(address) for address in addresses]
        answers = await self._blocks.views([contract.view("poster") for contract in contracts], block)
        return [
            contract.state_in(["poster"], [answer]).address("poster")
            for contract, answer in zip(contracts, answers, strict=True)
        ]

    async def is_challenge_of(self, factory: Address, address: Address) -> bool:
        """Whether the factory made this challenge, by the factory's own list, newest first."""
        block, contract = await self._blocks.head(), self.factory(factory)
        numbers = list(reversed(range(await contract.count(block))))
        for start in range(0, len(numbers), 500):
            if address in await contract.challenges(block, numbers[start : start + 500]):
                return True
        return False

    async def challenge_at(self, address: Address, block: Block) -> Challenge:
        """Read everything that the contract says at `block`."""
        contract = self.contract(address)
        state = await contract.state(block)
        submitters = await self._submitters(contract, block, state)
        submissions = await contract.submissions(block, submitters)
        challenge = (await self._challenges(block, [(contract, state)], {address: submissions}))[0]
        return replace(challenge, replaced=await self._replaced(contract, challenge))

    async def challenges_at(self, addresses: Sequence[Address], block: Block) -> list[Challenge]:
        """Read many at one block, without their submissions, in as few requests as the nodes allow."""
        contracts = [self.contract(address) for address in addresses]
        names = ChallengeContract.GETTERS
        answers = await self._blocks.views([contract.view(name) for contract in contracts for name in names], block)
        rows = [answers[start : start + len(names)] for start in range(0, len(answers), len(names))]
        found = [(contract, contract.state_in(names, row)) for contract, row in zip(contracts, rows, strict=True)]
        return await self._challenges(block, found, {})

    async def _challenges(
        self,
        block: Block,
        found: Sequence[tuple[ChallengeContract, ChallengeState]],
        submissions: Mapping[Address, tuple[Submission, ...]],
    ) -> list[Challenge]:
        network, addresses = self._blocks.network, [state.address("token") for _, state in found]
        tokens = await describe_tokens(self._blocks, block, addresses, network)
        asked = [contract.payout_views(state.number("winnerCount")) for contract, state in found]
        answers = iter(await self._blocks.views([call for calls in asked for call in calls], block))
        shares = [
            contract.payout_in([next(answers) for _ in calls])
            for (contract, _), calls in zip(found, asked, strict=True)
        ]
        return [
            Challenge(
                chain_id=self._blocks.rpc.chain_id,
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
                contract_version=network.contracts,
            )
            for (contract, state), payout in zip(found, shares, strict=True)
        ]

    async def _submitters(self, contract: ChallengeContract, block: Block, state: ChallengeState) -> list[Address]:
        """Read the events backwards until as many submitters are known as the contract counts."""
        wanted, known = state.number("submissionCount"), set[Address]()
        if wanted == 0:
            return []
        last = block.number
        if block.timestamp - state.number("deadline") > LATE_SECONDS:
            last = await self._blocks.first_block_at(state.number("deadline"), block)
        received = LogFilter((contract.address,), (contract.abi.event("SubmissionReceived").topic,))
        async for group in self._logs.groups(received, self._blocks.first, last, backwards=True):
            known.update(contract.submission_received(entry).submitter for entry in group.entries)
            if len(known) >= wanted:
                return sorted(known)
        raise Temporary(
            f"{contract.address} counts {wanted} submitters, but the nodes' events name only {len(known)}.",
            remedy="Check CLARA_FROM_BLOCK, or use a node that keeps all logs.",
        )

    async def _replaced(self, contract: ChallengeContract, challenge: Challenge) -> tuple[Version, ...]:
        """Read replaced versions from the events, if the current versions say that there are any."""
        current = {one.submitter: one.version for one in challenge.submissions}
        missing = sum(version - 1 for version in current.values())
        found: list[NewSubmission] = []
        if missing <= 0:
            return ()
        received = LogFilter((challenge.address,), (contract.abi.event("SubmissionReceived").topic,))
        async for group in self._logs.groups(received, self._blocks.first, challenge.block.number, backwards=True):
            read = [contract.submission_received(entry) for entry in group.entries]
            found += [one for one in read if one.version < current.get(one.submitter, 0)]
            if len(found) >= missing:
                break
        return await self._dated(found)

    async def _dated(self, found: Sequence[NewSubmission]) -> tuple[Version, ...]:
        """Add the time of their block, which is when they were handed in."""
        numbers = sorted({one.block_number for one in found})
        blocks = [read_block(required(raw)) for raw in await self._blocks.ask_blocks(numbers)]
        times = {block.number: block.timestamp for block in blocks}
        dated = [Version(one.submitter, one.solution_hash, times[one.block_number], one.version) for one in found]
        return tuple(sorted(dated, key=lambda one: (one.submitted_at, one.submitter, one.version)))


STEP_BACK_BLOCKS = 1_000
"""How far a reorg sends the reader back: far beyond any seen on a rollup, and cheap to read again."""


@dataclass(frozen=True, slots=True)
class Page:
    """All events up to and including block `upto`, after the page before."""

    events: tuple[NewChallenge, ...]
    upto: Checkpoint


class ChallengeEvents:
    """What challenges and their factory announced."""

    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self.blocks = blocks
        self._logs = logs
        self._version = contract_version(blocks.network.contracts)

    async def challenges_created(self, factory: Address, first: int, last: Block) -> AsyncIterator[Page]:
        contract = ChallengeFactoryContract(self.blocks, factory, self._version.factory)
        wanted = LogFilter((factory,), (contract.abi.event("ChallengeCreated").topic,))
        async for group in self._logs.groups(wanted, first, last.number):
            found = [contract.challenge_created(entry) for entry in group.entries]
            times = await self._times(found)
            yield Page(tuple(replace(one, created_at=times[one.block_number]) for one in found), group.upto)

    async def prizes_claimed(
        self, challenges: Sequence[Address], first: int, last: Block
    ) -> AsyncIterator[tuple[tuple[NewClaim, ...], int]]:
        """Yield claims from those challenges, page by page, each with the last block that it covers."""
        spoken = self._version.challenge
        wanted = LogFilter(tuple(challenges), (spoken.event("PrizeClaimed").topic,))
        async for group in self._logs.groups(wanted, first, last.number):
            found = [ChallengeContract.prize_claimed(spoken, entry) for entry in group.entries]
            times = await self._times(found)
            yield tuple(replace(one, claimed_at=times[one.block_number]) for one in found), group.upto.block_number

    async def challenges_with_events(self, first: int, last: Block) -> set[Address]:
        """Return contracts that emitted an event that changes a challenge: a hint, since anybody can emit these."""
        names = ("SubmissionReceived", "ScoresPosted", "ChallengeFinalized", "ChallengeExpired", "ChallengeCancelled")
        topics = tuple(self._version.challenge.event(name).topic for name in names)
        found: set[Address] = set()
        async for group in self._logs.groups(LogFilter((), (topics,)), first, last.number):
            found.update(Address(str(entry["address"]).lower()) for entry in group.entries)
        return found

    async def _times(self, found: Iterable[NewChallenge | NewClaim]) -> dict[int, int]:
        """Return the time of each event's block; 0 if no node has the block, because the event counts all the same."""
        numbers = sorted({one.block_number for one in found})
        blocks = [block_or_none(raw) for raw in await self.blocks.ask_blocks(numbers)]
        return {number: block.timestamp if block else 0 for number, block in zip(numbers, blocks, strict=True)}


class Checkpoints(Protocol):
    """The store of a reader's place."""

    async def checkpoint(self, name: str) -> Checkpoint | None: ...
    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None: ...


async def find_challenges(
    events: ChallengeEvents,
    checkpoints: Checkpoints,
    factory: Address,
    first_block: int,
    keep: Callable[[NewChallenge], Awaitable[None]],
) -> int:
    """Hand every challenge created since the last call to `keep`; return how many."""
    name = f"challenges:{events.blocks.rpc.chain_id}:{factory}"
    first, last = await _span(events.blocks, checkpoints, name, first_block)
    kept = 0
    async for page in events.challenges_created(factory, first, last):
        for new in page.events:
            await keep(new)
            kept += 1
        await checkpoints.save_checkpoint(name, page.upto)
    return kept


async def _span(blocks: Blocks, checkpoints: Checkpoints, name: str, first_block: int) -> tuple[int, Block]:
    last = await blocks.safe_block()
    place = await checkpoints.checkpoint(name)
    if place is None:
        return first_block, last
    if place.block_number <= last.number and not await blocks.is_canonical(place):
        return max(first_block, place.block_number - STEP_BACK_BLOCKS), last
    return place.block_number + 1, last


BLOCKS_AFTER_POST = 50
"""Looked through from the first block with the time of the post, before the whole chain is."""
MOST_LOOKS = 3
"""For the event of a post, each at a newer block than the one before."""


class PostedResults:
    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self.blocks = blocks
        self._logs = logs
        self._abi = contract_version(blocks.network.contracts).challenge

    def _contract(self, address: Address) -> ChallengeContract:
        return ChallengeContract(self.blocks, address, self._abi)

    async def scoring_state(self, address: Address, head: Block | None = None) -> ScoringState:
        """Return status and time of the post at the newest block, of a challenge that was read before."""
        newest = head

        async def look() -> ScoringState | NotFound:
            nonlocal newest
            block, newest = newest or await self.blocks.head(), None
            try:
                return await self._contract(address).scoring_state(block)
            except NotFound as missing:
                return missing  # for a moment, while a node is replacing blocks

        found = await self.blocks.rpc.retries.until(lambda state: isinstance(state, ScoringState), look)
        if isinstance(found, NotFound):
            raise found
        return found

    async def posted_by(self, challenge: Challenge) -> Posted | None:
        """Return the transaction that posted the scores and who sent it; None while nothing is posted."""
        for _ in range(MOST_LOOKS):
            head = await self.blocks.head()
            posted_at = (await self._contract(challenge.address).scoring_state(head)).score_posted_at
            if posted_at == 0:
                return None
            found = await self._post_until(challenge, posted_at, head)
            if found is not None:
                return found
            if (await self.blocks.head()).number <= head.number:
                break  # else the node told the state of a block that it was just making
        raise Temporary(f"Scores of {challenge.address} are posted, but no node shows the event.")

    async def _post_until(self, challenge: Challenge, posted_at: int, head: Block) -> Posted | None:
        """Find the post that was made at this time, if its event is in a block up to this one."""
        first = await self.blocks.first_block_at(posted_at, head)
        wanted = LogFilter((challenge.address,), (self._abi.event("ScoresPosted").topic,))
        async for group in self._logs.groups(wanted, first, min(head.number, first + BLOCKS_AFTER_POST)):
            for entry in group.entries:
                return await self._posted(challenge, entry, head)
        # Blocks may be out of the order of their times, as after a reorg of a development chain.
        since = self.blocks.first if challenge.score_posted_at else challenge.block.number
        async for group in self._logs.groups(wanted, since, head.number, backwards=True):
            for entry in group.entries:
                return await self._posted(challenge, entry, head)
        return None

    async def _posted(self, challenge: Challenge, entry: Any, head: Block) -> Posted:
        raw = await self.blocks.rpc.ask("eth_getTransactionByHash", entry["transactionHash"])
        sender, number = Address(raw["from"].lower()), int(entry["blockNumber"], 16)
        return Posted(
            by=PostedBy.of(sender, evaluator=challenge.evaluator, poster=challenge.poster),
            sender=sender,
            tx_hash=entry["transactionHash"],
            block_number=number,
            calldata=bytes.fromhex(raw["input"].removeprefix("0x")),
            is_final=head.number - number + 1 >= self.blocks.network.confirmations,
        )

    async def winners_on_chain(self, address: Address, count: int) -> tuple[WinnerPrize, ...]:
        return await self.winners_at(address, count, await self.blocks.head())

    async def winners_at(self, address: Address, count: int, block: Block) -> tuple[WinnerPrize, ...]:
        return await self._contract(address).winners(block, count)

    async def has_claimed(self, address: Address, accounts: Sequence[Address]) -> dict[Address, bool]:
        return await self._contract(address).has_claimed(await self.blocks.head(), accounts)


class AgentRegistries:
    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self._blocks = blocks
        self._logs = logs

    def identity(self, address: Address) -> IdentityRegistryContract:
        return IdentityRegistryContract(self._blocks, address)

    def reputation(self, address: Address) -> ReputationRegistryContract:
        return ReputationRegistryContract(self._blocks, address)

    async def agents_of(self, registry: Address, owner: Address, block: Block) -> list[int]:
        """Return agent ids that the registry's events gave to an address and that it still owns, oldest first.

        Empty if the registry emits no events, or the nodes do not have them.
        """
        topics = tuple(event.topic for event in IdentityRegistryContract.OWNING_EVENTS)
        wanted = LogFilter((registry,), (topics, None, _topic(owner)))
        try:
            async for group in self._logs.groups(wanted, self._blocks.first, block.number, backwards=True):
                ids = IdentityRegistryContract.agents_in(group.entries, registry, owner)
                owners = await self.identity(registry).owners_of(block, ids)
                owned = [number for number, found in zip(ids, owners, strict=True) if found == owner]
                if owned:
                    return owned
        except NodeRefusal:
            return []  # not every node has old events; the caller is asked for the id then
        return []

    async def feedback_since(
        self, registry: Address, agent_id: int, client: Address, since: int
    ) -> tuple[GivenFeedback, ...]:
        """Return what a client said about an agent, from events since that time; deep or not."""
        head = await self._blocks.head()
        if await self.reputation(registry).last_index(head, agent_id, client) == 0:
            return ()
        topic = ReputationRegistryContract.ABI.event("NewFeedback").topic
        wanted = LogFilter((registry,), (topic, f"0x{agent_id:064x}", _topic(client)))
        found: list[GivenFeedback] = []
        first = await self._blocks.first_block_at(since, head)
        async for group in self._logs.groups(wanted, first, head.number):
            found += ReputationRegistryContract.given(group.entries)
        return tuple(found)


def _topic(address: Address) -> str:
    return "0x" + address[2:].rjust(64, "0")


class EthereumChain:
    """The readers of one network, over the nodes of `rpc`."""

    def __init__(self, rpc: Rpc, network: Network, *, first_block: int | None = None) -> None:
        logs = Logs(rpc)
        self.blocks = Blocks(rpc, network, first_block=first_block)
        self.challenges = ChallengeReader(self.blocks, logs)
        self.events = ChallengeEvents(self.blocks, logs)
        self.results = PostedResults(self.blocks, logs)
        self.agents = AgentRegistries(self.blocks, logs)

    @property
    def chain_id(self) -> int:
        return self.blocks.rpc.chain_id

    async def close(self) -> None:
        await self.blocks.rpc.close()
