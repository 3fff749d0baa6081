"""Typed clients of the contracts, one class each, built from the shipped ABIs.

Invariant: a call of a foreign contract has limits on gas and on the size of its answer; a failed one returns None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from clara_eval.chain import model
from clara_eval.chain.blocks import Blocks
from clara_eval.chain.contracts.abi import Abi, Event, Undecodable, View, abi
from clara_eval.core.address import Address, short
from clara_eval.core.errors import NotFound
from clara_eval.core.model import Submission

SYMBOL_CHARS = 12


class _Contract:
    ABI: ClassVar[Abi]
    IS_FOREIGN: ClassVar[bool] = True
    REMEDY: ClassVar[str]  # For an address with another contract

    def __init__(self, reader: Blocks, address: Address, own_abi: Abi | None = None) -> None:
        self._reader = reader
        self.address = address
        self.abi = own_abi or self.ABI

    def view(self, name: str, *values: object) -> View:
        return View(self.address, self.abi.function(name), values, is_foreign=self.IS_FOREIGN)

    def encode(self, name: str, *values: object) -> bytes:
        return self.abi.function(name).call(*values)

    async def _rows(self, block: model.Block, calls: Sequence[View]) -> list[tuple[Any, ...] | None]:
        return [call.read(one) for call, one in zip(calls, await self._reader.views(calls, block), strict=True)]

    async def each(self, block: model.Block, calls: Sequence[View]) -> list[Any]:
        """Return the first output of each call; None if the contract refused or answered something else."""
        return [None if row is None else row[0] for row in await self._rows(block, calls)]

    async def one(self, block: model.Block, name: str, *values: object) -> Any:
        """Return the output of a getter with one output; NotFound if the contract does not answer it."""
        (found,) = await self.each(block, [self.view(name, *values)])
        if found is None:
            raise NotFound(f"The contract at {self.address} does not answer {name}().", remedy=self.REMEDY)
        return found


ChallengeGetters = Mapping[str, Any]  # Values of one challenge's getters by name; addresses are lower case


class ChallengeContract(_Contract):
    IS_FOREIGN = False
    GETTERS: ClassVar[tuple[str, ...]] = (
        "poster", "evaluator", "token", "prizePool", "deadline", "scoringDeadline", "challengeURI", "evalConfigHash",
        "privateSetHash", "posterBond", "maxParticipants", "winnerCount", "identityRegistry", "status",
        "submissionCount", "scorePostedAt",
    )  # fmt: skip

    async def scoring_state(self, block: model.Block) -> model.ScoringState:
        calls = [self.view(name) for name in ("status", "scorePostedAt", "deadline")]
        status, posted_at, deadline = (row[0] for row in await self.values(block, calls))
        return model.ScoringState(self.status_of(status), posted_at, deadline)

    def status_of(self, number: int) -> model.ChallengeStatus:
        try:
            return model.ChallengeStatus(number)
        except ValueError:
            raise NotFound(f"No challenge at {self.address}: its status is {number}.") from None

    def payout_views(self, places: int) -> list[View]:
        return [self.view("getPayoutBps"), *(self.view("payoutBps", place) for place in range(places))]

    def payout_in(self, answers: Sequence[object]) -> tuple[int, ...]:
        """Read the payout shares from `getPayoutBps`, or else from `payoutBps` of each place."""
        found = self.view("getPayoutBps").read(answers[0])
        if found is not None:
            return tuple(int(share) for share in found[0])
        return tuple(int(answered(self.view("payoutBps"), answer)[0]) for answer in answers[1:])

    async def submissions(self, block: model.Block, submitters: Sequence[Address]) -> tuple[Submission, ...]:
        read = await self._submissions(block, submitters, "getSubmission")
        read |= await self._submissions(block, [who for who in submitters if read[who] is None], "submissions")
        missing = next((who for who, found in read.items() if found is None), None)
        if missing:
            remedy = "It must answer getSubmission(address) or submissions(address)."
            raise NotFound(f"{self.address} does not tell the submission of {missing}.", remedy=remedy)
        return tuple(found for who in submitters if (found := read[who]) is not None)

    async def submission_of(self, block: model.Block, submitter: Address) -> Submission | None:
        return (await self._submissions(block, [submitter], "getSubmission"))[submitter]

    async def _submissions(
        self, block: model.Block, submitters: Sequence[Address], getter: str
    ) -> dict[Address, Submission | None]:
        names = ("agentId", "solutionURI", "solutionHash", "submittedAt", "version")
        found: dict[Address, Submission | None] = {}
        rows = await self._rows(block, [self.view(getter, who) for who in submitters])
        for who, row in zip(submitters, rows, strict=True):
            values: Mapping[str, Any] = self.abi.function(getter).named_answer(row) if row else {"submittedAt": 0}
            found[who] = Submission(who, *(values[name] for name in names)) if values["submittedAt"] else None
        return found

    async def last_submission_time(self, block: model.Block, account: Address) -> int:
        return int((await self.values(block, [self.view("lastSubmissionTime", account)]))[0][0])

    async def values(self, block: model.Block, calls: Sequence[View]) -> list[tuple[Any, ...]]:
        """Return the outputs of each call; NotFound if one is not answered as a challenge does."""
        return [answered(*pair) for pair in zip(calls, await self._reader.views(calls, block), strict=True)]


def answered(call: View, answer: object) -> tuple[Any, ...]:
    """Decode the answer of a challenge; NotFound if it is not one that a challenge gives."""
    found = call.read(answer)
    if found is None:
        what = "has no code there" if answer == "0x" else f"does not answer {call.function.name}() as a challenge does"
        raise NotFound(f"No challenge at {call.to}: the chain {what}.", remedy="Check the address and CLARA_NETWORK.")
    return found


class ChallengeFactoryContract(_Contract):
    IS_FOREIGN = False
    REMEDY = "It is not a challenge factory: check CLARA_CHALLENGE_FACTORY and CLARA_NETWORK."

    async def challenges(self, block: model.Block, numbers: Sequence[int]) -> list[Address]:
        found = await self.each(block, [self.view("challenges", number) for number in numbers])
        if None in found:
            raise NotFound(f"The contract at {self.address} does not answer challenges().", remedy=self.REMEDY)
        return [Address(address) for address in found]

    def challenge_created(self, entry: Mapping[str, Any], created_at: int = 0) -> model.NewChallenge:
        """Read the event's topics; its texts may be garbled, and the challenge contract has the rest."""
        address = Address(self.abi.event("ChallengeCreated").read_indexed(entry)["challengeAddress"])
        tx_hash = str(entry.get("transactionHash") or "")
        return model.NewChallenge(address, int(entry["blockNumber"], 16), tx_hash, created_at)


class TokenContract(_Contract):
    ABI = abi("TestUSDC")
    REMEDY = "Give the address of an ERC-20 token on this network."


async def describe_tokens(
    reader: Blocks, block: model.Block, addresses: Sequence[Address]
) -> dict[Address, model.PrizeToken]:
    """Read symbol and decimals of each token in one batch; an invalid answer gets a default, not an error."""
    tokens = [TokenContract(reader, address) for address in dict.fromkeys(addresses)]
    calls = [token.view(name) for token in tokens for name in ("symbol", "decimals")]
    answers = await reader.views(calls, block) if calls else []
    found: dict[Address, model.PrizeToken] = {}
    for token, symbol, decimals in zip(tokens, answers[::2], answers[1::2], strict=True):
        address, units = token.address, token.view("decimals").read(decimals)
        is_usdc = address == reader.network.usdc
        name = _symbol(token.view("symbol"), symbol) or ("USDC" if is_usdc else short(address))
        # Without decimals amounts are base units. The prize then looks large, and large prizes get a review.
        places = int(units[0]) if units else 6 if is_usdc else 0
        # Only the network's own USDC may have its name.
        is_posing = name.upper() in {"USD", "USDC"} and not model.is_dollar(address, reader.network)
        found[address] = model.PrizeToken(address, short(address) if is_posing else name, places, units is not None)
    return found


def _symbol(call: View, answer: object) -> str:
    """Read a symbol, given as text or as bytes32, and keep its ASCII letters and digits."""
    found = call.read(answer)
    text = str(found[0]) if found else ""
    if found is None and isinstance(answer, str) and len(answer) == 66:
        text = bytes.fromhex(answer[2:]).rstrip(b"\0").decode("utf-8", errors="ignore")
    return "".join(char for char in text if char.isascii() and char.isalnum())[:SYMBOL_CHARS]


class IdentityRegistryContract(_Contract):
    """The registry of agents (ERC-8004, an ERC-721), which emits no events on some networks."""

    ABI = abi("IdentityRegistry")
    REMEDY = "It is not an identity registry: check CLARA_NETWORK."
    OWNING_EVENTS: ClassVar[tuple[Event, ...]] = (ABI.event("Registered"), ABI.event("Transfer"))  # Topic 3: owner

    async def owners_of(self, block: model.Block, agent_ids: Sequence[int]) -> list[Address | None]:
        found = await self.each(block, [self.view("ownerOf", agent_id) for agent_id in agent_ids])
        return [Address(owner) if owner else None for owner in found]

    async def owned_by(self, owner: Address, block: model.Block, ids: Sequence[int]) -> list[int]:
        return [one for one, found in zip(ids, await self.owners_of(block, ids), strict=True) if found == owner]

    @classmethod
    def agents_in(cls, entries: Sequence[Mapping[str, Any]], registry: Address, owner: Address) -> list[int]:
        """Return the ids that these log entries assign to an owner, oldest first."""
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
    """The registry of feedback on agents (ERC-8004), open to all but an agent's owner and operators."""

    ABI = abi("ReputationRegistry")
    REMEDY = "It is not a reputation registry of ERC-8004: check its address and CLARA_NETWORK."
