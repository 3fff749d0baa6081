"""Let judges compare pairs and groups of four with a known order, by vectors or full text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from bench.quality.answers import KeptAnswers
from bench.quality.truth import HERE, Submission, programs, read_json, submissions

from clara_eval.config.eval_config import FeatureSchema, compile_schema, parse_eval_config
from clara_eval.evaluation.features.measured import measure
from clara_eval.judge.comparison import (
    JudgeVector,
    VectorPrompts,
    make_vector,
    read_order,
    read_verdict,
)
from clara_eval.judge.port import Prompt
from clara_eval.judge.reading import escaped, prompt_view, template
from clara_eval.judge.structured_llm import StructuredLlm

CRITERIA = (
    "The solution that passes more tests is better. If both pass as many, the one that uses less gas is "
    "better, if that is known; else the less complex one. If all of this is equal it is a tie."
)
CONFIG = {
    "version": 1,
    "features": [
        {"name": "tests_passed", "type": "number", "min": 0, "max": 1, "better": "higher",
         "description": "The share of the tests that it passes."},
        {"name": "gas", "type": "integer", "min": 0, "max": 1000000, "better": "lower",
         "description": "What one call costs, where that was measured."},
        {"name": "complexity", "type": "integer", "min": 0, "max": 50, "better": "lower",
         "description": "The number of paths through its most complex function."},
    ],
    "criteria": CRITERIA,
}  # fmt: skip
GROUPS = 30


@dataclass(frozen=True, slots=True)
class Pair:
    better: Submission
    worse: Submission

    @property
    def name(self) -> str:
        return f"{self.better.name} > {self.worse.name}"


@cache
def schema() -> FeatureSchema:
    return compile_schema(parse_eval_config(json.dumps(CONFIG).encode()))[0]


@cache
def vector(name: str) -> JudgeVector:
    """Return the vector of a program from its runs and measurements; truth.py writes executed.json."""
    one = programs()[name]
    passed, asked, gas = read_json("executed.json")[name]
    complexity = measure(one.text, one.language)["max_complexity"]
    return make_vector(schema(), {"tests_passed": passed / asked, "gas": gas, "complexity": complexity})


def merit(name: str) -> tuple[float, float, float]:
    values = vector(name).as_dict()
    passed, gas, complexity = (float(values[key] or 0) for key in ("tests_passed", "gas", "complexity"))
    return passed, -gas, -complexity


def pairs() -> list[Pair]:
    """Return all pairs within a task whose merits differ, taking the tasks in turn."""
    found: list[Pair] = []
    for one, other in combinations(programs().values(), 2):
        if one.task == other.task and merit(one.name) != merit(other.name):
            better, worse = (one, other) if merit(one.name) > merit(other.name) else (other, one)
            found.append(Pair(better, worse))
    place = {pair.name: [p.name for p in found if p.better.task == pair.better.task].index(pair.name) for pair in found}
    return sorted(found, key=lambda pair: place[pair.name])


def groups() -> list[tuple[str, ...]]:
    """Return groups of four programs with different vectors; only their facts are compared."""
    distinct: dict[JudgeVector, str] = {}
    for name, one in submissions().items():
        if one.language in ("python", "javascript"):
            distinct.setdefault(vector(name), name)
    names = list(distinct.values())
    found = []
    for step in range(1, len(names)):
        for start in range(0, len(names), 4):
            group = tuple(names[(start + step * n) % len(names)] for n in range(4))
            if len(set(group)) == 4 and group not in found:
                found.append(group)
    return found[:GROUPS]


def pair_prompt(first: Submission, second: Submission, *, whole: bool) -> Prompt:
    """Return the prompt of the product for two vectors; if `whole`, one for two texts."""
    asked = VectorPrompts("compare", CRITERIA, schema()).prompt((vector(first.name), vector(second.name)))
    if not whole:
        return asked
    first_text, second_text = (escaped(prompt_view(one.text).text) for one in (first, second))
    return replace(asked, user=template("compare.user").fill(first=first_text, second=second_text))


async def compare(judge: KeptAnswers, pair: Pair, *, whole: bool) -> dict[str, Any]:
    """Ask in both orders, and record which side won."""
    said = []
    for first, second in ((pair.better, pair.worse), (pair.worse, pair.better)):
        asked = await StructuredLlm(judge).ask(pair_prompt(first, second, whole=whole), read_verdict)
        said.append(asked.value.winner if asked.value else None)
    return {"part": "judge", "variant": f"{judge.name} {'text' if whole else 'facts'}", "item": pair.name, "said": said}


async def order(judge: KeptAnswers, names: Sequence[str]) -> dict[str, Any]:
    """Ask for the order of four, and for the six pairs among them."""
    asked = VectorPrompts("order", CRITERIA, schema()).prompt([vector(name) for name in names])
    found = await StructuredLlm(judge).ask(asked, read_order)
    known = submissions()
    verdicts = []
    for one, other in combinations(names, 2):
        answer = await StructuredLlm(judge).ask(pair_prompt(known[one], known[other], whole=False), read_verdict)
        verdicts.append(answer.value.winner if answer.value else None)
    return {
        "part": "four",
        "variant": judge.name,
        "item": " ".join(names),
        "order": list(found.value.best_first) if found.value else None,
        "said": verdicts,
        "merit": [merit(name) for name in names],
    }


def calibration_labels() -> str:
    """Return pairs in the format of `clara-eval calibrate`; in every second one the better is second."""
    lines: list[dict[str, object]] = [{"evalConfig": CONFIG}]
    for number, pair in enumerate(pairs()):
        sides = [vector(one.name).as_dict() for one in (pair.better, pair.worse)]
        first, second = sides if number % 2 == 0 else reversed(sides)
        lines.append({"first": first, "second": second, "winner": ("first", "second")[number % 2]})
    return "".join(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    (HERE / "pairs.jsonl").write_text(calibration_labels(), encoding="utf-8")
