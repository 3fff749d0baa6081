"""What to run of a submission of several files, whose files import each other."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from clara_eval.harness.model import ProgramText

_IMPORT = re.compile(r"^[ \t]*import\b[^;\"'(=]{0,500}[\"'](\.{1,2}/[^\"'\n]*)[\"'][^;\n]*;?[ \t]*$", re.MULTILINE)
_LICENSE = re.compile(r"^[ \t]*//[ \t]*SPDX-License-Identifier:.*$", re.MULTILINE)
_FIRST = ("submission", "solution", "main", "index")
_LOADER = Path(__file__).with_name("python_tree.py")


def one_program(files: Mapping[str, str], language: str) -> ProgramText:
    """Files in Python and JavaScript are modules of each other; others are joined, each after those that it imports."""
    if language == "python":
        loader = _LOADER.read_text(encoding="utf-8")
        return f"{loader}\nload({dict(files)!r}, {_first(files, 'py')!r}, globals())\n"
    if language == "javascript":
        first = _first(files, "js", "mjs")
        return {first: files[first], **files}
    joined = "".join(_without_imports(files, path) for path in _in_order(files))
    licenses = _LICENSE.findall(joined)
    return f"{licenses[0]}\n{_LICENSE.sub('', joined)}" if licenses else joined


def _first(files: Mapping[str, str], *endings: str) -> str:
    """The file that is run: one with a usual name, else the first at the top, else the first."""
    tops = [path for path in files if "/" not in path]
    usual = [path for name in _FIRST for ending in endings if (path := f"{name}.{ending}") in tops]
    return next(iter(usual or tops or files))


def _in_order(files: Mapping[str, str]) -> Iterator[str]:
    """Every path after those that its file imports; of a circle in the order of the paths."""
    seen, given, waiting = set[str](), set[str](), [*files][::-1]
    while waiting:
        path = waiting[-1]
        if path not in seen:
            seen.add(path)
            names = _IMPORT.findall(files[path])
            waiting += [
                found for name in reversed(names) if (found := _target(files, path, name)) and found not in seen
            ]
            continue
        waiting.pop()
        if path not in given:
            given.add(path)
            yield path


def _target(files: Mapping[str, str], path: str, name: str) -> str:
    """The file of the tree that an import names; empty if there is none."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return place if place in files else ""


def _without_imports(files: Mapping[str, str], path: str) -> str:
    """The text without imports from the tree; any other stays, and is refused where it is run."""
    return _IMPORT.sub(lambda found: "" if _target(files, path, found[1]) else found[0], files[path])
