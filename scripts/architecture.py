"""The order of the rooms, the rules that follow from it, and the picture of it.

`ROOMS` is the one list: a module imports only what stands above it here, inline imports too. `faults` looks for
everything that breaks a rule; `tests/test_habits.py` runs it. `python scripts/architecture.py` writes
`docs/images/architecture.svg` from the same list; `make docs` does it, too. A new room is one line here.
"""

from __future__ import annotations

import ast
import html
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"


class Room(NamedTuple):
    name: str
    group: str
    makes: str


ROOMS = (
    Room("errors", "floor", "what goes wrong, by what happens next"),
    Room("extras", "floor", "the optional parts, and what installs them"),
    Room("memory", "floor", "how often garbage is looked for, and what is given back"),
    Room("gather", "floor", "many tasks, and the first error ends all"),
    Room("processes", "floor", "a name for a process that proves its death"),
    Room("http_body", "floor", "an answer read to its end, within a limit"),
    Room("web_origin", "floor", "the Host and Origin of a request, as parsed values"),
    Room("private_file", "floor", "files that only their owner reads"),
    Room("hashing", "floor", "keccak, SHA-256, canonical JSON"),
    Room("attestation", "floor", "what an enclave signed: bytes, signatures, quotes"),
    Room("camel_json", "floor", "dataclasses to JSON and back, in one casing"),
    Room("flags", "floor", "one type of flag, whatever it is about"),
    Room("prompts", "floor", "the texts that models read, as files"),
    Room("networks", "floor", "chain ids and addresses, as facts"),
    Room("contracts", "floor", "the compiled contracts, their ABI and their refusals"),
    Room("eval_config", "rooms", "a checked config, a closed schema of typed features"),
    Room("challenge", "rooms", "a challenge and its submissions at one block"),
    Room("recent", "floor", "what was worked out of late, within a bound"),
    Room("settings", "floor", "every setting, read once"),
    Room("syntax", "floor", "source code as trees, and the shapes of statements"),
    Room("solutions", "rooms", "the submitted bytes, or why they are not judged; copies"),
    Room("money", "beside", "what is a dollar, prices, quotes, caps, ledger, fees"),
    Room("execution", "rooms", "submissions run under the poster's harness, closed in"),
    Room("judge", "rooms", "prompts, strict reading of answers, judging by rules"),
    Room("features", "rooms", "facts measured by tools and facts claimed by a model"),
    Room("tournament", "rooms", "who meets whom, on which side; the comparisons"),
    Room("ranking", "rooms", "order-free Elo, intervals, the margin at the pay line"),
    Room("winners", "rooms", "the prizes, in the contract's own arithmetic"),
    Room("publish", "rooms", "one transaction for one intention, every ending named"),
    Room("trace", "rooms", "the journal and the hash-chained public document"),
    Room("calibration", "beside", "how far judges agree with people; the gate"),
    Room("records", "beside", "what every door shows of a challenge, read in one way"),
    Room("pipeline", "rooms", "the walk through the rooms, and verify by walking again"),
    Room("observe", "beside", "logs, metrics, alerts"),
    Room("chain", "outside", "the contracts, the nodes, the wallet"),
    Room("fetch", "outside", "https and ipfs, with limits"),
    Room("llm", "outside", "one file for each provider of models"),
    Room("store", "outside", "SQLite and Postgres"),
    Room("publication", "outside", "where public documents and traces go"),
    Room("model_pool", "hall", "the models of a run, with their limits"),
    Room("app", "hall", "the one place where settings become adapters"),
    Room("use_cases", "use cases", "one function for each verb, the same for every door"),
    Room("engine", "engine", "when and where an evaluation runs"),
    Room("mcp_server", "doors", "the agents' tools"),
    Room("api", "doors", "REST and the pages"),
    Room("devnet", "beside", "a local chain; an extra that no room needs"),
    Room("demo", "beside", "one whole round on that chain"),
    Room("redteam", "beside", "attacks on all of it, measured"),
    Room("service", "doors", "engine and API in one process"),
    Room("public", "doors", "the names for Python programs"),
    Room("cli", "doors", "the commands"),
    Room("__init__", "doors", "the package"),
    Room("__main__", "doors", "python -m clara_eval"),
)
GROUPS = {
    "doors": "parse, call one use case, show",
    "use cases": "the same for every door",
    "engine": "when and where",
    "hall": "settings become adapters",
    "rooms": "one evaluation walks through them in this order",
    "outside": "fulfils the ports that rooms declare",
    "beside": "used by many",
    "floor": "under everything",
}
ADAPTER_ROOMS = ("chain", "fetch", "llm", "store", "publication", "model_pool")
VALUES = ("clara_eval.chain.contracts.clients",)
"""Modules of adapter rooms that touch nothing by themselves: clients that are given a reader and an address."""
BUILDERS = ("open_store", "open_wallet", "build_llm")
"""Functions that build an adapter; classes of the adapter rooms are told by their capital letter."""


class Import(NamedTuple):
    path: Path
    line: int
    module: str
    names: tuple[str, ...]

    @property
    def room(self) -> str:
        return self.module.split(".")[1]


def product_modules(src: Path) -> list[Path]:
    """Every module that is shipped."""
    found = (path.relative_to(src) for path in src.rglob("*.py"))
    return sorted(p for p in found if not p.name.startswith(("test_", "conftest")) and p.parts[0] != "testing")


def imports(src: Path, path: Path) -> Iterator[Import]:
    """Everything of ours that a module imports: at its top, inside functions, and for types alone."""
    for node in _read((src / path).read_text(encoding="utf-8")).imports:
        if isinstance(node, ast.ImportFrom):
            names = tuple(alias.asname or alias.name for alias in node.names)
            for module in _modules(node, path):
                yield Import(path, node.lineno, module, names)
        else:
            for alias in node.names:
                if alias.name.startswith("clara_eval."):
                    yield Import(path, node.lineno, alias.name, (alias.asname or alias.name,))


def _modules(node: ast.ImportFrom, path: Path) -> list[str]:
    """`from clara_eval import x` names a room, and so does `from ..x import y`."""
    module = node.module or ""
    if node.level:
        here = ["clara_eval", *path.parts[:-1]]
        module = ".".join([*here[: len(here) - node.level + 1], *([module] if module else [])])
    if module == "clara_eval":
        return [f"clara_eval.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
    return [module] if module.startswith("clara_eval.") else []


def room_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def _order() -> list[str]:
    return [room.name for room in ROOMS]


def faults(src: Path) -> list[str]:
    """Every broken rule, with its place."""
    return [*unknown_rooms(src), *test_imports(src), *looks_ahead(src), *second_builders(src)]


def unknown_rooms(src: Path) -> list[str]:
    """Every room has its place in the order, and every place its room."""
    there = {room_of(path) for path in product_modules(src)} | {
        folder.name for folder in src.iterdir() if folder.is_dir() and any(folder.glob("*.md"))
    }
    new = [f"{name}: a room without a place; say in scripts/architecture.py where it stands" for name in
           sorted(there - set(_order()))]  # fmt: skip
    gone = [f"{room.name}: in scripts/architecture.py, but there is no such room" for room in ROOMS
            if room.name not in there]  # fmt: skip
    return new + gone


def test_imports(src: Path) -> list[str]:
    """Nothing that is shipped imports test code."""
    return [
        f"{found.path}:{found.line} imports test code ({found.module})"
        for path in product_modules(src)
        for found in imports(src, path)
        if found.room == "testing" or found.module.split(".")[-1].startswith("test_")
    ]


test_imports.__test__ = False  # type: ignore[attr-defined] # a rule, not a test


def looks_ahead(src: Path) -> list[str]:
    """A module imports only rooms that stand before its own."""
    order = _order()
    wrong = []
    for path in product_modules(src):
        if room_of(path) not in order:
            continue
        ahead = set(order[order.index(room_of(path)) + 1 :])
        wrong += [
            f"{path}:{found.line} looks ahead to {found.room}" for found in imports(src, path) if found.room in ahead
        ]
    return wrong


def second_builders(src: Path) -> list[str]:
    """Adapters are built in app.py and inside their own rooms, nowhere else."""
    wrong = []
    for path in product_modules(src):
        if room_of(path) in {"app", *ADAPTER_ROOMS}:
            continue
        adapters = [i for i in imports(src, path) if i.room in ADAPTER_ROOMS and i.module not in VALUES]
        taken = {name for found in adapters for name in found.names}
        builders = {name for name in taken if name in BUILDERS or name[:1].isupper()}
        wrong += [
            f"{path}:{line} builds {name}; adapters are built in app.py alone"
            for line, name in _read((src / path).read_text(encoding="utf-8")).calls
            if name in builders
        ]
    return wrong


class _Read(NamedTuple):
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    calls: tuple[tuple[int, str], ...]


@cache
def _read(text: str) -> _Read:
    """What a module imports and calls: each called name, and the class in `Class.open(…)`.

    Raising an error of an adapter room is not building an adapter.
    """
    nodes = list(ast.walk(ast.parse(text)))
    raised = {id(node.exc) for node in nodes if isinstance(node, ast.Raise)}
    calls = []
    for node in nodes:
        if isinstance(node, ast.Call) and id(node) not in raised:
            called = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if isinstance(called, ast.Name):
                calls.append((node.lineno, called.id))
    return _Read(tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))), tuple(calls))


WIDTH, LEFT, GAP, BOX = 1000, 150, 8, 54
WIDEST_LETTER = 5.9
IN_A_ROW = 4


def picture() -> str:
    """The picture as SVG: a band for each group, a box for each room, readable on light and dark pages."""
    parts, y = [], 16
    for group, caption in GROUPS.items():
        rooms = [room for room in ROOMS if room.group == group and not room.name.startswith("__")]
        per_row = min(len(rooms), IN_A_ROW)
        rows = -(-len(rooms) // per_row)
        height = rows * (BOX + GAP) + GAP
        parts.append(f'<rect class="band" x="12" y="{y}" width="{WIDTH - 24}" height="{height}" rx="8"/>')
        parts.append(f'<text class="group" x="26" y="{y + 28}">{group}</text>')
        parts += [
            f'<text class="small" x="26" y="{y + 44 + 13 * n}">{html.escape(line)}</text>'
            for n, line in enumerate(_wrapped(caption, 19))
        ]
        width = box_width(per_row)
        for number, room in enumerate(rooms):
            x, top = LEFT + 12 + (number % per_row) * (width + GAP), y + GAP + (number // per_row) * (BOX + GAP)
            parts += _box(room, x, top, width, arrow=group == "rooms" and number < len(rooms) - 1)
        y += height + 10
    return _STYLE.format(width=WIDTH, height=y + 6) + "\n".join(parts) + "\n</svg>\n"


def box_width(per_row: int = IN_A_ROW) -> float:
    return (WIDTH - 24 - LEFT - GAP) / per_row - GAP


def _box(room: Room, x: float, top: float, width: float, *, arrow: bool) -> list[str]:
    lines = words_in(room, width)
    found = [
        f'<rect class="room" x="{x:.0f}" y="{top:.0f}" width="{width:.0f}" height="{BOX}" rx="5"/>',
        f'<text class="name" x="{x + 8:.0f}" y="{top + 18:.0f}">{room.name}{" →" if arrow else ""}</text>',
    ]
    found += [
        f'<text class="small" x="{x + 8:.0f}" y="{top + 33 + 13 * n:.0f}">{html.escape(line)}</text>'
        for n, line in enumerate(lines)
    ]
    return found


def words_in(room: Room, width: float) -> list[str]:
    """A box holds two lines; wide letters are counted, because every reader has another font."""
    return _wrapped(room.makes, int((width - 16) // WIDEST_LETTER))


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


_STYLE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">
<title id="title">The rooms of Clara Eval; in the walk each knows only the rooms before it</title>
<style>
svg {{ background: #ffffff; font-family: ui-sans-serif, system-ui, sans-serif; }}
.page {{ fill: #ffffff; }} .band {{ fill: #f1f4f8; stroke: #c8d0da; }} .room {{ fill: #ffffff; stroke: #7c8b9d; }}
.group {{ fill: #12304f; font-size: 15px; font-weight: 700; }}
.name {{ fill: #0b4f8a; font-size: 13px; font-weight: 700; font-family: ui-monospace, monospace; }}
.small {{ fill: #3c4753; font-size: 11px; }}
@media (prefers-color-scheme: dark) {{
svg {{ background: #0d1117; }} .page {{ fill: #0d1117; }} .band {{ fill: #161d27; stroke: #2f3b49; }}
.room {{ fill: #0d1117; stroke: #5c6b7d; }} .group {{ fill: #d5e3f2; }}
.name {{ fill: #7cc0ff; }} .small {{ fill: #b4c0cd; }}
}}
</style>
<rect class="page" width="{width}" height="{height}"/>
"""


def rooms_table() -> str:
    """Every room with a link to it, in the order of the picture."""
    rows = ["| | room | what it makes |", "|---|---|---|"]
    for group in GROUPS:
        rooms = [room for room in ROOMS if room.group == group and not room.name.startswith("__")]
        for number, room in enumerate(rooms):
            is_file = (ROOT / "src" / "clara_eval" / f"{room.name}.py").is_file()
            link = f"[`{room.name}`](src/clara_eval/{room.name}{'.py' if is_file else ''})"
            rows.append(f"| {'' if number else f'**{group}**'} | {link} | {room.makes} |")
    return "\n".join(rows)


def main() -> None:
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
