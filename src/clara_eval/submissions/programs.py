"""One source to run of a submission of several files, whose files import each other."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

_OWN_IMPORT = re.compile(
    r"^[ \t]*(?:import|export)\b[^;\"'(=]{0,500}[\"'](\.{1,2}/[^\"'\n]*)[\"'][^;\n]*;?[ \t]*$", re.MULTILINE
)
_REQUIRE = re.compile(r"\brequire\([ \t]*[\"'](\.{1,2}/[^\"'\n]*)[\"'][ \t]*\)")
_COMMON = re.compile(r"^[ \t]*(?:module\.)?exports(?:\.\w+)?[ \t]*=", re.MULTILINE)
_EXPORTED = re.compile(
    r"^[ \t]*(?:module\.)?exports\.(\w+)[ \t]*=|^[ \t]*module\.exports[ \t]*=[ \t]*\{([^}]*)\}", re.MULTILINE
)
_LICENSE = re.compile(r"^[ \t]*//[ \t]*SPDX-License-Identifier:.*$", re.MULTILINE)
_FIRST = ("submission", "solution", "main", "index")
_LOADER = Path(__file__).with_name("python_tree.py")
_NEED = """const $files = {}, $made = {};
function $need(path) {
  if (!$made[path]) { $made[path] = { exports: {} }; $files[path]($made[path], $made[path].exports); }
  return $made[path].exports;
}
"""


def one_program(files: Mapping[str, str], language: str) -> str:
    """Python files are modules of each other; others are joined, each after those that it imports."""
    if language == "python":
        loader = _LOADER.read_text(encoding="utf-8")
        return f"{loader}\nload({dict(files)!r}, {_first(files, 'py')!r}, globals())\n"
    ordered = {path: files[path] for path in _in_order(files)}
    if language == "javascript" and any(map(_COMMON.search, files.values())):
        return _common_program(ordered)
    joined = "".join(_OWN_IMPORT.sub(partial(_dropped, files, path), text) for path, text in ordered.items())
    licenses = _LICENSE.findall(joined)
    if language != "solidity" or not licenses:
        return joined
    return f"{licenses[0]}\n{_LICENSE.sub('', joined)}"


def _first(files: Mapping[str, str], ending: str) -> str:
    """The file that is run: one with a usual name, else the first at the top, else the first."""
    tops = [path for path in files if "/" not in path]
    return next(iter([f"{name}.{ending}" for name in _FIRST if f"{name}.{ending}" in tops] or tops or files))


def _in_order(files: Mapping[str, str]) -> Iterator[str]:
    """Every path after those that its file imports; of a circle in the order of the paths."""
    seen, given, waiting = set[str](), set[str](), list(reversed(files))
    while waiting:
        path = waiting[-1]
        if path not in seen:
            seen.add(path)
            names = [*_OWN_IMPORT.findall(files[path]), *_REQUIRE.findall(files[path])]
            waiting += [found for name in reversed(names) if (found := _target(files, path, name)) not in {None, *seen}]
            continue
        waiting.pop()
        if path not in given:
            given.add(path)
            yield path


def _target(files: Mapping[str, str], path: str, name: str) -> str | None:
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return next((found for found in (place, f"{place}.js", f"{place}/index.js") if found in files), None)


def _dropped(files: Mapping[str, str], path: str, found: re.Match[str]) -> str:
    """Nothing for an import from the tree; another one stays, and is refused where it is run."""
    return "" if _target(files, path, found[1]) else found[0]


def _common_program(files: Mapping[str, str]) -> str:
    """CommonJS files as functions that `require` calls once; the names that the first one exports are exported."""
    parts = [_NEED]
    for path, text in files.items():
        needed = _REQUIRE.sub(partial(_needed, files, path), text)
        is_common = _COMMON.search(text) is not None
        parts.append(f"$files[{json.dumps(path)}] = (module, exports) => {{\n{needed}\n}};\n" if is_common else needed)
    first = _first(files, "js")
    names = [
        name for one in _EXPORTED.findall(files[first]) for name in re.findall(r"(?:^|,)\s*(\w+)", one[0] or one[1])
    ]
    for number, name in enumerate(dict.fromkeys(names)):
        parts.append(f"const $out{number} = $need({json.dumps(first)}).{name};\nexport {{ $out{number} as {name} }};\n")
    return "".join(parts)


def _needed(files: Mapping[str, str], path: str, found: re.Match[str]) -> str:
    return f"$need({json.dumps(_target(files, path, found[1]) or found[1])})"
