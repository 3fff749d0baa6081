"""Measure the shape of the code: `python scripts/figures.py` (exit 1 if a figure passes its limit).

The limit is the most that the code may have now, and is only lowered; the goal is the target.

Lines are all lines of the shipped modules. A type name with several meanings is a public class that two modules
define. A Protocol with one implementation is one that at most one class of the product fulfils by its method names.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "clara_eval"
TOOLS = {"redteam", "devnet"}
GENERATED = {
    "commands.md", "security.md", "scale.md", "ranking.md", "quality.md", "specification.md", "trace-example.md",
}  # fmt: skip


class Module(NamedTuple):
    path: Path
    package: str
    lines: int
    tree: ast.Module


class FigureRow(NamedTuple):
    name: str
    value: int
    limit: int
    goal: int


def modules() -> list[Module]:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        top = path.relative_to(SRC).parts[0].removesuffix(".py")
        found.append(Module(path, top, text.count("\n"), ast.parse(text)))
    return found


def classes(found: list[Module]) -> Iterator[tuple[Module, ast.ClassDef]]:
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                yield module, node


def public_methods(node: ast.ClassDef) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {item.name for item in node.body if isinstance(item, kinds) and not item.name.startswith("_")}


def is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def fan_out(module: Module) -> int:
    """Count the modules of the package that it imports, including imports for types."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clara_eval"):
            names.add(node.module or "")
    return len(names)


def meanings(found: list[Module]) -> dict[str, list[str]]:
    """Return public class names that several modules define."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, node in classes(found):
        if not node.name.startswith("_"):
            places[node.name].append(str(module.path.relative_to(SRC)))
    return {name: where for name, where in places.items() if len(where) > 1}


def lonely_protocols(found: list[Module]) -> list[str]:
    """Return protocols that at most one class implements."""
    concrete = [(node.name, public_methods(node)) for _, node in classes(found) if not is_protocol(node)]
    lonely = []
    for module, node in classes(found):
        wanted = public_methods(node)
        if is_protocol(node) and wanted and sum(wanted <= methods for _, methods in concrete) < 2:
            lonely.append(f"{module.path.relative_to(SRC)}:{node.name}")
    return lonely


def doc_words() -> int:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = [page for page in pages if page.name not in GENERATED and "transcripts" not in page.parts]
    return sum(len(re.findall(r"\w+", page.read_text(encoding="utf-8"))) for page in shown)


def figures() -> list[FigureRow]:
    found = modules()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [
        FigureRow("names at the top", len({module.package for module in found}), 20, 20),
        FigureRow("product lines with tools", sum(m.lines for m in found), 44_000, 44_000),
        FigureRow("product lines without tools", sum(m.lines for m in found if m.package not in TOOLS), 40_000, 40_000),
        FigureRow("largest import fan-out", max(fan_out(module) for module in found), 18, 18),
        FigureRow(
            "most public methods of a class", max(len(public_methods(node)) for _, node in classes(found)), 15, 15
        ),
        FigureRow("protocols with one implementation", len(lonely_protocols(found)), 4, 4),
        FigureRow("type names with several meanings", len(meanings(found)), 0, 0),
        FigureRow("base dependencies", len(project["dependencies"]), 16, 16),
        FigureRow("words of documentation, not generated", doc_words(), 23_500, 23_500),
    ]


def main() -> int:
    rows = figures()
    for row in rows:
        state = "over its limit" if row.value > row.limit else "" if row.value <= row.goal else "not yet"
        print(f"{row.name:40} {row.value:>7,}  limit {row.limit:>7,}  goal {row.goal:>7,}  {state}".rstrip())
    if "--names" in sys.argv:
        for name, where in sorted(meanings(modules()).items()):
            print(f"{name}: {', '.join(where)}")
        print(*lonely_protocols(modules()), sep="\n")
    return int(any(row.value > row.limit for row in rows))


if __name__ == "__main__":
    sys.exit(main())
