"""Read the public documents of evaluations: comparisons, records of agents, and all of them for agents."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from math import comb
from typing import Any

import aiohttp

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadInput, BadTrace, Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.core.http_body import TooLong, pieces_at_most
from clara_eval.documents.rest import ChallengeDetail
from clara_eval.documents.results import (
    AgentEntry,
    AgentRecord,
    D,
    Document,
    Earned,
    EvalStatus,
    Features,
    Pairwise,
    Played,
    RoundResult,
    Scores,
    Summary,
    Values,
    read,
)
from clara_eval.documents.store_keys import (
    entry_key,
    features_key,
    index_key,
    pairwise_key,
    result_key,
    scores_key,
    status_key,
    verdicts_key,
)
from clara_eval.evaluation.play import Comparison, compared, votes_document
from clara_eval.evaluation.trace.trace_file import TraceFile
from clara_eval.judge.comparison import JudgeVector, RulesJudge
from clara_eval.ranking import Pairing
from clara_eval.store.open import StoreOnDemand
from clara_eval.store.sql_store import PublicKeys
from clara_eval.store.trace_archive import stream_trace


class Verdicts(Document):
    """`verdicts`: the schema and the entries of a large round by rules, in canonical order."""

    judge: str
    schedule: str
    count: int
    sha256: str
    items: list[str]
    features: list[dict[str, object]]
    """The schema."""

    def comparison(self, first: str, second: str, facts: Mapping[str, Features]) -> Pairwise | None:
        """The comparison of these two, from their facts; None if they were not compared in this order."""
        if not {first, second} <= facts.keys() & set(self.items) or first == second:
            return None
        places = self.items.index(first), self.items.index(second)
        if not is_shown(self.schedule, len(self.items), self.count, *places):
            return None
        schema = FeatureSchema.from_json({"features": self.features})
        shown = [
            JudgeVector(tuple((f.name, facts[account].features[f.name]) for f in schema.judged))
            for account in (first, second)
        ]
        decision = RulesJudge(schema).decide(*shown)
        return Pairwise.model_validate(votes_document([compared(Pairing(first, second, self.judge), decision)]))


async def comparisons_among(keys: PublicKeys, chain_id: int, address: str, accounts: Sequence[str]) -> Played:
    if (ruled := await read(keys, chain_id, Verdicts, verdicts_key(address))) is not None:
        return await _ruled(keys, chain_id, address, ruled, list(permutations(accounts, 2)))
    wanted, found = set(accounts), Played()
    for first in accounts:
        start = pairwise_key(address, first, "")
        for key, value in await keys.items(chain_id, start):
            if (second := key.removeprefix(start)) in wanted:
                found[first, second] = Pairwise.model_validate_json(value)
    return found


async def comparisons_of(values: Values, chain_id: int, address: str, account: str, rivals: Sequence[str]) -> Played:
    asked = [pair for rival in rivals for pair in ((account, rival), (rival, account))]
    if (ruled := await read(values, chain_id, Verdicts, verdicts_key(address))) is not None:
        return await _ruled(values, chain_id, address, ruled, asked)
    found = {pair: await read(values, chain_id, Pairwise, pairwise_key(address, *pair)) for pair in asked}
    return {pair: comparison for pair, comparison in found.items() if comparison is not None}


async def read_comparison(values: Values, chain_id: int, address: str, first: str, second: str) -> Pairwise | None:
    return (await comparisons_of(values, chain_id, address, first, [second])).get((first, second))


async def _ruled(
    values: Values, chain_id: int, address: str, ruled: Verdicts, asked: Sequence[tuple[str, str]]
) -> Played:
    accounts = dict.fromkeys(account for pair in asked for account in pair)
    read_facts = {a: await read(values, chain_id, Features, features_key(address, a)) for a in accounts}
    facts = {account: found for account, found in read_facts.items() if found is not None}
    made = {pair: ruled.comparison(*pair, facts) for pair in asked}
    return {pair: comparison for pair, comparison in made.items() if comparison is not None}


def is_shown(schedule: str, size: int, count: int, first: int, second: int) -> bool:
    """Whether a look at these two, in this order, is among the first `count` of `full` or `both`."""
    low, high = min(first, second), max(first, second)
    place = low * size - low * (low + 1) // 2 + high - low - 1
    is_balanced = (first == low) == bool((low + high) % 2)
    if not is_balanced and schedule != "both":
        return False
    return place + (0 if is_balanced else comb(size, 2)) < count


async def read_scores(values: Values, chain_id: int, address: str) -> Scores | None:
    """The scores, with what the agents of the entries call themselves."""
    scores = await read(values, chain_id, Scores, scores_key(address))
    result = await read(values, chain_id, RoundResult, result_key(address)) if scores else None
    names = {one.address: one.name for one in result.entrants} if result else {}
    for row in scores.rankings if scores else []:
        row.name = names.get(row.address, "")
    return scores


async def agent_record(store: PublicKeys, chain_id: int, agent_id: int) -> AgentRecord:
    start = entry_key(agent_id, "")
    addresses = [key.removeprefix(start) for key in await store.keys(chain_id, start)]
    found = [await _entry(store, chain_id, agent_id, address) for address in addresses]
    entries = sorted(filter(None, found), key=lambda entry: (-(entry.deadline or 0), entry.challenge))
    places = [entry.place for entry in entries if entry.place is not None]
    paid = [entry for entry in entries if entry.prizeAmount is not None]
    tokens, earned = {entry.token.address: entry.token for entry in paid}, Counter[str]()
    for entry in paid:
        earned[entry.token.address] += int(entry.prizeAmount or 0)
    return AgentRecord(
        agentId=agent_id,
        address=next((entry.submitter for entry in entries if entry.submitter), None),
        name=next((entry.name for entry in entries if entry.name), ""),
        entered=len(entries),
        won=len(paid),
        earned=[Earned(token=tokens[address], amount=str(amount)) for address, amount in sorted(earned.items())],
        averagePlace=round(sum(places) / len(places), 2) if places else None,
        placed=len(places),
        challenges=entries,
    )


async def _entry(store: PublicKeys, chain_id: int, agent_id: int, address: str) -> AgentEntry | None:
    """What the agent did in this challenge; None if there is no result yet."""
    result = await read(store, chain_id, RoundResult, result_key(address))
    if result is None:
        return None
    summary = await read(store, chain_id, Summary, index_key(address))
    mine = {one.address for one in result.entrants if one.agentId == agent_id}
    paid = [(place, one) for place, one in enumerate(result.winners, start=1) if one.address in mine]
    scores = await read(store, chain_id, Scores, scores_key(address))
    is_ours = scores is not None and scores.postedBy == "evaluator" and scores.traceDigest is not None
    rankings = scores.rankings if scores and is_ours and result.winners else []
    own = next((row for row in rankings if row.address in mine), None)
    place, score = (own.rank, own.score) if own and own.is_ranked else (None, None)
    prize = sum(int(one.prizeAmount) for _, one in paid)
    return AgentEntry(
        challenge=address,
        submitter=min(mine, default=None),
        name=next((one.name for one in result.entrants if one.agentId == agent_id), ""),
        title=summary.title if summary else "",
        deadline=summary.deadline if summary else None,
        chainStatus=result.chainStatus,
        place=paid[0][0] if paid else place,
        entrants=len(result.entrants),
        ranked=sum(row.is_ranked for row in rankings) or None,
        rejected=own is not None and not own.is_ranked,
        score=paid[0][1].score if paid else score,
        prizeAmount=str(prize) if prize else None,
        token=result.token,
    )


MAX_TRACE_BYTES = 200_000_000
MAX_RECORD_BYTES = 4_000_000
_COMPARISON = JsonCodec(Comparison)
_WHOLE = ("schema", "schedule", "verdicts")
_SHOWN = ("features/", "comparison/", *(f'{key}"' for key in _WHOLE))
_SERVED: dict[str, tuple[str, type[Document]]] = {
    "eval-status": ("eval-status", EvalStatus),
    "scores": ("leaderboard", Scores),
}
"""Documents that a service shows, by the last word of their key."""


class Records(ABC):
    """What evaluations left behind, under the keys of a store."""

    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id

    @abstractmethod
    async def get(self, chain_id: int, key: str) -> str | None: ...

    async def status(self, address: Address) -> EvalStatus | None:
        return await read(self, self.chain_id, EvalStatus, status_key(address))

    async def scores(self, address: Address) -> Scores | None:
        return await read(self, self.chain_id, Scores, scores_key(address))

    async def features(self, address: Address, submitter: Address) -> Features | None:
        return await read(self, self.chain_id, Features, features_key(address, submitter))

    async def has_model(self) -> bool | None:
        """Whether the service can have submissions read by a language model; None if nothing says so."""
        return None

    async def evaluator(self) -> Address | None:
        """The address under which the service posts scores; None if nothing says so."""
        return None


class StoreRecords(Records):
    def __init__(self, store: StoreOnDemand, chain_id: int) -> None:
        super().__init__(chain_id)
        self._store = store

    async def get(self, chain_id: int, key: str) -> str | None:
        store = await self._store.existing()
        return await store.get(chain_id, key) if store else None

    async def scores(self, address: Address) -> Scores | None:
        return await read_scores(self, self.chain_id, address)

    async def trace(self, address: Address, *, at_most: int) -> str | None:
        """The text as a whole, or little more of it than asked for."""
        store, pieces, size = await self._store.existing(), list[str](), 0
        if store is None:
            return None
        async for piece in stream_trace(store, self.chain_id, address):
            pieces.append(piece)
            size += len(piece)
            if size > at_most:
                break
        return "".join(pieces) or None

    async def trace_file(self, address: Address) -> TraceFile | None:
        store = await self._store.existing()
        return await TraceFile.of(stream_trace(store, self.chain_id, address)) if store else None

    def trace_url(self, _address: Address) -> str:
        return ""

    async def agent(self, agent_id: int) -> AgentRecord | None:
        store = await self._store.existing()
        return await agent_record(store, self.chain_id, agent_id) if store else None


class ApiRecords(Records):
    def __init__(self, api_url: str, chain_id: int) -> None:
        super().__init__(chain_id)
        self._url = api_url.rstrip("/")
        self._told: tuple[str, dict[str, str]] | None = None
        """The challenge whose trace was read last, and the documents in it."""

    async def get(self, _chain_id: int, key: str) -> str | None:
        """The document that the service shows, or that is in the trace: facts and comparisons."""
        _, address, name = key.split(":", 2)
        if name == "provisional":
            shown = await self.detail(Address(address))
            return shown.provisional.model_dump_json() if shown and shown.provisional else None
        if name in _SERVED:
            path, kind = _SERVED[name]
            found = await self._document(kind, f"{self._url}/api/v1/challenges/{address}/{path}")
            return found.model_dump_json() if found else None
        if self._told is None or self._told[0] != address:
            lines = await self.trace_file(Address(address))
            if lines is None:
                return None  # not kept: it may be there the next time
            with self._readable(), lines:
                self._told = (address, documents_in(lines, address))
        return self._told[1].get(key)

    async def detail(self, address: Address) -> ChallengeDetail | None:
        return await self._document(ChallengeDetail, f"{self._url}/api/v1/challenges/{address}")

    async def trace(self, address: Address, *, at_most: int) -> str | None:
        """The text as a whole; Temporary if it is longer than asked for."""
        content = await self._read(self.trace_url(address), at_most)
        with self._readable():
            return None if content is None else content.decode()

    async def trace_file(self, address: Address) -> TraceFile | None:
        return await TraceFile.of(self._pieces(self.trace_url(address), MAX_TRACE_BYTES))

    def trace_url(self, address: Address) -> str:
        return f"{self._url}/api/v1/challenges/{address}/eval-trace"

    async def agent(self, agent_id: int) -> AgentRecord | None:
        return await self._document(AgentRecord, f"{self._url}/api/v1/agents/{agent_id}", MAX_RECORD_BYTES)

    async def has_model(self) -> bool | None:
        told = (await self._about()).get("hasModel")
        return told if isinstance(told, bool) else None

    async def evaluator(self) -> Address | None:
        told = (await self._about()).get("evaluator")
        with self._readable():
            return to_address(told) if isinstance(told, str) else None

    async def _about(self) -> dict[str, Any]:
        content = await self._read(f"{self._url}/healthz", 65_536)
        with self._readable():
            told = json.loads(content or b"{}")
            if not isinstance(told, dict):
                raise TypeError("not a JSON object")
            return told

    async def _document(self, kind: type[D], url: str, at_most: int = MAX_TRACE_BYTES) -> D | None:
        content = await self._read(url, at_most)
        with self._readable():
            return kind.model_validate_json(content) if content else None

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise Temporary for an answer that is none of the service's documents."""
        try:
            yield
        except (ValueError, LookupError, TypeError, RecursionError, BadInput, BadTrace) as bad:
            raise Temporary(
                f"The service at {self._url} answered with something other than its documents.",
                remedy="Check CLARA_API_URL.",
            ) from bad

    async def _read(self, url: str, at_most: int) -> bytes | None:
        """The body; None if the service has nothing to show, Temporary if it does not answer."""
        return b"".join([piece async for piece in self._pieces(url, at_most)]) or None

    async def _pieces(self, url: str, at_most: int) -> AsyncIterator[bytes]:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
                session.get(url, allow_redirects=False) as response,
            ):
                if response.status in {403, 404}:
                    return
                if response.status != 200:
                    raise Temporary(f"The service at {self._url} answered HTTP {response.status}.")
                async for piece in pieces_at_most(response, at_most):
                    yield piece
        except TooLong as bad:
            raise Temporary("The service's answer is too long.", remedy="Read the trace with another tool.") from bad
        except (aiohttp.ClientError, TimeoutError, OSError) as bad:
            raise Temporary(
                f"The service at {self._url} does not answer ({type(bad).__name__}).", remedy="Check CLARA_API_URL."
            ) from bad


def documents_in(lines: Iterable[str], address: str) -> dict[str, str]:
    """The public documents that follow from a trace, by their keys in a store."""
    votes: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    whole: dict[str, Any] = {}
    found: dict[str, str] = {}
    for line in lines:
        if not any(f'"key":"{kind}' in line for kind in _SHOWN):
            continue
        entry = json.loads(line.rstrip(",\n"))["entry"]
        kind, _, name = entry["key"].partition("/")
        if entry["key"] in _WHOLE:
            whole[entry["key"]] = entry["body"]
        elif kind == "features":
            found[features_key(address, name)] = Features.model_validate(entry["body"]).model_dump_json()
        elif kind == "comparison":
            vote = _COMPARISON.read(entry["body"])
            votes[vote.first, vote.second].append(vote)
    found |= {pairwise_key(address, *pair): plain_json(votes_document(cast)) for pair, cast in votes.items()}
    if "verdicts" in whole:
        schedule, schema = whole["schedule"]["name"], whole["schema"]["features"]
        verdicts = Verdicts(**whole["verdicts"], schedule=schedule, features=schema)
        found[verdicts_key(address)] = verdicts.model_dump_json()
    return found
