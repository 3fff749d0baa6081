"""One source to run of a submission of several files, whose files import each other."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_OWN_IMPORT = re.compile(
    r"^[ \t]*(?:import|export)\b[^;\"'(=]{0,500}[\"'](\.{1,2}/[^\"'\n]*)[\"'][^;\n]*;?[ \t]*$", re.MULTILINE
)
_REQUIRE = re.compile(r"\brequire\([ \t]*[\"'](\.{1,2}/[^\"'\n]*)[\"'][ \t]*\)")
_EXPORTS = re.compile(r"^[ \t]*(?:module\.)?exports(?:\.(\w+))?[ \t]*=(?:[ \t]*\{([^}]*)\})?", re.MULTILINE)
_LICENSE = re.compile(r"^[ \t]*//[ \t]*SPDX-License-Identifier:.*$", re.MULTILINE)
_FIRST = ("submission", "solution", "main", "index")


def one_program(files: Mapping[str, str], language: str) -> str:
    """Python files are modules of each other; others are joined, each after those that it imports."""
    if language == "python":
        return f"{_loader('python_tree.py')}\nload({dict(files)!r}, {_first(files, 'py')!r}, globals())\n"
    ordered = {path: _without_imports(files, path) for path in _in_order(files)}
    if language == "javascript" and any(map(_EXPORTS.search, files.values())):
        return _common_program(ordered)
    joined = "".join(ordered.values())
    licenses = _LICENSE.findall(joined)
    if language != "solidity" or not licenses:
        return joined
    return f"{licenses[0]}\n{_LICENSE.sub('', joined)}"


def _loader(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _first(files: Mapping[str, str], ending: str) -> str:
    """The file that is run: one with a usual name, else the first at the top, else the first."""
    tops = [path for path in files if "/" not in path]
    return next(iter([f"{name}.{ending}" for name in _FIRST if f"{name}.{ending}" in tops] or tops or files))


def _in_order(files: Mapping[str, str]) -> Iterator[str]:
    """Every path after those that its file imports; of a circle in the order of the paths."""
    seen, given, waiting = set[str](), set[str](), [*files][::-1]
    while waiting:
        path = waiting[-1]
        if path not in seen:
            seen.add(path)
            names = [*_OWN_IMPORT.findall(files[path]), *_REQUIRE.findall(files[path])]
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
    return next((found for found in (place, f"{place}.js", f"{place}/index.js") if found in files), "")


def _without_imports(files: Mapping[str, str], path: str) -> str:
    """The text without imports from the tree; any other stays, and is refused where it is run."""

    def target(found: re.Match[str]) -> str:
        return _target(files, path, found[1])

    text = _OWN_IMPORT.sub(lambda found: "" if target(found) else found[0], files[path])
    return _REQUIRE.sub(lambda found: f"$need({json.dumps(target(found) or found[1])})", text)


def _common_program(files: Mapping[str, str]) -> str:
    """CommonJS files as functions; the names that the first one exports are exported."""
    parts = [_loader("require.js")]
    for path, text in files.items():
        is_common = _EXPORTS.search(text) is not None
        parts.append(f"$files[{json.dumps(path)}] = (module, exports) => {{\n{text}\n}};\n" if is_common else text)
    first = _first(files, "js")
    told = ",".join(one or several for one, several in _EXPORTS.findall(files[first]))
    for number, name in enumerate(dict.fromkeys(re.findall(r"(?:^|,)\s*(\w+)", told))):
        parts.append(f"const $out{number} = $need({json.dumps(first)}).{name};\nexport {{ $out{number} as {name} }};\n")
    return "".join(parts)
