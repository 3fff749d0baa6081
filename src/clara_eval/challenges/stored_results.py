"""Read the public documents of evaluations, from a store or from the API of a service."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from math import comb
from typing import Any

import aiohttp

from clara_eval.challenges.challenge_index import agent_record, read_scores
from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadInput, BadTrace, Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.documents import results
from clara_eval.documents.rest import ChallengeDetail
from clara_eval.documents.results import D, Features, Pairwise, Played, Values, read
from clara_eval.documents.store_keys import features_key, pairwise_key, status_key, verdicts_key
from clara_eval.evaluation.play import Comparison, compared, votes_document
from clara_eval.evaluation.trace import TraceFile
from clara_eval.judge.comparison import RulesJudge, make_vector
from clara_eval.ranking import Pairing
from clara_eval.store.open import StoreOnDemand
from clara_eval.store.sql_store import PublicKeys
from clara_eval.store.trace_archive import stream_trace


class Verdicts(results.Document):
    """`verdicts`: the schema and the entries of a large round by rules, in canonical order."""

    judge: str
    schedule: str
    count: int
    sha256: str
    items: list[str]
    features: list[dict[str, object]]  # The schema

    def comparison(self, first: str, second: str, facts: Mapping[str, Features]) -> Pairwise | None:
        """Rebuild the comparison of two entries from their facts; None if it was not made in this order."""
        if not {first, second} <= facts.keys() & set(self.items) or first == second:
            return None
        if not is_shown(self.schedule, len(self.items), self.count, *map(self.items.index, (first, second))):
            return None
        schema = FeatureSchema.from_json({"features": self.features})
        decision = RulesJudge(schema).decide(*(make_vector(schema, facts[one].features) for one in (first, second)))
        return Pairwise.model_validate(votes_document([compared(Pairing(first, second, self.judge), decision)]))


async def comparisons_among(keys: PublicKeys, chain_id: int, address: str, accounts: Sequence[str]) -> Played:
    if (verdicts := await read(keys, chain_id, Verdicts, verdicts_key(address))) is not None:
        return await _ruled_comparisons(keys, chain_id, address, verdicts, list(permutations(accounts, 2)))
    wanted, found = set(accounts), Played()
    for first in accounts:
        start = pairwise_key(address, first, "")
        for key, value in await keys.items(chain_id, start):
            if (second := key.removeprefix(start)) in wanted:
                found[first, second] = Pairwise.model_validate_json(value)
    return found


async def comparisons_of(values: Values, chain_id: int, address: str, account: str, rivals: Sequence[str]) -> Played:
    pairs = [pair for rival in rivals for pair in ((account, rival), (rival, account))]
    if (verdicts := await read(values, chain_id, Verdicts, verdicts_key(address))) is not None:
        return await _ruled_comparisons(values, chain_id, address, verdicts, pairs)
    found = {pair: await read(values, chain_id, Pairwise, pairwise_key(address, *pair)) for pair in pairs}
    return {pair: comparison for pair, comparison in found.items() if comparison is not None}


async def _ruled_comparisons(
    values: Values, chain_id: int, address: str, verdicts: Verdicts, pairs: Sequence[tuple[str, str]]
) -> Played:
    accounts = dict.fromkeys(account for pair in pairs for account in pair)
    read_facts = {a: await read(values, chain_id, Features, features_key(address, a)) for a in accounts}
    facts = {account: found for account, found in read_facts.items() if found is not None}
    made = {pair: verdicts.comparison(*pair, facts) for pair in pairs}
    return {pair: comparison for pair, comparison in made.items() if comparison is not None}


def is_shown(schedule: str, size: int, count: int, first: int, second: int) -> bool:
    """Return whether this ordered pair is among the first `count` games of schedule `full` or `both`."""
    low, high = min(first, second), max(first, second)
    place = low * size - low * (low + 1) // 2 + high - low - 1
    is_balanced = (first == low) == bool((low + high) % 2)
    if not is_balanced and schedule != "both":
        return False
    return place + (0 if is_balanced else comb(size, 2)) < count


MAX_TRACE_BYTES = 200_000_000
MAX_RECORD_BYTES = 4_000_000
_COMPARISON = JsonCodec(Comparison)
_VERDICT_ENTRIES = ("schema", "schedule", "verdicts")  # Trace entries that a `Verdicts` document is made of
_PUBLIC_ENTRIES = ("features/", "comparison/", *(f'{key}"' for key in _VERDICT_ENTRIES))


class StoreRecords:
    """Documents of evaluations in the store of this machine."""

    def __init__(self, store: StoreOnDemand, chain_id: int) -> None:
        self._store, self.chain_id = store, chain_id

    async def get(self, chain_id: int, key: str) -> str | None:
        store = await self._store.existing()
        return await store.get(chain_id, key) if store else None

    async def status(self, address: Address) -> results.EvalStatus | None:
        return await read(self, self.chain_id, results.EvalStatus, status_key(address))

    async def scores(self, address: Address) -> results.Scores | None:
        return await read_scores(self, self.chain_id, address)

    async def has_model(self) -> bool | None:
        return None  # the store does not know whether a model reads submissions

    async def evaluator(self) -> Address | None:
        return None  # the store does not know the address that posts scores

    async def trace(self, address: Address, *, at_most: int) -> str | None:
        """Return the whole text, or slightly more than `at_most` characters of it."""
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

    async def agent(self, agent_id: int) -> results.AgentRecord | None:
        store = await self._store.existing()
        return await agent_record(store, self.chain_id, agent_id) if store else None


class ApiRecords:
    """Documents of evaluations from the API of a service."""

    def __init__(self, api_url: str, chain_id: int) -> None:
        self._url, self.chain_id = api_url.rstrip("/"), chain_id
        self._last_trace: tuple[str, dict[str, str]] | None = None  # Address of a challenge, and its documents

    async def get(self, _chain_id: int, key: str) -> str | None:
        """Return the provisional board of an open challenge, or a document that follows from the trace."""
        _, address, name = key.split(":", 2)
        if name == "provisional":
            shown = await self.detail(Address(address))
            return shown.provisional.model_dump_json() if shown and shown.provisional else None
        if self._last_trace is None or self._last_trace[0] != address:
            lines = await self.trace_file(Address(address))
            if lines is None:
                return None  # not cached: the trace may exist the next time
            with self._readable(), lines:
                self._last_trace = (address, documents_in(lines, address))
        return self._last_trace[1].get(key)

    async def status(self, address: Address) -> results.EvalStatus | None:
        return await self._document(results.EvalStatus, f"challenges/{address}/eval-status")

    async def scores(self, address: Address) -> results.Scores | None:
        return await self._document(results.Scores, f"challenges/{address}/leaderboard")

    async def detail(self, address: Address) -> ChallengeDetail | None:
        return await self._document(ChallengeDetail, f"challenges/{address}")

    async def trace(self, address: Address, *, at_most: int) -> str | None:
        """Return the whole text; Temporary if it is longer than `at_most` bytes."""
        content = await self._read(self.trace_url(address), at_most)
        with self._readable():
            return None if content is None else content.decode()

    async def trace_file(self, address: Address) -> TraceFile | None:
        return await TraceFile.of(self._pieces(self.trace_url(address), MAX_TRACE_BYTES))

    def trace_url(self, address: Address) -> str:
        return f"{self._url}/api/v1/challenges/{address}/eval-trace"

    async def agent(self, agent_id: int) -> results.AgentRecord | None:
        return await self._document(results.AgentRecord, f"agents/{agent_id}", MAX_RECORD_BYTES)

    async def has_model(self) -> bool | None:
        answer = (await self._health()).get("hasModel")
        return answer if isinstance(answer, bool) else None

    async def evaluator(self) -> Address | None:
        answer = (await self._health()).get("evaluator")
        with self._readable():
            return to_address(answer) if isinstance(answer, str) else None

    async def _health(self) -> dict[str, Any]:
        content = await self._read(f"{self._url}/healthz", 65_536)
        with self._readable():
            health = json.loads(content or b"{}")
            if not isinstance(health, dict):
                raise TypeError("not a JSON object")
            return health

    async def _document(self, kind: type[D], path: str, at_most: int = MAX_TRACE_BYTES) -> D | None:
        content = await self._read(f"{self._url}/api/v1/{path}", at_most)
        with self._readable():
            return kind.model_validate_json(content) if content else None

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise Temporary for a response that is not one of the service's documents."""
        try:
            yield
        except (ValueError, LookupError, TypeError, RecursionError, BadInput, BadTrace) as bad:
            text = f"The service at {self._url} answered with something other than its documents."
            raise Temporary(text, remedy="Check CLARA_API_URL.") from bad

    async def _read(self, url: str, at_most: int) -> bytes | None:
        """Return the body; None if the service has no such document, Temporary if it does not answer."""
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
                async for piece in response.content.iter_any():
                    at_most -= len(piece)
                    if at_most < 0:
                        raise Temporary("The service's answer is too long.", remedy="Read the trace with another tool.")
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as bad:
            text = f"The service at {self._url} does not answer ({type(bad).__name__})."
            raise Temporary(text, remedy="Check CLARA_API_URL.") from bad


def documents_in(lines: Iterable[str], address: str) -> dict[str, str]:
    """Return the public documents that follow from a trace, by their keys in a store."""
    votes: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    parts: dict[str, Any] = {}
    found: dict[str, str] = {}
    for line in lines:
        if not any(f'"key":"{kind}' in line for kind in _PUBLIC_ENTRIES):
            continue
        entry = json.loads(line.rstrip(",\n"))["entry"]
        kind, _, name = entry["key"].partition("/")
        if entry["key"] in _VERDICT_ENTRIES:
            parts[entry["key"]] = entry["body"]
        elif kind == "features":
            found[features_key(address, name)] = Features.model_validate(entry["body"]).model_dump_json()
        elif kind == "comparison":
            vote = _COMPARISON.read(entry["body"])
            votes[vote.first, vote.second].append(vote)
    found |= {pairwise_key(address, *pair): plain_json(votes_document(cast)) for pair, cast in votes.items()}
    if "verdicts" in parts:
        schedule, schema = parts["schedule"]["name"], parts["schema"]["features"]
        verdicts = Verdicts(**parts["verdicts"], schedule=schedule, features=schema)
        found[verdicts_key(address)] = verdicts.model_dump_json()
    return found
