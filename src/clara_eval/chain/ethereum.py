"""Read one network: challenges, their events and posted results, and the agent registries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from clara_eval.chain import model
from clara_eval.chain.blocks import Blocks, Logs, block_or_none, read_block
from clara_eval.chain.contracts import clients
from clara_eval.chain.contracts.abi import contract_version
from clara_eval.chain.rpc import NodeRefusal, Rpc, required
from clara_eval.config.settings import Network
from clara_eval.core.address import Address
from clara_eval.core.codec import camel
from clara_eval.core.errors import NotFound, Temporary
from clara_eval.core.model import Version

_GETTER_FIELDS = [one.name for one in fields(model.Challenge) if camel(one.name) in clients.ChallengeContract.GETTERS]
"""Fields of a challenge that have the name of a contract getter."""
LATE_SECONDS = 3_600  # So long after the deadline, searching its block is cheaper than reading all blocks since


class _Reader:
    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self.blocks = blocks
        self._logs = logs
        self._version = contract_version(blocks.network.contracts)

    def contract(self, address: Address) -> clients.ChallengeContract:
        return clients.ChallengeContract(self.blocks, address, self._version.challenge)


class ChallengeReader(_Reader):
    def factory(self, address: Address) -> clients.ChallengeFactoryContract:
        return clients.ChallengeFactoryContract(self.blocks, address, self._version.factory)

    def token(self, address: Address) -> clients.TokenContract:
        return clients.TokenContract(self.blocks, address)

    async def token_at(self, address: Address, block: model.Block) -> model.PrizeToken | None:
        found = (await clients.describe_tokens(self.blocks, block, [address]))[address]
        return found if found.is_known else None

    async def posters_of(self, addresses: Sequence[Address]) -> list[Address]:
        return [state["poster"] for _, state in await self._states(addresses, await self.blocks.head(), ["poster"])]

    async def _states(
        self, addresses: Sequence[Address], block: model.Block, names: Sequence[str]
    ) -> list[tuple[clients.ChallengeContract, clients.ChallengeGetters]]:
        """Read these getters of many challenges, in as few requests as the nodes allow."""
        contracts = [self.contract(address) for address in addresses]
        data = iter(await self.blocks.views([one.view(name) for one in contracts for name in names], block))
        return [(one, {name: clients.answered(one.view(name), next(data))[0] for name in names}) for one in contracts]

    async def is_challenge_of(self, factory: Address, address: Address) -> bool:
        block, contract = await self.blocks.head(), self.factory(factory)
        numbers = list(reversed(range(await contract.one(block, "getChallengeCount"))))
        for start in range(0, len(numbers), 500):
            if address in await contract.challenges(block, numbers[start : start + 500]):
                return True
        return False

    async def challenge_at(self, address: Address, block: model.Block) -> model.Challenge:
        (challenge,) = await self.challenges_at([address], block)
        received = await self._submission_events(challenge)
        submitters = sorted({Address(one["submitter"]) for one in received})
        submissions = await self.contract(address).submissions(block, submitters)
        current = {one.submitter: one.version for one in submissions}
        old = [one for one in received if one["version"] < current[one["submitter"]]]
        raw = await self.blocks.ask_blocks(sorted({one["block"] for one in old}))
        times = {found.number: found.timestamp for found in map(read_block, map(required, raw))}
        dated = [Version(one["submitter"], one["solutionHash"], times[one["block"]], one["version"]) for one in old]
        replaced = sorted(dated, key=lambda one: (one.submitted_at, one.submitter, one.version))
        return replace(challenge, submissions=submissions, replaced=tuple(replaced))

    async def challenges_at(self, addresses: Sequence[Address], block: model.Block) -> list[model.Challenge]:
        """Read challenges at one block, without their submissions."""
        found = await self._states(addresses, block, clients.ChallengeContract.GETTERS)
        tokens = await clients.describe_tokens(self.blocks, block, [state["token"] for _, state in found])
        views = [contract.payout_views(state["winnerCount"]) for contract, state in found]
        answers = iter(await self.blocks.views([call for calls in views for call in calls], block))
        return [
            model.Challenge(
                chain_id=self.blocks.rpc.chain_id,
                address=contract.address,
                block=block,
                token=tokens[state["token"]],
                challenge_uri=state["challengeURI"],
                payout_bps=contract.payout_in([next(answers) for _ in calls]),
                status=contract.status_of(state["status"]),
                **{name: state[camel(name)] for name in _GETTER_FIELDS if name not in ("token", "status")},
                submissions=(),
                contract_version=self.blocks.network.contracts,
            )
            for (contract, state), calls in zip(found, views, strict=True)
        ]

    async def _submission_events(self, challenge: model.Challenge) -> list[dict[str, Any]]:
        """Read events backwards until all versions of all submitters that the contract counts are found."""
        wanted, block = challenge.submission_count, challenge.block
        event = self._version.challenge.event("SubmissionReceived")
        found, versions, last = list[dict[str, Any]](), dict[str, int](), block.number
        if wanted == 0:
            return found
        if block.timestamp - challenge.deadline > LATE_SECONDS:
            last = (await self.blocks.first_block_at(challenge.deadline, block)).number
        groups = self._logs.groups((challenge.address,), (event.topic,), self.blocks.first, last, backwards=True)
        async for entries, _ in groups:
            read = [event.read(entry) | {"block": int(entry["blockNumber"], 16)} for entry in entries]
            versions = {one["submitter"]: one["version"] for one in read} | versions
            found += read
            if len(versions) >= wanted and len(found) >= sum(versions.values()):
                break
        if len(versions) < wanted:
            text = f"{challenge.address} counts {wanted} submitters, but the nodes' events name only {len(versions)}."
            raise Temporary(text, remedy="Check CLARA_FROM_BLOCK, or use a node that keeps all logs.")
        return found


class ChallengeEvents(_Reader):
    async def challenges_created(
        self, factory: Address, first: int, last: model.Block
    ) -> AsyncIterator[tuple[tuple[model.NewChallenge, ...], model.Checkpoint]]:
        contract = clients.ChallengeFactoryContract(self.blocks, factory, self._version.factory)
        topic = contract.abi.event("ChallengeCreated").topic
        async for entries, upto in self._logs.groups((factory,), (topic,), first, last.number):
            yield tuple(map(contract.challenge_created, entries, await self._times(entries))), upto

    async def prizes_claimed(
        self, challenges: Sequence[Address], first: int, last: model.Block
    ) -> AsyncIterator[tuple[tuple[model.NewClaim, ...], int]]:
        event = self._version.challenge.event("PrizeClaimed")
        async for entries, upto in self._logs.groups(challenges, (event.topic,), first, last.number):
            claims = []
            for entry, claimed_at in zip(entries, await self._times(entries), strict=True):
                found, mined = event.read(entry), (entry["transactionHash"], int(entry["blockNumber"], 16), claimed_at)
                challenge, winner = Address(entry["address"].lower()), Address(found["winner"])
                claims.append(model.NewClaim(challenge, winner, found["amount"], *mined))
            yield tuple(claims), upto.number

    async def challenges_with_events(self, first: int, last: model.Block) -> set[Address]:
        """Return contracts that emitted a challenge event; only a hint, since any contract can emit one."""
        names = ("SubmissionReceived", "ScoresPosted", "ChallengeFinalized", "ChallengeExpired", "ChallengeCancelled")
        topics = tuple(self._version.challenge.event(name).topic for name in names)
        found: set[Address] = set()
        async for entries, _ in self._logs.groups((), (topics,), first, last.number):
            found.update(Address(str(entry["address"]).lower()) for entry in entries)
        return found

    async def _times(self, entries: Sequence[Any]) -> list[int]:
        """Return the time of each event's block; 0 if no node has the block."""
        numbers = [int(entry["blockNumber"], 16) for entry in entries]
        unique = sorted(set(numbers))
        blocks = dict(zip(unique, map(block_or_none, await self.blocks.ask_blocks(unique)), strict=True))
        return [block.timestamp if (block := blocks[number]) else 0 for number in numbers]


MOST_IDS = 500  # Newest agent ids that are searched for an owner if the registry emits no events
BLOCKS_AFTER_POST = 50  # Blocks from the time of the post that are searched before the whole chain is
MOST_LOOKS = 3  # Searches for the event of a post, each at a newer block


class PostedResults(_Reader):
    async def scoring_state(self, address: Address, head: model.Block | None = None) -> model.ScoringState:
        """Return status and time of the post at the newest block; the challenge must exist."""

        async def look() -> model.ScoringState | NotFound:
            nonlocal head
            block, head = head or await self.blocks.head(), None
            try:
                return await self.contract(address).scoring_state(block)
            except NotFound as missing:
                return missing  # a node that is replacing blocks may not have the contract for a moment

        found = await self.blocks.rpc.retries.until(lambda state: isinstance(state, model.ScoringState), look)
        if isinstance(found, NotFound):
            raise found
        return found

    async def posted_by(self, challenge: model.Challenge) -> model.Posted | None:
        """Return the transaction that posted the scores and its sender; None while nothing is posted."""
        for _ in range(MOST_LOOKS):
            head = await self.blocks.head()
            posted_at = (await self.contract(challenge.address).scoring_state(head)).score_posted_at
            if posted_at == 0:
                return None
            entry = await self._find_post_event(challenge, posted_at, head)
            if entry is not None or (await self.blocks.head()).number <= head.number:
                break  # otherwise the state may be that of a block the node was still building
        if entry is None:
            raise Temporary(f"Scores of {challenge.address} are posted, but no node shows the event.")
        raw = await self.blocks.rpc.ask("eth_getTransactionByHash", entry["transactionHash"])
        sender, number = Address(raw["from"].lower()), int(entry["blockNumber"], 16)
        by = model.PostedBy.of(sender, evaluator=challenge.evaluator, poster=challenge.poster)
        calldata = bytes.fromhex(raw["input"].removeprefix("0x"))
        is_final = head.number - number + 1 >= self.blocks.network.confirmations
        return model.Posted(by, sender, entry["transactionHash"], number, calldata, is_final)

    async def _find_post_event(self, challenge: model.Challenge, posted_at: int, head: model.Block) -> Any | None:
        """Find the event of the post that was made at `posted_at`, in blocks up to `head`."""
        first = (await self.blocks.first_block_at(posted_at, head)).number
        topics = (self._version.challenge.event("ScoresPosted").topic,)
        near = self._logs.groups((challenge.address,), topics, first, min(head.number, first + BLOCKS_AFTER_POST))
        # The order of blocks may differ from that of their times, as after a reorg of a development chain.
        since = self.blocks.first if challenge.score_posted_at else challenge.block.number
        whole = self._logs.groups((challenge.address,), topics, since, head.number, backwards=True)
        for groups in (near, whole):
            async for entries, _ in groups:
                if entries:
                    return entries[0]
        return None

    async def winners_on_chain(
        self, address: Address, count: int, block: model.Block | None = None
    ) -> tuple[model.WinnerPrize, ...]:
        contract, block = self.contract(address), block or await self.blocks.head()
        if (await contract.scoring_state(block)).score_posted_at == 0:
            return ()
        rows = await contract.values(block, [contract.view("winners", place) for place in range(count)])
        return tuple(model.winner_of(contract.abi.function("winners").named_answer(row)) for row in rows)

    async def has_claimed(self, address: Address, accounts: Sequence[Address]) -> dict[Address, bool]:
        contract, block = self.contract(address), await self.blocks.head()
        rows = await contract.values(block, [contract.view("hasClaimed", account) for account in accounts])
        return {account: bool(row[0]) for account, row in zip(accounts, rows, strict=True)}


class AgentRegistries(_Reader):
    def identity(self, address: Address) -> clients.IdentityRegistryContract:
        return clients.IdentityRegistryContract(self.blocks, address)

    def reputation(self, address: Address) -> clients.ReputationRegistryContract:
        return clients.ReputationRegistryContract(self.blocks, address)

    async def agents_of(self, registry: Address, owner: Address, block: model.Block) -> list[int]:
        """Return agent ids that an address owns, oldest first: from events, else from the registry's calls."""
        contract = self.identity(registry)
        topics = (tuple(event.topic for event in contract.OWNING_EVENTS), None, f"0x{owner[2:]:0>64}")
        groups = self._logs.groups((registry,), topics, self.blocks.first, block.number, backwards=True)
        with suppress(NodeRefusal):  # not every node has old events
            async for entries, _ in groups:
                if owned := await contract.owned_by(owner, block, contract.agents_in(entries, registry, owner)):
                    return owned
        request = {"from": owner, "to": registry, "data": "0x" + contract.encode("register(string)", "").hex()}
        try:
            at = self.blocks.parameter(block)
            number = int(await self.blocks.rpc.ask("eth_call", request, at, retry_missing=True), 16)
        except (NodeRefusal, ValueError):
            return []
        # A registry with one agent per address returns that agent's id, any other the next free id.
        for ids in ([number], list(range(number - 1, max(-1, number - MOST_IDS), -1)) if number < 2**64 else []):
            if owned := await contract.owned_by(owner, block, ids):
                return owned[:1]
        return []

    async def feedback_since(
        self, registry: Address, agent_id: int, client: Address, since: int
    ) -> list[model.GivenFeedback]:
        """Return the feedback of a client about an agent, from events since that time, final or not."""
        head = await self.blocks.head()
        if await self.reputation(registry).one(head, "getLastIndex", agent_id, client) == 0:
            return []
        event = clients.ReputationRegistryContract.ABI.event("NewFeedback")
        topics, found = (event.topic, f"0x{agent_id:064x}", f"0x{client[2:]:0>64}"), list[model.GivenFeedback]()
        first = (await self.blocks.first_block_at(since, head)).number
        async for entries, _ in self._logs.groups((registry,), topics, first, head.number):
            for entry, values in zip(entries, map(event.read, entries), strict=True):
                mined = str(entry["transactionHash"]), int(entry["blockNumber"], 16)
                found.append(model.GivenFeedback(values["endpoint"], values["feedbackURI"], *mined))
        return found


class EthereumChain:
    def __init__(self, rpc: Rpc, network: Network, *, first_block: int | None = None) -> None:
        logs = Logs(rpc)
        self.blocks = Blocks(rpc, network, first_block=first_block)
        self.challenges = ChallengeReader(self.blocks, logs)
        self.events = ChallengeEvents(self.blocks, logs)
        self.results = PostedResults(self.blocks, logs)
        self.agents = AgentRegistries(self.blocks, logs)
        self.chain_id = rpc.chain_id

    async def close(self) -> None:
        await self.blocks.rpc.close()
