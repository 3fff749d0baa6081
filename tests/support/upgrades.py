"""Rounds in every stage, held there by the judge and the node, and kept as files with the chain that belongs to them.

`scripts/make_upgrades.py` makes a file with the service of an earlier commit; `tests/service/test_upgrades.py` starts
the present one on it.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import random
import re
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.chaos import CountingEndpoint
from tests.support.fake_endpoint import Seen
from tests.support.faulty_node import FaultyNode

from clara_eval.chain.model import scoring_function
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.anvil import Anvil, AnvilOptions, DevNode
from clara_eval.devnet.local_chain import DAY, HOUR, USDC, Deployment, Handed, LocalChain, PostedTerms

FILES = Path(__file__).parents[1] / "service" / "upgrades"
ACCOUNTS = 6
PORT = 8032
"""A judge's address is part of its name, so it is always this one."""
JUDGE = f"openai:scripted@http://127.0.0.1:{PORT}/v1"
SUBMISSIONS = 3
QUESTIONS = SUBMISSIONS + SUBMISSIONS * (SUBMISSIONS - 1)
"""About one round: each submission is read once, each pair compared in both orders."""
STAGES: dict[str, int] = {
    "review": QUESTIONS,
    "sent": QUESTIONS - 1,
    "lost": QUESTIONS - 1,
    "signed": QUESTIONS - 1,
    "comparing": SUBMISSIONS + 3,
    "compared": QUESTIONS - 1,
    "extracting": 1,
    "extracted": SUBMISSIONS,
    "read": 0,
    "queued": 0,
    "discovered": 0,
    "finalizing": QUESTIONS,
}
"""Where a round stands when its service is killed, with the answers that its judge had given. The most urgent is first.

`finalizing` and `sent` are mined, which the service has not seen; `lost` was taken by the node and forgotten; `signed`
was never sent.
"""

BEGUN = ("comparing", "compared", "extracting", "extracted", "read")
"""Of them those that wait for an answer."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a service that was killed left: its tables in SQL, and the chain."""

    commit: str
    deployment: dict[str, Any]
    rounds: dict[str, Address]
    answered: dict[str, int]
    store: str
    engine: str
    """The queue's own file; empty with Postgres, which has both in one database."""
    chain: dict[str, Any]

    def save(self, place: Path) -> None:
        place.write_bytes(lzma.compress(json.dumps(asdict(self), sort_keys=True).encode(), preset=9))

    @classmethod
    def read(cls, place: Path) -> Stopped:
        return cls(**json.loads(lzma.decompress(place.read_bytes())))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedOptions(AnvilOptions):
    state: Path

    def arguments(self) -> list[str]:
        return [*AnvilOptions.arguments(self), "--load-state", str(self.state)]


@asynccontextmanager
async def loaded_chain(stopped: Stopped, place: Path) -> AsyncIterator[LocalChain]:
    """The chain as it was, old states included."""
    state = place / "chain.json"
    await asyncio.to_thread(state.write_text, json.dumps(stopped.chain))
    begun = int(stopped.chain["block"]["timestamp"], 16)  # else the node begins at the real time, and cannot go back
    async with Anvil(LoadedOptions(accounts=ACCOUNTS, state=state, start_at=begun)) as anvil:
        node = await DevNode.connect(anvil.rpc_url)
        try:
            await node.move_to(await node.now() + 30)  # else new blocks would tell the real time
            yield LocalChain(node, Deployment(**stopped.deployment))
        finally:
            await node.aclose()


async def posts_by_round(chain: LocalChain, rounds: dict[str, Address]) -> Counter[str]:
    topic = chain.challenge(rounds["sent"]).abi.event("ScoresPosted").topic
    wanted = {"fromBlock": "0x0", "address": list(rounds.values()), "topics": [topic]}
    return Counter(log["address"] for log in await chain.node.rpc("eth_getLogs", wanted))


async def post_stage(chain: LocalChain, stage: str) -> Address:
    """A round that names its stage in everything the judge is shown."""
    place = list(STAGES).index(stage)
    features = [
        {"name": name, "type": "integer", "min": 0, "max": 1000, "better": "higher", "source": "llm"}
        for name in ("depth", "clarity")
    ]
    criteria = f"The deepest and clearest text of the round {stage} wins."
    config = json.dumps({"version": 1, "features": features, "criteria": criteria, "submissionFormat": "text"})
    uri = build_metadata(title=f"Round {stage}", problem_statement="Write.", skills=(), config_text=config)
    terms = PostedTerms(
        challenge_uri=uri, eval_config_hash=config_hash(config.encode()), payout_bps=(10000,),
        prize_pool=(5000 if stage == "review" else 100) * USDC,
        open_seconds=3 * DAY if stage == "discovered" else HOUR, scoring_seconds=7 * DAY + 60 * place,
    )  # fmt: skip
    address = await chain.post_challenge(terms)
    await chain.submit_all(address, [_text(chain, stage, number) for number in range(SUBMISSIONS)])
    return address


def _text(chain: LocalChain, stage: str, number: int) -> Handed:
    rng = random.Random(f"{stage} {number}")
    words = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven")
    lines = [" ".join(rng.choices(words, k=8)) for _ in range(8)]
    text = "\n".join([f"For the round {stage}.", *lines, f"depth: {100 + 10 * number}", f"clarity: {200 + 7 * number}"])
    uri = "data:text/plain;base64," + b64encode(text.encode()).decode()
    return Handed(chain.agents[number], uri, keccak_hex(text.encode()))


class HoldingJudge(CountingEndpoint):
    """Answers as many questions about a round as `allowed` says, and holds the others."""

    def __init__(self) -> None:
        super().__init__(latency=0.0)
        self.allowed: dict[str, int] = {}
        """By stage; a round that is not named is answered in full."""
        self.answered: Counter[str] = Counter()
        self.asked = 0
        self.held: Counter[str] = Counter()
        self.turn = self._turn

    @asynccontextmanager
    async def _turn(self, seen: Seen) -> AsyncIterator[None]:
        found = re.search(r"the round (\w+)", seen.text)
        stage = found[1] if found else ""
        self.asked += 1
        if self.answered[stage] >= self.allowed.get(stage, QUESTIONS * 9):
            self.held[stage] += 1
            while self.answered[stage] >= self.allowed.get(stage, QUESTIONS * 9):  # noqa: ASYNC110 - a number
                await asyncio.sleep(0.05)
            self.held[stage] -= 1
        self.answered[stage] += 1
        yield

    def is_held(self, stage: str) -> bool:
        return self.held[stage] > 0


@dataclass(slots=True)
class HoldingNode:
    """Tells which transactions arrive, and decides what becomes of them."""

    rounds: dict[str, Address]
    killed: Callable[[], None]
    arrived: set[str] = field(default_factory=set)

    def instead(self, call: dict[str, Any]) -> dict[str, Any] | None:
        stage = self._stage(call)
        if stage is None:
            return None
        self.arrived.add(stage)
        if stage in {"finalizing", "sent"}:
            return None
        if stage == "signed":
            self.killed()
            return {"error": {"code": -32603, "message": "it is gone"}}
        return {"result": keccak_hex(bytes.fromhex(call["params"][0][2:]))}

    def _stage(self, call: dict[str, Any]) -> str | None:
        """Which post or finalizing this sends, of those that are held."""
        if call["method"] != "eth_sendRawTransaction":
            return None
        names = {"sent": "postScores", "lost": "postScores", "signed": "postScores", "finalizing": "finalize"}
        for stage, function in names.items() if "sent" in self.rounds else ():
            selector = scoring_function(function).selector.hex()
            if self.rounds[stage][2:] in call["params"][0] and selector in call["params"][0]:
                return stage
        return None


@asynccontextmanager
async def holding_node(chain: LocalChain, holding: HoldingNode) -> AsyncIterator[FaultyNode]:
    async with FaultyNode(chain.rpc_url) as node:
        node.instead = holding.instead
        yield node
