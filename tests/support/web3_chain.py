"""The local chain through web3, which tests use as a client of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

from eth_typing import HexStr
from eth_utils.address import to_checksum_address
from web3 import AsyncHTTPProvider, AsyncWeb3
from web3.contract import AsyncContract
from web3.types import TxReceipt

from clara_eval.devnet.anvil import MinedReceipt
from clara_eval.devnet.local_chain import DevContract, LocalChain


@cache
def _connected(rpc_url: str) -> AsyncWeb3[Any]:
    return AsyncWeb3(AsyncHTTPProvider(rpc_url, exception_retry_configuration=None))


def web3_of(chain: LocalChain) -> AsyncWeb3[Any]:
    return _connected(chain.rpc_url)


def as_web3(contract: DevContract) -> AsyncContract:
    return _connected(contract.node.rpc_url).eth.contract(
        address=to_checksum_address(contract.address), abi=contract.items
    )


async def web3_receipt(chain: LocalChain, receipt: MinedReceipt) -> TxReceipt:
    """Read a receipt again, with web3's types."""
    return await web3_of(chain).eth.get_transaction_receipt(HexStr(receipt["transactionHash"]))
