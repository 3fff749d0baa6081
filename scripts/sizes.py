"""How many lines the product has in each room, now and at an earlier commit.

`python scripts/sizes.py REV` counts the shipped modules of both (no tests, no `testing`): those that stood there
already, followed through renames, and those that are new since.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import PurePath

PACKAGE = "src/clara_eval"


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.splitlines()


def is_shipped(path: str) -> bool:
    parts = PurePath(path).parts
    return path.endswith(".py") and "testing" not in parts and not parts[-1].startswith(("test_", "conftest"))


def sizes(rev: str) -> dict[str, int]:
    """Lines of each shipped module at a commit."""
    empty = git("hash-object", "-t", "tree", "/dev/null")[0]
    rows = (line.split("\t") for line in git("diff", "--numstat", "--no-renames", empty, rev, "--", PACKAGE))
    return {path: int(added) for added, _, path in rows if is_shipped(path)}


def kept(rev: str) -> set[str]:
    """The modules of now that stood there at `rev`, under this or another name."""
    rows = (line.split("\t") for line in git("diff", "-M30", "--name-status", "--diff-filter=MR", rev, "HEAD"))
    unchanged = set(sizes(rev)) & set(sizes("HEAD"))
    return unchanged | {row[-1] for row in rows}


def by_room(modules: dict[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for path, lines in modules.items():
        found[PurePath(path).relative_to(PACKAGE).parts[0].removesuffix(".py")] += lines
    return found


def main(rev: str) -> None:
    before, now, stood = sizes(rev), sizes("HEAD"), kept(rev)
    old, new = ({p: n for p, n in now.items() if (p in stood) is there} for there in (True, False))
    rooms = [by_room(modules) for modules in (before, old, new)]
    print(f"{'room':16}{'at ' + rev[:12]:>16}{'kept modules':>16}{'new modules':>16}")
    for room in sorted(set().union(*rooms)):
        print(f"{room:16}" + "".join(f"{counted[room]:>16,}" for counted in rooms))
    print(f"{'all':16}" + "".join(f"{sum(counted.values()):>16,}" for counted in rooms))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "HEAD~1")
