"""Stage 1: from one submission to its typed facts, each submission alone.

What tools can measure is measured. What only a model can tell is asked of it; without a model such a schema is refused
before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from clara_eval.errors import ConfigError
from clara_eval.eval_config import FeatureSchema
from clara_eval.features.features import Features, settle_facts
from clara_eval.features.measured import measure
from clara_eval.judge.port import Asker
from clara_eval.judge.vector import Value
from clara_eval.solutions import Solution


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reading is about, for nonces that nobody can foresee before the deadline."""

    challenge: str
    block_hash: str
    language: str | None


async def extract_features(
    asker: Asker | None, schema: FeatureSchema, solution: Solution, reading: Reading
) -> Features:
    claimed_names = [feature.name for feature in schema.features if feature.source == "llm"]
    if claimed_names and asker is None:
        raise ConfigError(
            f"The features {', '.join(claimed_names)} need a language model, and CLARA_JUDGES names none.",
            remedy="Set CLARA_JUDGES to a model, or use features with source measured.",
        )
    measured: dict[str, Value] = dict(measure(solution.text, reading.language or solution.language))
    vector, flags = settle_facts(schema, measured, {})
    return Features(vector, {}, {f.name: measured.get(f.name) for f in schema.features if f.name in measured}, {}, flags)
