"""The demo's round in which submissions are run: examples/gas-golf, with two entries that do not run.

An installed package has the files of the example beside this module.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from clara_eval.devnet.demo.round import Story

TITLE = "Gas golf: a token to many addresses in one call"
PROBLEM = (
    "Write a contract `Submission` with `send(address token, address[] to, uint256[] amounts)` that pays every address "
    "its amount, or nobody anything. The harness in the config runs it: twelve tests, and the gas of a batch of twenty."
)
EXAMPLE = "gas-golf"
OURS = frozenset({"endless", "untested"})
"""Not part of the example: one that never ends, and one that does not compile."""


def gas_golf() -> Story:
    ours, theirs = files("clara_eval.devnet.demo") / "entries", _example() / "submissions"
    order = ("plain", "assembly", "careless", "endless", "counting", "unchecked", "untested")
    texts = {name: _read(ours / f"{name}.sol.txt" if name in OURS else theirs / f"{name}.sol") for name in order}
    return Story(
        title=TITLE,
        problem=PROBLEM,
        config=_read(_example() / "eval-config.json"),
        skills=("solidity",),
        entries=tuple(texts.items()),
        copied="assembly",
    )


def _example() -> Traversable:
    """Beside this module in an installed package, under examples/ in a checkout."""
    installed = files("clara_eval.devnet.demo") / EXAMPLE
    return installed if installed.is_dir() else Path(__file__).parents[4] / "examples" / EXAMPLE


def _read(file: Traversable) -> str:
    return file.read_text(encoding="utf-8")
