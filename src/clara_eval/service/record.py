"""Record what happened on the chain: posts, endings without scores, results, claims."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial

import structlog

from clara_eval.app import App
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Block, Challenge, ChallengeStatus, NewClaim
from clara_eval.chain.sender import send_again
from clara_eval.challenges.calls import record_posted
from clara_eval.challenges.challenge_index import STATUS, agent_name, known_results, read_many, save_summary
from clara_eval.challenges.status import CLOSED, StatusWriter, reason_of
from clara_eval.challenges.venue import is_still_current, look_at_challenge
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import ClaraError, Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import Claim, EvalStatus, PrizeClaims, RoundResult, Summary, read
from clara_eval.documents.store_keys import INDEX, claims_key, entry_key, index_key, result_key, status_key
from clara_eval.service.due import Tick, window_used
from clara_eval.service.metrics import Metrics
from clara_eval.store.sql_store import PublicKeys

_log = structlog.get_logger(__name__)
RECORDED = "engine:recorded:"  # Key prefix of every challenge whose final result is recorded
UNCLAIMED = "engine:unclaimed"  # Key of the challenges with unclaimed prizes, and the last block read for each
_RESULTS_AT_ONCE = 20
_CLAIMS_AT_ONCE = 100  # Challenges per request for claims


async def record_post(tick: Tick, challenge: Challenge) -> None:
    posted = await record_posted(tick.app.store, tick.app.chain.results, challenge)
    by = str(posted.by) if posted else None
    await save_summary(tick.app.store, challenge, by)
    _log.info("post_recognised", posted_by=by)


async def index_own_post(app: App, metrics: Metrics, challenge: Challenge) -> float | None:
    """Update the index after our post; return the share of the window left, None if no node responds."""
    try:
        now = await look_at_challenge(app.chain, challenge.address)
    except Temporary as bad:
        _log.warning("index_waits_for_tick", problem=str(bad))
        return None
    status = await read(app.store, app.chain_id, EvalStatus, status_key(challenge.address))
    await save_summary(app.store, now, status.postedBy if status else None)
    left = max(0.0, 1 - window_used(challenge, now.block.timestamp))
    metrics.window_left_at_post.observe(left)
    return left


async def record_end(tick: Tick, challenge: Challenge) -> None:
    state, reason = CLOSED[STATUS[challenge.status]]
    await (await StatusWriter.resumed(tick.app.store, challenge.chain_id, challenge.address)).say(state, reason=reason)
    _log.info("challenge_closed", status=STATUS[challenge.status])


async def resend_post(tick: Tick, challenge: Challenge) -> None:
    """Broadcast again what an earlier key signed. Always raises Temporary: the post is not mined yet."""
    store, chain = tick.app.store, tick.app.chain
    count = await send_again(chain, store, challenge.evaluator, partial(is_still_current, store, chain))
    raise Temporary(
        f"An earlier key, {challenge.evaluator}, signed the post, and it is not mined yet: {count} of its "
        "transactions went out again.",
        remedy="They are sent again at the next tick; only a process with that key can raise the fee, or post anew "
        "what was read at a block that is gone.",
    )


async def record_results(tick: Tick) -> None:
    app, safe = tick.app, tick.safe
    settled = {*await tick.addresses(RECORDED), *tick.still_open}
    waiting = [address for address in await tick.addresses(INDEX) if address not in settled]
    index = await read_many(app.store, app.chain_id, Summary, index_key, waiting)
    closed = {to_address(a): one for a, one in index.items() if one.deadline < safe.timestamp}
    known = await known_results(app.store, app.chain_id, closed)
    finished = {address for address in closed if address in known and known[address].isOver}
    for address in finished:
        await _watch_claims(tick, address, known[address], closed[address].scorePostedAt)
        await app.store.put(app.chain_id, RECORDED + address, "")
    missing = [a for a, summary in closed.items() if a not in finished and _has_changed(known.get(a), summary)]
    missing.sort(key=lambda address: closed[address].deadline, reverse=True)  # old ones that fail delay no new one
    async with tick.within(tick.options.publish_seconds, "Recording results"):
        for address in missing[:_RESULTS_AT_ONCE]:
            try:
                async with asyncio.timeout(tick.options.read_seconds):
                    result = await record_result(app.store, app.chain, address, safe)
                if _has_changed(result, closed[address]):  # for example by advanceToScoring, which emits no event
                    tick.read_again.add(address)
            except (ClaraError, TimeoutError) as bad:
                _log.warning("result_not_recorded", challenge=address, problem=str(bad))
                tick.report.problems.append(f"{address}: its result is not recorded: {reason_of(bad)}")


def _has_changed(result: RoundResult | None, summary: Summary) -> bool:
    """Return whether the challenge was seen in another state than the recorded one."""
    if result is None:
        return True
    return result.chainStatus != summary.chainStatus or bool(result.winners) != bool(summary.scorePostedAt)


async def record_result(store: PublicKeys, chain: EthereumChain, address: Address, block: Block) -> RoundResult | None:
    """Store the result as of `block` and return it; None while submissions are open at that block."""
    challenge = await chain.challenges.challenge_at(address, block)
    if challenge.status is ChallengeStatus.OPEN and block.timestamp <= challenge.deadline:
        return None
    results, count = chain.results, challenge.winner_count
    winners = await results.winners_on_chain(address, count, block) if challenge.score_posted_at else ()
    agents = list(dict.fromkeys(one.agent_id for one in challenge.submissions))
    registry = chain.agents.identity(challenge.identity_registry)
    uris = await registry.each(block, [registry.view("tokenURI", agent) for agent in agents])
    names = {agent: agent_name(uri or "") for agent, uri in zip(agents, uris, strict=True)}
    result = RoundResult.model_validate(
        {
            "chainStatus": STATUS[challenge.status],
            "token": to_camel_json(challenge.token),
            "entrants": [
                {"agentId": one.agent_id, "address": one.submitter, "name": names[one.agent_id]}
                for one in challenge.submissions
            ],
            "winners": [
                {"agentId": w.agent_id, "address": w.account, "score": w.score, "prizeAmount": str(w.prize_amount)}
                for w in winners
            ],
            "isOver": challenge.status not in {ChallengeStatus.OPEN, ChallengeStatus.SCORING},
        }
    )
    await store.put_many(challenge.chain_id, result_pairs(address, result))
    return result


def result_pairs(address: str, result: RoundResult) -> list[tuple[str, str]]:
    lines = [(entry_key(one.agentId, address), "1") for one in result.entrants]
    return [*lines, (result_key(address), plain_json(result.model_dump()))]


async def _watch_claims(tick: Tick, address: Address, result: RoundResult, posted_at: int | None) -> None:
    """Start to read claims of this challenge from its post on, if it pays prizes."""
    store, chain = tick.app.store, tick.app.chain
    if result.chainStatus != "finalized" or not result.winners or not posted_at:
        return
    unclaimed = await _read_unclaimed(store, chain.chain_id)
    if address not in unclaimed:
        claims = PrizeClaims(winners=len(result.winners))
        unclaimed[address] = (await chain.blocks.first_block_at(posted_at, tick.safe)).number - 1
        pairs = [(claims_key(address), plain_json(claims.model_dump())), (UNCLAIMED, json.dumps(unclaimed))]
        await store.put_many(chain.chain_id, pairs)


async def record_claims(tick: Tick) -> None:
    store, chain, safe = tick.app.store, tick.app.chain, tick.safe
    async with tick.within(tick.options.read_seconds, "Reading old claims"):
        unclaimed = await _read_unclaimed(store, chain.chain_id)
        for upto in sorted({block for block in unclaimed.values() if block < safe.number}):
            addresses = [Address(address) for address, read_upto in unclaimed.items() if read_upto == upto]
            for start in range(0, len(addresses), _CLAIMS_AT_ONCE):
                batch = addresses[start : start + _CLAIMS_AT_ONCE]
                async for found, block in chain.events.prizes_claimed(batch, upto + 1, safe):
                    await _save_claims(store, chain.chain_id, found, dict.fromkeys(batch, block))


async def _read_unclaimed(store: PublicKeys, chain_id: int) -> dict[str, int]:
    return dict(json.loads(await store.get(chain_id, UNCLAIMED) or "{}"))


async def _save_claims(store: PublicKeys, chain_id: int, found: Sequence[NewClaim], upto: dict[Address, int]) -> None:
    """Store a page of claims together with the last block that was read."""
    before = await _read_unclaimed(store, chain_id)
    known = before | {address: block for address, block in upto.items() if address in before}
    pairs: list[tuple[str, str]] = []
    for address in dict.fromkeys(claim.challenge for claim in found):
        claims = await read(store, chain_id, PrizeClaims, claims_key(address))
        if claims is not None:
            claims.claims += [
                Claim(address=one.winner, amount=str(one.amount), at=one.claimed_at or None, txHash=one.tx_hash)
                for one in found
                if one.challenge == address
            ]
            pairs.append((claims_key(address), plain_json(claims.model_dump())))
            if len(claims.claims) >= claims.winners:
                known.pop(address, None)
    await store.put_many(chain_id, [*pairs, (UNCLAIMED, json.dumps(known))])
