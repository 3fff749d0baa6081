"""Write the figures of docs/quality.md from stored answers, without a model.

Input: docs/quality.jsonl.gz, written by `make bench-model`, and the labels in bench/quality. Output: the tables of the
page between two marks each.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.quality.answers import read_lines, results  # noqa: E402
from bench.quality.page import SECTIONS  # noqa: E402

KEPT = ROOT / "docs" / "quality.jsonl.gz"
PAGE = ROOT / "docs" / "quality.md"


def page(text: str, kept: Path = KEPT) -> str:
    """Return the page with all tables regenerated."""
    found = results(read_lines(kept))
    for name, made in SECTIONS.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        shown = f"{begin}\n{made(found)}\n{end}"
        text, count = pattern.subn(lambda _, shown=shown: shown, text)
        if count != 1:
            raise SystemExit(f"{PAGE.name} has {count} places for the table {name}, not one.")
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
