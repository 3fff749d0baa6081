"""The metadata behind `challengeURI`; a config whose hash is not the committed one is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Literal

from clara_eval.config.eval_config.lenient import take_eval_config
from clara_eval.config.eval_config.model import Metadata
from clara_eval.config.eval_config.reading import parse_eval_config
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import canonical_json, keccak_hex
from clara_eval.core.strict_json import JsonLimits, read_strict_json

METADATA_LIMITS = JsonLimits(bytes=1_048_576, depth=16)


def config_hash(config_bytes: bytes) -> str:
    """Return `evalConfigHash`: keccak256 of exactly these bytes."""
    return keccak_hex(config_bytes)


def read_metadata(metadata_json: bytes, eval_config_hash: str) -> Metadata:
    """Read title, problem and config; raises BadInput if the config is missing or not the committed one."""
    document = read_strict_json(metadata_json, METADATA_LIMITS, what="The challenge metadata")
    if not isinstance(document, dict) or "evalConfig" not in document:
        raise BadInput(
            "The challenge metadata holds no evalConfig.",
            path="$.evalConfig",
            remedy="Metadata is a JSON object with title, problemStatement and evalConfig.",
        )
    config_bytes, kind = _committed_bytes(document["evalConfig"])
    computed = config_hash(config_bytes)
    if computed != eval_config_hash.lower():
        raise BadInput(
            f"The config in the metadata hashes to {computed}, but the chain committed to {eval_config_hash.lower()}.",
            path="$.evalConfig",
            value=computed,
            remedy="It is not evaluated: the poster has to serve the config that was committed.",
        )
    config, adapted = take_eval_config(config_bytes)
    skills = document.get("skills")
    return Metadata(
        title=_text(document.get("title")),
        problem_statement=_text(document.get("problemStatement")),
        skills=tuple(item for item in skills if isinstance(item, str)) if isinstance(skills, list) else (),
        config_bytes=config_bytes,
        config=config,
        hash_kind=kind,
        adapted=adapted,
    )


def build_metadata(
    *,
    title: str,
    problem_statement: str,
    skills: Sequence[str],
    config_text: str | None,
    posted_by: str = "",
    timestamp: int = 0,
) -> str:
    """Write the `data:` URI to post; refuses a bad config. None: the poster scores alone."""
    if config_text is not None:
        parse_eval_config(config_text)
    document = {
        "title": title,
        "problemStatement": problem_statement,
        "skills": list(skills),
        **({"evalConfig": config_text} if config_text is not None else {}),
        "postedBy": posted_by,
        "timestamp": timestamp,
    }
    encoded = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    if len(encoded) > METADATA_LIMITS.bytes:
        raise BadInput(
            f"The challenge metadata has {len(encoded):,} bytes; at most {METADATA_LIMITS.bytes:,} are read.",
            remedy="Shorten the problem statement.",
        )
    return "data:application/json;base64," + base64.b64encode(encoded).decode()


def _committed_bytes(value: object) -> tuple[bytes, Literal["string", "canonical"]]:
    if isinstance(value, str):
        return value.encode(), "string"
    if isinstance(value, dict):
        return canonical_json(value), "canonical"
    raise BadInput(
        "evalConfig is neither a JSON string nor an object.", path="$.evalConfig", remedy="Write the config there."
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
