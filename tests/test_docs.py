"""The documentation is what the program says."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def make_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trace_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def demo(make_docs: ModuleType, trace_dir: Path) -> str:
    output: str = make_docs.demo_output(trace_dir)
    return output


def masked(text: str) -> str:
    """Without what differs from run to run: transaction hashes, digests and block times."""
    return re.sub(r"0x[0-9a-f]{64}|\b1\d{9}\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "…", text)


def test_the_readme_shows_what_the_demo_prints(make_docs: ModuleType, demo: str) -> None:
    """The demo in the README is the demo's real output."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert masked(make_docs.part(readme, "demo")) == masked(demo)


def test_the_pages_name_every_package() -> None:
    """The README and the page on architecture name each package of the source."""
    packages = {path.name for path in (ROOT / "src" / "clara_eval").iterdir() if (path / "__init__.py").exists()}
    for page in ("README.md", "docs/architecture.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [name for name in sorted(packages) if f"`{name}`" not in text] == []


def test_the_walk_shows_the_kinds_of_entries_a_trace_has(make_docs: ModuleType, demo: str, trace_dir: Path) -> None:
    """docs/walk.md has every kind of entry of the demo's trace, in its order, and today's rules and prompts."""
    trace = next(trace_dir.glob("*.trace.json"))
    keys = re.compile(r"^### `([a-z]+)", re.MULTILINE)
    page = (ROOT / "docs" / "walk.md").read_text(encoding="utf-8")
    assert "Leaderboard" in demo
    fresh = make_docs.trace_walk(trace)
    assert keys.findall(page) == keys.findall(fresh)
    same = re.compile(r'^ "rules": \d+|"sha256": "0x\w{64}",\n  "text": ".*"', re.MULTILINE)
    assert same.findall(page) == same.findall(fresh)
    assert len(same.findall(page)) > 6


def test_the_format_page_has_the_examples_of_the_demo(make_docs: ModuleType, demo: str, trace_dir: Path) -> None:
    """The worked examples and the list of codes in docs/trace-format.md are those of a fresh trace."""
    assert demo
    page = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
    assert page == make_docs.format_page(page, next(trace_dir.glob("*.trace.json")))


def test_the_commands_page_is_current(make_docs: ModuleType) -> None:
    """docs/commands.md is what --help says today, and the program itself prints it so."""
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == make_docs.help_page()
    for words in ((), ("config", "init")):
        told = subprocess.run([make_docs.COMMAND, *words, "-h"], capture_output=True, text=True, check=True, cwd=ROOT)
        assert told.stdout.strip("\n") == make_docs.help_of(*words)


def test_a_stranger_can_check_the_chain_with_the_program_in_the_docs(
    demo: str, trace_dir: Path, tmp_path: Path
) -> None:
    """The Python program in docs/trace-format.md finds the digest of a real trace."""
    assert demo
    page = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    script = tmp_path / "check.py"
    script.write_text(found.group(1), encoding="utf-8")
    trace = next(trace_dir.glob("*.trace.json"))
    done = subprocess.run([sys.executable, script, trace], capture_output=True, text=True, check=True)
    digest = done.stdout.split()[-1]
    assert f'],"digest":"{digest}"}}' in trace.read_text(encoding="utf-8")


def test_the_agents_page_names_the_sdk_that_is_installed() -> None:
    """What it says about MCP tasks was found out with that version: with another one look again."""
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    assert f"Python SDK {version('mcp')} has none" in page


def test_links_in_the_pages_lead_somewhere() -> None:
    """Every relative link of the README and the docs names a file that exists."""
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_files_that_the_pages_name_exist() -> None:
    """Every file of the repository that a page names is there, apart from those that a recipe adds."""
    named = re.compile(r"(?<!- )`((?:src|tests|scripts|docs|bench|verifier|deploy|examples)/[^` *]+\.\w+)`")
    missing = [
        f"{page.relative_to(ROOT)} -> {name}"
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for name in named.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert missing == []


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK = re.findall(r"^\| \d+ \| `([a-z_.A-Z]+)`", ARCHITECTURE, re.MULTILINE)
RECIPES = re.findall(r"^### \d+\. (.*?)\n\n(.*?)(?=^#|\Z)", ARCHITECTURE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", WALK)
def test_every_function_of_the_walk_exists(name: str) -> None:
    """The walk of one evaluation names functions that are there, in the order in which the page numbers them."""
    module, _, rest = name.rpartition(".")
    if not module.islower():  # a method: its class stands before it
        module, _, owner = module.rpartition(".")
        rest = f"{owner}.{rest}"
    found = importlib.import_module(f"clara_eval.{module}")
    assert callable(attrgetter(rest)(found))


def test_the_walk_is_a_whole_one() -> None:
    """From the tick to the check of a trace, with every package on the way."""
    assert len(WALK) >= 15
    packages = {"service", "actions", "challenges", "config", "submissions", "evaluation", "ranking", "chain"}
    assert packages <= {name.split(".")[0] for name in WALK}


def test_there_are_thirteen_recipes() -> None:
    """A judge provider, a measured feature, a language, a flag, K, an endpoint, a page, a store, and five more."""
    assert len(RECIPES) == 13


@pytest.mark.parametrize(("title", "text"), RECIPES, ids=[title for title, _ in RECIPES])
def test_a_recipe_names_at_most_five_files_that_are_there(title: str, text: str) -> None:
    """Each file that a recipe changes exists; each that it adds does not, and its folder does."""
    files = re.findall(r"^- `([^`]+)`( \(new\))?", text, re.MULTILINE)
    assert 1 <= len(files) <= 5
    for name, new in files:
        assert (ROOT / name).exists() is not bool(new), name
        assert (ROOT / name).parent.is_dir()


def test_the_page_of_the_specification_is_made_from_the_tests() -> None:
    """docs/specification.md has every sentence that a test names, with that test, and nothing else."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_specification.py", "--check"], check=False, timeout=60
    )
    assert done.returncode == 0, "Run python scripts/make_specification.py."
