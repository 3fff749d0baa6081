"""Write docs/specification.md: each sentence of the specification and the test that proves it.

Input: the marks `@pytest.mark.specification(section, sentence)` in tests. Output: the page, or exit 1 with `--check` if
it is not current.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "specification.md"
HEAD = """# The specification, sentence by sentence

Generated from the tests that name their sentence (`python scripts/make_specification.py`). What we do differently, and
why, is in [answers](guides/answers.md).

| section | sentence | how it is done | test |
|---|---|---|---|
"""


class SpecificationRow(NamedTuple):
    section: tuple[int, ...]
    sentence: str
    how: str
    test: str


def rows() -> Iterator[SpecificationRow]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.specification":
                    section, sentence = (ast.literal_eval(argument) for argument in mark.args)
                    how = (ast.get_docstring(node) or "").splitlines()[0]
                    link = f"[`{node.name}`](../{path.relative_to(ROOT).as_posix()})"
                    yield SpecificationRow(tuple(int(part) for part in section.split(".")), sentence, how, link)


def page() -> str:
    lines = [
        f"| {'.'.join(map(str, row.section))} | {_cell(row.sentence)} | {_cell(row.how)} | {row.test} |"
        for row in sorted(rows())
    ]
    return HEAD + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
