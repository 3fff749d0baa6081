"""Choose ordinary programs of this machine, or of given folders, to disguise."""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clara_eval.code import language_name
from clara_eval.evaluation.features.measured import measure

ENDINGS = {".py": "python", ".js": "javascript", ".mjs": "javascript", ".ts": "typescript", ".sol": "solidity"} | {
    ".rs": "rust",
    ".go": "go",
}
SMALLEST, LARGEST = 1_500, 60_000
_LEFT_OUT = ("/test/", "/tests/", "/idlelib/", "/lib2to3/", "/encodings/", "/__pycache__/", ".min.", ".d.ts", "_pb2")

_HOMES = frozenset({"site-packages", "node_modules", "_vendor", "vendor"})
_GENERATED = re.compile(r"\b(auto-?generated|generated (from|by))\b", re.IGNORECASE)
"""Two files of one generator are alike whoever owns them."""


@dataclass(frozen=True, slots=True)
class RealFile:
    path: Path
    language: str
    text: str
    origin: str
    """The package or folder it comes from: two files of one origin may be related."""


def default_folders() -> list[Path]:
    """Where real programs are: Python's library, its packages, and what npm and the project hold here, if anything."""
    paths = sysconfig.get_paths()
    here = Path.cwd()
    return [Path(paths["stdlib"]), Path(paths["purelib"]), *(here / name for name in ("node_modules", "solidity"))]


def real_files(folders: Iterable[Path], *, count: int, seed: int = 1, languages: Iterable[str] = ()) -> list[RealFile]:
    """At most `count` files, of all languages in turn."""
    wanted = {language_name(one) for one in languages} or set(ENDINGS.values())
    by_language: dict[str, list[tuple[Path, Path]]] = {name: [] for name in sorted(wanted)}
    for folder in folders:
        for path in _sources(folder):
            if (language := ENDINGS.get(path.suffix, "")) in by_language:
                by_language[language].append((folder, path))
    rng = random.Random(seed)  # noqa: S311 - which files, not a secret
    queues = {name: iter(rng.sample(held, len(held))) for name, held in by_language.items() if held}
    found: list[RealFile] = []
    while queues and len(found) < count:
        for name in list(queues):
            one = next((real for real in map(_read, queues[name]) if real is not None), None)
            if one is None:
                del queues[name]
            elif len(found) < count:
                found.append(one)
    return found


def _sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix in ENDINGS and not any(part in path.as_posix() for part in _LEFT_OUT):
            yield path


def _read(place: tuple[Path, Path]) -> RealFile | None:
    folder, path = place
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if SMALLEST <= size <= LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return None
    language = ENDINGS[path.suffix]
    facts = measure(text, language) if text else {}
    if not facts.get("parses") or not facts.get("functions") or (facts.get("code_lines") or 0) < 25:
        return None
    if _GENERATED.search(text[:400]):
        return None
    return RealFile(path, language, text, _origin(folder, path))


def _origin(folder: Path, path: Path) -> str:
    """The package, wherever it lies: packages carry one another's sources, and two versions of one may be here."""
    inside = path.relative_to(folder).parts
    homes = [place for place, part in enumerate(inside) if part in _HOMES]
    if homes or folder.name in _HOMES:
        return inside[homes[-1] + 1 if homes else 0]
    return "/".join((folder.name, *inside[:1]))
