"""By what a round was judged: the poster's criteria, the features with their weights, who judged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from clara_eval.config.eval_config.model import FeatureSchema
from clara_eval.store.ports import KeyedDocuments
from clara_eval.store.trace_archive import archived_trace, trace_part

_WANTED = ("plan", "metadata", "schema")
_MOST_PARTS = 3
"""Metadata can be as long as a part; the schema is then in the next one."""


@dataclass(frozen=True, slots=True)
class JudgingBasis:
    criteria: str
    judges: tuple[str, ...]
    schema: FeatureSchema
    config: dict[str, object]


async def read_judging(keys: KeyedDocuments, chain_id: int, address: str) -> JudgingBasis | None:
    """What the trace says before its first submission."""
    archived = await archived_trace(keys, chain_id, address)
    found: dict[str, object] = {}
    for part in range(min(archived.parts, _MOST_PARTS) if archived else 0):
        found |= _entries(await trace_part(keys, chain_id, address, part))
        if all(key in found for key in _WANTED):
            return _judging(found)
    return None


def _entries(text: str) -> dict[str, object]:
    """The bodies of the wanted entries in this part of a trace."""
    found: dict[str, object] = {}
    for line in text.splitlines():
        if any(f'"key":"{key}"' in line for key in _WANTED):
            entry = json.loads(line.removesuffix(","))["entry"]
            if entry["key"] in _WANTED:
                found[entry["key"]] = entry["body"]
    return found


def _judging(found: dict[str, Any]) -> JudgingBasis:
    config = json.loads(found["metadata"]["evalConfig"])
    return JudgingBasis(
        criteria=str(config.get("criteria", "")) if isinstance(config, dict) else "",
        judges=tuple(found["plan"]["judges"]),
        schema=FeatureSchema.from_json(found["schema"]),
        config=config if isinstance(config, dict) else {},
    )
