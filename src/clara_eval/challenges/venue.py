"""The on-chain challenge as the venue of a round: read at one block, evaluated, added to the trace."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from eth_abi.exceptions import EncodingError

from clara_eval.chain.blocks import StateMissing
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Block, Challenge, Winners, check_scorable, choose_winners, post_scores
from clara_eval.chain.sender import Intention
from clara_eval.chain.transaction import StoredTransaction, read_signed
from clara_eval.challenges.review import Disputed, check_recorded
from clara_eval.config.eval_config import read_metadata
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec, to_camel_json
from clara_eval.core.errors import BadTrace, NotYet, Temporary
from clara_eval.evaluation.result import EvaluationResult, VenueRecords
from clara_eval.evaluation.round import RULINGS, Round, Window
from clara_eval.evaluation.sources import Bodies, recorded_metadata
from clara_eval.evaluation.trace import Journal
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import keep_result

CHALLENGE = JsonCodec(Challenge)
_SUPERSEDED = "superseded"  # Journal entry with calldata that was signed before a reorg


async def read_challenge(
    chain: EthereumChain, address: Address, head: Block | None = None, deadline: int | None = None
) -> Challenge:
    """Read the challenge with its submissions at the first block after the deadline, which never changes."""
    safe = await chain.blocks.safe_block(head)
    if deadline is None:
        deadline = (await chain.challenges.contract(address).scoring_state(safe)).deadline
    if safe.timestamp <= deadline:
        wait = deadline - safe.timestamp + 1
        text = f"The newest safe block {safe.number} is {wait} s short of the first moment after the deadline."
        raise NotYet(text, remedy="Try again then.")
    block = await chain.blocks.first_block_at(deadline + 1, safe)
    try:
        challenge = await chain.challenges.challenge_at(address, block)
    except StateMissing:  # the submissions are final at the newest safe block, too
        challenge = replace(await chain.challenges.challenge_at(address, safe), block=block, read_at=safe)
    if not await chain.blocks.is_canonical(block):
        raise Temporary(f"Block {block.number} was replaced while it was read.", remedy="Try again.")
    return challenge


async def look_at_challenge(chain: EthereumChain, address: Address) -> Challenge:
    """Read the challenge at the newest block, in any status; to show it, never to judge it."""
    return await chain.challenges.challenge_at(address, await chain.blocks.head())


async def pin_challenge(
    chain: EthereumChain, store: SqlStore, address: Address, head: Block | None = None, deadline: int | None = None
) -> Challenge:
    """Return the challenge at its evaluation's block; start over if a reorg replaced that block."""
    journal = Journal(store, f"{chain.chain_id}:{address}")
    await journal.drop_unreadable("challenge", CHALLENGE)
    challenge = await journal.saved("challenge", CHALLENGE)
    if challenge is not None and await chain.blocks.is_canonical(challenge.block):
        return challenge
    if challenge is not None:
        posts = await store.transactions(journal.run, Intention.POST_SCORES)
        if posts:
            await keep_result(store, challenge.chain_id, address)
        await journal.forget()
        if posts:
            # What was signed before the reorg is never sent again, but replaced with its own nonce.
            await journal.note(_SUPERSEDED, sorted({read_signed(row.raw).data.hex() for row in posts}))
    return await journal.keep("challenge", CHALLENGE, await read_challenge(chain, address, head, deadline))


async def is_still_current(store: SqlStore, chain: EthereumChain, tx: StoredTransaction) -> bool:
    """Return whether a recorded post is not superseded and its block is canonical; True for other calls."""
    if tx.intention != Intention.POST_SCORES:
        return True
    challenge = await store.entry(tx.run, "challenge")
    if challenge is None or read_signed(tx.raw).data in await superseded(store, tx.run):
        return False
    return await chain.blocks.is_canonical(CHALLENGE.read_text(challenge).block)


async def superseded(store: SqlStore, run: str) -> frozenset[bytes]:
    """Return the calldata that was signed before a reorg and must not be sent again."""
    recorded = await store.entry(run, _SUPERSEDED)
    return frozenset(bytes.fromhex(data) for data in (json.loads(recorded) if recorded else ()))


_ADDRESS, _HASH = re.compile("0x[0-9a-f]{40}"), re.compile("0x[0-9a-f]{64}")
_FORM_WORDS = {_ADDRESS: "an address in lower case", _HASH: "a hash of 32 bytes in lower case"}


def window_of(challenge: Challenge) -> Window:
    """Return the scoring window in chain time, seen from the block at which the challenge was read."""
    return Window(challenge.deadline, challenge.scoring_deadline, challenge.block.timestamp)


def round_of(challenge: Challenge, metadata: bytes) -> Round:
    return Round(
        run=challenge.run,
        name=challenge.address,
        beacon=challenge.block.hash,
        metadata_bytes=metadata,
        metadata=read_metadata(metadata, challenge.eval_config_hash),
        config_hash=challenge.eval_config_hash,
        private_set_hash=challenge.private_set_hash,
        winner_count=challenge.winner_count,
        payout_bps=challenge.payout_bps,
        submissions=challenge.submissions,
        replaced=challenge.replaced,
    )


@dataclass(frozen=True, slots=True)
class ChallengeVenue:
    challenge: Challenge
    given: Round
    disputed: Disputed | None = None  # Objections to an earlier result

    @classmethod
    def read(cls, evidence: Bodies) -> ChallengeVenue:
        if "challenge" not in evidence:
            raise BadTrace("The trace has no entry challenge.", entry="challenge")
        try:
            challenge = CHALLENGE.read(evidence["challenge"])
        except ValueError as bad:
            raise BadTrace(f"The challenge cannot be read: {bad}", entry="challenge") from bad
        check_scorable(challenge)
        given = round_of(challenge, recorded_metadata(evidence, challenge.challenge_uri))
        rulings = RULINGS.read(tuple(evidence["rulings"]))
        return cls(challenge, given, check_recorded(evidence.get("objections"), challenge, rulings))

    def winners(self, result: EvaluationResult) -> Winners:
        return choose_winners(self.challenge, result.placed)

    def calldata(self, result: EvaluationResult) -> bytes:
        """Encode `postScores` without the trace digest, which is appended when it is sent."""
        try:
            return post_scores(self.winners(result), self.challenge.contract_version)
        except EncodingError as bad:
            raise BadTrace(f"The winners cannot be encoded: {bad}", entry="evidence") from bad

    def records(self, result: EvaluationResult) -> VenueRecords:
        """Return the challenge, objections and post for the trace; BadTrace if a value is malformed."""
        challenge, disputed = self.challenge, self.disputed
        calldata, facts = self.calldata(result), to_camel_json(challenge)
        if challenge.read_at is None:
            del facts["readAt"]
        self._check_forms(result)
        return VenueRecords(
            header={"chainId": challenge.chain_id, "challenge": challenge.address},
            facts=(("challenge", facts),),
            disputes=(("objections", to_camel_json(disputed)),) if disputed is not None else (),
            outcome=(("winners", to_camel_json(self.winners(result).entries)), ("calldata", "0x" + calldata.hex())),
        )

    def _check_forms(self, result: EvaluationResult) -> None:
        """Raise BadTrace if an address, hash or number that no computation uses is malformed."""
        challenge, disputed = self.challenge, self.disputed
        submissions, places = challenge.submissions, disputed.places if disputed else ()
        addresses = [challenge.address, challenge.poster, challenge.evaluator, challenge.token.address]
        addresses += [challenge.identity_registry, *(one.submitter for one in challenge.replaced)]
        addresses += [one.address for one in places]
        hashes = [challenge.block.hash, challenge.private_set_hash, *(ruling.of for ruling in result.rulings)]
        hashes += [one.solution_hash for one in submissions] + [one.solution_hash for one in challenge.replaced]
        hashes += [disputed.of] if disputed else []
        hashes += [challenge.read_at.hash] if challenge.read_at else []
        amounts = [challenge.prize_pool, challenge.poster_bond, challenge.deadline, challenge.scoring_deadline]
        amounts += [challenge.max_participants, *(one.agent_id for one in submissions)]
        if not all(0 <= amount < 2**256 for amount in amounts):
            raise BadTrace("A number of the challenge is not one that the contract can hold.", entry="challenge")
        for text, form in [*((text, _ADDRESS) for text in addresses), *((text, _HASH) for text in hashes)]:
            if not form.fullmatch(text):
                raise BadTrace(f"{text[:80]!r} is not {_FORM_WORDS[form]}.", entry="evidence")
