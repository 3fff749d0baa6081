"""JSON-RPC over several nodes, with batches and failover.

Output: for each call its result or the node's refusal, in the order asked; Temporary if all nodes fail, ConfigError if
all are on another chain.
Invariant: a node is asked for its chain id before it is believed and after each failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp

from clara_eval.chain.node import Meaning, Node, NodeDown, NodeRefusal, NodeRetries, RpcCall, quantity, required
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.tasks import gather_or_raise

log = logging.getLogger(__name__)
PIECES_AT_ONCE = 4


class Rpc:
    def __init__(self, urls: Sequence[str], *, chain_id: int, retries: NodeRetries | None = None) -> None:
        if not urls:
            raise ConfigError("CLARA_RPC_URL is empty.", remedy="Give the URL of a node.")
        self.retries = retries or NodeRetries()
        self.nodes = [Node(url, self.retries) for url in urls]
        self.chain_id = chain_id
        self._session: aiohttp.ClientSession | None = None
        self._first = 0

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def check_nodes(self) -> None:
        states = await gather_or_raise(self._state(node) for node in self.nodes)
        if all(state is not None for state in states):
            raise self._all_failed([f"{node.host}: {state}" for node, state in zip(self.nodes, states, strict=True)])

    async def _state(self, node: Node) -> str | None:
        try:
            await self._check(node)
        except NodeDown as down:
            return str(down)
        return None

    async def ask(self, method: str, *params: Any) -> Any:
        return required((await self.ask_many([RpcCall(method, params)]))[0])

    async def ask_maybe(self, method: str, *params: Any) -> Any | None:
        """Return one result, or None if no node has such a thing."""
        result = (await self.ask_many([RpcCall(method, params)]))[0]
        is_missing = isinstance(result, NodeRefusal) and result.meaning is Meaning.MISSING
        return None if is_missing else required(result)

    async def ask_many(self, calls: Sequence[RpcCall], *, retry_missing: bool = False) -> list[Any]:
        """Return results and refusals in the order of the calls, in as few requests as the nodes allow.

        `retry_missing` asks again for what a node lacks: behind one URL there are often several, some of them late.
        """
        size = max(1, self.nodes[self._first].batch_size)
        size = size if size > 1 else max(len(calls), 1)
        gate = asyncio.Semaphore(PIECES_AT_ONCE)

        async def piece(start: int) -> list[Any]:
            async with gate:
                return await self._ask_until_answered(calls[start : start + size], retry_missing=retry_missing)

        pieces = await gather_or_raise(piece(start) for start in range(0, len(calls), size))
        return [result for part in pieces for result in part]

    async def ask_one_node(self, calls: Sequence[RpcCall]) -> list[Any]:
        """Return answers that are all of one node: what it lacks, another answers together with the rest."""
        return await self._ask_until_answered(calls, is_whole=True)

    async def ask_every_node(self, method: str, *params: Any) -> list[tuple[Node, Any]]:
        async def one(node: Node) -> tuple[Node, Any] | None:
            try:
                await self._check(node)
                answer = (await node.exchange(self._open(), [RpcCall(method, params)]))[0]
            except NodeDown as down:
                self._failed(node, str(down))
                return None
            return None if isinstance(answer, NodeRefusal) else (node, answer)

        with self.retries.limited():
            told = await gather_or_raise(one(node) for node in self.nodes)
        return [found for found in told if found is not None]

    def prefer(self, node: Node) -> None:
        self._first = self.nodes.index(node)

    async def _ask_until_answered(
        self, calls: Sequence[RpcCall], *, is_whole: bool = False, retry_missing: bool = False
    ) -> list[Any]:
        with self.retries.limited():
            results: list[Any] = [None] * len(calls)
            waiting = list(range(len(calls)))
            reasons: list[str] = []
            for turn in range(len(self.retries.pauses) + 1):
                if turn and not await self.retries.pause(self.retries.pauses[turn - 1]):
                    break
                waiting = await self._ask_nodes(calls, results, waiting, reasons, is_whole=is_whole)
                is_late = retry_missing and turn < self.retries.late_rounds
                waiting = [n for n in waiting if results[n] is None or _is_asked_again(results[n], is_late=is_late)]
                if not waiting:
                    return results
                waiting = list(range(len(calls))) if is_whole else waiting
        waiting = [n for n in waiting if results[n] is None or _is_asked_again(results[n], is_late=False)]
        if not waiting:
            return results
        refused = [str(results[number]) for number in waiting if results[number] is not None]
        raise self._all_failed(list(dict.fromkeys([*reasons, *refused])))

    async def _ask_nodes(
        self, calls: Sequence[RpcCall], results: list[Any], waiting: list[int], reasons: list[str], *, is_whole: bool
    ) -> list[int]:
        """Ask each node once for what the ones before it lack; return what none has answered well."""
        for node in self.nodes[self._first :] + self.nodes[: self._first]:
            try:
                await self._check(node)
                answers = await node.exchange(self._open(), [calls[number] for number in waiting])
            except NodeDown as down:
                self._failed(node, str(down))
                reasons.append(f"{node.host}: {down}")
                continue
            for number, answer in zip(waiting, answers, strict=True):
                results[number] = answer
            waiting = [number for number in waiting if _ask_elsewhere(results[number])]
            if not waiting:
                return []
            waiting = list(range(len(calls))) if is_whole else waiting
        return waiting

    async def _check(self, node: Node) -> None:
        if node.is_checked:
            return
        answer = (await node.exchange(self._open(), [RpcCall("eth_chainId")]))[0]
        if isinstance(answer, NodeRefusal):
            raise NodeDown(answer.message)
        found = quantity(answer)
        if found != self.chain_id:
            if node.wrong_chain != found:
                log.warning("node %s is on chain %d, not %d: it is left out", node.host, found, self.chain_id)
            node.wrong_chain = found
            raise NodeDown(f"it is on chain {found}, not {self.chain_id}")
        node.is_checked, node.wrong_chain = True, None

    def _failed(self, node: Node, reason: str) -> None:
        log.info("node %s failed: %s", node.host, reason)
        node.is_checked = False
        if self.nodes[self._first] is node:
            self._first = (self._first + 1) % len(self.nodes)

    def _all_failed(self, reasons: Sequence[str]) -> ConfigError | Temporary:
        if all(node.wrong_chain is not None for node in self.nodes):
            node = self.nodes[0]
            return ConfigError(
                f"The node {node.host} is on chain {node.wrong_chain}, but the network's chain id is {self.chain_id}.",
                remedy="Set CLARA_RPC_URL to nodes of the network in CLARA_NETWORK.",
            )
        return Temporary(
            f"No node answers ({'; '.join(reasons[:6])}).", remedy="Check CLARA_RPC_URL, or add a second URL."
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session


def _is_asked_again(result: Any, *, is_late: bool) -> bool:
    """Whether the next round may bring more; `is_late` if a node may still get the block it lacks."""
    if not isinstance(result, NodeRefusal):
        return False
    return result.meaning is Meaning.BUSY or (is_late and result.meaning is Meaning.MISSING)


def _ask_elsewhere(result: Any) -> bool:
    return isinstance(result, NodeRefusal) and result.meaning in {Meaning.BUSY, Meaning.MISSING, Meaning.OTHER}
