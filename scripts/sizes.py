"""How many lines the product has in each room, now and at an earlier commit, and what became of what stood there.

`python scripts/sizes.py REV` counts the shipped modules of both (no tests, no `testing`), first by module: those that
stood there already, followed through renames, and those that are new since. Then by function and class, which tells
what stood there from what was added: each is found again by its module and name, else by its name alone, else by half
of its lines. A function that was cut up has not shrunk: two or more lines that stood together in what is no longer
there, and stand together in a new function, were moved, and count to what stood there; `single lines` that are in both
may be chance, and are told apart. What is not found is gone; what was nothing before is new. `--list` names every one,
and for new functions how much of them was moved, so that anybody can check the count. Two things it cannot tell: a text
that was moved and rewritten in every line counts as new, and lines that a new feature added to an old function count as
the old function's.
"""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import NamedTuple

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


def moved(rev: str) -> dict[str, str]:
    """The modules of `rev` that stand here under this or another name: old path to new path."""
    rows = (line.split("\t") for line in git("diff", "-M30", "--name-status", "--diff-filter=MR", rev, "HEAD"))
    unchanged = set(sizes(rev)) & set(sizes("HEAD"))
    return {path: path for path in unchanged} | {row[1]: row[-1] for row in rows}


def room_of(path: str) -> str:
    return PurePath(path).relative_to(PACKAGE).parts[0].removesuffix(".py")


def by_room(modules: dict[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for path, lines in modules.items():
        found[room_of(path)] += lines
    return found


class Place(NamedTuple):
    path: str
    name: str


Pieces = dict[Place, list[str]]


def pieces(rev: str) -> Pieces:
    """Every function, method and class (without its methods) of the shipped modules, with its lines."""
    found: Pieces = {}
    for path in sizes(rev):
        lines = git("show", f"{rev}:{path}")
        for name, numbers in _defined(ast.parse("\n".join(lines)), ""):
            found[Place(path, name)] = [lines[number - 1].strip() for number in numbers]
    return found


def _defined(node: ast.AST, before: str) -> Iterator[tuple[str, list[int]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([child.lineno, *(mark.lineno for mark in child.decorator_list)])
            own = range(first, (child.end_lineno or first) + 1)
            inner = list(_defined(child, f"{before}{child.name}.")) if isinstance(child, ast.ClassDef) else []
            yield from inner
            theirs = {number for _, numbers in inner for number in numbers}
            yield before + child.name, [number for number in own if number not in theirs]


def pair(old: Pieces, new: Pieces, renamed: dict[str, str]) -> dict[Place, Place]:
    """What of now was what of then."""
    pairs = {p: to for p in old if (to := Place(renamed.get(p.path, p.path), p.name)) in new}
    for rule in (_by_name, _by_lines):
        gone = [place for place in old if place not in pairs]
        free = sorted(set(new) - set(pairs.values()))
        pairs |= dict(rule(gone, free, old, new))
    return pairs


def _by_name(gone: list[Place], free: list[Place], _old: Pieces, _new: Pieces) -> Iterator[tuple[Place, Place]]:
    """The same name elsewhere, where there is just one on either side."""
    here, there = (defaultdict[str, list[Place]](list) for _ in range(2))
    for place in gone:
        here[place.name].append(place)
    for place in free:
        there[place.name].append(place)
    yield from ((here[name][0], there[name][0]) for name in here if len(here[name]) == len(there[name]) == 1)


def _by_lines(gone: list[Place], free: list[Place], old: Pieces, new: Pieces) -> Iterator[tuple[Place, Place]]:
    """Another name, and half of the longer one's lines: the closest first."""
    near = sorted((-share, a, b) for a in gone for b in free if (share := _share(old[a], new[b])) >= 0.5)
    taken: set[Place] = set()
    for _, a, b in near:
        if not taken & {a, b}:
            taken |= {a, b}
            yield a, b


def _share(one: list[str], other: list[str]) -> float:
    longer, shorter = max(len(one), len(other)), min(len(one), len(other))
    if shorter < 3 or shorter * 2 < longer:
        return 0.0
    return (Counter(one) & Counter(other)).total() / longer


def left_over(old: Pieces, new: Pieces, pairs: dict[Place, Place]) -> dict[Place, list[str | None]]:
    """What of the old text does not stand in its place any more; None for a line that does. Empty lines are nothing."""
    found: dict[Place, list[str | None]] = {}
    for place, lines in old.items():
        before = [line for line in lines if line]
        now = [line for line in new[pairs[place]] if line] if place in pairs else []
        blocks = difflib.SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks()
        kept = {number for block in blocks for number in range(block.a, block.a + block.size)}
        found[place] = [None if number in kept else line for number, line in enumerate(before)]
    return found


def moved_text(old: Pieces, new: Pieces, pairs: dict[Place, Place], together: int) -> dict[Place, int]:
    """By new function: how many of its lines were moved there, so many together at least, each old line once."""
    stood: defaultdict[tuple[str | None, ...], list[tuple[Place, int]]] = defaultdict(list)
    for place, lines in left_over(old, new, pairs).items():
        for number in range(len(lines) - together + 1):
            block = tuple(lines[number : number + together])
            if None not in block:
                stood[block].append((place, number))
    taken: set[tuple[Place, int]] = set()
    return {to: len(_came(new[to], stood, taken, together)) for to in sorted(set(new) - set(pairs.values()))}


def _came(
    lines: list[str],
    stood: dict[tuple[str | None, ...], list[tuple[Place, int]]],
    taken: set[tuple[Place, int]],
    together: int,
) -> set[int]:
    """The numbers of the lines that were moved here."""
    now, came = [line for line in lines if line], set[int]()
    for start in range(len(now) - together + 1):
        for place, number in stood.get(tuple(now[start : start + together]), ()):
            block = [(start + step, (place, number + step)) for step in range(together)]
            if all(here in came or there not in taken for here, there in block):
                came |= {here for here, _ in block}
                taken |= {there for _, there in block}
                break
    return came


def show_modules(rev: str) -> None:
    before, now, stood = sizes(rev), sizes("HEAD"), set(moved(rev).values())
    old, new = ({p: n for p, n in now.items() if (p in stood) is there} for there in (True, False))
    rooms = [by_room(modules) for modules in (before, old, new)]
    print(f"{'room':16}{'at ' + rev[:12]:>16}{'kept modules':>16}{'new modules':>16}")
    for room in sorted(set().union(*rooms)):
        print(f"{room:16}" + "".join(f"{counted[room]:>16,}" for counted in rooms))
    print(f"{'all':16}" + "".join(f"{sum(counted.values()):>16,}" for counted in rooms))


def show_pieces(rev: str, *, listed: bool) -> None:
    old, new = pieces(rev), pieces("HEAD")
    pairs = pair(old, new, moved(rev))
    gone, added = (set(old) - set(pairs)), (set(new) - set(pairs.values()))
    came, single = (moved_text(old, new, pairs, together) for together in (2, 1))
    before, again = (sum(len(of[place]) for place in places) for of, places in ((old, old), (new, pairs.values())))
    whole, at_most = sum(came.values()), sum(single.values())
    rows = (
        ("found again", _counted(old[place] for place in pairs), _counted(new[place] for place in pairs.values())),
        ("gone, or moved into new", _counted(old[place] for place in gone), f"{whole:,} in {_some(came)}"),
        ("what stood there", _counted(old.values()), f"{again + whole:,} ({again + whole - before:+,})"),
        ("with single lines", "", f"{again + at_most:,} ({again + at_most - before:+,})"),
        ("new", "-", f"{sum(len(new[place]) for place in added) - whole:,} in {len(added):,}"),
    )
    print(f"\n{'functions and classes':24}{'at ' + rev[:12]:>24}{'now':>24}")
    for words, then, now in rows:
        print(f"{words:24}{then:>24}{now:>24}")
    if listed:
        for place, to in sorted(pairs.items()):
            print(f"{len(old[place]):>5}{len(new[to]):>5}  {place.path} {place.name} -> {to.path} {to.name}")
        for place in sorted(gone):
            print(f"{len(old[place]):>5} gone  {place.path} {place.name}")
        for place in sorted(added):
            print(f"{len(new[place]):>5} new, {came[place]:>3} moved  {place.path} {place.name}")


def _some(came: dict[Place, int]) -> str:
    return f"{sum(map(bool, came.values())):,}"


def _counted(found: Iterable[list[str]]) -> str:
    sizes_ = [len(lines) for lines in found]
    return f"{sum(sizes_):,} in {len(sizes_):,}"


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--list"] or ["HEAD~1"]
    show_modules(given[0])
    show_pieces(given[0], listed="--list" in sys.argv)
