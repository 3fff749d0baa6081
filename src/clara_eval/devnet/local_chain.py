"""A local anvil chain with every contract deployed, funded accounts and a movable clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address

from clara_eval.chain.contracts.abi import Abi, AbiItem, ContractName, artifact
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.anvil import Anvil, AnvilOptions, DevAccount, DevNode, MinedReceipt

USDC = 1_000_000  # Base units of one test dollar
HOUR = 3600
DAY = 24 * HOUR
ZERO_HASH = "0x" + "00" * 32

_POSTER_FUNDS = 1_000_000 * USDC
_UNLIMITED = 2**256 - 1


@dataclass(frozen=True, slots=True)
class Deployment:
    """Addresses of the contracts, and the first block with their events."""

    token: Address
    identity_registry: Address
    implementation: Address
    factory: Address
    from_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedTerms:
    """Terms of a posted challenge; `scoring_seconds` count from the deadline to the scoring deadline."""

    challenge_uri: str = "data:application/json,{}"
    eval_config_hash: str = ZERO_HASH
    private_set_hash: str = ZERO_HASH
    prize_pool: int = 1000 * USDC
    payout_bps: tuple[int, ...] = (6000, 3000, 1000)
    winner_count: int | None = None  # None is one winner per share
    open_seconds: int = DAY
    scoring_seconds: int = 7 * DAY
    max_participants: int = 0
    evaluator: Address | None = None  # None is the chain's evaluator; with the zero address only the poster can score.
    token: Address | None = None  # None is the test dollar
    skill_tags: tuple[str, ...] = ()


class DevContract:
    def __init__(self, node: DevNode, address: Address, items: Sequence[AbiItem]) -> None:
        self.node = node
        self.address = to_checksum_address(address)
        self.items = items
        self.abi = Abi(items)

    def encode_abi(self, name: str, args: Sequence[object] = ()) -> str:
        """Encode calldata; name an overloaded function by its signature."""
        function = self.abi.function(name)
        return "0x" + (function.selector + encode(function.types, args)).hex()

    async def read(self, name: str, *args: object) -> int:
        request = {"to": self.address, "data": self.encode_abi(name, args)}
        (found,) = self.abi.function(name).answer(await self.node.rpc("eth_call", request, "latest"))
        return int(str(found))

    def events_in(self, name: str, receipt: MinedReceipt) -> list[dict[str, object]]:
        event, address = self.abi.event(name), self.address.lower()
        entries = [log for log in receipt["logs"] if log["address"] == address]
        return [event.read(entry) for entry in entries if event.topic in str(entry["topics"])]


@dataclass(frozen=True, slots=True)
class Handed:
    """One submission; without a hash the hash of the URI is sent, as existing clients do."""

    agent: DevAccount
    solution_uri: str
    solution_hash: str | None = None

    def arguments(self, agent_id: int) -> list[object]:
        solution_hash = self.solution_hash or keccak_hex(self.solution_uri.encode())
        return [agent_id, self.solution_uri, _bytes32(solution_hash)]


class DevClock:
    def __init__(self, node: DevNode) -> None:
        self.node = node
        self.rpc_url = node.rpc_url
        self.agent_ids: dict[Address, int] = {}
        """Ids of the registered agents; a reorg or revert of their blocks clears them."""
        self._snapshots: dict[str, dict[Address, int]] = {}

    async def now(self) -> int:
        return await self.node.now()

    async def move_time(self, seconds: int) -> int:
        """Move the time forward in one block; return the new time."""
        return await self.node.move_to(await self.now() + seconds)

    async def move_to(self, timestamp: int) -> int:
        return await self.node.move_to(timestamp)

    async def mine(self, blocks: int = 1) -> None:
        await self.node.rpc("anvil_mine", blocks)

    async def snapshot(self) -> str:
        """Take a snapshot of the state, which `revert` can restore once."""
        number = str(await self.node.rpc("evm_snapshot"))
        self._snapshots[number] = dict(self.agent_ids)
        return number

    async def revert(self, snapshot: str) -> None:
        """Restore a snapshot, including blocks, balances and time."""
        if snapshot not in self._snapshots or not await self.node.rpc("evm_revert", snapshot):
            raise BadInput(f"Snapshot {snapshot!r} does not exist.", value=snapshot, remedy="Each serves only once.")
        self.agent_ids = self._snapshots.pop(snapshot)

    async def reorg(self, depth: int) -> None:
        """Replace the newest `depth` blocks by empty ones; their transactions are dropped."""
        await self.node.rpc("anvil_reorg", depth, [])
        self.agent_ids.clear()


class LocalChain(DevClock):
    """Deployed contracts and their users; created by `LocalChain.deploy` or `local_chain`."""

    def __init__(self, node: DevNode, deployment: Deployment) -> None:
        super().__init__(node)
        self.deployment = deployment
        self.owner, self.poster, self.evaluator, *agents = node.accounts
        self.agents = tuple(agents)  # All accounts but owner, poster and evaluator

    @classmethod
    async def deploy(cls, rpc_url: str) -> LocalChain:
        """Deploy all contracts, and give the poster test dollars with an allowance for the factory."""
        node = await DevNode.connect(rpc_url)
        try:
            first_block = await node.block_number() + 1
            token = await create(node, "TestUSDC")
            registry = await create(node, "IdentityRegistry")
            implementation = await create(node, "Challenge")
            factory = await create(node, "ChallengeFactory", implementation, registry)
            chain = cls(node, Deployment(token, registry, implementation, factory, from_block=first_block))
            await chain.fund(chain.poster, _POSTER_FUNDS)
        except BaseException:
            await node.aclose()
            raise
        return chain

    async def aclose(self) -> None:
        """Close the connection; the node keeps running."""
        await self.node.aclose()

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
        return await self.token.read("balanceOf", address)

    async def fund(self, account: DevAccount, amount: int) -> None:
        """Mint test dollars, and approve the factory to take them when the account posts a challenge."""
        await self.send(account, self.token, "mint", account.address, amount)
        await self.send(account, self.token, "approve", self.deployment.factory, _UNLIMITED)

    async def post_challenge(self, terms: PostedTerms | None = None, poster: DevAccount | None = None) -> Address:
        """Post a challenge and return its address. A poster other than the chain's own needs `fund` first."""
        params = create_params(self, terms or PostedTerms(), await self.now())
        receipt = await self.send(poster or self.poster, self.factory, "createChallenge", params)
        return to_address(str(self.factory.events_in("ChallengeCreated", receipt)[0]["challengeAddress"]))

    async def register(self, agent: DevAccount, agent_uri: str = "") -> int:
        """Register the agent unless it is registered, and return its id."""
        if agent.address not in self.agent_ids:
            receipt = await self.send(agent, self.registry, "register(string)", agent_uri)
            self.agent_ids[agent.address] = int(str(self.registry.events_in("Registered", receipt)[0]["agentId"]))
        return self.agent_ids[agent.address]

    async def submit(
        self, agent: DevAccount, challenge: Address, solution_uri: str, solution_hash: str | None = None
    ) -> MinedReceipt:
        return (await self.submit_all(challenge, [Handed(agent, solution_uri, solution_hash)]))[0]

    async def submit_all(self, challenge: Address, handed: Sequence[Handed]) -> list[MinedReceipt]:
        """Submit solutions in this order, each in its own block, at least a second apart."""
        calls = [(item, await self.register(item.agent)) for item in handed]
        target = self.challenge(challenge)
        await self.node.rpc("anvil_setBlockTimestampInterval", 1)
        try:
            return [await self.send(item.agent, target, "submit", *item.arguments(number)) for item, number in calls]
        finally:
            await self.node.rpc("anvil_removeBlockTimestampInterval")

    async def send(self, sender: DevAccount, contract: DevContract, name: str, *args: object) -> MinedReceipt:
        """Call a contract in a transaction and wait for its receipt; NodeRefused if it reverts."""
        return await self.send_data(sender, to_address(contract.address), contract.encode_abi(name, args))

    async def send_data(self, sender: DevAccount, to: Address, data: str) -> MinedReceipt:
        """Send given calldata, for example with bytes after the arguments."""
        return (await self.node.receipts([await self.node.post(sender, to, data)]))[0]


def create_params(chain: LocalChain, terms: PostedTerms, now: int) -> tuple[object, ...]:
    deadline = now + terms.open_seconds
    return (
        terms.token or chain.deployment.token,
        chain.evaluator.address if terms.evaluator is None else terms.evaluator,
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
    async with Anvil(options) as node, aclosing(await LocalChain.deploy(node.rpc_url)) as chain:
        yield chain


async def create(node: DevNode, name: ContractName, *args: object) -> Address:
    """Deploy a shipped contract from the node's first account; NodeRefused if its constructor reverts."""
    shipped = artifact(name)
    inputs = next((item.get("inputs", []) for item in shipped.abi if item["type"] == "constructor"), [])
    data = shipped.bytecode + encode([item["type"] for item in inputs], args).hex()
    receipt = (await node.receipts([await node.post(node.accounts[0], None, data)]))[0]
    return to_address(str(receipt["contractAddress"]))


def _bytes32(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
