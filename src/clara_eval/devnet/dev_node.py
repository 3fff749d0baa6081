"""A running anvil node: send transactions as its accounts, move its time.

Invariant: a chain that is not anvil is refused, so nothing here can touch real money.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypedDict
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession

from clara_eval.chain.accounts import key_from_seed, seed_from_mnemonic
from clara_eval.chain.contracts.refusals import ContractRefusal, decode_refusal
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, ClaraError, ConfigError, Temporary
from clara_eval.devnet.anvil import MNEMONIC

_MINED_SECONDS = 120
"""For one transaction, on a machine under load."""


class MinedReceipt(TypedDict):
    """A receipt as the node's JSON has it, as far as it is used."""

    transactionHash: str
    blockNumber: str
    blockHash: str
    gasUsed: str
    status: str
    contractAddress: str | None
    logs: list[dict[str, object]]


class NodeRefused(ClaraError):
    """A contract or the node refused; `refusal` is the decoded custom error, None if there is none that we know."""

    def __init__(self, message: str, refusal: ContractRefusal | None) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class DevAccount:
    """A development account of the node. Its key is public knowledge: never send real money to it."""

    index: int
    address: Address

    @property
    def key(self) -> str:
        return _dev_key(self.index)


@dataclass(frozen=True, slots=True)
class DevNode:
    """One connection to an anvil node."""

    rpc_url: str
    session: ClientSession
    accounts: tuple[DevAccount, ...] = ()

    @classmethod
    async def connect(cls, rpc_url: str) -> DevNode:
        """Connect, or refuse: what answers there must be anvil."""
        node = cls(rpc_url, ClientSession())
        try:
            await node._require_anvil()
            addresses = await node.rpc("eth_accounts")
        except BaseException:
            await node.close()
            raise
        accounts = tuple(DevAccount(number, to_address(text)) for number, text in enumerate(addresses))
        return replace(node, accounts=accounts)

    async def close(self) -> None:
        """Close the connection; the node goes on."""
        await self.session.close()

    async def post(self, sender: DevAccount, to: Address | None, data: str) -> str:
        """Hand in a transaction and return its hash; `receipts` says whether it was accepted."""
        transaction = {"from": sender.address, "data": data} | ({} if to is None else {"to": to})
        return str(await self.rpc("eth_sendTransaction", transaction))

    async def receipts(self, hashes: Sequence[str]) -> list[MinedReceipt]:
        """Wait until all are mined; raise `NodeRefused` if one was reverted."""
        return [await self._receipt(item) for item in hashes]

    async def _receipt(self, tx_hash: str) -> MinedReceipt:
        receipt: MinedReceipt | None = None
        async with asyncio.timeout(_MINED_SECONDS):
            while receipt is None:
                receipt = await self.rpc("eth_getTransactionReceipt", tx_hash)
                if receipt is None:
                    await asyncio.sleep(0.01)
        if receipt["status"] != "0x1":
            raise await self._refused(tx_hash)
        return receipt

    async def now(self) -> int:
        """Return the time of the newest block, which is the only time contracts know."""
        return int((await self.rpc("eth_getBlockByNumber", "latest", False))["timestamp"], 16)

    async def block_number(self) -> int:
        return int(await self.rpc("eth_blockNumber"), 16)

    async def move_to(self, timestamp: int) -> int:
        """Mine a block at exactly that time; the clock goes on from there. Time cannot go back."""
        now = await self.now()
        if timestamp <= now:
            raise BadInput(
                f"{timestamp} is not after the newest block's time {now}.",
                value=timestamp,
                remedy="Time only moves forward.",
            )
        await self.rpc("evm_setNextBlockTimestamp", timestamp)
        await self.rpc("anvil_mine", 1)
        return await self.now()

    async def rpc(self, method: str, *params: object) -> Any:
        """Return one result; raise the node's error as `NodeRefused`."""
        body = {"jsonrpc": "2.0", "id": 0, "method": method, "params": list(params)}
        async with self.session.post(self.rpc_url, json=body) as answer:
            response = json.loads(await answer.read())
        if not isinstance(response, dict):
            raise NodeRefused(f"The node answered {method} with something that is not JSON-RPC.", None)
        if "error" not in response:
            return response.get("result")
        error: object = response["error"]
        message, data = (error.get("message"), error.get("data")) if isinstance(error, dict) else (error, None)
        refusal = decode_refusal(data) if isinstance(data, str) else None
        raise NodeRefused(str(refusal or f"The node refused {method}: {message}."), refusal)

    async def _refused(self, transaction_hash: str) -> NodeRefused:
        """Why a mined transaction was reverted: the receipt does not say it, the trace of its calls does."""
        trace = await self.rpc("debug_traceTransaction", transaction_hash, {"tracer": "callTracer"})
        refusal = decode_refusal(trace.get("output"))
        return NodeRefused(
            str(refusal or f"Transaction {transaction_hash} was reverted: {trace.get('error')}."), refusal
        )

    async def _require_anvil(self) -> None:
        place = _without_secrets(self.rpc_url)
        try:
            version = str(await self.rpc("web3_clientVersion"))
        except (OSError, TimeoutError, ClientError, ValueError, RecursionError, NodeRefused) as bad:
            raise Temporary(
                f"No node answers at {place} ({type(bad).__name__}).",
                remedy="Check the address; `clara-eval devnet` starts a node and prints its own.",
            ) from bad
        if not version.lower().startswith("anvil/"):
            raise ConfigError(
                f"The node at {place} says it is {version[:80]!r}, not anvil.",
                remedy="This works on a local development chain only; `clara-eval devnet` starts one.",
            )


def _without_secrets(url: str) -> str:
    """Scheme and host only: paths and user names of node addresses often are keys."""
    try:
        parts = urlsplit(url)
    except ValueError:  # an open bracket
        return "the given address"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "the given address"


@cache
def _dev_key(index: int) -> str:
    return "0x" + bytes(key_from_seed(_dev_seed(), f"m/44'/60'/0'/0/{index}")).hex()


@cache
def _dev_seed() -> bytes:
    return seed_from_mnemonic(MNEMONIC, "")
