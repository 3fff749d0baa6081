"""Write docs/ranking.md: how good the ranking is for how many calls, and how true its words are.

Input: docs/ranking.json, what `bench/ranking.py` printed; several runs are put together with `--from FILE…`, a later
row of one name replaces an earlier one. Output: the tables of the page between two marks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "ranking.json"
PAGE = ROOT / "docs" / "ranking.md"
BEGIN, END = "<!-- begin figures -->", "<!-- end figures -->"
CALLS = "| case | trials | method | set right | misplaced | to both: set | misplaced |\n|---|---|---|---|---|---|---|"
WORDS = (
    "| case | trials | calls | set right / said | misplaced / said | clear: right (rounds) | about equal: true "
    "| P(paid) ≥ .9: right | intervals / rank ranges hold | width, logits |\n|---|---|---|---|---|---|---|---|---|---|"
)
WAITS = "| case | prize | waited before | wait now | right if posted | right if waiting |\n|---|---|---|---|---|---|"


def tables(rows: list[dict[str, Any]]) -> str:
    calls = [line for row in rows if "methods" in row for line in _calls(row)]
    words = [_words(row) for row in rows if "said" in row and "waits" in row]
    waits = [line for row in rows if "waits" in row for line in _waits(row)]
    rest = [f"- {row['id']}: {_plain(row)}" for row in rows if "methods" not in row and "waits" not in row]
    parts = [(CALLS, calls), (WORDS, words), (WAITS, waits)]
    shown = ["\n".join([head, *lines]) for head, lines in parts if lines]
    return "\n\n".join([*shown, *(["\n".join(rest)] if rest else [])])


def _calls(row: dict[str, Any]) -> list[str]:
    methods = row["methods"]
    lines = []
    for name, told in methods.items():
        if name == "auto calls":
            continue
        shown = f"auto, ended by itself after {methods['auto calls']['set']:.0f} calls" if name == "auto" else name
        gaps = [f"{told[key][0]:+.3f} ± {told[key][1]:.3f}" for key in ("setToBoth", "misplacedToBoth")]
        case = row["id"].removeprefix("calls ")
        lines.append(
            f"| {case} | {row['trials']} | {shown} | {told['set']:.3f} | {told['misplaced']:.3f} | {' | '.join(gaps)} |"
        )
    return lines


def _words(row: dict[str, Any]) -> str:
    clear, equal, sure = (_share(row.get(key, [0, None])) for key in ("clear", "equal", "pPaid90"))
    case = row["id"].removeprefix("words ")
    return (
        f"| {case} | {row['trials']} | {row['calls']:.0f} | {row['right']:.3f} / {row['said']:.3f} "
        f"| {row['misplaced']:.3f} / {row['saidMisplaced']:.3f} | {clear} | {equal} | {sure} "
        f"| {row['inside']:.3f} / {row['rankInside']:.3f} | {row['width']:.2f} |"
    )


def _share(told: list[Any]) -> str:
    return "never said" if told[1] is None else f"{told[1]:.3f} ({told[0]})"


def _waits(row: dict[str, Any]) -> list[str]:
    case = row["id"].removeprefix("words ")
    return [
        f"| {case} | {prize} | {told['before']:.3f} | {told['share']:.3f} | {_or_none(told['rightPosted'])} "
        f"| {_or_none(told['rightWaiting'])} |"
        for prize, told in row["waits"].items()
    ]


def _or_none(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _plain(row: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in row.items() if key != "id")


def page(text: str, told: dict[str, Any]) -> str:
    """The page with its tables written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables(told['rows'])}\n{END}{after}"


def gathered(files: list[Path]) -> dict[str, Any]:
    """The rows of several runs, each once, in the order in which they first appear."""
    rows: dict[str, dict[str, Any]] = {}
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            rows[row["id"]] = row
    return {"rows": list(rows.values())}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--from"]:
        told = gathered([Path(name) for name in arguments[1:]])
        FIGURES.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    told = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), told), encoding="utf-8")


if __name__ == "__main__":
    main()
