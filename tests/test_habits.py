"""The house rules that a linter cannot say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "clara_eval"
FLOOR = ("errors", "flags", "gather", "hashing", "camel_json", "networks", "settings", "contracts")
WALK = (
    "eval_config",
    "challenge",
    "solutions",
    "money",
    "execution",
    "judge",
    "features",
    "tournament",
    "ranking",
    "winners",
    "publish",
    "trace",
    "publication",
    "records",
    "pipeline",
)
OUTSIDE = (
    "use_cases",
    "desk",
    "public",
    "chain",
    "fetch",
    "llm",
    "store",
    "app",
    "model_pool",
    "cli",
    "api",
    "mcp_server",
    "engine",
    "demo",
    "devnet",
    "testing",
)


def modules(folder: Path = SRC) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if not p.name.startswith("test_"))


def imported(path: Path) -> Iterator[str]:
    """The first part below clara_eval of everything a module imports when it is loaded or run."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clara_eval."):
            yield (node.module or "").split(".")[1]


@pytest.mark.parametrize("room", WALK)
def test_rooms_import_only_from_rooms_before_them(room: str) -> None:
    """A room knows the rooms before it on the walk, and nothing of the outside."""
    ahead = {*WALK[WALK.index(room) + 1 :], *OUTSIDE}
    # Addresses are the floor's words too: settings read them, and the first room may name them.
    for path in modules(SRC / room):
        wrong = set(imported(path)) & ahead
        assert not wrong, f"{path.relative_to(ROOT)} looks ahead to {sorted(wrong)}"


def test_only_the_settings_read_the_environment() -> None:
    """No module but settings.py reads os.environ."""
    readers = [
        str(p.relative_to(SRC))
        for p in modules()
        if re.search(r"os\.(environ|getenv)", p.read_text(encoding="utf-8"))
        and p.name != "settings.py"
        and "testing" not in p.parts
    ]
    assert readers == []


def test_every_module_says_what_it_is() -> None:
    """Every module opens with a docstring."""
    silent = [
        str(p.relative_to(SRC)) for p in modules() if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))
    ]
    assert silent == []


def written_tests() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted([*SRC.rglob("test_*.py"), *(ROOT / "tests").rglob("test_*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                yield path, node


def test_every_test_says_what_must_hold() -> None:
    """Every test has a docstring."""
    silent = [f"{path.relative_to(ROOT)}::{node.name}" for path, node in written_tests() if not ast.get_docstring(node)]
    assert silent == []


def test_no_mocks_and_no_open_points() -> None:
    """No mocking library, no unfinished marker, no silenced failure."""
    # Written apart, so that this file does not find itself.
    wrong = ("unittest" + r"\.mock", "Magic" + "Mock", "NotImplemented" + "Error", r"#\s*TO" + "DO", r"#\s*FIX" + "ME")
    pattern = re.compile("|".join((*wrong, r"except[^:\n]*:\s*pass\b")))
    found = [
        f"{p.relative_to(ROOT)}: {match.group()}"
        for p in [*SRC.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
        if p.name != "test_habits.py" and (match := pattern.search(p.read_text(encoding="utf-8")))
    ]
    assert found == []


HEAVY = (
    "web3", "numpy", "anthropic", "openai", "dbos", "fastapi", "mcp", "tree_sitter", "eth_account", "rich.console",
    "aiohttp", "sqlalchemy", "pydantic_settings",
)  # fmt: skip


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["config", "-h"], ["challenge", "--help"], []])
def test_the_list_of_commands_loads_nothing_heavy(words: list[str]) -> None:
    """The command line's own help, and that of a group, is printed from the table of commands alone."""
    script = (
        "import sys, clara_eval.cli as door\n"
        f"sys.argv = ['clara-eval', *{words!r}]\n"
        "try:\n    door.main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Usage: clara-eval" in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
