"""Write the table of faults in docs/operations.md from docs/faults.json (`make soak SMALL=1`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUN = ROOT / "docs" / "faults.json"
PAGE = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- begin faults -->", "<!-- end faults -->"
WHAT = {
    "kills": "processes killed, at a named step or a random moment",
    "node": "rounds with a node that is late, lies, refuses or flaps",
    "database": "restarts of Postgres",
    "reorgs": "reorgs after signing",
    "poison": "poisonous challenges beside a round",
    "connections": "rounds beside 1,000 half-open connections",
}


def table(run: dict[str, Any]) -> str:
    lines = ["| fault | times | rounds | posted once | twice | wrong | not posted |", "|---|---|---|---|---|---|---|"]
    for name, what in WHAT.items():
        found = run[name]
        once = found["rounds"] - found["double"] - found["stuck"]
        cells = (found["done"], found["rounds"], once, found["double"], found["wrong"], found["stuck"])
        lines.append(f"| {what} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def page(text: str, run: dict[str, Any]) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(run)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), json.loads(RUN.read_text(encoding="utf-8"))), "utf-8")
