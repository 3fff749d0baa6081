"""Starter configs for posters: each one is valid, free of warnings, and explains itself in its descriptions.

JSON has no comments, so what a poster should know stands in `description`.
"""

from __future__ import annotations

import json
from typing import Any

_PARSES = {
    "name": "parses",
    "type": "boolean",
    "better": "higher",
    "weight": 5,
    "source": "measured",
    "description": "Measured by a tool: the code has no syntax error. Measured features cannot be talked up.",
}
_COMPLEXITY = {
    "name": "max_complexity",
    "type": "integer",
    "min": 0,
    "max": 100,
    "better": "lower",
    "weight": 1,
    "source": "measured",
    "description": "Measured by a tool: cyclomatic complexity of the worst function.",
}
_SUMMARY = {
    "name": "summary",
    "type": "text",
    "description": "One sentence on the approach, for people. Texts never reach the judge.",
}


def _level(name: str, weight: float, description: str, anchors: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "type": "integer",
        "min": 0,
        "max": len(anchors) - 1,
        "better": "higher",
        "weight": weight,
        "description": description,
        "anchors": anchors,
    }


TEMPLATES: dict[str, dict[str, Any]] = {
    "code": {
        "version": 1,
        "features": [
            _PARSES,
            _level(
                "code_correctness",
                5,
                "Whether the code computes what the task asks for.",
                [
                    "wrong for ordinary inputs",
                    "right for some ordinary inputs",
                    "right for ordinary inputs, wrong for several edge cases",
                    "right for ordinary inputs and most edge cases",
                    "no wrong result found",
                ],
            ),
            {
                "name": "time_complexity",
                "type": "enum",
                "values": ["exponential", "cubic", "quadratic", "linearithmic", "linear", "logarithmic", "constant"],
                "better": "higher",
                "weight": 2,
                "description": "Worst case. The order of the values counts: with better = higher, later is better.",
            },
            {
                "name": "has_tests",
                "type": "boolean",
                "better": "higher",
                "weight": 1,
                "description": "Tests are part of the submission.",
            },
            _COMPLEXITY,
            _SUMMARY,
        ],
        "criteria": (
            "The best solution gives right results for every input, edge cases included. Among correct solutions "
            "prefer the one that needs less work for large inputs, then the one that is simpler to read and comes "
            "with tests. Penalize placeholders and answers that only fit the examples."
        ),
        "submissionFormat": "code",
        "language": "python",
    },
    "text": {
        "version": 1,
        "features": [
            _level(
                "relevance",
                4,
                "How closely the text answers the task.",
                ["off the task", "touches the task", "answers a part", "answers the whole", "answers it precisely"],
            ),
            _level(
                "evidence_quality",
                3,
                "How well statements are supported inside the text.",
                ["none", "assertions only", "some examples", "most points supported", "every point supported"],
            ),
            _level(
                "clarity",
                2,
                "How clearly it is expressed.",
                ["cannot be followed", "hard to follow", "followed with effort", "clear", "clear at first reading"],
            ),
            {
                "name": "words",
                "type": "integer",
                "min": 0,
                "max": 20000,
                "source": "measured",
                "weight": 0.5,
                "description": "Measured by a tool. Neither end is better in itself: the criteria decide.",
            },
            _SUMMARY,
        ],
        "criteria": (
            "The best text answers the task completely and supports what it states. Among such texts prefer the "
            "clearer one. Length is no merit: penalize repetition and padding."
        ),
        "submissionFormat": "text",
    },
    "amm": {
        "version": 1,
        "features": [
            _PARSES,
            {
                "name": "algorithm_approach",
                "type": "enum",
                "values": ["fixed_fee", "tiered", "volatility_based", "inventory_based", "combined", "other"],
                "weight": 2,
                "description": "The kind of fee model. No end is better in itself: the criteria decide.",
            },
            _level(
                "mathematical_correctness",
                5,
                "Whether the fee model holds: bounds, rounding, conservation of value.",
                [
                    "value can be drained",
                    "wrong for ordinary trades",
                    "right for ordinary trades, wrong at the bounds",
                    "right, with small rounding losses",
                    "right everywhere, rounding in favour of the pool",
                ],
            ),
            _level(
                "gas_efficiency_estimate",
                3,
                "Estimated gas of one swap.",
                [
                    "storage written in loops",
                    "several avoidable storage accesses",
                    "about the usual implementation",
                    "storage packed or cached",
                    "close to the least possible",
                ],
            ),
            _level(
                "novelty",
                1,
                "How far the model goes beyond constant-product formulas.",
                [
                    "a fixed fee",
                    "a textbook model",
                    "a variation of it",
                    "an unusual use of a known idea",
                    "a new kind",
                ],
            ),
            _COMPLEXITY,
        ],
        "criteria": (
            "Evaluate AMM fee curves. The ideal solution minimizes slippage while maximizing volume. Prioritize (1) "
            "mathematical correctness of the fee model, (2) gas efficiency on the EVM, (3) approaches that go beyond "
            "constant-product formulas. Penalize a fixed fee, and correctness given up for gas."
        ),
        "submissionFormat": "code",
        "language": "solidity",
    },
}


def template_text(name: str) -> str:
    """The starter config as the text of a file."""
    return json.dumps(TEMPLATES[name], indent=2, ensure_ascii=False) + "\n"
