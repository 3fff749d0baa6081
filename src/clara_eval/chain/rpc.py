"""JSON-RPC over several nodes, with batches, retries and failover.

Invariant: a node's chain id is checked before its first answer is used, and again after each failure.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any, TypeGuard, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import aiohttp

from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.tasks import gather_or_raise
from clara_eval.core.web import TooLong, read_at_most

log = logging.getLogger(__name__)


class Meaning(StrEnum):
    REVERTED = "reverted"
    RANGE_TOO_LARGE = "range_too_large"
    BUSY = "busy"
    MISSING = "missing"
    UNSUPPORTED = "unsupported"
    BATCH_REFUSED = "batch_refused"
    ALREADY_KNOWN = "already_known"
    NONCE_TOO_LOW = "nonce_too_low"
    NONCE_TOO_HIGH = "nonce_too_high"
    POOL_FULL = "pool_full"
    REPLACEMENT_UNDERPRICED = "replacement_underpriced"
    FEE_TOO_LOW = "fee_too_low"
    INSUFFICIENT_FUNDS = "insufficient_funds"
    OTHER = "other"


_TABLES = resources.files("clara_eval.chain").joinpath("node_errors.toml").read_text(encoding="utf-8")
_WORDINGS = {
    table: {Meaning(name): re.compile("|".join(patterns), re.IGNORECASE) for name, patterns in listed.items()}
    for table, listed in tomllib.loads(_TABLES).items()
}


def _match_wording(table: str, message: str) -> Meaning | None:
    return next((meaning for meaning, pattern in _WORDINGS[table].items() if pattern.search(message)), None)


def meaning_of(method: str, code: int, message: str, data: object = None) -> Meaning:
    runs_code = method in {"eth_call", "eth_estimateGas"}
    has_revert_data = runs_code and isinstance(data, str) and re.match(r"0x[0-9a-f]{8}", data) is not None
    if code == 3 or "revert" in message.lower() or has_revert_data:
        return Meaning.REVERTED
    if method == "batch" and "batch" in message.lower():
        return Meaning.BATCH_REFUSED
    found = _match_wording("sent", message) if runs_code or method == "eth_sendRawTransaction" else None
    found = _match_wording("run", message) if found is None and runs_code else found
    if found is not None:
        return found
    if method == "eth_getLogs" and (_match_wording("logs", message) or code in {-32614, -32062, 35}):
        return Meaning.RANGE_TOO_LARGE
    if _match_wording("state", message) and code != -32601:
        return Meaning.MISSING
    if _match_wording("load", message) or code in {429, -32005, -32016, -32097, -32603}:
        return Meaning.BUSY
    return Meaning.UNSUPPORTED if code in {-32600, -32601, -32602} else Meaning.OTHER


T = TypeVar("T")
_deadline: ContextVar[float | None] = ContextVar("node_deadline", default=None)


@dataclass(frozen=True, slots=True)
class NodeRetries:
    pauses: tuple[float, ...] = (0.1, 0.3, 0.6, 2.0)
    """Seconds before each further round over all nodes: 3 s in all, for a restart or a rate limit."""
    late_rounds: int = 3  # Further rounds while a node is behind the others: 1 s in all, half of Base's block time
    timeout_seconds: float = 20.0  # Of one HTTP request
    total_seconds: float = 60.0  # Of one request with all its retries
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit all requests inside to one `total_seconds`; an outer limit takes precedence."""
        if _deadline.get() is not None:
            yield
            return
        token = _deadline.set(time.monotonic() + self.total_seconds)
        try:
            yield
        finally:
            _deadline.reset(token)

    def request_seconds(self) -> float:
        deadline = _deadline.get()
        left = self.total_seconds if deadline is None else deadline - time.monotonic()
        return max(0.0, min(self.timeout_seconds, left))

    async def pause(self, seconds: float) -> bool:
        """Wait before the next round; return False if there is no time left for one."""
        if self.request_seconds() <= seconds:
            return False
        await self.sleep(seconds)
        return True

    async def until(self, is_accepted: Callable[[T], bool], ask: Callable[[], Awaitable[T]]) -> T:
        """Retry while a node is behind; return the last answer if none is accepted."""
        with self.limited():
            for seconds in self.pauses[: self.late_rounds]:
                answer = await ask()
                if is_accepted(answer) or not await self.pause(seconds):
                    return answer
            return await ask()


NULL_MEANS_MISSING = {"eth_getBlockByNumber", "eth_getTransactionByHash", "eth_getTransactionReceipt"}
MAX_ANSWER_BYTES = 64_000_000
LARGEST_BATCH = 50
SMALL_BATCH = 10  # Calls after a larger batch was refused; if that is refused too, single calls
GROWS_AFTER_EXCHANGES = 20  # Exchanges before a larger batch is tried again: at most 5 % more requests
SINGLES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class RpcCall:
    method: str
    params: tuple[Any, ...] = ()


class NodeRefusal(Temporary):
    """A node understood the request and refused it; `data` is the data of a revert."""

    def __init__(self, host: str, method: str, meaning: Meaning, message: str, data: object = None) -> None:
        super().__init__(f"The node {host} refused {method} ({meaning}): {message[:300]}")
        self.meaning = meaning
        self.data = data


class NodeDown(Temporary):
    """A node gave no usable answer; the message has the reason, without the node's URL."""


class Node:
    def __init__(self, url: str, retries: NodeRetries) -> None:
        place = place_of(url)
        if place is None:
            remedy = "Write http://host:port; several with commas between them."
            raise ConfigError("The node's address (CLARA_RPC_URL or --rpc) is not an http or https URL.", remedy=remedy)
        self.host, self.url = place, url
        self._retries = retries
        self.batch_size = LARGEST_BATCH
        self._exchanges_since_refusal = 0
        self.is_checked = False
        self.wrong_chain: int | None = None  # Its chain id if that is not ours: the node is left out
        self._secrets = _find_secrets(url)

    async def exchange(self, session: aiohttp.ClientSession, calls: Sequence[RpcCall]) -> list[Any]:
        # The refusal of a large batch may have been temporary: after many exchanges one is tried again.
        self._exchanges_since_refusal += 1
        if self._exchanges_since_refusal > GROWS_AFTER_EXCHANGES and self.batch_size < LARGEST_BATCH:
            self.batch_size = SMALL_BATCH if self.batch_size < SMALL_BATCH else LARGEST_BATCH
            self._exchanges_since_refusal = 0
        results: list[Any] = []
        while len(results) < len(calls):
            part = calls[len(results) : len(results) + self.batch_size]
            if len(part) == 1 or self.batch_size == 1:
                return [*results, *await self._singles(session, calls[len(results) :])]
            answers = await self._batch(session, part)
            if answers is None:
                self.batch_size, self._exchanges_since_refusal = SMALL_BATCH if len(part) > SMALL_BATCH else 1, 0
                log.info("node %s refused a batch of %d; trying %d", self.host, len(part), self.batch_size)
            else:
                results += answers
        return results

    async def _singles(self, session: aiohttp.ClientSession, calls: Sequence[RpcCall]) -> list[Any]:
        async def ask(call: RpcCall) -> Any:
            return self._read(call, await self._post(session, _envelope(0, call)))

        return await gather_or_raise(map(ask, calls), SINGLES_AT_ONCE)

    async def _batch(self, session: aiohttp.ClientSession, calls: Sequence[RpcCall]) -> list[Any] | None:
        """Return the answers in the order of the calls; None if the node refuses the batch."""
        try:
            answer = await self._post(session, [_envelope(number, call) for number, call in enumerate(calls)])
        except NodeDown:
            # The size may be the cause: the next batch is smaller.
            self.batch_size, self._exchanges_since_refusal = min(self.batch_size, SMALL_BATCH), 0
            raise
        if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], dict) and "error" in answer[0]:
            answer = answer[0]
        if isinstance(answer, dict):
            refusal = self._read(RpcCall("batch"), answer)
            if is_refused(refusal, Meaning.BUSY):
                raise NodeDown(refusal.message)
            return None
        if not isinstance(answer, list):
            raise NodeDown("it answered a batch with something else")
        by_id = {item.get("id"): item for item in answer if isinstance(item, dict)}
        if set(by_id) != set(range(len(calls))):
            raise NodeDown("its batch answer is incomplete")
        return [self._read(call, by_id[number]) for number, call in enumerate(calls)]

    def _read(self, call: RpcCall, answer: Any) -> Any:
        if not isinstance(answer, dict):
            raise NodeDown("its answer is not a JSON-RPC object")
        if (error := answer.get("error")) is not None:
            fields = error if isinstance(error, dict) else {"message": str(error)}
            code, message = fields.get("code", 0), str(fields.get("message", ""))
            code = code if isinstance(code, int) else 0
            for secret in self._secrets:
                message = message.replace(secret, "…")
            meaning = meaning_of(call.method, code, message, fields.get("data"))
            return NodeRefusal(self.host, call.method, meaning, f"{message} [{code}]", fields.get("data"))
        if "result" not in answer:
            raise NodeDown("its answer has neither result nor error")
        if answer["result"] is None:
            if call.method in NULL_MEANS_MISSING:
                return NodeRefusal(self.host, call.method, Meaning.MISSING, "not found")
            raise NodeDown(f"it answered {call.method} with null")
        return answer["result"]

    async def _post(self, session: aiohttp.ClientSession, body: Any) -> Any:
        # Errors of the library contain the URL, which may contain a key: only their class name is shown.
        seconds = self._retries.request_seconds()
        if seconds <= 0:
            raise NodeDown("no time is left to ask it")
        limit = aiohttp.ClientTimeout(total=seconds)
        try:
            async with session.post(self.url, json=body, allow_redirects=False, timeout=limit) as response:
                content = await read_at_most(response, MAX_ANSWER_BYTES)
                status = response.status
        except TooLong:
            if isinstance(body, dict) and body["method"] != "eth_getLogs":
                raise NodeDown("its answer is too long") from None
            # A refusal makes the caller ask for events in smaller ranges.
            return {"error": {"code": -32600, "message": "batch response size exceeds the limit"}}
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as bad:
            raise NodeDown(type(bad).__name__) from None
        if status in {401, 403, 429} or status >= 500:
            raise NodeDown(f"HTTP {status}")
        if status == 413 and isinstance(body, list):
            return {"error": {"code": -32600, "message": "batch too large"}}
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            raise NodeDown(f"HTTP {status} without JSON") from None
        if status != 200 and not (isinstance(answer, dict) and "error" in answer):
            raise NodeDown(f"HTTP {status}")
        return answer


def place_of(url: str) -> str | None:
    """Return host and port without user and password; None if it is not an http or https URL."""
    try:
        parts = urlsplit(url)
        is_place = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # an open bracket or an invalid port
        return None
    return parts.netloc.rpartition("@")[2] if is_place else None


def _find_secrets(url: str) -> list[str]:
    """Return all parts of a URL that may be a key, as written and unquoted, longest first."""
    parts = urlsplit(url)
    values = [value for _, value in parse_qsl(parts.query)]
    pieces = [*parts.path.split("/"), parts.query, *values, parts.username or "", parts.password or ""]
    found = {form for piece in pieces for form in (piece, unquote(piece)) if len(form) >= 6}
    return sorted(found, key=len, reverse=True)


def _envelope(number: int, call: RpcCall) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": call.method, "params": list(call.params)}


def is_refused(answer: Any, *meanings: Meaning) -> TypeGuard[NodeRefusal]:
    return isinstance(answer, NodeRefusal) and answer.meaning in meanings


def required(answer: Any) -> Any:
    if isinstance(answer, NodeRefusal):
        raise answer
    return answer


def quantity(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch("0x[0-9a-fA-F]+", value):
        return int(value, 16)
    raise NodeDown(f"it gave {str(value)[:40]!r} where a number belongs")


PIECES_AT_ONCE = 4


class Rpc:
    def __init__(self, urls: Sequence[str], *, chain_id: int, retries: NodeRetries | None = None) -> None:
        if not urls:
            raise ConfigError("CLARA_RPC_URL is empty.", remedy="Give the URL of a node.")
        self.retries = retries or NodeRetries()
        self.nodes = [Node(url, self.retries) for url in urls]
        self.chain_id = chain_id
        self._session: aiohttp.ClientSession | None = None
        self.first = 0

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def answer(self, method: str, *params: Any, retry_missing: bool = False) -> Any:
        return (await self.ask_many([RpcCall(method, params)], retry_missing=retry_missing))[0]

    async def ask(self, method: str, *params: Any, retry_missing: bool = False) -> Any:
        return required(await self.answer(method, *params, retry_missing=retry_missing))

    async def ask_maybe(self, method: str, *params: Any) -> Any | None:
        """Return the result, or None if no node has the object asked for."""
        result = await self.answer(method, *params)
        return None if is_refused(result, Meaning.MISSING) else required(result)

    async def ask_many(
        self, calls: Sequence[RpcCall], *, retry_missing: bool = False, is_whole: bool = False
    ) -> list[Any]:
        """Return results and refusals in the order of the calls, in as few requests as the nodes allow.

        `retry_missing` also retries objects that the nodes lack. With `is_whole` all answers come from one node.
        """
        size = self.nodes[self.first].batch_size
        size = max(len(calls), 1) if size == 1 or is_whole else size
        parts = (calls[start : start + size] for start in range(0, len(calls), size))
        pieces = await gather_or_raise(
            (self._ask_until_answered(part, retry_missing=retry_missing, is_whole=is_whole) for part in parts),
            PIECES_AT_ONCE,
        )
        return [result for part in pieces for result in part]

    async def ask_every_node(self, method: str, *params: Any) -> list[tuple[Node, Any]]:
        async def ask(node: Node) -> tuple[Node, Any] | None:
            with suppress(NodeDown, NodeRefusal):
                return node, required((await self._exchange(node, [RpcCall(method, params)]))[0])
            return None

        with self.retries.limited():
            answers = await gather_or_raise(map(ask, self.nodes))
        return [answer for answer in answers if answer is not None]

    async def _ask_until_answered(self, calls: Sequence[RpcCall], *, retry_missing: bool, is_whole: bool) -> list[Any]:
        every = list(range(len(calls)))
        results: list[Any] = [None] * len(calls)
        waiting, reasons = every, list[str]()
        with self.retries.limited():
            for turn, seconds in enumerate((0.0, *self.retries.pauses)):
                if turn and not await self.retries.pause(seconds):
                    break
                waiting = await self._ask_nodes(calls, results, waiting, reasons, is_whole=is_whole)
                # A node that lacks a block, often one of several behind a URL, may receive it within a second.
                may_be_late = retry_missing and turn < self.retries.late_rounds
                retried = (Meaning.BUSY, Meaning.MISSING) if may_be_late else (Meaning.BUSY,)
                waiting = [n for n in waiting if results[n] is None or is_refused(results[n], *retried)]
                if not waiting:
                    return results
                waiting = every if is_whole else waiting
        failed = [results[n] for n in waiting if results[n] is None or is_refused(results[n], Meaning.BUSY)]
        if not failed:
            return results
        if all(node.wrong_chain is not None for node in self.nodes):
            node = self.nodes[0]
            raise ConfigError(
                f"The node {node.host} is on chain {node.wrong_chain}, but the network's chain id is {self.chain_id}.",
                remedy="Set CLARA_RPC_URL to nodes of the network in CLARA_NETWORK.",
            )
        causes = "; ".join(list(dict.fromkeys([*reasons, *(str(refusal) for refusal in failed if refusal)]))[:6])
        raise Temporary(f"No node answers ({causes}).", remedy="Check CLARA_RPC_URL, or add a second URL.")

    async def _ask_nodes(
        self, calls: Sequence[RpcCall], results: list[Any], waiting: list[int], reasons: list[str], *, is_whole: bool
    ) -> list[int]:
        """Ask each node in turn for what the ones before it lack; return the calls without a good answer."""
        for node in self.nodes[self.first :] + self.nodes[: self.first]:
            try:
                answers = await self._exchange(node, [calls[number] for number in waiting])
            except NodeDown as down:
                reasons.append(f"{node.host}: {down}")
                continue
            for number, answer in zip(waiting, answers, strict=True):
                results[number] = answer
            waiting = [n for n in waiting if is_refused(results[n], Meaning.BUSY, Meaning.MISSING, Meaning.OTHER)]
            if not waiting:
                return []
            waiting = list(range(len(calls))) if is_whole else waiting
        return waiting

    async def _exchange(self, node: Node, calls: Sequence[RpcCall]) -> list[Any]:
        """Ask one node; after NodeDown the next one goes first, and this one's chain id is checked again."""
        session = self._session = self._session or aiohttp.ClientSession()
        try:
            if not node.is_checked:
                await self._check_chain_id(node, session)
            return await node.exchange(session, calls)
        except NodeDown as down:
            log.info("node %s failed: %s", node.host, down)
            node.is_checked = False
            if self.nodes[self.first] is node:
                self.first = (self.first + 1) % len(self.nodes)
            raise

    async def _check_chain_id(self, node: Node, session: aiohttp.ClientSession) -> None:
        (answer,) = await node.exchange(session, [RpcCall("eth_chainId")])
        if isinstance(answer, NodeRefusal):
            raise NodeDown(answer.message)
        found = quantity(answer)
        if found != self.chain_id:
            if node.wrong_chain != found:
                log.warning("node %s is on chain %d, not %d: it is left out", node.host, found, self.chain_id)
            node.wrong_chain = found
            raise NodeDown(f"it is on chain {found}, not {self.chain_id}")
        node.is_checked, node.wrong_chain = True, None
