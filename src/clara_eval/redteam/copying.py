"""Measure copy detection: disguised copies, clones, unrelated files and honest entries."""

from __future__ import annotations

import random
import re
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clara_eval.code import language_name
from clara_eval.config.eval_config import MEASURED, FeatureSchema
from clara_eval.evaluation.features.extract import SubmissionFacts, choose_values, speaks_to_judge
from clara_eval.evaluation.features.field import compare_field
from clara_eval.evaluation.features.measured import measure
from clara_eval.judge.reading import prompt_view
from clara_eval.redteam.mutations import AT_LEAST, WAYS, Program, disguise
from clara_eval.redteam.report import Figure, number, share
from clara_eval.redteam.simulators import solution_of
from clara_eval.submissions.copies import find_likeness
from clara_eval.submissions.model import Solution

BATCH = 20
_PROFILE = "functions code_lines max_complexity mean_complexity max_nesting duplicate_share comment_share bytes"
CODE_PROFILE = FeatureSchema(tuple(MEASURED[name] for name in _PROFILE.split()))
ENDINGS = {f".{ending}": language_name(ending) for ending in ("py", "js", "mjs", "ts", "sol", "rs", "go")}
SMALLEST, LARGEST = 1_500, 60_000  # Bytes of a file
_EXCLUDED = ("/test/", "/tests/", "/idlelib/", "/lib2to3/", "/encodings/", "/__pycache__/", ".min.", ".d.ts", "_pb2")

_PACKAGE_FOLDERS = frozenset({"site-packages", "node_modules", "_vendor", "vendor"})
_GENERATED = re.compile(r"\b(auto-?generated|generated (from|by))\b", re.IGNORECASE)
"""Generated files are left out: two outputs of one generator are similar without being copies."""


@dataclass(frozen=True, slots=True)
class RealFile:
    path: Path
    language: str
    text: str
    origin: str  # Its package or folder; files of one origin may be related


def default_folders() -> list[Path]:
    """Return folders with real programs: Python's library and packages, npm packages, our contracts."""
    paths, here = sysconfig.get_paths(), Path.cwd()
    return [Path(paths["stdlib"]), Path(paths["purelib"]), here / "node_modules", here / "solidity"]


def real_files(folders: Iterable[Path], *, count: int, seed: int = 1, languages: Iterable[str] = ()) -> list[RealFile]:
    """Return at most `count` random files, taking the languages in turn."""
    wanted = {language_name(one) for one in languages} or set(ENDINGS.values())
    by_language: dict[str, list[tuple[Path, Path]]] = {name: [] for name in sorted(wanted)}
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            language = ENDINGS.get(path.suffix, "")
            if language in by_language and not any(part in path.as_posix() for part in _EXCLUDED):
                by_language[language].append((folder, path))
    rng = random.Random(seed)  # noqa: S311 - which files, not a secret
    queues = {name: iter(rng.sample(paths, len(paths))) for name, paths in by_language.items() if paths}
    found: list[RealFile] = []
    while queues and len(found) < count:
        for name in list(queues):
            one = next((real for real in map(_read_program, queues[name]) if real is not None), None)
            if one is None:
                del queues[name]
            elif len(found) < count:
                found.append(one)
    return found


def _read_program(source: tuple[Path, Path]) -> RealFile | None:
    folder, path = source
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if SMALLEST <= size <= LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return None
    language = ENDINGS[path.suffix]
    facts = measure(text, language) if text else {}
    is_program = facts.get("parses") and facts.get("functions") and (facts.get("code_lines") or 0) >= 25
    if not is_program or _GENERATED.search(text[:400]):
        return None
    return RealFile(path, language, text, _origin(folder, path))


def _origin(folder: Path, path: Path) -> str:
    """Return the innermost package of a file: packages may be vendored, or installed in two versions."""
    inside = path.relative_to(folder).parts
    homes = [depth for depth, part in enumerate(inside) if part in _PACKAGE_FOLDERS]
    if homes or folder.name in _PACKAGE_FOLDERS:
        return inside[homes[-1] + 1 if homes else 0]
    return "/".join((folder.name, *inside[:1]))


def measure_copies(files: Sequence[RealFile], *, seed: int = 0) -> list[Figure]:
    refused, similar, tried = Counter[str](), Counter[str](), Counter[str]()
    for n, file in enumerate(files):
        others = [other for other in files if other.language == file.language and other is not file]
        program = Program(file.text, file.language, others[n % len(others)].text if others else "")
        for way in WAYS:
            text = disguise(program, way, seed)
            if text is None:
                continue
            hint = file.language if n % 2 and way != "translated" else None
            likeness = find_likeness([solution_of(file.text, 1, hint), solution_of(text, 2, hint)])
            tried[way] += 1
            refused[way] += bool(likeness.clusters)
            similar[way] += bool(likeness.similar)
    return [
        share(f"copy_{way}", f"disguised copies that are refused or wait: {way.replace('_', ' ')}",
              refused[way] + similar[way], tried[way], at_least=AT_LEAST[way], refused=refused[way])
        for way in WAYS
    ]  # fmt: skip


def measure_clones(files: Sequence[RealFile]) -> list[Figure]:
    """Count how many of ten clones of an entry stay in the ranking, among ten others."""
    rng = random.Random(1)  # noqa: S311 - which words, not a secret
    gained: dict[str, list[float]] = {"exact": [], "edited": []}
    for file in files[:12]:
        rivals = [other for other in files if other is not file and other.origin != file.origin][:10]
        for kind, seats in gained.items():
            clones = [_clone(file, kind, rng) for _ in range(10)]
            texts = [file.text, *(rival.text for rival in rivals), *clones]
            solutions = [solution_of(text, at, None) for at, text in enumerate(texts, start=1)]
            found = find_likeness(solutions)
            out = {c.solution.submission.submitter for cluster in found.clusters for c in cluster.copies}
            out |= {pair.later for pair in found.similar}
            ranked = [one for one in solutions if one.submission.submitter not in out]
            seats.append(float(sum(one.submission.submitted_at > 1 + len(rivals) for one in ranked)))
    return [
        number(f"seats_of_{kind}_clones", f"seats that ten {kind} clones of one entry gain", gained[kind],
               at_most=0.0 if kind == "exact" else 0.1)
        for kind in gained
    ]  # fmt: skip


def _clone(file: RealFile, kind: str, rng: random.Random) -> str:
    if kind == "exact":
        return file.text
    lines = file.text.split("\n")
    for _ in range(max(1, len(lines) // 50)):
        lines.insert(rng.randrange(len(lines)), "")
    mark = "#" if file.language == "python" else "//"
    return "\n".join(lines) + f"\n{mark} version {rng.randrange(10**6)}\n"


def measure_honest(folder: Path) -> list[Figure]:
    """Check independent solutions of small tasks, one round per task; nothing without the folder."""
    refused = waiting = entries = 0
    rounds = [honest_round(path) for path in sorted(folder.glob("*.txt"))]
    for statement, solutions in rounds:
        found = find_likeness(solutions, template=statement)
        entries += len(solutions)
        refused += sum(len(cluster.copies) for cluster in found.clusters)
        waiting += len({pair.later for pair in found.similar})
    if not rounds:
        return []
    return [
        share("honest_refused", "honest solutions of small tasks that are refused as copies", refused,
              entries, at_most=0.0, tasks=len(rounds)),
        share("honest_similar", "honest solutions of small tasks that wait on a paid place", waiting,
              entries, at_most=0.05, tasks=len(rounds)),
    ]  # fmt: skip


def honest_round(path: Path) -> tuple[str, list[Solution]]:
    """Read statement and entries from a file TASK.LANGUAGE.txt, separated by `=====` lines."""
    language = path.name.split(".")[1]
    statement, *texts = path.read_text(encoding="utf-8").split("=====\n")
    hint = None if language == "text" else language
    return statement, [solution_of(text, n, hint, at=n * 3600) for n, text in enumerate(texts, start=1)]


def measure_ordinary(files: Sequence[RealFile]) -> list[Figure]:
    """Check ordinary files in rounds of twenty: flags, reviews, and false copies."""
    flagged = waiting = entries = 0
    codes: Counter[str] = Counter()
    for batch in _batches(files):
        facts = {one.submission.submitter: _measure_facts(one) for one in batch}
        for facts_of_one in compare_field(CODE_PROFILE, facts).values():
            entries += 1
            flagged += bool(facts_of_one.flags)
            waiting += any(flag.severity == "review" for flag in facts_of_one.flags)
            codes.update({flag.code for flag in facts_of_one.flags})
    wrong, similar, pairs = _count_false_copies(files)
    return [
        share("flagged", "ordinary files with any flag", flagged, entries, at_most=0.05, codes=dict(codes)),
        share("to_review", "ordinary files with a flag that makes a paid place wait", waiting, entries, at_most=0.02),
        share("called_copies", "unrelated ordinary files that are refused as a copy", wrong, entries,
              at_most=0.0, pairs=pairs),
        share("called_similar", "unrelated ordinary files that are called similar", similar, entries,
              at_most=0.01, pairs=pairs),
    ]  # fmt: skip


def _batches(files: Sequence[RealFile]) -> Iterator[list[Solution]]:
    by_language: dict[str, list[RealFile]] = defaultdict(list)
    for file in files:
        by_language[file.language].append(file)
    for group in by_language.values():
        for start in range(0, len(group), BATCH):
            part = group[start : start + BATCH]
            yield [solution_of(file.text, start + n, file.language) for n, file in enumerate(part, start=1)]


def _measure_facts(solution: Solution) -> SubmissionFacts:
    measured = measure(solution.text, solution.language)
    kept = {feature.name: measured[feature.name] for feature in CODE_PROFILE.features}
    vector, flags = choose_values(CODE_PROFILE, kept, {})
    return SubmissionFacts(vector, {}, dict(kept), {}, (*speaks_to_judge(prompt_view(solution.text).text), *flags))


def _count_false_copies(files: Sequence[RealFile]) -> tuple[int, int, int]:
    """Count files refused as copies of other packages' files, those called similar, and all pairs."""
    refused = similar = pairs = 0
    for language in sorted({file.language for file in files}):
        kept: dict[tuple[str, int], RealFile] = {}
        for file in files:
            if file.language == language:  # one per name and size: packages vendor each other's sources
                kept.setdefault((file.path.name, len(file.text)), file)
        unique = list(kept.values())
        pairs += len(unique) * (len(unique) - 1) // 2
        solutions = [solution_of(file.text, n, language) for n, file in enumerate(unique, start=1)]
        origins = {one.submission.submitter: file.origin for one, file in zip(solutions, unique, strict=True)}
        found = find_likeness(solutions)
        for cluster in found.clusters:
            first = origins[cluster.original.submission.submitter]
            refused += sum(origins[copy.solution.submission.submitter] != first for copy in cluster.copies)
        similar += sum(origins[pair.earlier] != origins[pair.later] for pair in found.similar)
    return refused, similar, pairs
