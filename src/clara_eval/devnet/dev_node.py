"""What a person can do to a running anvil node: send transactions as its accounts, move its time, undo its blocks.

Comes in: the address of a node. Goes out: `DevNode`. Transactions are signed by the node with its public development
keys; a contract's refusal is raised as `NodeRefused`, in words. It refuses a chain that is not anvil: nothing here may
ever touch real money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientError
from eth_typing import HexStr
from hexbytes import HexBytes
from web3 import AsyncHTTPProvider, AsyncWeb3
from web3.exceptions import Web3Exception
from web3.types import RPCEndpoint, TxReceipt

from clara_eval.chain.accounts import key_from_seed, seed_from_mnemonic
from clara_eval.chain.contracts.refusals import ContractRefusal, decode_refusal
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, ClaraError, ConfigError, Temporary
from clara_eval.devnet.anvil import MNEMONIC


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
    web3: AsyncWeb3[Any]
    accounts: tuple[DevAccount, ...]

    @classmethod
    async def connect(cls, rpc_url: str) -> DevNode:
        """Connect, or refuse: what answers there must be anvil."""
        web3 = AsyncWeb3(AsyncHTTPProvider(rpc_url, exception_retry_configuration=None))
        try:
            await _require_anvil(web3, rpc_url)
            addresses = await web3.eth.accounts
        except BaseException:
            await web3.provider.disconnect()
            raise
        return cls(rpc_url, web3, tuple(DevAccount(n, to_address(text)) for n, text in enumerate(addresses)))

    async def close(self) -> None:
        """Let go of the connection; the node goes on."""
        await self.web3.provider.disconnect()

    async def post(self, sender: DevAccount, to: Address | None, data: str) -> str:
        """Hand in a transaction and return its hash; whether it was accepted is for `receipts` to say."""
        transaction = {"from": sender.address, "data": data} | ({} if to is None else {"to": to})
        return str(await self.rpc("eth_sendTransaction", transaction))

    async def receipts(self, hashes: Sequence[str]) -> list[TxReceipt]:
        """Wait until all are mined; raises `NodeRefused` if one was reverted."""
        receipts: list[TxReceipt] = await asyncio.gather(
            *(self.web3.eth.wait_for_transaction_receipt(HexStr(item), poll_latency=0.01) for item in hashes)
        )
        for receipt in receipts:
            if receipt["status"] != 1:
                raise await self._refused(receipt["transactionHash"].to_0x_hex())
        return receipts

    async def now(self) -> int:
        """The time of the newest block, which is the only time contracts know."""
        return int((await self.web3.eth.get_block("latest"))["timestamp"])

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
        """One call to the node, its error raised as `NodeRefused`."""
        response = await self.web3.provider.make_request(RPCEndpoint(method), list(params))
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


async def _require_anvil(web3: AsyncWeb3[Any], rpc_url: str) -> None:
    try:
        version = str(await web3.client_version)
    except (OSError, TimeoutError, ClientError, ValueError, RecursionError, Web3Exception) as bad:
        raise Temporary(
            f"No node answers at {_without_secrets(rpc_url)} ({type(bad).__name__}).",
            remedy="Check the address; `clara-eval devnet` starts a node and prints its own.",
        ) from bad
    if not version.lower().startswith("anvil/"):
        raise ConfigError(
            f"The node at {_without_secrets(rpc_url)} says it is {version[:80]!r}, not anvil.",
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
    return HexBytes(key_from_seed(_dev_seed(), f"m/44'/60'/0'/0/{index}")).to_0x_hex()


@cache
def _dev_seed() -> bytes:
    return seed_from_mnemonic(MNEMONIC, "")
