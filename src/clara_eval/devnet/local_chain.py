"""A local chain with every contract deployed, funded accounts, and a clock to move.

Everything is a real transaction on an anvil node; a contract's refusal is raised as `NodeRefused`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address

from clara_eval.chain.contracts import AbiItem, ContractName, artifact
from clara_eval.chain.contracts.abi import Abi
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.anvil import Anvil, AnvilOptions
from clara_eval.devnet.dev_node import DevAccount, DevNode, MinedReceipt

USDC = 1_000_000
"""Base units of one test dollar."""
HOUR = 3600
BASE_FEE = 10**9
DAY = 24 * HOUR
ZERO_HASH = "0x" + "00" * 32

_POSTER_FUNDS = 1_000_000 * USDC
_UNLIMITED = 2**256 - 1
_POOL = 50
"""Transactions that wait for their blocks together."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where the contracts stand, and the block from which their events start."""

    token: Address
    identity_registry: Address
    implementation: Address
    factory: Address
    from_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedTerms:
    """What a poster asks for. Times are seconds: until the deadline, and from there until the scoring deadline."""

    challenge_uri: str = "data:application/json,{}"
    eval_config_hash: str = ZERO_HASH
    private_set_hash: str = ZERO_HASH
    prize_pool: int = 1000 * USDC
    payout_bps: tuple[int, ...] = (6000, 3000, 1000)
    winner_count: int | None = None
    """None is one winner for each share."""
    open_seconds: int = DAY
    scoring_seconds: int = 7 * DAY
    max_participants: int = 0
    evaluator: Address | None = None
    """None is the chain's evaluator; the zero address leaves scoring to the poster alone."""
    token: Address | None = None
    """None is the test dollar."""
    skill_tags: tuple[str, ...] = ()


class DevContract:
    """A contract at an address, with the ABI that it speaks."""

    def __init__(self, node: DevNode, address: Address, items: Sequence[AbiItem]) -> None:
        self.node = node
        self.address = to_checksum_address(address)
        self.items = items
        self.abi = Abi(items)

    def encode_abi(self, name: str, args: Sequence[object] = ()) -> str:
        """Return calldata; an overloaded function is named by its signature."""
        function = self.abi.function(name)
        return "0x" + (function.selector + encode(function.types, args)).hex()

    async def read(self, name: str, *args: object) -> int:
        """Return the number that a getter answers at the newest block."""
        request = {"to": self.address, "data": self.encode_abi(name, args)}
        (found,) = self.abi.function(name).answer(await self.node.rpc("eth_call", request, "latest"))
        return int(str(found))

    def events_in(self, name: str, receipt: MinedReceipt) -> list[dict[str, object]]:
        """Return the values of this contract's events in a receipt."""
        event, place = self.abi.event(name), self.address.lower()
        entries = [log for log in receipt["logs"] if log["address"] == place]
        return [event.read(entry) for entry in entries if event.topic in str(entry["topics"])]


@dataclass(frozen=True, slots=True)
class Handed:
    """One submission: without a hash, the hash of the URI is sent, as existing clients do."""

    agent: DevAccount
    solution_uri: str
    solution_hash: str | None = None


@dataclass(slots=True)
class LocalChain:
    """The deployed world. Make one with `LocalChain.deploy` (on a running node) or `local_chain` (starts its own)."""

    node: DevNode
    deployment: Deployment
    _agent_ids: dict[Address, int] = field(default_factory=dict)
    _snapshots: dict[str, dict[Address, int]] = field(default_factory=dict)

    @classmethod
    async def deploy(cls, rpc_url: str) -> LocalChain:
        """Deploy all contracts on that node, and give the poster test dollars with an allowance for the factory."""
        node = await DevNode.connect(rpc_url)
        try:
            chain = cls(node, await _deploy_contracts(node))
            await chain.fund(chain.poster, _POSTER_FUNDS)
        except BaseException:
            await node.close()
            raise
        return chain

    async def close(self) -> None:
        """Let go of the connection; the node goes on."""
        await self.node.close()

    # -- who and what

    @property
    def rpc_url(self) -> str:
        return self.node.rpc_url

    @property
    def owner(self) -> DevAccount:
        """Deployer of the contracts and owner of the factory."""
        return self.node.accounts[0]

    @property
    def poster(self) -> DevAccount:
        return self.node.accounts[1]

    @property
    def evaluator(self) -> DevAccount:
        return self.node.accounts[2]

    @property
    def agents(self) -> tuple[DevAccount, ...]:
        """All other accounts; as many as the node was started with (`AnvilOptions.accounts`)."""
        return self.node.accounts[3:]

    @property
    def token(self) -> DevContract:
        return self.contract("TestUSDC", self.deployment.token)

    @property
    def registry(self) -> DevContract:
        return self.contract("IdentityRegistry", self.deployment.identity_registry)

    @property
    def factory(self) -> DevContract:
        return self.contract("ChallengeFactory", self.deployment.factory)

    def challenge(self, address: Address) -> DevContract:
        return self.contract("Challenge", address)

    def contract(self, name: ContractName, address: Address) -> DevContract:
        return DevContract(self.node, address, artifact(name).abi)

    async def balance(self, address: Address) -> int:
        """Base units of the test dollar."""
        return await self.token.read("balanceOf", address)

    # -- what people do

    async def fund(self, account: DevAccount, amount: int) -> None:
        """Give test dollars, and allow the factory to take them when the account posts a challenge."""
        await self.send(account, self.token, "mint", account.address, amount)
        await self.send(account, self.token, "approve", self.deployment.factory, _UNLIMITED)

    async def post_challenge(self, terms: PostedTerms | None = None, poster: DevAccount | None = None) -> Address:
        """Post a challenge and return its address. A poster other than the chain's own needs `fund` first."""
        params = self._create_params(terms or PostedTerms(), await self.now())
        receipt = await self.send(poster or self.poster, self.factory, "createChallenge", params)
        return to_address(str(self.factory.events_in("ChallengeCreated", receipt)[0]["challengeAddress"]))

    async def register(self, agent: DevAccount, agent_uri: str = "") -> int:
        """The agent's id in the identity registry, registered now if it is not yet."""
        await self._register_all([agent], agent_uri)
        return self._agent_ids[agent.address]

    async def submit(
        self, agent: DevAccount, challenge: Address, solution_uri: str, solution_hash: str | None = None
    ) -> MinedReceipt:
        """Submit one solution; the agent is registered first if needed."""
        return (await self.submit_all(challenge, [Handed(agent, solution_uri, solution_hash)]))[0]

    async def submit_all(self, challenge: Address, handed: Sequence[Handed]) -> list[MinedReceipt]:
        """Submit many solutions in this order, each in a block of its own and at least a second after the last."""
        await self._register_all([item.agent for item in handed])
        target = self.challenge(challenge)
        await self.node.rpc("anvil_setBlockTimestampInterval", 1)
        try:
            return [await self.send(item.agent, target, "submit", *self._submission(item)) for item in handed]
        finally:
            await self.node.rpc("anvil_removeBlockTimestampInterval")

    async def submit_together(self, challenge: Address, handed: Sequence[Handed]) -> list[MinedReceipt]:
        """The same in as few blocks as hold them: a node that keeps the state of every block grows slow with them."""
        await self._register_all([item.agent for item in handed])
        target = self.challenge(challenge)
        calls = [(item.agent, target.encode_abi("submit", args=self._submission(item))) for item in handed]
        return await self._send_together(challenge, calls)

    async def post_many(self, terms: PostedTerms, count: int) -> None:
        """So many challenges with the same terms, in as few blocks as hold them."""
        call = self.factory.encode_abi("createChallenge", args=[self._create_params(terms, await self.now())])
        for first in range(0, count, _POOL):
            calls = [(self.poster, call)] * min(_POOL, count - first)
            await self._send_together(self.deployment.factory, calls)

    async def _send_together(self, to: Address, calls: Sequence[tuple[DevAccount, str]]) -> list[MinedReceipt]:
        await self.node.rpc("evm_setAutomine", False)
        try:
            hashes = [await self.node.post(sender, to, call) for sender, call in calls]
            while int(str((await self.node.rpc("txpool_status"))["pending"]), 16):
                await self.node.rpc("anvil_setNextBlockBaseFeePerGas", hex(BASE_FEE))  # full blocks would raise it
                await self.mine(1)
            return await self.node.receipts(hashes)
        finally:
            await self.node.rpc("evm_setAutomine", True)

    async def send(self, sender: DevAccount, contract: DevContract, name: str, *args: object) -> MinedReceipt:
        """Call a contract's function in a transaction and wait for it; raises `NodeRefused`."""
        data = contract.encode_abi(name, args=list(args))
        return await self.send_data(sender, to_address(str(contract.address)), data)

    async def send_data(self, sender: DevAccount, to: Address, data: str) -> MinedReceipt:
        """The same with calldata made by the caller, for example with bytes after the arguments."""
        return (await self.node.receipts([await self.node.post(sender, to, data)]))[0]

    # -- time, blocks, history

    async def now(self) -> int:
        """The time of the newest block, which is the only time contracts know."""
        return await self.node.now()

    async def move_time(self, seconds: int) -> int:
        """Let that much time pass, in one block; returns the new time."""
        return await self.node.move_to(await self.now() + seconds)

    async def move_to(self, timestamp: int) -> int:
        """Mine a block at exactly that time; the clock goes on from there."""
        return await self.node.move_to(timestamp)

    async def mine(self, blocks: int = 1) -> None:
        await self.node.rpc("anvil_mine", blocks)

    async def snapshot(self) -> str:
        """Remember this state; `revert` brings it back, once."""
        number = str(await self.node.rpc("evm_snapshot"))
        self._snapshots[number] = dict(self._agent_ids)
        return number

    async def revert(self, snapshot: str) -> None:
        """Go back to a snapshot, blocks, balances and time included."""
        if snapshot not in self._snapshots or not await self.node.rpc("evm_revert", snapshot):
            raise BadInput(f"Snapshot {snapshot!r} does not exist.", value=snapshot, remedy="Each serves only once.")
        self._agent_ids = self._snapshots.pop(snapshot)

    async def reorg(self, depth: int) -> None:
        """Replace the newest `depth` blocks by empty ones: their transactions are gone."""
        await self.node.rpc("anvil_reorg", depth, [])
        self._agent_ids.clear()  # a registration may be among what is gone

    # -- inside

    async def _register_all(self, agents: Iterable[DevAccount], agent_uri: str = "") -> None:
        missing = {agent.address: agent for agent in agents if agent.address not in self._agent_ids}
        registry = self.registry
        call = registry.encode_abi("register(string)", args=[agent_uri])
        target = self.deployment.identity_registry
        hashes = [await self.node.post(agent, target, call) for agent in missing.values()]
        for address, receipt in zip(missing, await self.node.receipts(hashes), strict=True):
            self._agent_ids[address] = int(str(registry.events_in("Registered", receipt)[0]["agentId"]))

    def _submission(self, item: Handed) -> list[object]:
        solution_hash = item.solution_hash or keccak_hex(item.solution_uri.encode())
        return [self._agent_ids[item.agent.address], item.solution_uri, _bytes32(solution_hash)]

    def _create_params(self, terms: PostedTerms, now: int) -> tuple[object, ...]:
        evaluator = self.evaluator.address if terms.evaluator is None else terms.evaluator
        deadline = now + terms.open_seconds
        return (
            terms.token or self.deployment.token,
            evaluator,
            terms.prize_pool,
            deadline,
            deadline + terms.scoring_seconds,
            terms.challenge_uri,
            _bytes32(terms.eval_config_hash),
            _bytes32(terms.private_set_hash),
            len(terms.payout_bps) if terms.winner_count is None else terms.winner_count,
            list(terms.payout_bps),
            terms.max_participants,
            list(terms.skill_tags),
        )


@asynccontextmanager
async def local_chain(options: AnvilOptions | None = None) -> AsyncIterator[LocalChain]:
    """Start a node, deploy everything, and end the node on leaving."""
    async with Anvil(options) as node:
        chain = await LocalChain.deploy(node.rpc_url)
        try:
            yield chain
        finally:
            await chain.close()


async def create(node: DevNode, name: ContractName, *args: object) -> Address:
    """Deploy one shipped contract as the node's first account; raises `NodeRefused` if its constructor does."""
    shipped = artifact(name)
    inputs = next((item.get("inputs", []) for item in shipped.abi if item["type"] == "constructor"), [])
    data = shipped.bytecode + encode([item["type"] for item in inputs], args).hex()
    receipt = (await node.receipts([await node.post(node.accounts[0], None, data)]))[0]
    return to_address(str(receipt["contractAddress"]))


async def _deploy_contracts(node: DevNode) -> Deployment:
    first_block = await node.block_number() + 1
    token = await create(node, "TestUSDC")
    registry = await create(node, "IdentityRegistry")
    implementation = await create(node, "Challenge")
    factory = await create(node, "ChallengeFactory", implementation, registry)
    return Deployment(token, registry, implementation, factory, from_block=first_block)


def _bytes32(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
