"""Read and write the metadata behind `challengeURI`; a config without the committed hash is refused.

The config of a posted challenge is adapted as far as the specification's schema allows, and every change is reported.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from clara_eval.config.eval_config import shape
from clara_eval.config.eval_config.catalogue import compile_schema, level_feature
from clara_eval.config.eval_config.model import Adaptation, EvalConfig, Metadata
from clara_eval.config.eval_config.reading import parse_eval_config, read_document, read_feature, read_object
from clara_eval.config.eval_config.shape import BadEvalConfig, ProblemReport, at
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import canonical_json, keccak_hex
from clara_eval.core.model import HarnessLanguage
from clara_eval.core.strict_json import JsonLimits, read_strict_json

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_HINTS = {
    "submissionFormat": "It has no such value, so it is ignored.",
    "judge": "It has no such value, so it is ignored.",
    "language": "This names no language, so it is ignored.",
}
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
    written = document["evalConfig"]
    if not isinstance(written, (str, dict)):
        raise BadInput(
            "evalConfig is neither a JSON string nor an object.", path="$.evalConfig", remedy="Write the config there."
        )
    config_bytes = written.encode() if isinstance(written, str) else canonical_json(written)
    computed = config_hash(config_bytes)
    if computed != eval_config_hash.lower():
        raise BadInput(
            f"The config in the metadata hashes to {computed}, but the chain committed to {eval_config_hash.lower()}.",
            path="$.evalConfig",
            value=computed,
            remedy="It is not evaluated: the poster has to serve the config that was committed.",
        )
    config, adapted = adapt_eval_config(config_bytes)
    skills = document.get("skills")
    return Metadata(
        title=text if isinstance(text := document.get("title"), str) else "",
        problem_statement=text if isinstance(text := document.get("problemStatement"), str) else "",
        skills=tuple(item for item in skills if isinstance(item, str)) if isinstance(skills, list) else (),
        config_bytes=config_bytes,
        config=config,
        hash_kind="string" if isinstance(written, str) else "canonical",
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
    """Write the `data:` URI to post; refuses a bad config. Without a config the poster scores alone."""
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


def adapt_eval_config(text: str | bytes) -> tuple[EvalConfig, tuple[Adaptation, ...]]:
    """Return the config of a challenge that is already posted, and what was adapted to read it."""
    report, log = ProblemReport(is_lenient=True), list[Adaptation]()
    document = read_object(text, report)
    taken: dict[str, Any] = _drop_unknown_keys(log, "$", document, shape.CONFIG_KEYS)
    wrong = shape.find_faults(taken, "$")
    for key, reason in _HINTS.items():
        if at("$", key) in wrong:
            log.append(_adaptation(at("$", key), taken.pop(key), reason))
    written = taken.get("harness")
    language = written.get("language") if isinstance(written, dict) else None
    harness: HarnessLanguage | None = language if language in get_args(HarnessLanguage) else None
    if isinstance(taken.get("features"), list):
        taken["features"] = _adapt_features(log, taken["features"], harness)
    judge = taken.pop("judge", None)
    config = read_document(taken, report)
    if config is None:
        raise BadEvalConfig(report.problems)
    schema, untyped = compile_schema(config)
    if judge and (untyped or any(feature.better is None for feature in schema.judged)):
        log.append(_adaptation("$.judge", judge, "Not every feature has a direction, so the jury compares."))
        judge = None
    waived = (Adaptation(p.path, str(p.value), str(p.value), p.reason) for p in report.waived)
    return replace(config, judge=judge, canonical=canonical_json(document)), (*log, *waived)


def _adaptation(path: str, written: object, reason: str, taken: str = "") -> Adaptation:
    return Adaptation(path, str(shape.shorten(written)), taken, reason)


def _drop_unknown_keys(
    log: list[Adaptation], path: str, document: Mapping[str, object], known: Sequence[str]
) -> dict[str, object]:
    log += [
        _adaptation(at(path, key), value, f"The key {key[:60]!r} is unknown, so it is ignored.")
        for key, value in document.items()
        if key not in known
    ]
    return {key: value for key, value in document.items() if key in known}


def _adapt_features(log: list[Adaptation], items: list[object], harness: HarnessLanguage | None) -> list[object]:
    adapted: list[object] = []
    names: dict[str, str] = {}
    for number, item in enumerate(items):
        path = at("$.features", number)
        written = item.get("name") if isinstance(item, dict) else item
        if not isinstance(written, str) or not written.strip():
            log.append(_adaptation(path, item, "It has no name, so it is ignored."))
        elif written in names:
            log.append(_adaptation(path, written, "It appears twice, so it counts once."))
        else:
            name = normal_name(written, number + 1)
            numbered = (f"{name[:36]}_{more}" for more in itertools.count(2))
            names[written] = next(free for free in itertools.chain([name], numbered) if free not in names.values())
            if names[written] != written:
                log.append(_adaptation(path, written, "The name is taken in our spelling.", names[written]))
            adapted.append(_adapt_item(log, path, item, names[written], harness))
    return adapted


def normal_name(written: str, number: int) -> str:
    """Return a valid name for a feature: `gas_usage` for `gasUsage`, `feature_1` without Latin letters."""
    if re.fullmatch(shape.NAME, written) and written not in shape.RESERVED:
        return written
    letters = unicodedata.normalize("NFKD", written).encode("ascii", "ignore").decode()
    is_whole = sum(c.isalnum() for c in letters) >= sum(c.isalnum() for c in written)
    words = "_".join(_WORDS.findall(letters)).lower() if is_whole else ""
    if not words:
        return f"feature_{number}"
    if not words[0].isalpha() or words in shape.RESERVED:
        words = f"feature_{words}"
    return words[:40].rstrip("_")


def _adapt_item(log: list[Adaptation], path: str, item: object, name: str, harness: HarnessLanguage | None) -> object:
    """Return the item under its new name, with as much of its type as can be used."""
    if isinstance(item, str):
        if not name.startswith("feature_") or item.startswith("feature_"):
            return name
        # The new name lost the poster's words: keep them as the description of a level.
        level = level_feature(name, item.strip()[: shape.MAX_DESCRIPTION]).to_json()
        return {**{key: value for key, value in level.items() if value}, "min": 0}
    assert isinstance(item, Mapping), "only what has a name comes here"
    taken = {**_drop_unknown_keys(log, path, item, shape.FEATURE_KEYS), "name": name}
    if _is_usable(path, taken, harness):
        return taken
    for key in [key for key in shape.FEATURE_KEYS[1:] if key in taken]:
        if key == "type" or _is_usable(path, {"name": name, "type": taken.get("type"), key: taken[key]}, harness):
            continue
        log.append(_adaptation(at(path, key), taken.pop(key), "It cannot be used, so it is ignored."))
    if _is_usable(path, taken, harness):
        return taken
    log.append(_adaptation(path, item, "Its type cannot be used, so only its name counts.", name))
    return name


def _is_usable(path: str, item: Mapping[str, object], harness: HarnessLanguage | None) -> bool:
    report = ProblemReport(is_lenient=True)
    return read_feature(report, path, dict(item), harness) is not None and not report.failed
