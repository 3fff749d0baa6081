"""Read pairs that people decided, from JSON lines: the eval config, then one pair a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from clara_eval.config.eval_config import EvalConfig, FeatureSchema, compile_schema, parse_eval_config
from clara_eval.core.errors import BadInput
from clara_eval.judge.calibration_gate import work_hash
from clara_eval.judge.comparison import JudgeVector, make_vector

Side = Literal["first", "second", "tie"]
MOST_LABELS = 100_000


@dataclass(frozen=True, slots=True)
class Label:
    first: JudgeVector
    second: JudgeVector
    winner: Side
    lengths: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Labels:
    config: EvalConfig
    schema: FeatureSchema
    pairs: tuple[Label, ...]

    @property
    def work(self) -> str:
        """Hash the criteria and the schema."""
        return work_hash(self.config, self.schema)


def read_labels(text: str) -> Labels:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise BadInput("The labels are empty.", remedy='Begin with {"evalConfig": …}, then one pair a line.')
    if len(lines) > MOST_LABELS:
        raise BadInput(f"There are more than {MOST_LABELS} lines.", remedy="Draw a sample.")
    config = _config(_object(*lines[0]))
    schema, untyped = compile_schema(config)
    if untyped:
        raise BadInput(
            f"The config leaves the type of {', '.join(untyped)} to a model, so vectors cannot be read.",
            remedy="Type every feature; `clara-eval config rehearse --write` does it.",
        )
    pairs = tuple(_labels(lines[1:], schema))
    if not pairs:
        raise BadInput("The labels hold no pair.", remedy="Add lines with first, second and winner.")
    return Labels(config, schema, pairs)


def _config(head: dict[str, object]) -> EvalConfig:
    config = head.get("evalConfig")
    if not isinstance(config, dict | str):
        raise BadInput(
            "The first line of the labels holds no evalConfig.", remedy='Begin with {"evalConfig": {…the config…}}.'
        )
    return parse_eval_config((config if isinstance(config, str) else json.dumps(config)).encode())


def _labels(lines: list[tuple[int, str]], schema: FeatureSchema) -> Iterator[Label]:
    for number, line in lines:
        body = _object(number, line)
        winner = body.get("winner")
        if winner not in ("first", "second", "tie"):
            raise _wrong(number, f"winner is {winner!r}, not first, second or tie")
        yield Label(
            _vector(number, body, "first", schema),
            _vector(number, body, "second", schema),
            winner,
            _lengths(number, body),
        )


def _vector(number: int, body: dict[str, object], side: str, schema: FeatureSchema) -> JudgeVector:
    values = body.get(side)
    if not isinstance(values, dict):
        raise _wrong(number, f"{side} is not an object of feature values")
    unknown = sorted(set(values) - {feature.name for feature in schema.features})
    if unknown:
        raise _wrong(number, f"{side} has the feature {unknown[0]!r}, which the config does not name")
    try:
        return make_vector(schema, values)
    except BadInput as bad:
        raise _wrong(number, f"{side}: {bad.message}") from None


def _lengths(number: int, body: dict[str, object]) -> tuple[float, float] | None:
    found = body.get("lengths")
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != 2 or any(type(n) not in (int, float) or n < 0 for n in found):
        raise _wrong(number, "lengths is not a list of two numbers from 0 on")
    return float(found[0]), float(found[1])


def _object(number: int, line: str) -> dict[str, object]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise _wrong(number, "it is not JSON") from None
    if not isinstance(found, dict):
        raise _wrong(number, "it is not a JSON object")
    return found


def _wrong(number: int, reason: str) -> BadInput:
    return BadInput(f"Line {number} of the labels cannot be used: {reason}.", remedy="Correct or remove that line.")
