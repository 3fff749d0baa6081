"""Post a round with ten submissions: seven of varied quality, a copy, a wrong hash, a binary file."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.local_chain import HOUR, USDC, Handed, LocalChain, PostedTerms
from clara_eval.submissions.copies import CONTESTED_SECONDS

TITLE = "Sliding-window rate limiter in Python"
PROBLEM = (
    "Write a rate limiter that allows at most N events per key in any window of W seconds. "
    "Memory must stay bounded; the code will be read and maintained by others."
)
_ENTRIES = files("clara_eval.devnet.demo") / "entries"
CONFIG: dict[str, object] = json.loads((_ENTRIES / "rate-limiter.eval-config.json").read_text(encoding="utf-8"))
POOL = 500 * USDC
PAYOUT_BPS = (6000, 2500, 1500)
COPIED_AFTER_SECONDS = 2 * CONTESTED_SECONDS  # Delay before the copy: long enough to decide who was first


@dataclass(frozen=True, slots=True)
class Story:
    """The text of a challenge and its submissions."""

    title: str
    problem: str
    config: str
    skills: tuple[str, ...]
    entries: tuple[tuple[str, str], ...]
    """Name and source of each submission, in an order that is not the order of merit."""
    copied: str  # Name of the entry that another agent submits again unchanged


@dataclass(frozen=True, slots=True)
class DemoRound:
    address: Address
    names: dict[Address, str]


def data_uri(content: bytes, media_type: str = "text/x-python") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def entry(name: str) -> str:
    return (_ENTRIES / f"{name}.py.txt").read_text(encoding="utf-8")


def rate_limiter() -> Story:
    """Return a round that needs no engine: its features are measured in the source."""
    order = ("token_bucket", "nested_flags", "deque_window", "list_filter", "ring_buffer", "unfinished", "sliding_log")
    return Story(
        title=TITLE,
        problem=PROBLEM,
        config=json.dumps(CONFIG, indent=1),
        skills=("python",),
        entries=tuple((name, entry(name)) for name in order),
        copied="deque_window",
    )


def explanation() -> Story:
    """Return a round of prose: its features measure readability."""
    texts = (_ENTRIES / "partition.txt").read_text(encoding="utf-8").split("---\n")
    names = ("two shops", "formal", "two choices", "slogans", "two cities", "unfinished", "each button")
    return Story(
        title="Explain a network partition to a product manager",
        problem="In at most 100 words: what happens when servers cannot reach each other, and what we have to decide.",
        config=(_ENTRIES / "partition.eval-config.json").read_text(encoding="utf-8"),
        skills=("writing",),
        entries=tuple(zip(names, texts, strict=True)),
        copied="two choices",
    )


def gas_golf() -> Story:
    """Return the round that runs its submissions: examples/gas-golf with two entries that fail."""
    example = files("clara_eval.devnet.demo") / "gas-golf"  # beside this module in an installed package
    if not example.is_dir():
        example = Path(__file__).parents[4] / "examples" / "gas-golf"
    order = ("plain", "assembly", "careless", "endless", "counting", "unchecked", "untested")
    paths = {name: example / "submissions" / f"{name}.sol" for name in order}
    for name in ("endless", "untested"):
        paths[name] = _ENTRIES / f"{name}.sol.txt"
    return Story(
        title="Gas golf: a token to many addresses in one call",
        problem="Write a contract `Submission` with `send(address token, address[] to, uint256[] amounts)` that pays "
        "every address its amount, or nobody anything. The harness in the config runs it: twelve tests, and the gas of "
        "a batch of twenty.",
        config=(example / "eval-config.json").read_text(encoding="utf-8"),
        skills=("solidity",),
        entries=tuple((name, path.read_text(encoding="utf-8")) for name, path in paths.items()),
        copied="assembly",
    )


async def post_round(
    chain: LocalChain,
    *,
    pool: int = POOL,
    open_seconds: int = HOUR,
    story: Story | None = None,
    evaluator: Address | None = None,
    committed: str | None = None,
) -> Address:
    """Post the challenge; `evaluator` defaults to the chain's, `committed` to the hash of the config."""
    story = story or rate_limiter()
    metadata = build_metadata(
        title=story.title, problem_statement=story.problem, skills=story.skills, config_text=story.config
    )
    return await chain.post_challenge(
        PostedTerms(
            challenge_uri=metadata,
            eval_config_hash=committed or config_hash(story.config.encode()),
            prize_pool=pool,
            payout_bps=PAYOUT_BPS,
            open_seconds=open_seconds,
            skill_tags=story.skills,
            evaluator=evaluator,
        )
    )


async def submit_entries(chain: LocalChain, address: Address, story: Story, most: int | None = None) -> None:
    """Submit the entries without moving the clock of the chain."""
    sources = [source.encode() for _, source in story.entries[:most]]
    pairs = zip(chain.agents, sources, strict=False)
    await chain.submit_all(address, [Handed(agent, data_uri(text), keccak_hex(text)) for agent, text in pairs])


async def submit_round(chain: LocalChain, address: Address, story: Story | None = None) -> DemoRound:
    """Submit the entries, and minutes later a copy, a wrong hash and a binary file."""
    story = story or rate_limiter()
    pieces: list[tuple[str, bytes, str | None]] = [(name, source.encode(), None) for name, source in story.entries]
    copy = dict(story.entries)[story.copied].encode()
    pieces += [(f"copy of {story.copied}", copy, None), ("wrong hash", pieces[0][1], keccak_hex(b"other bytes"))]
    handed = [
        Handed(agent, data_uri(content), wrong or keccak_hex(content))
        for agent, (_, content, wrong) in zip(chain.agents, pieces, strict=False)
    ]
    not_text = Handed(chain.agents[len(pieces)], data_uri(b"\x89PNG\r\n\x1a\n" + bytes(range(256))), None)
    await chain.submit_all(address, handed[: len(story.entries)])
    await chain.move_time(COPIED_AFTER_SECONDS)
    await chain.submit_all(address, [*handed[len(story.entries) :], not_text])
    labels = {item.agent.address: name for item, (name, _, _) in zip(handed, pieces, strict=True)}
    return DemoRound(address, labels | {not_text.agent.address: "not text"})
