"""The house rules that a linter cannot say."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "clara_eval"


def _architecture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "scripts" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


house = _architecture()


def modules(folder: Path = SRC) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if not p.name.startswith("test_"))


def test_the_house_stands_as_it_is_drawn() -> None:
    """Every room has a place, imports look back, nothing shipped imports test code, adapters are built in app.py."""
    assert house.faults(SRC) == []


FAULTS = [
    ("service.py", "from tests.support.scripted_llm import ScriptedLlm", "imports test code"),
    ("demo/round.py", "def late():\n    import tests.support.fake_endpoint", "imports test code"),
    ("app.py", "from clara_eval import testing", "imports test code"),
    ("ranking/rank.py", "from clara_eval.chain.winners.choose import choose_winners", "looks ahead to winners"),
    ("judge/rules.py", "def late():\n    from clara_eval.evaluation.run import Walk", "looks ahead to pipeline"),
    ("judge/rules.py", "def late():\n    from ..store import open", "looks ahead to store"),
    ("challenge/read.py", "if TYPE_CHECKING:\n    from clara_eval.chain.node import EthereumChain", "looks ahead to chain"),
    ("trace/journal.py", "from clara_eval import app", "looks ahead to app"),
    ("use_cases/quote.py", "from clara_eval import cli", "looks ahead to cli"),
    ("errors.py", "import clara_eval.core.hashing", "looks ahead to hashing"),
    ("api/routes.py", "def here():\n    import clara_eval.devnet.anvil", "looks ahead to devnet"),
    ("cli/status.py", "from clara_eval.chain.rpc import Rpc\nnode = Rpc([])", "builds Rpc"),
    ("engine/tick.py", "async def f(u):\n    from clara_eval.store.open import open_store\n    return await open_store(u)",
     "builds open_store"),
    ("use_cases/check.py", "from clara_eval.store.sqlite import SqliteStore\nstore = SqliteStore.open('x')",
     "builds SqliteStore"),
    ("public.py", "from clara_eval.judge.providers.registry import build_llm as b, build_llm\nllm = build_llm('x', None)",
     "builds build_llm"),
    ("cellar/__init__.py", '"""A room that nobody placed."""', "a room without a place"),
    ("attic.py", '"""A module that nobody placed."""', "a room without a place"),
]  # fmt: skip


@pytest.fixture(scope="module")
def source_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy") / "clara_eval"
    return Path(shutil.copytree(SRC, copy, ignore=shutil.ignore_patterns("__pycache__", "test_*", "testing", "static")))


@pytest.mark.parametrize(("place", "written", "told"), FAULTS, ids=[f"{p} {t}" for p, _, t in FAULTS])
def test_a_broken_rule_is_found(place: str, written: str, told: str, source_copy: Path) -> None:
    """Each of the old faults, written into a copy of the source, is found and named with its place; nothing else is."""
    target = source_copy / place
    new = not target.exists()
    target.parent.mkdir(exist_ok=True)
    before = "" if new else target.read_text(encoding="utf-8")
    target.write_text(f"{before}\n\n{written}\n", encoding="utf-8")
    found = house.faults(source_copy)
    target.unlink() if new else target.write_text(before, encoding="utf-8")
    assert len(found) == 1, found
    assert told in found[0]
    assert found[0].startswith(place.removesuffix(".py").split("/__init__")[0])
    assert house.faults(source_copy) == []


def test_a_room_that_is_gone_is_missed(tmp_path: Path) -> None:
    """The list names no room that does not exist."""
    copy = tmp_path / "clara_eval"
    shutil.copytree(SRC, copy, ignore=shutil.ignore_patterns("__pycache__", "test_*", "observe"))
    assert "observe: in scripts/architecture.py, but there is no such room" in house.faults(copy)


def test_the_picture_is_drawn_from_the_list() -> None:
    """The picture in the README is what `make docs` draws, and the README names every room with a link to it."""
    assert house.PICTURE.read_text(encoding="utf-8") == house.picture(), "run `make docs`"
    assert [room.name for room in house.ROOMS if len(house.words_in(room, house.box_width())) > 2] == [], "too long"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/images/architecture.svg" in readme
    missing = [
        r.name for r in house.ROOMS if not r.name.startswith("__") and f"](src/clara_eval/{r.name}" not in readme
    ]
    assert missing == []


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
    "aiohttp", "sqlalchemy", "pydantic_settings",
)  # fmt: skip


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["config", "-h"], ["challenge", "--help"], []])
def test_the_list_of_commands_loads_nothing_heavy(words: list[str]) -> None:
    """The command line's own help, and that of a group, is printed from the table of commands alone."""
    script = (
        "import sys, clara_eval.interfaces.cli as door\n"
        f"sys.argv = ['clara-eval', *{words!r}]\n"
        "try:\n    door.main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Usage: clara-eval" in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


UNTYPED = {
    "execution/python_guest.py": "the guest's own program, on whatever a submission makes; its bytes are hashed into every trace",
    "execution/python_harness.py": "the harness's own program, on whatever a poster's harness makes; hashed likewise",
    "execution/plain_data.py": "plain values as a stranger's bytes say them",
    "execution/cpython.py": "what a guest says, read as JSON",
    "execution/solc.py": "what the compiler prints",
    "contracts/abi.py": "values of an ABI, decoded by its own types",
    "eval_config/json_schema.py": "jsonschema's errors, and the schema itself",
    "engine/dbos_runtime.py": "DBOS's workflows and serializer",
    "engine/engine.py": "what DBOS hands to workflows and back",
    "mcp_server/schema.py": "the MCP library's tools and contexts",
    "cli/lazy.py": "typer's and click's commands",
    "devnet/dev_node.py": "web3's contracts and answers",
    "devnet/local_chain.py": "web3's contracts and answers",
}
"""Modules that speak with something without types, and with what."""
MOST_ANY = 27
"""How often `Any` may stand in all others outside adapters: lower it when some go."""


def _any_in(path: Path) -> int:
    return sum(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_any_stays_with_the_adapters() -> None:
    """A value whose type nobody knows is `object`, until it is looked at; `Any` is counted, and the count only falls."""
    found = {
        str(path): _any_in(SRC / path)
        for path in house.product_modules(SRC)
        if path.parts[0].removesuffix(".py") not in house.ADAPTER_ROOMS and str(path) not in UNTYPED
    }
    assert [name for name in UNTYPED if not _any_in(SRC / name)] == []
    assert sum(found.values()) <= MOST_ANY, sorted(((n, p) for p, n in found.items() if n), reverse=True)[:20]


def _recipes() -> list[tuple[str, list[str], list[str]]]:
    """Each recipe of the page: its title, the files that it makes anew and those that it changes."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = re.split(r"^### \d+\. ", text.partition("## Twelve changes")[2], flags=re.MULTILINE)[1:]
    steps = [
        (part.partition("\n")[0], re.findall(r"^- `([^`]+)`( \(new\))?", part, flags=re.MULTILINE)) for part in parts
    ]
    return [(title, [f for f, new in made if new], [f for f, new in made if not new]) for title, made in steps]


def test_a_change_touches_few_files_and_real_ones() -> None:
    """The page has twelve recipes, none with more than five files, and every file to be changed is there."""
    recipes = _recipes()
    assert len(recipes) == 12
    assert [title for title, made, changed in recipes if not 1 <= len(made) + len(changed) <= 5] == []
    assert [file for _, _, changed in recipes for file in changed if not (ROOT / file).is_file()] == []
    assert [file for _, made, _ in recipes for file in made if not (ROOT / file).parent.is_dir()] == []


def test_the_words_of_the_field_are_used_inside() -> None:
    """A comparison is one question about one ordered pair to one judge: only the pages call it a game, for people."""
    coined = re.compile(r"\b(class|def) \w*([dD]esk|[sS]eating|[pP]urse|ModelBench|Board|Passage|Road)\w*")
    game = re.compile(r"\b(class|def) \w*[gG]ame\w*")
    found = [
        f"{path}: {match.group()}"
        for path in house.product_modules(SRC)
        for pattern in ((coined,) if path.parts[0] == "api" else (coined, game))
        if (match := pattern.search((SRC / path).read_text(encoding="utf-8")))
    ]
    assert found == []
