"""Read challenges at one block: terms, submissions, status.

Invariant: as many submitters are found as the contract counts, or the reading is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clara_eval.chain.blocks import Blocks, read_block, required
from clara_eval.chain.contracts.clients import (
    ChallengeContract,
    ChallengeFactoryContract,
    ChallengeState,
    TokenContract,
    describe_tokens,
)
from clara_eval.chain.contracts.versions import contract_version
from clara_eval.chain.logs import LogFilter, Logs
from clara_eval.chain.model import Block, Challenge, NewSubmission, PrizeToken
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
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
