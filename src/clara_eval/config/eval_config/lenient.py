"""Take a config that is escrowed already as far as the specification's schema allows, and tell what was adapted."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from clara_eval.config.eval_config.catalogue import level_feature, typed
from clara_eval.config.eval_config.model import Adaptation, EvalConfig, Feature
from clara_eval.config.eval_config.problems import BadEvalConfig, ProblemReport, at, shown
from clara_eval.config.eval_config.reading import read_document, read_feature, read_object
from clara_eval.config.eval_config.shape import CONFIG_KEYS, FEATURE_KEYS, MAX_DESCRIPTION, NAME, RESERVED, faults
from clara_eval.core.constants import HarnessLanguage
from clara_eval.core.hashing import canonical_json

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_HINTS = {
    "submissionFormat": "It has no such value, so it is ignored.",
    "judge": "It has no such value, so it is ignored.",
    "language": "This names no language, so it is ignored.",
}


@dataclass(slots=True)
class Adapting:
    told: list[Adaptation] = field(default_factory=list)

    def tell(self, path: str, written: object, taken: str, reason: str) -> None:
        self.told.append(Adaptation(path, str(shown(written)), taken, reason))


def take_eval_config(text: str | bytes) -> tuple[EvalConfig, tuple[Adaptation, ...]]:
    """The config of a challenge that is posted already, as far as the specification's schema allows it."""
    report = ProblemReport(is_lenient=True)
    document = read_object(text, report)
    adapting = Adapting()
    taken = dict(_known_keys(adapting, "$", document, CONFIG_KEYS))
    wrong = faults(taken, "$")
    for key, reason in _HINTS.items():
        if at("$", key) in wrong:
            adapting.tell(at("$", key), taken.pop(key), "", reason)
    written = taken.get("harness")
    language = written.get("language") if isinstance(written, dict) else None
    harness: HarnessLanguage | None = language if language in ("solidity", "javascript", "python") else None
    if isinstance(features := taken.get("features"), list):
        taken["features"] = list(_features(adapting, features, harness))
    if taken.get("judge") == "rules" and not _by_rules(taken.get("features"), harness):
        adapting.tell("$.judge", taken.pop("judge"), "", "Not every feature has a direction, so the jury compares.")
    config = read_document(taken, report) if not report.failed else None
    if config is None or report.failed:
        raise BadEvalConfig(report.problems)
    waived = (Adaptation(p.path, str(p.value), str(p.value), p.reason) for p in report.waived)
    return replace(config, canonical=canonical_json(document)), (*adapting.told, *waived)


def _known_keys(
    adapting: Adapting, path: str, document: Mapping[str, object], known: tuple[str, ...]
) -> Iterator[tuple[str, object]]:
    for key, value in document.items():
        if key in known:
            yield key, value
        else:
            adapting.tell(at(path, key), value, "", f"The key {key[:60]!r} is unknown, so it is ignored.")


def _features(adapting: Adapting, items: list[object], harness: HarnessLanguage | None) -> Iterator[object]:
    names: set[str] = set()
    originals: set[str] = set()
    for number, item in enumerate(items):
        path = at("$.features", number)
        written = item.get("name") if isinstance(item, dict) else item
        if not isinstance(written, str) or not written.strip():
            adapting.tell(path, item, "", "It has no name, so it is ignored.")
            continue
        if written in originals:
            adapting.tell(path, written, "", "It appears twice, so it counts once.")
            continue
        originals.add(written)
        name = _free_name(normal_name(written, number + 1), names)
        names.add(name)
        if name != written:
            adapting.tell(path, written, name, "The name is taken in our spelling.")
        yield _item(adapting, path, item, name, harness)


def normal_name(written: str, number: int) -> str:
    """A name of ours for a poster's: `gasUsage` and `Gas usage` are `gas_usage`, what has no Latin letters a number."""
    if re.fullmatch(NAME, written) and written not in RESERVED:
        return written
    letters = unicodedata.normalize("NFKD", written).encode("ascii", "ignore").decode()
    is_whole = sum(c.isalnum() for c in letters) >= sum(c.isalnum() for c in written)
    words = "_".join(_WORDS.findall(letters)).lower() if is_whole else ""
    if not words:
        return f"feature_{number}"
    if not words[0].isalpha() or words in RESERVED:
        words = f"feature_{words}"
    return words[:40].rstrip("_")


def _free_name(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it where another feature has it already."""
    numbered = (f"{name[:36]}_{number}" for number in itertools.count(2))
    return name if name not in taken else next(free for free in numbered if free not in taken)


def _item(adapting: Adapting, path: str, item: object, name: str, harness: HarnessLanguage | None) -> object:
    """The item under its name, with as much of its type as can be used."""
    if isinstance(item, str):
        if not name.startswith("feature_") or item.startswith("feature_"):
            return name
        # Our spelling lost the poster's words: a level keeps them as its description.
        level = level_feature(name, item.strip()[:MAX_DESCRIPTION]).to_json()
        return {**{key: value for key, value in level.items() if value}, "min": 0}
    assert isinstance(item, Mapping), "only what has a name comes here"
    taken = {**dict(_known_keys(adapting, path, item, FEATURE_KEYS)), "name": name}
    if _is_usable(path, taken, harness):
        return taken
    for key in [key for key in FEATURE_KEYS[1:] if key in taken]:
        if key == "type" or _is_usable(path, {"name": name, "type": taken.get("type"), key: taken[key]}, harness):
            continue
        adapting.tell(at(path, key), taken.pop(key), "", "It cannot be used, so it is ignored.")
    if _is_usable(path, taken, harness):
        return taken
    adapting.tell(path, item, name, "Its type cannot be used, so only its name counts.")
    return name


def _is_usable(path: str, item: Mapping[str, object], harness: HarnessLanguage | None) -> bool:
    report = ProblemReport(is_lenient=True)
    return read_feature(report, path, dict(item), harness) is not None and not report.failed


def _by_rules(features: object, harness: HarnessLanguage | None) -> bool:
    """Whether every judged feature has a type and a direction."""

    def directed(item: object) -> bool:
        found = read_feature(ProblemReport(is_lenient=True), "$", item, harness)
        feature = found if isinstance(found, Feature) else typed(found.name) if found else None
        return feature is not None and (feature.better is not None or feature.type == "text")

    return isinstance(features, list) and all(directed(item) for item in features)
