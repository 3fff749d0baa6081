"""Run anvil, an EVM node, as a child process; send transactions from its accounts, move its time.

Invariant: the node never outlives this process. A node that is not anvil is refused, so no real money is at risk.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypedDict

from aiohttp import ClientError, ClientSession

from clara_eval.chain.contracts.abi import ContractRefusal, decode_refusal
from clara_eval.chain.rpc import place_of
from clara_eval.core.accounts import key_from_seed, seed_from_mnemonic
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, ClaraError, ConfigError, Temporary

LOCAL_CHAIN_ID = 31337
MNEMONIC = "test test test test test test test test test test test junk"
"""Anvil's well-known development mnemonic; its keys are public."""

_MINED_SECONDS = 120  # Timeout per transaction, on a machine under load
_START_SECONDS = 30
_STOP_SECONDS = 5
_LISTENING = re.compile(rb"Listening on \S*?:(\d+)\s*$")
_PR_SET_PDEATHSIG = 1
_SCRIPTS = frozenset({".js", ".mjs", ".cjs", ".cmd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AnvilOptions:
    """Options of the node, which mines each transaction at once."""

    port: int = 0  # 0 lets the operating system choose
    accounts: int = 10  # Funded development accounts of `MNEMONIC`
    chain_id: int = LOCAL_CHAIN_ID
    first_block: int | None = None  # Number of the first block; None is 0
    start_at: int | None = None  # Timestamp of the first block; None is now
    states_in_memory: int | None = None
    """Newest states to keep, none on disk: in a reorg to a state on disk anvil 1.7.1 loses the code of clones."""

    def arguments(self) -> list[str]:
        given: dict[str, object | None] = {
            "--port": self.port,
            "--accounts": self.accounts,
            "--chain-id": self.chain_id,
            "--mnemonic": MNEMONIC,
            "--number": self.first_block,
            "--timestamp": self.start_at,
            "--prune-history": self.states_in_memory,
        }
        return [part for name, value in given.items() if value is not None for part in (name, str(value))]


class Anvil:
    def __init__(self, options: AnvilOptions | None = None) -> None:
        self.options = options or AnvilOptions()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._cache: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    @property
    def rpc_url(self) -> str:
        if self._port == 0:
            raise ConfigError("The local node is not running.", remedy="Use it inside `async with Anvil() as node:`.")
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        binary = find_anvil()
        self._cache = tempfile.TemporaryDirectory(prefix="clara-anvil-")
        self._process = await asyncio.create_subprocess_exec(
            str(binary),
            *self.options.arguments(),
            "--cache-path",
            self._cache.name,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only this process, which then stops the node
            preexec_fn=_die_with_parent(),
        )
        try:
            self._port = await asyncio.wait_for(self._listening_port(self._process), _START_SECONDS)
        except BaseException as bad:
            await self.stop()
            if isinstance(bad, TimeoutError):
                raise Temporary(f"The local node did not start within {_START_SECONDS} seconds.") from None
            raise
        self._reader = asyncio.create_task(_drain(self._process))

    async def stop(self) -> None:
        """Terminate the node; kill it after `_STOP_SECONDS`."""
        process, self._process, self._port = self._process, None, 0
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._reader is not None:
            await self._reader
            self._reader = None
        if self._cache is not None:
            self._cache.cleanup()
            self._cache = None

    async def ended(self) -> int:
        if self._process is None:
            raise ConfigError("The local node is not running.", remedy="Start it first.")
        return await self._process.wait()

    async def _listening_port(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        output: list[str] = []
        async for line in process.stdout:
            found = _LISTENING.search(line)
            if found:
                return int(found.group(1))
            output.append(line.decode(errors="replace").strip())
        reason = " ".join(output)[-300:] or f"exit code {await process.wait()}"
        remedy = f"Is port {self.options.port} free? Use another one, or 0." if self.options.port else ""
        raise ConfigError(f"The local node did not start: {reason}.", remedy=remedy)


def find_anvil(near: Iterable[Path] | None = None) -> Path:
    """Find the anvil binary in the nearest `node_modules` above these folders, else on the PATH.

    npm's wrapper script is not used: killing it would leave the node running.
    """
    on_path = shutil.which("anvil")
    wrapped = Path(on_path).resolve() if on_path else None
    starts = [*((Path(__file__).resolve().parent, Path.cwd()) if near is None else near)]
    machine = platform.machine().lower()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    package = Path("node_modules", "@foundry-rs", f"anvil-{sys.platform}-{machine}")
    for start in [*starts, wrapped] if wrapped else starts:
        for folder in (start, *start.parents):
            binary = folder / package / "bin" / ("anvil.exe" if sys.platform == "win32" else "anvil")
            if binary.is_file():
                return binary
    if on_path and wrapped and wrapped.suffix not in _SCRIPTS and ".bin" not in Path(on_path).parts:
        return Path(on_path)
    raise ConfigError("The local node (anvil) is not installed.", remedy=install_remedy(Path(__file__).parents[3]))


def install_remedy(project: Path) -> str:
    """Return the command that installs the node: make in a clone, else npm."""
    alone = "Run `npm install @foundry-rs/anvil`."
    is_clone = (project / "Makefile").is_file() and (project / "package.json").is_file()
    return f"Run `make setup` in {project}, or `npm install @foundry-rs/anvil`." if is_clone else alone


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function for the child that asks the kernel to kill it when its parent dies."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded before the fork: the child must not load anything
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the request was in place
            os._exit(1)

    return ask


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Discard the output of the node: a full pipe would block it."""
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass


class MinedReceipt(TypedDict):
    """The used fields of a receipt in the node's JSON."""

    transactionHash: str
    blockNumber: str
    blockHash: str
    gasUsed: str
    status: str
    contractAddress: str | None
    logs: list[dict[str, object]]


@dataclass(eq=False, repr=False, kw_only=True)
class NodeRefused(ClaraError):
    """A contract or the node refused; `refusal` is the decoded custom error, None if unknown."""

    refusal: ContractRefusal | None = None


@dataclass(frozen=True, slots=True)
class DevAccount:
    """A development account of the node. Its key is public: never send real money to it."""

    index: int
    address: Address

    @property
    def key(self) -> str:
        return _dev_key(self.index)


@dataclass(frozen=True, slots=True)
class DevNode:
    rpc_url: str
    session: ClientSession
    accounts: tuple[DevAccount, ...] = ()

    @classmethod
    async def connect(cls, rpc_url: str) -> DevNode:
        """Connect to a node; ConfigError if it is not anvil."""
        node = cls(rpc_url, ClientSession())
        try:
            await node._require_anvil()
            addresses = await node.rpc("eth_accounts")
        except BaseException:
            await node.aclose()
            raise
        accounts = tuple(DevAccount(number, to_address(text)) for number, text in enumerate(addresses))
        return replace(node, accounts=accounts)

    async def aclose(self) -> None:
        await self.session.close()

    async def post(self, sender: DevAccount, to: Address | None, data: str) -> str:
        """Send a transaction and return its hash; `receipts` raises if it was reverted."""
        transaction = {"from": sender.address, "data": data} | ({} if to is None else {"to": to})
        return str(await self.rpc("eth_sendTransaction", transaction))

    async def receipts(self, hashes: Sequence[str]) -> list[MinedReceipt]:
        return [await self._receipt(item) for item in hashes]

    async def _receipt(self, tx_hash: str) -> MinedReceipt:
        receipt: MinedReceipt | None = None
        async with asyncio.timeout(_MINED_SECONDS):
            while receipt is None:
                receipt = await self.rpc("eth_getTransactionReceipt", tx_hash)
                if receipt is None:
                    await asyncio.sleep(0.01)
        if receipt["status"] == "0x1":
            return receipt
        # The reason is not in the receipt but in the trace of the calls.
        trace = await self.rpc("debug_traceTransaction", tx_hash, {"tracer": "callTracer"})
        refusal = decode_refusal(trace.get("output"))
        message = str(refusal or f"Transaction {tx_hash} was reverted: {trace.get('error')}.")
        raise NodeRefused(message, refusal=refusal)

    async def now(self) -> int:
        """Return the time of the newest block."""
        return int((await self.rpc("eth_getBlockByNumber", "latest", False))["timestamp"], 16)

    async def block_number(self) -> int:
        return int(await self.rpc("eth_blockNumber"), 16)

    async def move_to(self, timestamp: int) -> int:
        """Mine a block at exactly this time, from which the clock continues; BadInput if it is past."""
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
        """Call a JSON-RPC method and return its result; NodeRefused if the node returns an error."""
        body = {"jsonrpc": "2.0", "id": 0, "method": method, "params": list(params)}
        async with self.session.post(self.rpc_url, json=body) as answer:
            response = json.loads(await answer.read())
        if not isinstance(response, dict):
            raise NodeRefused(f"The node answered {method} with something that is not JSON-RPC.")
        if "error" not in response:
            return response.get("result")
        error: object = response["error"]
        message, data = (error.get("message"), error.get("data")) if isinstance(error, dict) else (error, None)
        refusal = decode_refusal(data) if isinstance(data, str) else None
        raise NodeRefused(str(refusal or f"The node refused {method}: {message}."), refusal=refusal)

    async def _require_anvil(self) -> None:
        place = place_of(self.rpc_url) or "the given address"  # paths and user names in node URLs are often keys
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


@cache
def _dev_key(index: int) -> str:
    seed = seed_from_mnemonic(MNEMONIC, "")
    return "0x" + bytes(key_from_seed(seed, f"m/44'/60'/0'/0/{index}")).hex()
