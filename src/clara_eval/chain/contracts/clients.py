"""The contracts as typed clients, one class each, built from the shipped ABIs: every reading and every call once.

Comes in: a reader of views at one block, and an address. Goes out: our own types, or calldata. Must hold: a contract
that does not answer as contracts.md says is NotFound; a stranger's contract (a token, a registry) is asked with little
gas, its answer is cut off, and whatever it does it only ever gives None. Which ABI a client speaks is said in
`contracts.versions`; fields are read by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from clara_eval.chain.blocks import Blocks
from clara_eval.chain.calldata import winner_of
from clara_eval.chain.contracts.abi import Abi, Event, Undecodable, View, abi
from clara_eval.chain.dollars import poses_as_dollar
from clara_eval.chain.model import Block, ChallengeStatus, NewChallenge, NewClaim, NewSubmission, PrizeToken
from clara_eval.chain.posted import ScoringState
from clara_eval.chain.winners import WinnerPrize
from clara_eval.config.networks import Network
from clara_eval.core.address import ZERO_ADDRESS, Address, short
from clara_eval.core.errors import NotFound
from clara_eval.core.submission import Submission

SYMBOL_CHARS = 12


class _Contract:
    """A contract at an address, and the ABI it speaks."""

    IS_FOREIGN: ClassVar[bool] = False

    def __init__(self, reader: Blocks, address: Address, spoken: Abi) -> None:
        self._reader = reader
        self.address = address
        self.abi = spoken

    def view(self, name: str, *values: object) -> View:
        return View(self.address, self.abi.function(name), values, is_foreign=self.IS_FOREIGN)

    async def _answers(self, block: Block, calls: Sequence[View]) -> list[object]:
        return await self._reader.views(calls, block) if calls else []

    async def _one(self, block: Block, name: str, *values: object, remedy: str) -> Any:
        """The first output of one getter; NotFound where the contract does not answer it."""
        call = self.view(name, *values)
        found = call.read((await self._answers(block, [call]))[0])
        if found is None:
            raise NotFound(f"The contract at {self.address} does not answer {name}().", remedy=remedy)
        return found[0]


@dataclass(frozen=True, slots=True)
class ChallengeState:
    """What one challenge says of itself in its getters, submissions and token apart."""

    values: Mapping[str, Any]

    def address(self, name: str) -> Address:
        return Address(self.values[name])

    def number(self, name: str) -> int:
        return int(self.values[name])

    def text(self, name: str) -> str:
        return str(self.values[name])


class ChallengeContract(_Contract):
    """One challenge."""

    GETTERS: ClassVar[tuple[str, ...]] = (
        "poster", "evaluator", "token", "prizePool", "deadline", "scoringDeadline", "challengeURI", "evalConfigHash",
        "privateSetHash", "posterBond", "maxParticipants", "winnerCount", "identityRegistry", "status",
        "submissionCount", "scorePostedAt",
    )  # fmt: skip

    async def state(self, block: Block, names: Sequence[str] = GETTERS) -> ChallengeState:
        answers = await self._reader.views([self.view(name) for name in names], block)
        return self.state_in(names, answers)

    def state_in(self, names: Sequence[str], answers: Sequence[object]) -> ChallengeState:
        """From the answers to its getters, in their order."""
        return ChallengeState({name: self._value(name, found) for name, found in zip(names, answers, strict=True)})

    async def scoring_state(self, block: Block) -> ScoringState:
        found = await self.state(block, ("status", "scorePostedAt"))
        return ScoringState(self.status_in(found), found.number("scorePostedAt"))

    def status_in(self, state: ChallengeState) -> ChallengeStatus:
        try:
            return ChallengeStatus(state.number("status"))
        except ValueError:
            raise NotFound(f"No challenge at {self.address}: its status is {state.number('status')}.") from None

    def payout_views(self, places: int) -> list[View]:
        """The getter for all shares, and those for each."""
        return [self.view("getPayoutBps"), *(self.view("payoutBps", place) for place in range(places))]

    def payout_in(self, answers: Sequence[object]) -> tuple[int, ...]:
        """The payout shares from the getter for all, or else from the getter for each."""
        found = self.view("getPayoutBps").read(answers[0])
        if found is not None:
            return tuple(int(share) for share in found[0])
        return tuple(int(self._value("payoutBps", answer)) for answer in answers[1:])

    async def submissions(self, block: Block, submitters: Sequence[Address]) -> tuple[Submission, ...]:
        """Everybody's submission; NotFound if the contract does not tell one of them."""
        read = await self._submissions(block, submitters, "getSubmission")
        missing = [who for who in submitters if read[who] is None]
        repaired = read | await self._submissions(block, missing, "submissions")
        lost = next((who for who, found in repaired.items() if found is None), None)
        if lost:
            raise NotFound(
                f"{self.address} does not tell the submission of {lost}.",
                remedy="It must answer getSubmission(address) or submissions(address).",
            )
        return tuple(found for who in submitters if (found := repaired[who]) is not None)

    async def submission_of(self, block: Block, submitter: Address) -> Submission | None:
        """What that address submitted last, if anything."""
        return (await self._submissions(block, [submitter], "getSubmission"))[submitter]

    async def _submissions(
        self, block: Block, submitters: Sequence[Address], getter: str
    ) -> dict[Address, Submission | None]:
        calls = [self.view(getter, who) for who in submitters]
        answers = await self._answers(block, calls)
        return {
            who: _submission(who, call, answer) for who, call, answer in zip(submitters, calls, answers, strict=True)
        }

    async def winners(self, block: Block, count: int) -> tuple[WinnerPrize, ...]:
        """The posted winners in their order; empty while nothing is posted."""
        if (await self.state(block, ("scorePostedAt",))).number("scorePostedAt") == 0:
            return ()
        calls = [self.view("winners", place) for place in range(count)]
        rows = [self._values("winners", answer) for answer in await self._reader.views(calls, block)]
        return tuple(winner_of(self.view("winners").function.named_answer(row)) for row in rows)

    async def has_claimed(self, block: Block, accounts: Sequence[Address]) -> dict[Address, bool]:
        answers = await self._reader.views([self.view("hasClaimed", account) for account in accounts], block)
        return {
            account: bool(self._value("hasClaimed", answer)) for account, answer in zip(accounts, answers, strict=True)
        }

    async def last_submission_time(self, block: Block, account: Address) -> int:
        (answer,) = await self._reader.views([self.view("lastSubmissionTime", account)], block)
        return int(self._value("lastSubmissionTime", answer))

    def _value(self, name: str, answer: object) -> Any:
        return self._values(name, answer)[0]

    def _values(self, name: str, answer: object) -> tuple[Any, ...]:
        found = self.view(name).read(answer)
        if found is None:
            what = "has no code there" if answer == "0x" else f"does not answer {name}() as a challenge does"
            raise NotFound(
                f"No challenge at {self.address}: the chain {what}.", remedy="Check the address and CLARA_NETWORK."
            )
        return found

    # calls

    def submit(self, agent_id: int, uri: str, content_hash: str) -> bytes:
        return self.abi.function("submit").call(agent_id, uri, content_hash)

    def bare_call(self, name: str) -> bytes:
        """A call without arguments: claimPrize, claimExpiredRefund, finalize, expire."""
        return self.abi.function(name).call()

    # events

    def submission_received(self, entry: Mapping[str, Any]) -> NewSubmission:
        found = self.abi.event("SubmissionReceived").read(entry)
        return NewSubmission(
            challenge=Address(entry["address"].lower()),
            submitter=Address(found["submitter"]),
            agent_id=found["agentId"],
            version=found["version"],
            solution_hash=found["solutionHash"],
            block_number=int(entry["blockNumber"], 16),
        )

    @staticmethod
    def prize_claimed(spoken: Abi, entry: Mapping[str, Any]) -> NewClaim:
        found = spoken.event("PrizeClaimed").read(entry)
        return NewClaim(
            challenge=Address(entry["address"].lower()),
            winner=Address(found["winner"]),
            amount=found["amount"],
            tx_hash=entry["transactionHash"],
            block_number=int(entry["blockNumber"], 16),
        )


class ChallengeFactoryContract(_Contract):
    """The factory that creates challenges."""

    async def count(self, block: Block) -> int:
        return int((await self._read(block, [("getChallengeCount",)]))[0])

    async def challenges(self, block: Block, numbers: Sequence[int]) -> list[Address]:
        """Those challenges by their number; the oldest is 0."""
        found = await self._read(block, [("challenges", number) for number in numbers])
        return [Address(address) for address in found]

    async def poster_bond_rate(self, block: Block) -> int:
        return int((await self._read(block, [("posterBondRate",)]))[0])

    async def identity_registry(self, block: Block) -> Address:
        return Address((await self._read(block, [("identityRegistry",)]))[0])

    async def _read(self, block: Block, wanted: Sequence[tuple[Any, ...]]) -> list[Any]:
        calls = [self.view(name, *values) for name, *values in wanted]
        answers = await self._answers(block, calls)
        return [self._value(call, answer) for call, answer in zip(calls, answers, strict=True)]

    def _value(self, call: View, answer: object) -> Any:
        found = call.read(answer)
        if found is None:
            raise NotFound(
                f"The contract at {self.address} is not a challenge factory: it does not answer "
                f"{call.function.signature}.",
                remedy="Check CLARA_CHALLENGE_FACTORY and CLARA_NETWORK.",
            )
        return found[0]

    def create_challenge(self, params: Mapping[str, object]) -> bytes:
        return self.abi.function("createChallenge").call(params)

    def challenge_created(self, entry: Mapping[str, Any]) -> NewChallenge:
        """An entry whose texts cannot be read still announces its address; the challenge itself tells the rest."""
        event = self.abi.event("ChallengeCreated")
        try:
            found = event.read(entry)
        except Undecodable:
            found = _UNREAD | event.read_indexed(entry)
        return NewChallenge(
            address=Address(found["challengeAddress"]),
            poster=Address(found["poster"]),
            token=Address(found["token"]),
            prize_pool=found["prizePool"],
            poster_bond=found["posterBond"],
            deadline=found["deadline"],
            scoring_deadline=found["scoringDeadline"],
            challenge_uri=found["challengeURI"],
            skill_tags=found["skillTags"],
            block_number=int(entry["blockNumber"], 16),
            tx_hash=str(entry.get("transactionHash") or ""),
        )


_UNREAD: dict[str, Any] = {
    "token": ZERO_ADDRESS, "prizePool": 0, "posterBond": 0, "deadline": 0, "scoringDeadline": 0, "challengeURI": "",
    "skillTags": (),
}  # fmt: skip


class TokenContract(_Contract):
    """A prize token: anybody's contract."""

    ABI: ClassVar[Abi] = abi("TestUSDC")
    IS_FOREIGN = True

    def __init__(self, reader: Blocks, address: Address) -> None:
        super().__init__(reader, address, self.ABI)

    async def describe(self, block: Block, network: Network) -> PrizeToken | None:
        """Symbol and scale; None if nothing there answers as a token does."""
        found = (await describe_tokens(self._reader, block, [self.address], network))[self.address]
        return found if found.is_known else None

    async def balance_of(self, block: Block, owner: Address) -> int:
        return int(await self._one(block, "balanceOf", owner, remedy=_NOT_ERC20))

    async def allowance(self, block: Block, owner: Address, spender: Address) -> int:
        return int(await self._one(block, "allowance", owner, spender, remedy=_NOT_ERC20))

    @classmethod
    def approve(cls, spender: Address, units: int) -> bytes:
        return cls.ABI.function("approve").call(spender, units)

    @classmethod
    def transfer(cls, to: Address, units: int) -> bytes:
        return cls.ABI.function("transfer").call(to, units)


_NOT_ERC20 = "Give the address of an ERC-20 token on this network."


async def describe_tokens(
    reader: Blocks, block: Block, addresses: Sequence[Address], network: Network
) -> dict[Address, PrizeToken]:
    """Symbol and scale of each, in one question; whatever a token answers, it never stops a reading."""
    tokens = [TokenContract(reader, address) for address in dict.fromkeys(addresses)]
    calls = [token.view(name) for token in tokens for name in ("symbol", "decimals")]
    answers = iter(zip(calls, await reader.views(calls, block) if calls else [], strict=True))
    found: dict[Address, PrizeToken] = {}
    for token in tokens:
        (call, symbol), (scale, decimals) = next(answers), next(answers)
        found[token.address] = _token(token.address, _symbol(call, symbol), scale.read(decimals), network)
    return found


def _token(address: Address, symbol: str, scale: tuple[Any, ...] | None, network: Network) -> PrizeToken:
    is_usdc = address == network.usdc
    name = symbol or ("USDC" if is_usdc else short(address))
    # Unknown scale: read as base units. The prize then looks large, and large prizes get a review.
    places = int(scale[0]) if scale else 6 if is_usdc else 0
    shown = short(address) if poses_as_dollar(address, name, network) else name
    return PrizeToken(address, shown, places, is_known=scale is not None)


def _symbol(call: View, answer: object) -> str:
    """What a token calls itself, as text or as one word of bytes: ASCII letters and digits, and few of them."""
    found = call.read(answer)
    text = str(found[0]) if found else ""
    if found is None and isinstance(answer, str) and len(answer) == 66:
        text = bytes.fromhex(answer[2:]).rstrip(b"\0").decode("utf-8", errors="ignore")
    return "".join(char for char in text if char.isascii() and char.isalnum())[:SYMBOL_CHARS]


class IdentityRegistryContract(_Contract):
    """The registry of agents (ERC-8004, an ERC-721): on some networks one that emits no events."""

    ABI: ClassVar[Abi] = abi("IdentityRegistry")
    OWNING_EVENTS: ClassVar[tuple[Event, ...]] = (ABI.event("Registered"), ABI.event("Transfer"))
    """Both name the owner in their third topic."""
    IS_FOREIGN = True

    def __init__(self, reader: Blocks, address: Address) -> None:
        super().__init__(reader, address, self.ABI)

    async def owners_of(self, block: Block, agent_ids: Sequence[int]) -> list[Address | None]:
        """Who owns each id; None where there is no such agent."""
        calls = [self.view("ownerOf", agent_id) for agent_id in agent_ids]
        answers = await self._answers(block, calls)
        rows = [call.read(answer) for call, answer in zip(calls, answers, strict=True)]
        return [Address(row[0]) if row else None for row in rows]

    async def authorized(self, block: Block, account: Address, agent_ids: Sequence[int]) -> list[bool | None]:
        """Whether an account may act for each agent; None where there is no such agent."""
        calls = [self.view("isAuthorizedOrOwner", account, agent_id) for agent_id in agent_ids]
        answers = await self._answers(block, calls)
        rows = [call.read(answer) for call, answer in zip(calls, answers, strict=True)]
        return [bool(row[0]) if row else None for row in rows]

    async def balance_of(self, block: Block, owner: Address) -> int:
        """How many agents an address owns."""
        remedy = "It is not an identity registry: check CLARA_NETWORK."
        return int(await self._one(block, "balanceOf", owner, remedy=remedy))

    @classmethod
    def register(cls, uri: str) -> bytes:
        return cls.ABI.function("register(string)").call(uri)

    @classmethod
    def agents_in(cls, entries: Sequence[Mapping[str, Any]], registry: Address, owner: Address) -> list[int]:
        """Ids that these log entries of the registry give to an owner, oldest first."""
        found: dict[int, None] = {}
        for entry in entries:
            event = next((one for one in cls.OWNING_EVENTS if entry["topics"][:1] == [one.topic]), None)
            if event is None or str(entry.get("address", "")).lower() != registry:
                continue
            try:
                values = event.read(entry)
            except Undecodable:
                continue
            if values.get("owner", values.get("to")) == owner:
                found[int(values["agentId"] if "agentId" in values else values["tokenId"])] = None
        return list(found)


class ReputationRegistryContract(_Contract):
    """The registry of feedback on agents (ERC-8004): anybody but an agent's owner and operators may give some."""

    ABI: ClassVar[Abi] = abi("ReputationRegistry")
    IS_FOREIGN = True

    def __init__(self, reader: Blocks, address: Address) -> None:
        super().__init__(reader, address, self.ABI)

    async def identity_registry(self, block: Block) -> Address:
        """Whose agents it is about."""
        return Address(await self._one(block, "getIdentityRegistry", remedy=_NOT_ERC8004))

    async def last_index(self, block: Block, agent_id: int, client: Address) -> int:
        """How many times a client has given feedback on an agent; the newest has this number, the first is 1."""
        return int(await self._one(block, "getLastIndex", agent_id, client, remedy=_NOT_ERC8004))

    async def feedback(self, block: Block, agent_id: int, client: Address, index: int) -> Feedback | None:
        """What a client said; None where there is no such feedback."""
        call = self.view("readFeedback", agent_id, client, index)
        values = call.read((await self._answers(block, [call]))[0])
        return None if values is None else Feedback(*values)

    @classmethod
    def give_feedback(cls, agent_id: int, given: Feedback, *, endpoint: str, uri: str, content_hash: str) -> bytes:
        """`content_hash` is keccak256 of what stands at `uri`."""
        value, tags = (given.value, given.decimals), (given.tag1, given.tag2)
        return cls.ABI.function("giveFeedback").call(agent_id, *value, *tags, endpoint, uri, content_hash)

    @classmethod
    def given(cls, entries: Sequence[Mapping[str, Any]]) -> list[GivenFeedback]:
        """Feedback as its events tell it; entries that are not such events are refused by whoever asks for them."""
        read = [(entry, cls.ABI.event("NewFeedback").read(entry)) for entry in entries]
        return [
            GivenFeedback(
                found["feedbackIndex"],
                found["endpoint"],
                found["feedbackURI"],
                str(entry["transactionHash"]),
                int(entry["blockNumber"], 16),
            )
            for entry, found in read
        ]

    @classmethod
    def revoke_feedback(cls, agent_id: int, index: int) -> bytes:
        return cls.ABI.function("revokeFeedback").call(agent_id, index)

    @classmethod
    def feedback_index(cls, entries: Sequence[Mapping[str, Any]], registry: Address, agent_id: int) -> int | None:
        """The number that a transaction's own feedback got, from the logs of its receipt."""
        event = cls.ABI.event("NewFeedback")
        for entry in entries:
            if str(entry.get("address", "")).lower() == registry and entry["topics"][:1] == [event.topic]:
                values = event.read(entry)
                if values["agentId"] == agent_id:
                    return int(values["feedbackIndex"])
        return None


_NOT_ERC8004 = "It is not a reputation registry of ERC-8004: check its address and CLARA_NETWORK."


@dataclass(frozen=True, slots=True)
class GivenFeedback:
    """What stands on chain of one feedback beyond its value."""

    index: int
    endpoint: str
    uri: str
    tx_hash: str
    block_number: int


@dataclass(frozen=True, slots=True)
class Feedback:
    """A value with its decimals, and what it is about."""

    value: int
    decimals: int
    tag1: str
    tag2: str
    is_revoked: bool = False


def _submission(submitter: Address, call: View, answer: object) -> Submission | None:
    """From `getSubmission` (a struct) or from the getter `submissions` (its fields)."""
    values = call.read(answer)
    if values is None:
        return None
    found = call.function.named_answer(values)
    if not found["submittedAt"]:
        return None
    return Submission(
        submitter,
        found["agentId"],
        found["solutionURI"],
        found["solutionHash"],
        found["submittedAt"],
        found["version"],
    )
