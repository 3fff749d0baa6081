"""Starter configs for posters, from `starters/`: each is valid and free of warnings."""

from __future__ import annotations

import json
from importlib import resources

KINDS = {
    "measured": "Code, judged by what tools measure: no model, no cost, nothing can be talked up.",
    "gas": "Solidity, run under your own tests: correctness first, then gas. No model.",
    "code": "Code that a model reads for correctness, beside what tools measure.",
    "text": "Writing: relevance, evidence and clarity, read by a model.",
    "amm": "An AMM's fee curve in Solidity: mathematics, gas and novelty, read by a model.",
}
"""The kinds of challenges with a starter config, and a sentence to choose by."""
NAMES = tuple(KINDS)


def template_text(name: str) -> str:
    """The starter config as the text of a file."""
    return resources.files(__package__).joinpath("starters", f"{name}.json").read_text("utf-8")


TEMPLATES: dict[str, dict[str, object]] = {name: json.loads(template_text(name)) for name in NAMES}
