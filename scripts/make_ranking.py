"""Write docs/ranking.md: the quality of the ranking by number of calls, and of its statements.

Input: docs/ranking.json, the output of `bench/ranking.py`; `--from FILE…` merges several runs, and a later row replaces
an earlier one of its name. Output: targets and tables of the page between two marks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "ranking.json"
PAGE = ROOT / "docs" / "ranking.md"
BEGIN, END = "<!-- begin figures -->", "<!-- end figures -->"
NOISE, TASTE = "all judges of noise", "all judges of taste"
HEADS = {
    "targets": "target | measured | met",
    "calls": "case | trials | method | set right | misplaced | to both: set | to both: misplaced",
    "words": "case | trials | set right / said | misplaced / said | clear: right | about equal: true "
    "| P(paid) ≥ .9: right | rank ranges hold | their width: all / paid",
    "said": "judges | what is said | mean chance said | true",
    "waits": "case | prize | wait by flags alone | wait | right if posted | right if waiting",
}
REPEATED = {"N=25, 80 %", "N=25, 80 %, orders half repeat pairs", "N=25, 80 %, orders repeat pairs"}
REPEATS = ("auto, repeats always counted", "auto, repeats never counted")
SHOWN = {"both + points", "auto", "random + points, same money", "specification"}
"""Methods on the page; the others are in the document only, but for `REPEATS` in the cases that the text cites."""
Row = dict[str, Any]


def tables(rows: list[Row]) -> str:
    lines = {
        "targets": list(_targets({row["id"]: row for row in rows})),
        "calls": [line for row in rows if "methods" in row for line in _calls(row)],
        "words": [_words(row) for row in rows if "rankInside" in row],
        "said": [line for row in rows if "chances" in row for line in _said(row)],
        "waits": [line for row in rows if "waits" in row for line in _waits(row)],
    }
    shown = [
        "\n".join((f"| {head} |", "|" + "---|" * (head.count(" | ") + 1), *lines[kind]))
        for kind, head in HEADS.items()
        if lines[kind]
    ]
    shown[1:1] = ["All methods and budgets: [`ranking.json`](ranking.json)."]
    return "\n\n".join(
        [*shown, *(_sentence(row) for row in rows if "rank300" in row or row["id"].startswith("replay"))]
    )


def _targets(rows: dict[str, Row]) -> Iterator[str]:
    """List every target of the ranking with its measured value, met or not."""
    if (row := rows.get("calls N=25, 80 %")) is not None:
        ours, both = row["methods"]["auto"]["misplaced"], row["methods"]["both + points"]["misplaced"]
        measured = (
            f"{ours:.3f} after {row['calls']:.0f} calls (orders counted twice: {row['priced']:.0f}); both {both:.3f}"
        )
        is_met = ours <= both and row["priced"] <= 240
        yield _target("N = 25, 80 %: no more misplaced than by 600 calls in pairs, with at most 240", measured, is_met)
    cases = {row["id"][6:]: row for row in rows.values() if "methods" in row}
    if cases:
        to_both = {case: row["methods"]["auto"]["misplacedToBoth"] for case, row in cases.items()}
        yield _never_worse("never more misplaced than by both orders of all pairs and points", to_both)
        to_same = {case: row["misplacedToSame"] for case, row in cases.items()}
        yield _never_worse("never more misplaced than by pairs and points for the same money", to_same)
    if (row := rows.get(f"words {NOISE}")) is not None:
        value, low, high, count = row["clear"]
        measured = "never said" if value is None else f"{value:.3f} ({low:.3f} to {high:.3f}) of {count}"
        yield _target("“clear” is right in 95 % outside of taste", measured, value is not None and value >= 0.95)
        inside, width = row["rankInside"], row["paidWidth"]
        yield _target("90 % ranges of ranks hold 90 %", f"{inside:.3f}", inside >= 0.9)
        yield _target("the range of a paid entry is at most three places wide", f"{width:.1f}", width <= 3)


def _never_worse(name: str, gaps: dict[str, tuple[float, float]]) -> str:
    worse = [f"{case} ({gap:+.3f} ± {error:.3f})" for case, (gap, error) in gaps.items() if gap > 2 * error]
    measured = f"worse in {', '.join(worse)}" if worse else f"in none of {len(gaps)} cases worse by two standard errors"
    return _target(name, measured, not worse)


def _target(name: str, measured: str, is_met: bool) -> str:
    return f"| {name} | {measured} | {'yes' if is_met else '**no**'} |"


def _calls(row: Row) -> list[str]:
    case, lines = row["id"].removeprefix("calls "), []
    for name, figures in row["methods"].items():
        if name not in SHOWN and not (name in REPEATS and case in REPEATED):
            continue
        shown = f"auto, ended by itself after {row['calls']:.0f} calls" if name == "auto" else name
        gaps = " | ".join(f"{figures[key][0]:+.3f} ± {figures[key][1]:.3f}" for key in ("setToBoth", "misplacedToBoth"))
        lines.append(
            f"| {case} | {row['trials']} | {shown} | {figures['set']:.3f} | {figures['misplaced']:.3f} | {gaps} |"
        )
    return lines


def _words(row: Row) -> str:
    clear, equal, sure = (_share(row[key]) for key in ("clear", "equal", "pPaid90"))
    return (
        f"| {row['id'].removeprefix('words ')} | {row['trials']} | {row['right']:.3f} / {row['said']:.3f} "
        f"| {row['misplaced']:.3f} / {row['saidMisplaced']:.3f} | {clear} | {equal} | {sure} "
        f"| {row['rankInside']:.3f} | {row['width']:.1f} / {row['paidWidth']:.1f} |"
    )


def _said(row: Row) -> list[str]:
    case = row["id"].removeprefix("calibration ")
    words = [f"| {case} | {word} | – | {_share(figures)} |" for word, figures in row["words"].items()]
    return words + [
        f"| {case} | {name} | {said:.3f} | {_share(figures)} |"
        for name, bins in row["chances"].items()
        for said, *figures in bins
    ]


def _share(figures: list[Any]) -> str:
    value, low, high, count = figures
    return "–" if value is None else f"{value:.3f} ({low:.3f} to {high:.3f}; {count})"


def _waits(row: Row) -> list[str]:
    case = row["id"].removeprefix("waits ")
    return [
        f"| {case} | {prize} | "
        + " | ".join(_share(figures[key]) for key in ("before", "now", "rightPosted", "rightWaiting"))
        + " |"
        for prize, figures in row["waits"].items()
    ]


def _sentence(row: Row) -> str:
    if "rank300" in row:
        return (
            f"Processor time at 300 entries: ranking {row['rank300']:g} s, choosing the next questions "
            f"{row['step300']:g} s."
        )
    return (
        f"Real verdicts ({row['id'].removeprefix('replay ')}): from eight per entry, the three best by all verdicts "
        f"were found in {row['right']:.0%} of {row['trials']} draws; stated chance {row['said']:.0%}; by points "
        f"{row['points']:.0%}."
    )


def page(text: str, figures: dict[str, Any]) -> str:
    """Return the page with its tables regenerated."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables(figures['rows'])}\n{END}{after}"


def gathered(files: list[Path]) -> dict[str, Any]:
    """Merge the rows of several runs, in the order of their first appearance."""
    rows: dict[str, Row] = {}
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            rows[row["id"]] = row
    return {"rows": list(rows.values())}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--from"]:
        figures = gathered([Path(name) for name in arguments[1:]])
        FIGURES.write_text(json.dumps(figures, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
