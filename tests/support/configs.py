"""Eval configs to test with: the example of the specification, and variations of a small one.

`config_text` gives the text of a valid config with some keys changed; the value `...` leaves a key out.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from clara_eval.config.eval_config import ConfigProblem, collect_problems

CRITERIA = "The best solution is correct for all inputs; among correct ones prefer the cheaper one."
APPENDIX = (files("tests.support") / "data" / "specification-config.json").read_text(encoding="utf-8")
"""The example config of the specification, as it stands there."""


def config_text(**changes: Any) -> str:
    document = {"version": 1, "features": ["novelty"], "criteria": CRITERIA, **changes}
    return json.dumps({key: value for key, value in document.items() if value is not ...})


def errors(text: str | bytes) -> list[ConfigProblem]:
    return [problem for problem in collect_problems(text) if problem.severity == "error"]
