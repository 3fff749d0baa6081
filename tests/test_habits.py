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


@pytest.fixture(scope="module")
def shared() -> None:
    """What the tests of a module share."""


def test_tests_that_share_a_fixture_of_their_module_share_a_worker(
    request: pytest.FixtureRequest, shared: None
) -> None:
    """Several workers set such a fixture up once: where tests go in groups, those of this module are one group."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@tests/test_habits.py"), "pytest-xdist takes what follows the last @"


def modules(folder: Path = SRC) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if not p.name.startswith("test_"))


def test_only_app_builds_adapters() -> None:
    """Stores, wallets, nodes and models are built in app.py, in tools, or in the package that has them."""
    builders = re.compile(r"\b(open_store|open_wallet|Rpc|EthereumChain|SqliteStore|PostgresStore)(\.open)?\(")
    found = [
        f"{path.relative_to(SRC)}: {match.group()}"
        for path in modules()
        if path.relative_to(SRC).parts[0] not in {"app", "chain", "store", "judge", "devnet", "redteam"}
        for match in builders.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_only_the_settings_read_the_environment() -> None:
    """No module but settings.py reads os.environ."""
    readers = [
        str(p.relative_to(SRC))
        for p in modules()
        if re.search(r"os\.(environ|getenv)", p.read_text(encoding="utf-8")) and p.name != "settings.py"
    ]
    assert readers == []


def test_every_module_says_what_it_is() -> None:
    """Every module opens with a docstring."""
    silent = [
        str(p.relative_to(SRC)) for p in modules() if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))
    ]
    assert silent == []


HASHED = {"harness/python_guest.py", "harness/python_harness.py", "submissions/python_tree.py"}
"""Modules that run inside the sandbox: their bytes are part of what traces record."""
DIALECT = re.compile(r"\b(whoever|nobody|is told|are told|comes in|the same (for|as a|but))\b", re.IGNORECASE)


def docstrings(tree: ast.Module) -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return (found for node in ast.walk(tree) if isinstance(node, kinds) and (found := ast.get_docstring(node)))


def test_a_docstring_can_be_read_alone() -> None:
    """Its first line has at most 100 characters, and its words are those of the field."""
    found = {
        str(path.relative_to(SRC)): [
            text for text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
            if len(text.partition("\n")[0]) > 100 or DIALECT.search(text)
        ]
        for path in modules()
    }  # fmt: skip
    assert {name: texts for name, texts in found.items() if texts and name not in HASHED} == {}


def written_tests() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
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


def test_no_database_is_tracked() -> None:
    """Whatever its name: what a run leaves behind is data of that run, and may hold answers and addresses."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    tracked = [ROOT / name for name in listed.decode().strip("\0").split("\0")]
    assert len(tracked) > 100
    assert [path.name for path in tracked if path.is_file() and is_database(path)] == []


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0" or bool(
            re.search(r"\.(db|sqlite3?)(-wal|-shm|-journal)?$", path.name)
        )


@pytest.mark.parametrize("name", ["clara-eval.db", "x.db-wal", "any.sqlite3"])
def test_a_database_in_the_working_folder_is_ignored(name: str) -> None:
    """`git add` of everything takes none with it."""
    told = subprocess.run(["git", "check-ignore", name], cwd=ROOT, capture_output=True, check=False)
    assert told.returncode == 0


HEAVY = (
    "web3", "numpy", "anthropic", "openai", "dbos", "fastapi", "mcp", "tree_sitter", "eth_account", "rich.console",
    "aiohttp", "sqlalchemy", "pydantic",
)  # fmt: skip


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["config", "-h"], ["challenge", "--help"], ["judge", "--help"], ["view", "-h"], []]
)
def test_the_list_of_commands_loads_nothing_heavy(words: list[str]) -> None:
    """The help of the command line, of a group and of `judge` is printed without what only running needs."""
    script = (
        "import sys, clara_eval.interfaces.cli as door\n"
        f"sys.argv = ['clara-eval', *{words!r}]\n"
        "try:\n    door.main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Usage: clara-eval" in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_judging_and_verifying_load_no_signing_library() -> None:
    """Commands that sign nothing do not pay for the cryptography of a wallet."""
    script = (
        "import sys, clara_eval.interfaces.cli.evaluate, clara_eval.interfaces.cli.verify\n"
        "print([name for name in ('eth_account', 'web3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


UNTYPED = {
    "harness/python_guest.py": "the guest's own program, on whatever a submission makes; its bytes are hashed into every trace",
    "harness/python_harness.py": "the harness's own program, on whatever a poster's harness makes; hashed likewise",
    "harness/cpython.py": "what a guest says, read as JSON, and plain values as a stranger's bytes say them",
    "harness/solc.py": "what the compiler prints",
    "chain/contracts/abi.py": "values of an ABI, decoded by its own types",
    "config/eval_config/catalogue.py": "rows of its JSON file",
    "config/eval_config/shape.py": "pydantic's errors, and the schema itself",
    "service/queue.py": "DBOS's workflows and serializer",
    "service/engine.py": "what DBOS hands to workflows and back",
    "interfaces/mcp/server.py": "the MCP library's tools",
    "interfaces/mcp/tools.py": "the MCP library's contexts, and signatures that are made",
    "interfaces/cli/__init__.py": "typer's and click's commands",
    "devnet/anvil.py": "what a node answers",
}
"""Modules that speak with something without types, and with what."""
MOST_ANY = 29
"""How often `Any` may stand in all others outside adapters: lower it when some go."""


def _any_in(path: Path) -> int:
    return sum(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_any_stays_with_the_adapters() -> None:
    """A value whose type nobody knows is `object`, until it is looked at; `Any` is counted, and the count only falls."""
    found = {
        str(path): _any_in(SRC / path)
        for path in (module.relative_to(SRC) for module in modules())
        if path.parts[0] not in {"chain", "store"} and "providers" not in path.parts and str(path) not in UNTYPED
    }
    assert [name for name in UNTYPED if not _any_in(SRC / name)] == []
    assert sum(found.values()) <= MOST_ANY, sorted(((n, p) for p, n in found.items() if n), reverse=True)[:20]


def test_no_test_imports_a_test() -> None:
    """Shared set-up lives in `tests/support`: no module imports another one's tests."""
    files = [*(ROOT / "tests").rglob("*.py")]
    pattern = re.compile(r"^(?:from|import) tests\.(?!support)[\w.]*\btest_", re.MULTILINE)
    assert [str(path) for path in files if pattern.search(path.read_text(encoding="utf-8"))] == []
