"""The simulated models of `redteam.simulators`, under the name by which tests know them, and those of tests alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.judge.comparison import RulesJudge, make_vector
from clara_eval.judge.port import Prompt
from clara_eval.redteam.simulators import (
    COMPROMISES,
    FAULTS,
    Fault,
    FaultyProvider,
    MemoryAsker,
    Property,
    ScriptedLlm,
    Task,
    answer_of,
    bounds,
    capacity_bits,
    compromised_extractor,
    gullible_judge,
    honest_reader,
    in_memory,
    obedient_reader,
    shown_vectors,
    some_value,
    verdict_text,
)

__all__ = [
    "COMPROMISES",
    "FAULTS",
    "Fault",
    "FaultyProvider",
    "MemoryAsker",
    "ScriptedLlm",
    "Task",
    "answer_of",
    "bounds",
    "capacity_bits",
    "compromised_extractor",
    "covert_extractor",
    "gullible_judge",
    "honest_reader",
    "in_memory",
    "noisy_judge",
    "obedient_reader",
    "shown_vectors",
    "some_value",
    "verdict_text",
]


def noisy_judge(schema: FeatureSchema, *, seed: int, noise: float = 0.0, bias: float = 0.0) -> Callable[[Prompt], str]:
    """M4: judges the facts with seeded noise on the merits, and adds `bias` to whoever is shown as A."""
    rules = RulesJudge(schema)

    def answer(prompt: Prompt) -> str:
        first, second = (rules.merit(make_vector(schema, values)) for values in shown_vectors(prompt))
        digest = hashlib.sha256(f"{seed}\0{prompt.user}".encode()).digest()
        gap = first - second + bias + noise * (int.from_bytes(digest[:8], "big") / 2**63 - 1)
        return verdict_text("tie" if gap == 0 else "A" if gap > 0 else "B", min(1.0, 0.5 + abs(gap)))

    return answer


def covert_extractor(message: bytes) -> Callable[[Prompt], str]:
    """M6: hides a message in the digits and choices of an answer that is legal in every field."""

    def answer(prompt: Prompt) -> str:
        left = int.from_bytes(message, "big")

        def hide(_: str, kind: Property) -> object:
            nonlocal left
            choices: Sequence[object] = kind.get("enum") or (
                [False, True] if kind["type"] == "boolean" else range(10**9)
            )
            left, chosen = divmod(left, len(choices))
            low, high = bounds(kind)
            if kind["type"] == "number":
                return low + (high - low) * chosen / 10**9
            return int(low) + chosen % int(high - low + 1) if kind["type"] == "integer" else choices[chosen]

        return json.dumps(Task.of(prompt).answer(hide))

    return answer
