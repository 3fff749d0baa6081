"""Write docs/security.md from the results of a red-team run (`make security`).

Input: docs/security.json, the output of `clara-eval redteam --json`; with `make security CORPUS=FILE` also the results
of other payloads. Output: the page, with its figures between two marks. `tests/test_security_page.py` compares the page
with the document, and the document with the program.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from clara_eval.redteam.machine_attacks import HARNESSES

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "security.json"
PAGE = ROOT / "docs" / "security.md"
COMMAND = Path(sys.executable).parent / "clara-eval"
BEGIN, END = "<!-- begin figures -->", "<!-- end figures -->"
BEGIN_ATTACKS, END_ATTACKS = "<!-- begin harness attacks -->", "<!-- end harness attacks -->"


def table(report: dict[str, Any]) -> str:
    """List every figure with its target, in the order of the run; name the missed ones."""
    lines = ["| | figure | measured | 95 % | target | trials |", "|---|---|---|---|---|---|"]
    lines += [_row(figure) for figure in report["figures"]]
    missed = ", ".join(f"`{name}`" for name in report["missed"])
    verdict = f"**Missed:** {missed}." if missed else "Every target is met with this seed."
    lines += ["", f"{verdict} Seed {report['seed']}, {report['corpus']['payloads']} payloads."]
    for name, other in report.get("otherCorpora", {}).items():
        lines += ["", f"In the same run, the {other['corpus']['payloads']} payloads of `{name}`:", "", *lines[:2]]
        lines += [_row(figure) for figure in other["figures"]]
    return "\n".join(lines)


def _row(figure: dict[str, Any]) -> str:
    mark = {True: "ok", False: "**missed**", None: "report"}[figure["met"]]
    low, high = _shown(figure, figure["low"]), _shown(figure, figure["high"])
    what = f"`{figure['name']}` {figure['what']}"
    cells = (mark, what, _shown(figure, figure["value"]), f"{low} – {high}", _target(figure), f"{figure['trials']:,}")
    return "| " + " | ".join(cells) + " |"


def _shown(figure: dict[str, Any], value: float) -> str:
    return f"{100 * value:.2f} %" if "hits" in figure["detail"] else f"{value:.3g}"


def _target(figure: dict[str, Any]) -> str:
    target = figure["target"]
    if target is None:
        return "–"
    (bound, value) = next(iter(target.items()))
    return f"{'≤' if bound == 'atMost' else '≥'} {_shown(figure, value)}"


def attack_table() -> str:
    """List every attack on a harness by language."""
    lines = ["| language | attack | what the submission does |", "|---|---|---|"]
    for harness in HARNESSES.values():
        language = "JavaScript" if harness.language == "javascript" else harness.language.capitalize()
        lines += [f"| {language} | `{attack.name}` | {attack.what} |" for attack in harness.attacks]
    return "\n".join(lines)


def page(text: str, report: dict[str, Any]) -> str:
    """Return the page with its figures and its table of attacks regenerated."""
    return _between(_between(text, BEGIN, END, table(report)), BEGIN_ATTACKS, END_ATTACKS, attack_table())


def _between(text: str, begin: str, end: str, inside: str) -> str:
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{inside}\n{end}{after}"


def _started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([COMMAND, "redteam", "--json", *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _finished(run: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = run.communicate()
    if run.returncode not in (0, 1):
        raise SystemExit(f"clara-eval redteam ended with {run.returncode}.")
    report: dict[str, Any] = json.loads(out)
    return report


def run_all(corpora: list[Path]) -> dict[str, Any]:
    """Run our own corpus, and each other corpus in parallel."""
    ours = _started()
    others = {path.name: _started("--only", "injection", "--corpus", str(path)) for path in corpora}
    report = _finished(ours)
    found = {name: _finished(run) for name, run in others.items()}
    missed = [figure["name"] for other in found.values() for figure in other["figures"] if figure["met"] is False]
    if missed:
        print(f"Missed on another corpus: {', '.join(missed)}.", file=sys.stderr)
    return report | ({"otherCorpora": found} if found else {})


def main() -> None:
    if "--run" in sys.argv[1:]:
        report = run_all([Path(name).resolve() for name in sys.argv[2:]])
        FIGURES.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    main()
