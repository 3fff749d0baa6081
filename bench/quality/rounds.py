"""Run whole rounds (three examples and a text challenge), read by a model and judged by rules."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.quality.truth import read_json, submissions

from clara_eval.actions.judge import JudgeRequest, judge_entries
from clara_eval.config.settings import Settings
from clara_eval.evaluation.folder import NamedContent
from clara_eval.judge.port import Answer, Llm, Prompt

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = Settings.from_env({}, env_file=None)
READ = [
    {"name": "has_loop", "type": "boolean", "better": "lower", "weight": 0.5,
     "description": "Whether it has a for or while loop."},
    {"name": "checks_input", "type": "boolean", "better": "higher", "weight": 0.5,
     "description": "Whether it refuses bad input with an error (throw, require, revert)."},
]  # fmt: skip
"""Features for the reader besides the executed ones, with weights that only break ties."""


@dataclass(frozen=True, slots=True)
class WholeRound:
    name: str
    config: dict[str, Any]
    entries: tuple[NamedContent, ...]
    winner: str = ""
    """The best entry by construction; if empty, the best by executed facts."""


class Shared:
    """A model that stays open after a round."""

    def __init__(self, llm: Llm) -> None:
        self._llm, self.name = llm, llm.name

    async def complete(self, prompt: Prompt) -> Answer:
        return await self._llm.complete(prompt)

    async def close(self) -> None:
        """Do nothing: the owner closes the model."""


def rounds() -> list[WholeRound]:
    return [
        _example("gas-golf", ("assembly.sol", "careless.sol")),
        _texts(),
        _example("rate-limiter", ("ring.js", "fixed_window.js")),
        _example("fee-curve", ("fixed.sol", "overflowing.sol")),
    ]


def _example(name: str, files: tuple[str, ...]) -> WholeRound:
    config = json.loads((EXAMPLES / name / "eval-config.json").read_text(encoding="utf-8"))
    config["features"] += READ
    harness = config["harness"]
    if harness.pop("hidden", False):  # a round without a chain has no commitment to reveal
        harness.pop("ifNotRevealed", None)
        harness["source"] = (EXAMPLES / name / "harness.hidden.js").read_text(encoding="utf-8")
    folder = EXAMPLES / name / "submissions"
    entries = tuple(NamedContent(Path(file).stem, (folder / file).read_bytes(), file) for file in files)
    return WholeRound(name, config, entries)


def _texts() -> WholeRound:
    config = read_json("schema.json")["text"] | {"judge": "rules", "submissionFormat": "text"}
    config["features"] = [feature for feature in config["features"] if "better" in feature]  # rules need a direction
    names = ("reentrancy/right", "reentrancy/wrong")
    entries = tuple(NamedContent(name.replace("/", "-"), submissions()[name].text.encode()) for name in names)
    return WholeRound("reentrancy (text)", config, entries, "reentrancy-right")


async def hold(one: WholeRound, llm: Llm, out: Path) -> dict[str, Any]:
    """Judge one round; its trace is in `out`."""
    name = llm.name
    request = JudgeRequest(one.entries, json.dumps(one.config).encode(), name, 1, None, one.name, {name: Shared(llm)})
    begun = time.monotonic()
    found = await judge_entries(request, SETTINGS, out)
    wanted = one.winner or await _by_rules(one, out / "executed")
    trace = json.loads((out / "trace.json").read_text(encoding="utf-8"))
    return {
        "part": "round",
        "variant": name,
        "item": one.name,
        "entries": len(one.entries),
        "order": [entry.id for entry in found.ranking],
        "wanted": wanted,
        "seconds": round(time.monotonic() - begun),
        "calls": len(set(_found(trace, "requests"))),
        "flags": sorted(_found(trace, "code")),
        "digest": found.digest,
    }


async def _by_rules(one: WholeRound, out: Path) -> str:
    """Return the best entry by executed facts, without a model."""
    features = [feature for feature in one.config["features"] if feature not in READ]
    config = json.dumps(one.config | {"features": features}).encode()
    found = await judge_entries(JudgeRequest(one.entries, config, "rules", 1), SETTINGS, out)
    return found.ranking[0].id


def _found(node: object, key: str) -> list[str]:
    """Return the codes of all flags, or the hashes of all requests, in a trace."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    found = [text for value in inner for text in _found(value, key)]
    if isinstance(node, dict) and key in node and (key == "requests" or "severity" in node):
        own = node[key]
        found += own if isinstance(own, list) else [own]
    return found
