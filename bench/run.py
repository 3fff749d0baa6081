"""Run every benchmark in its own process and compare it with its targets (`make bench`).

Prints one JSON document with the tables of all benches; a bench that fails is reported as failed and the others still
run. `--quick` runs each with few trials; `--keep` is the folder that collects the trials of the ranking over runs
(`make bench KEEP=var/ranking`), because all of them take hours; `--verdicts` is a file of real verdicts for it.
Performance is a ratio within one run: machines are shared and noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BENCHES = ("judge", "ranking", "service", "readers", "execution", "pages", "scale")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials, for a first look")
    parser.add_argument("--only", choices=BENCHES, action="append", help="only this bench (may be repeated)")
    parser.add_argument("--keep", help="folder that keeps the trials of the ranking")
    parser.add_argument("--verdicts", help="real verdicts for the ranking, as CSV with left, right, winner")
    asked = parser.parse_args()
    results: dict[str, Any] = {}
    for name in asked.only or BENCHES:
        print(f"bench {name} …", file=sys.stderr, flush=True)
        words = ["--quick"] if asked.quick else []
        if name == "ranking":
            words += ["--keep", asked.keep] if asked.keep else []
            words += ["--verdicts", asked.verdicts] if asked.verdicts else []
        results[name] = run(name, words)
    print(json.dumps(results, indent=2))
    if any("failed" in result for result in results.values()):
        sys.exit(1)


def run(name: str, words: list[str]) -> dict[str, Any]:
    command = [sys.executable, str(HERE / f"{name}.py"), *words]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}  # the benches use the fixtures of the tests
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"failed": f"exit code {done.returncode}", "output": done.stdout[-2000:]}
    return result


if __name__ == "__main__":
    main()
