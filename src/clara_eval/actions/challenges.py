"""List the factory's challenges and show one in full; text of posters is fenced as untrusted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from clara_eval.actions.amounts import show_amount
from clara_eval.actions.evidence import evaluator_record
from clara_eval.actions.perform import sender_of
from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, ChallengeStatus, PostedBy, PrizeToken, WinnerPrize
from clara_eval.challenges.challenge_index import STATUS, inline_metadata, skills_in
from clara_eval.challenges.stored_results import ApiRecords
from clara_eval.config.eval_config import BadEvalConfig, read_metadata
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, ClaraError, NotFound, Temporary
from clara_eval.core.model import FINALIZATION_SECONDS, Submission
from clara_eval.core.strict_json import object_or_none
from clara_eval.core.untrusted import SHORT_CHARS, TITLE_CHARS, fence
from clara_eval.documents import actions as documents
from clara_eval.documents.results import ChainStatus, D, EvaluatorRecord, ProvisionalBoard, Value, read
from clara_eval.documents.store_keys import provisional_key

COOLDOWN_SECONDS = 3600  # the contract's wait between two submissions of one address
UNSETTLED = 20  # newest challenges that are read again each time, because a reorg may replace them
MAX_PAGE = 50
AGENTS_SHOWN = 25
CACHE_SECONDS = 10.0
PAGES_SCANNED = 4  # pages of challenges that one filtered call reads at most


async def addresses(caller: Caller) -> list[Address]:
    """List every challenge of the factory, oldest first."""
    factory = caller.chain.challenges.factory(caller.factory)
    block = await caller.chain.blocks.head()
    count = await factory.one(block, "getChallengeCount")
    known = caller.known[: max(0, count - UNSETTLED)]
    known += await factory.challenges(block, range(len(known), count))
    caller.known[:] = known
    return known


async def known_evaluator(caller: Caller) -> Address | None:
    """Return Clara's address from the settings, else from the service; None if unknown."""
    if caller.evaluator is not None:
        return caller.evaluator
    try:
        return await caller.records.evaluator()
    except Temporary:
        return None


async def challenge_at(caller: Caller, address: str) -> Challenge:
    wanted = to_address(address, what="challenge")
    if wanted not in await addresses(caller):
        raise NotFound(
            f"{wanted} is not a challenge of the factory {caller.factory} on {caller.settings.network_name}.",
            remedy="Check the address and CLARA_NETWORK.",
            see="browse",
        )
    return (await challenges_at(caller, [wanted]))[0]


async def challenges_at(caller: Caller, wanted: Sequence[Address]) -> list[Challenge]:
    return await caller.chain.challenges.challenges_at(wanted, await caller.chain.blocks.head())


async def submission_of(caller: Caller, challenge: Challenge, submitter: Address) -> Submission | None:
    return await caller.chain.challenges.contract(challenge.address).submission_of(
        await caller.chain.blocks.head(), submitter
    )


async def posted_by(caller: Caller, challenge: Challenge) -> PostedBy | None:
    """Return who posted the scores; None if there are none, or no node has the event."""
    if challenge.score_posted_at == 0:
        return None
    try:
        posted = await caller.chain.results.posted_by(challenge)
    except Temporary:
        return None  # not every node has old events
    return posted.by if posted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeFilter:
    """Which challenges to list, newest first; `offset` counts challenges before the filter."""

    status: ChainStatus | Literal["any"] = "any"
    skill: str = ""
    evaluator: Literal["clara", "self", "any"] = "any"
    min_prize: float = 0
    max_prize: float | None = None  # in whole tokens
    offset: int = 0
    limit: int = 20


async def browse(caller: Caller, wanted: ChallengeFilter) -> documents.BrowseResult:
    if not 1 <= wanted.limit <= MAX_PAGE or wanted.offset < 0:
        raise BadInput(f"The limit is not 1 to {MAX_PAGE}, or the offset is negative.", path="limit")
    newest, clara = (await addresses(caller))[::-1], await known_evaluator(caller)
    found: list[documents.ChallengeListing] = []
    place, block = wanted.offset, 0
    last = min(len(newest), wanted.offset + wanted.limit * PAGES_SCANNED)
    while place < last and len(found) < wanted.limit:
        for challenge in await _read_page(caller, newest[place : place + min(wanted.limit, last - place)]):
            place, block = place + 1, challenge.block.number
            metadata = inline_metadata(challenge.challenge_uri)
            if _passes(challenge, metadata, wanted, clara):
                found.append(summary(caller, challenge, metadata, clara))
            if len(found) == wanted.limit:
                break
    return documents.BrowseResult(
        network=caller.settings.network_name,
        blockNumber=block,
        total=len(newest),
        challenges=found,
        nextOffset=place if place < len(newest) else None,
    )


async def _read_page(caller: Caller, wanted: Sequence[Address]) -> list[Challenge]:
    """Read challenges; for remote callers reuse a read up to `CACHE_SECONDS` old, to spare the node."""
    now = asyncio.get_running_loop().time()
    for address in [address for address, (at, _) in caller.seen.items() if now - at >= CACHE_SECONDS]:
        del caller.seen[address]
    if not caller.is_local and all(address in caller.seen for address in wanted):
        return [caller.seen[address][1] for address in wanted]
    page = await challenges_at(caller, wanted)
    caller.seen.update({challenge.address: (now, challenge) for challenge in page})
    return page


def _passes(challenge: Challenge, metadata: dict[str, object], wanted: ChallengeFilter, clara: Address | None) -> bool:
    prize = challenge.prize_pool / 10**challenge.token.decimals
    return (
        wanted.status in {"any", STATUS[challenge.status]}
        and (wanted.status != "open" or challenge.block.timestamp < challenge.deadline)
        and wanted.evaluator in {"any", evaluator_kind(challenge, clara)}
        and wanted.min_prize <= prize <= (inf if wanted.max_prize is None else wanted.max_prize)
        and (not wanted.skill or wanted.skill.lower() in (skill.lower() for skill in skills_in(metadata)))
    )


async def detail(caller: Caller, address: str, sender: str | None = None) -> documents.DetailResult:
    challenge = await challenge_at(caller, address)
    content, problem = await _read_metadata(caller, challenge)
    metadata = object_or_none(content) or {}
    config = metadata.get("evalConfig")
    config_text = config if isinstance(config, str) or config is None else json.dumps(config)
    posted = challenge.score_posted_at
    paid = await caller.chain.results.winners_on_chain(challenge.address, challenge.winner_count)
    winners = posted_winners(paid, challenge.token)
    yours = await _own_submission(caller, challenge, sender)
    return document_of(
        documents.DetailResult,
        to_camel_json(challenge),
        network=caller.settings.network_name,
        blockNumber=challenge.block.number,
        now=challenge.block.timestamp,
        challenge=summary(caller, challenge, metadata, await known_evaluator(caller)),
        evaluatorAddress=challenge.evaluator,
        problemStatement=fence(_text(metadata, "problemStatement"), "poster"),
        evalConfig=None if config_text is None else fence(config_text, "poster"),
        configProblem=problem,
        scorePostedAt=posted or None,
        claimableAt=posted + FINALIZATION_SECONDS if posted else None,
        pageUrl=caller.page(challenge.address),
        winners=winners,
        yours=yours,
        agents=await _agent_standings(caller, [*(w.agentId for w in winners), *([yours.agentId] if yours else [])]),
        provisional=await _provisional(caller, challenge),
        evaluatorRecord=None if posted else await _evaluator_record(caller, challenge),
    )


def posted_winners(paid: Sequence[WinnerPrize], token: PrizeToken) -> list[documents.PostedWinner]:
    return [
        document_of(
            documents.PostedWinner,
            to_camel_json(one),
            rank=rank,
            address=one.account,
            prize=show_amount(one.prize_amount, token),
        )
        for rank, one in enumerate(paid, start=1)
    ]


async def _evaluator_record(caller: Caller, challenge: Challenge) -> EvaluatorRecord | None:
    if isinstance(caller.records, ApiRecords):
        shown = await caller.records.detail(challenge.address)
        return shown.evaluatorRecord if shown else None
    store = await caller.store.existing()
    return await evaluator_record(store, challenge.chain_id, challenge.evaluator) if store else None


async def _provisional(caller: Caller, challenge: Challenge) -> list[documents.ProvisionalRow]:
    if challenge.status is not ChallengeStatus.OPEN or challenge.block.timestamp >= challenge.deadline:
        return []
    board = await read(caller.records, challenge.chain_id, ProvisionalBoard, provisional_key(challenge.address))
    return [
        documents.ProvisionalRow(
            address=to_address(row.address) if row.address else None,
            agentId=None if row.agentId is None else str(row.agentId),
            facts=typed_facts(row.facts),
            problem=fence(row.problem, "submitter", limit=SHORT_CHARS) if row.problem else None,
        )
        for row in (board.entries if board else [])
    ]


def typed_facts(values: Mapping[str, Value]) -> list[documents.FeatureValue]:
    """Return the numbers, booleans and short identifiers; free text is dropped, as it is untrusted."""
    return [
        documents.FeatureValue(name=name[:40], value=value)
        for name, value in values.items()
        if not isinstance(value, str) or (len(value) <= 40 and value.replace("_", "").replace("-", "").isalnum())
    ]


async def _agent_standings(caller: Caller, agent_ids: Sequence[str]) -> list[documents.AgentStanding]:
    found = [await caller.records.agent(int(agent_id)) for agent_id in list(dict.fromkeys(agent_ids))[:AGENTS_SHOWN]]
    return [
        document_of(
            documents.AgentStanding,
            dict(record),
            agentId=str(record.agentId),
            name=fence(record.name, "agent", limit=SHORT_CHARS) if record.name else None,
            earned=[show_amount(int(one.amount), one.token) for one in record.earned],
        )
        for record in found
        if record is not None and record.entered
    ]


async def _own_submission(caller: Caller, challenge: Challenge, sender: str | None) -> documents.OwnSubmission | None:
    account = sender_of(caller, sender)
    if account is None or (found := await submission_of(caller, challenge, account)) is None:
        return None
    last = await caller.chain.challenges.contract(challenge.address).last_submission_time(challenge.block, account)
    return document_of(documents.OwnSubmission, to_camel_json(found), mayResubmitAt=last + COOLDOWN_SECONDS)


def summary(
    caller: Caller, challenge: Challenge, metadata: dict[str, object], clara: Address | None
) -> documents.ChallengeListing:
    left, most = challenge.deadline - challenge.block.timestamp, challenge.max_participants
    is_full = 0 < most <= challenge.submission_count
    return document_of(
        documents.ChallengeListing,
        to_camel_json(challenge),
        title=fence(_text(metadata, "title"), "poster", limit=TITLE_CHARS),
        skills=[fence(skill, "poster", limit=40) for skill in skills_in(metadata)],
        status=STATUS[challenge.status],
        acceptsSubmissions=challenge.status is ChallengeStatus.OPEN and left > 0 and not is_full,
        evaluator=evaluator_kind(challenge, clara),
        prize=show_amount(challenge.prize_pool, challenge.token),
        secondsLeft=max(0, left),
        explorerUrl=caller.explorer("address", challenge.address),
    )


def document_of(kind: type[D], values: Mapping[str, object], /, **more: object) -> D:
    """Build a document from those of its fields that `values` has, and from `more`."""
    return kind.model_validate({name: values[name] for name in kind.model_fields if name in values} | more)


def evaluator_kind(challenge: Challenge, clara: Address | None) -> Literal["clara", "self", "other"]:
    return "self" if challenge.is_scored_by_poster else "clara" if challenge.evaluator == clara else "other"


def _text(metadata: dict[str, object], key: str) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""


async def _read_metadata(caller: Caller, challenge: Challenge) -> tuple[bytes, str | None]:
    """Return the metadata and the code of its problem, if any; the code never quotes the poster."""
    uri = challenge.challenge_uri
    if not caller.is_local and not uri.lower().startswith("data:"):
        return b"", "not_fetched"
    try:
        content = await caller.contents.fetch(uri)
    except ClaraError:
        return b"", "unreadable"
    if challenge.is_scored_by_poster and not (object_or_none(content) or {}).get("evalConfig"):
        return content, None
    try:
        read_metadata(content, challenge.eval_config_hash)
    except BadEvalConfig:
        return content, "errors"
    except BadInput:
        return content, "not_committed"
    return content, None
