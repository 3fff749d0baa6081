"""Write docs/ranking.md: how good the ranking is for how many calls, and how true its words are.

Comes in: docs/ranking.json, what `bench/ranking.py` told (its standard output; several runs are put together with
`--from FILE`, a later row of the same name takes the place of an earlier one). Goes out: the page's table between two
marks. What must hold: a row that failed says so, and one with fewer trials than wanted is not called a pass.
`tests/test_ranking_page.py` holds the page to the document.
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
FEW = 0.1  # of the trials wanted: below that a pass is luck
CHANCES = "How often the chance that was said came true, tenth by tenth:"
HEAD = "| part | target | measured | trials | |\n|---|---|---|---|---|"


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each row."""
    return "\n".join([HEAD, *map(_line, rows)])


def reliability(rows: list[dict[str, Any]]) -> str:
    """What was said about the paid set and how often it was so, in tenths of the chance; empty where nothing was."""
    told = [(row["id"], row["measured"]["setChance"]) for row in rows if "setChance" in row["measured"]]
    if not told:
        return ""
    head = "| case | chance of the paid set, mean of each tenth → share that was right (rounds) |\n|---|---|"
    lines = [
        f"| {name} | " + ", ".join(f"{b['predicted']:.2f} → {b['actual']:.2f} ({b['items']})" for b in tenths) + " |"
        for name, tenths in told
    ]
    return "\n".join(["", CHANCES, "", head, *lines, ""])


def _line(row: dict[str, Any]) -> str:
    measured = row["measured"]
    trials, wanted = measured.get("trials"), measured.get("wanted")
    count = "" if trials is None else f"{trials:,}" + (f" of {wanted:,}" if wanted and trials < wanted else "")
    word = {True: _passes(trials or 0, wanted or 0), False: "**fails**", None: "no target"}[row["pass"]]
    return f"| {row['id']} | {row['target']} | {_measured(measured) or row.get('note', '')} | {count} | {word} |"


def _passes(trials: int, wanted: int) -> str:
    """A pass from a few trials is none; a failure is told in any case."""
    if trials >= wanted:
        return "passes"
    return "passes so far" if trials >= FEW * wanted else "too few trials to tell"


def _measured(found: dict[str, Any]) -> str:
    """The figures with their standard errors."""
    if "setGain" in found:
        return (
            f"set {found['set']:.3f} ({found['setGain']:+.3f} ± {found['setError']:.3f}), misallocation "
            f"{found['misallocation']:.3f} ({found['misallocationGain']:+.3f} ± {found['misallocationError']:.3f})"
        )
    if "setRightWhenClear" in found:
        names = {"setRightWhenClear": "clear", "rightWhenTossUp": "toss-up", "rightWhenP90": "p ≥ .9"}
        shares = [f"{name} {_share(found[key])}" for key, name in names.items()]
        return ", ".join([*shares, f"intervals cover {found['coverage']:.3f} ± {found['coverageError']:.3f}"])
    if "coverage" in found and "error" in found:
        return f"{found['coverage']:.3f} ± {found['error']:.3f}; ranges of ranks {found['rankCoverage']:.3f}"
    plain = {key: value for key, value in found.items() if key not in ("trials", "wanted", "bins")}
    return ", ".join(f"{key} {_plain(value)}" for key, value in plain.items())


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_plain(one)}" for key, one in value.items()) + ")"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _share(told: dict[str, Any]) -> str:
    if told["share"] is None:
        return "never said"
    return f"{told['share']:.3f} ± {told['error']:.3f} ({told['cases']:,} times)"


def page(text: str, told: dict[str, Any]) -> str:
    """The page with its table written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(told['rows'])}\n{reliability(told['rows'])}{END}{after}"


def gathered(files: list[Path]) -> dict[str, Any]:
    """The rows of several runs, each once, in the order in which they first appear."""
    rows: dict[str, dict[str, Any]] = {}
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            rows[row["id"]] = {key: value for key, value in row.items() if key != "seconds"}
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
