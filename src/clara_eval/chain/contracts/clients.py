"""Typed clients of the contracts, one class each, built from the shipped ABIs.

Invariant: a stranger's contract is asked with little gas, its answer is cut off, and it only ever gives None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from clara_eval.chain import model
from clara_eval.chain.blocks import Blocks
from clara_eval.chain.contracts.abi import Abi, Event, Function, Undecodable, View, abi
from clara_eval.chain.winners import WinnerPrize, winner_of
from clara_eval.config.networks import Network
from clara_eval.core.address import Address, short
from clara_eval.core.errors import NotFound
from clara_eval.core.submission import Submission

SYMBOL_CHARS = 12


class _Contract:
    IS_FOREIGN: ClassVar[bool] = False

    def __init__(self, reader: Blocks, address: Address, spoken: Abi) -> None:
        self._reader = reader
        self.address = address
        self.abi = spoken

    def view(self, name: str, *values: object) -> View:
        return View(self.address, self.abi.function(name), values, is_foreign=self.IS_FOREIGN)

    async def _rows(self, block: model.Block, calls: Sequence[View]) -> list[tuple[Any, ...] | None]:
        answers = await self._reader.views(calls, block)
        return [call.read(answer) for call, answer in zip(calls, answers, strict=True)]

    async def _one(self, block: model.Block, name: str, *values: object, remedy: str) -> Any:
        (found,) = await self._rows(block, [self.view(name, *values)])
        if found is None:
            raise NotFound(f"The contract at {self.address} does not answer {name}().", remedy=remedy)
        return found[0]


class _ForeignContract(_Contract):
    ABI: ClassVar[Abi]
    IS_FOREIGN = True

    def __init__(self, reader: Blocks, address: Address) -> None:
        super().__init__(reader, address, self.ABI)


ChallengeGetters = Mapping[str, Any]
"""What the getters of one challenge say, by their names: lower-case addresses, numbers and text."""


class ChallengeContract(_Contract):
    GETTERS: ClassVar[tuple[str, ...]] = (
        "poster", "evaluator", "token", "prizePool", "deadline", "scoringDeadline", "challengeURI", "evalConfigHash",
        "privateSetHash", "posterBond", "maxParticipants", "winnerCount", "identityRegistry", "status",
        "submissionCount", "scorePostedAt",
    )  # fmt: skip

    async def state(self, block: model.Block, names: Sequence[str] = GETTERS) -> ChallengeGetters:
        answers = await self._reader.views([self.view(name) for name in names], block)
        return self.state_in(names, answers)

    def state_in(self, names: Sequence[str], answers: Sequence[object]) -> ChallengeGetters:
        return {name: self._value(name, found) for name, found in zip(names, answers, strict=True)}

    async def scoring_state(self, block: model.Block) -> model.ScoringState:
        found = await self.state(block, ("status", "scorePostedAt", "deadline"))
        return model.ScoringState(self.status_in(found), found["scorePostedAt"], found["deadline"])

    def status_in(self, state: ChallengeGetters) -> model.ChallengeStatus:
        try:
            return model.ChallengeStatus(state["status"])
        except ValueError:
            raise NotFound(f"No challenge at {self.address}: its status is {state['status']}.") from None

    def payout_views(self, places: int) -> list[View]:
        return [self.view("getPayoutBps"), *(self.view("payoutBps", place) for place in range(places))]

    def payout_in(self, answers: Sequence[object]) -> tuple[int, ...]:
        """Read the payout shares from the getter for all, or else from the getter for each."""
        found = self.view("getPayoutBps").read(answers[0])
        if found is not None:
            return tuple(int(share) for share in found[0])
        return tuple(int(self._value("payoutBps", answer)) for answer in answers[1:])

    async def submissions(self, block: model.Block, submitters: Sequence[Address]) -> tuple[Submission, ...]:
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

    async def submission_of(self, block: model.Block, submitter: Address) -> Submission | None:
        return (await self._submissions(block, [submitter], "getSubmission"))[submitter]

    async def _submissions(
        self, block: model.Block, submitters: Sequence[Address], getter: str
    ) -> dict[Address, Submission | None]:
        rows = await self._rows(block, [self.view(getter, who) for who in submitters])
        function = self.abi.function(getter)
        return {who: _submission(who, function, row) for who, row in zip(submitters, rows, strict=True)}

    async def winners(self, block: model.Block, count: int) -> tuple[WinnerPrize, ...]:
        if (await self.state(block, ("scorePostedAt",)))["scorePostedAt"] == 0:
            return ()
        calls = [self.view("winners", place) for place in range(count)]
        rows = [self._values("winners", answer) for answer in await self._reader.views(calls, block)]
        return tuple(winner_of(self.view("winners").function.named_answer(row)) for row in rows)

    async def has_claimed(self, block: model.Block, accounts: Sequence[Address]) -> dict[Address, bool]:
        answers = await self._reader.views([self.view("hasClaimed", account) for account in accounts], block)
        claimed = [bool(self._value("hasClaimed", answer)) for answer in answers]
        return dict(zip(accounts, claimed, strict=True))

    async def last_submission_time(self, block: model.Block, account: Address) -> int:
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

    def submit(self, agent_id: int, uri: str, content_hash: str) -> bytes:
        return self.abi.function("submit").call(agent_id, uri, content_hash)

    def bare_call(self, name: str) -> bytes:
        """Encode a call without arguments: claimPrize, claimExpiredRefund, finalize, expire."""
        return self.abi.function(name).call()

    def submission_received(self, entry: Mapping[str, Any]) -> model.NewSubmission:
        found = self.abi.event("SubmissionReceived").read(entry)
        return model.NewSubmission(
            submitter=Address(found["submitter"]),
            version=found["version"],
            solution_hash=found["solutionHash"],
            block_number=int(entry["blockNumber"], 16),
        )

    @staticmethod
    def prize_claimed(spoken: Abi, entry: Mapping[str, Any]) -> model.NewClaim:
        found = spoken.event("PrizeClaimed").read(entry)
        return model.NewClaim(
            challenge=Address(entry["address"].lower()),
            winner=Address(found["winner"]),
            amount=found["amount"],
            tx_hash=entry["transactionHash"],
            block_number=int(entry["blockNumber"], 16),
        )


class ChallengeFactoryContract(_Contract):
    async def count(self, block: model.Block) -> int:
        return int((await self._read(block, [("getChallengeCount",)]))[0])

    async def challenges(self, block: model.Block, numbers: Sequence[int]) -> list[Address]:
        found = await self._read(block, [("challenges", number) for number in numbers])
        return [Address(address) for address in found]

    async def poster_bond_rate(self, block: model.Block) -> int:
        return int((await self._read(block, [("posterBondRate",)]))[0])

    async def identity_registry(self, block: model.Block) -> Address:
        return Address((await self._read(block, [("identityRegistry",)]))[0])

    async def _read(self, block: model.Block, wanted: Sequence[tuple[Any, ...]]) -> list[Any]:
        calls = [self.view(name, *values) for name, *values in wanted]
        found: list[Any] = []
        for call, row in zip(calls, await self._rows(block, calls), strict=True):
            if row is None:
                raise NotFound(
                    f"The contract at {self.address} is not a challenge factory: it does not answer "
                    f"{call.function.signature}.",
                    remedy="Check CLARA_CHALLENGE_FACTORY and CLARA_NETWORK.",
                )
            found.append(row[0])
        return found

    def create_challenge(self, params: Mapping[str, object]) -> bytes:
        return self.abi.function("createChallenge").call(params)

    def challenge_created(self, entry: Mapping[str, Any]) -> model.NewChallenge:
        """Read the topics alone: texts may be garbled, and the challenge itself tells the rest."""
        return model.NewChallenge(
            address=Address(self.abi.event("ChallengeCreated").read_indexed(entry)["challengeAddress"]),
            block_number=int(entry["blockNumber"], 16),
            tx_hash=str(entry.get("transactionHash") or ""),
        )


class TokenContract(_ForeignContract):
    ABI = abi("TestUSDC")

    async def describe(self, block: model.Block, network: Network) -> model.PrizeToken | None:
        found = (await describe_tokens(self._reader, block, [self.address], network))[self.address]
        return found if found.is_known else None

    async def balance_of(self, block: model.Block, owner: Address) -> int:
        return int(await self._one(block, "balanceOf", owner, remedy=_NOT_ERC20))

    async def allowance(self, block: model.Block, owner: Address, spender: Address) -> int:
        return int(await self._one(block, "allowance", owner, spender, remedy=_NOT_ERC20))

    @classmethod
    def approve(cls, spender: Address, units: int) -> bytes:
        return cls.ABI.function("approve").call(spender, units)

    @classmethod
    def transfer(cls, to: Address, units: int) -> bytes:
        return cls.ABI.function("transfer").call(to, units)


_NOT_ERC20 = "Give the address of an ERC-20 token on this network."


async def describe_tokens(
    reader: Blocks, block: model.Block, addresses: Sequence[Address], network: Network
) -> dict[Address, model.PrizeToken]:
    """Read symbol and scale of each, in one question; whatever a token answers, it never stops a reading."""
    tokens = [TokenContract(reader, address) for address in dict.fromkeys(addresses)]
    calls = [token.view(name) for token in tokens for name in ("symbol", "decimals")]
    answers = iter(zip(calls, await reader.views(calls, block) if calls else [], strict=True))
    found: dict[Address, model.PrizeToken] = {}
    for token in tokens:
        (call, symbol), (scale, decimals) = next(answers), next(answers)
        address, units = token.address, scale.read(decimals)
        is_usdc = address == network.usdc
        name = _symbol(call, symbol) or ("USDC" if is_usdc else short(address))
        # Unknown scale: read as base units. The prize then looks large, and large prizes get a review.
        places = int(units[0]) if units else 6 if is_usdc else 0
        shown = short(address) if model.poses_as_dollar(address, name, network) else name
        found[address] = model.PrizeToken(address, shown, places, is_known=units is not None)
    return found


def _symbol(call: View, answer: object) -> str:
    """Read a symbol, given as text or as one word of bytes: a few ASCII letters and digits."""
    found = call.read(answer)
    text = str(found[0]) if found else ""
    if found is None and isinstance(answer, str) and len(answer) == 66:
        text = bytes.fromhex(answer[2:]).rstrip(b"\0").decode("utf-8", errors="ignore")
    return "".join(char for char in text if char.isascii() and char.isalnum())[:SYMBOL_CHARS]


class IdentityRegistryContract(_ForeignContract):
    """The registry of agents (ERC-8004, an ERC-721): on some networks one that emits no events."""

    ABI = abi("IdentityRegistry")
    OWNING_EVENTS: ClassVar[tuple[Event, ...]] = (ABI.event("Registered"), ABI.event("Transfer"))
    """Both name the owner in their third topic."""

    async def owners_of(self, block: model.Block, agent_ids: Sequence[int]) -> list[Address | None]:
        rows = await self._rows(block, [self.view("ownerOf", agent_id) for agent_id in agent_ids])
        return [Address(row[0]) if row else None for row in rows]

    async def uris_of(self, block: model.Block, agent_ids: Sequence[int]) -> list[str]:
        rows = await self._rows(block, [self.view("tokenURI", agent_id) for agent_id in agent_ids])
        return [str(row[0]) if row else "" for row in rows]

    async def authorized(self, block: model.Block, account: Address, agent_ids: Sequence[int]) -> list[bool | None]:
        rows = await self._rows(block, [self.view("isAuthorizedOrOwner", account, one) for one in agent_ids])
        return [bool(row[0]) if row else None for row in rows]

    async def balance_of(self, block: model.Block, owner: Address) -> int:
        remedy = "It is not an identity registry: check CLARA_NETWORK."
        return int(await self._one(block, "balanceOf", owner, remedy=remedy))

    @classmethod
    def register(cls, uri: str) -> bytes:
        return cls.ABI.function("register(string)").call(uri)

    @classmethod
    def agents_in(cls, entries: Sequence[Mapping[str, Any]], registry: Address, owner: Address) -> list[int]:
        """Return ids that these log entries of the registry give to an owner, oldest first."""
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


class ReputationRegistryContract(_ForeignContract):
    """The registry of feedback on agents (ERC-8004): anybody but an agent's owner and operators may give some."""

    ABI = abi("ReputationRegistry")

    async def identity_registry(self, block: model.Block) -> Address:
        return Address(await self._one(block, "getIdentityRegistry", remedy=_NOT_ERC8004))

    async def last_index(self, block: model.Block, agent_id: int, client: Address) -> int:
        """Read how many times a client has given feedback on an agent; the first has index 1."""
        return int(await self._one(block, "getLastIndex", agent_id, client, remedy=_NOT_ERC8004))

    @classmethod
    def given(cls, entries: Sequence[Mapping[str, Any]]) -> list[GivenFeedback]:
        given = []
        for entry in entries:
            found = cls.ABI.event("NewFeedback").read(entry)
            index, endpoint, uri = (found[name] for name in ("feedbackIndex", "endpoint", "feedbackURI"))
            mined = str(entry["transactionHash"]), int(entry["blockNumber"], 16)
            given.append(GivenFeedback(index, endpoint, uri, *mined))
        return given


_NOT_ERC8004 = "It is not a reputation registry of ERC-8004: check its address and CLARA_NETWORK."


@dataclass(frozen=True, slots=True)
class GivenFeedback:
    index: int
    endpoint: str
    uri: str
    tx_hash: str
    block_number: int


def _submission(submitter: Address, getter: Function, row: tuple[Any, ...] | None) -> Submission | None:
    found = None if row is None else getter.named_answer(row)
    if found is None or not found["submittedAt"]:
        return None
    names = ("agentId", "solutionURI", "solutionHash", "submittedAt", "version")
    return Submission(submitter, *(found[name] for name in names))
