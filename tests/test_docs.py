"""The documentation is what the program says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
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


def test_the_readme_names_every_room(make_docs: ModuleType) -> None:
    """The table of rooms in the README is the list that the imports are held to."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert make_docs.part(readme, "rooms") == make_docs.architecture.rooms_table()


def test_the_walk_shows_the_kinds_of_entries_a_trace_has(make_docs: ModuleType, demo: str, trace_dir: Path) -> None:
    """docs/walk.md has every kind of entry of the demo's trace, in its order."""
    trace = next(trace_dir.glob("*.trace.json"))
    keys = re.compile(r"^### `([a-z]+)", re.MULTILINE)
    page = (ROOT / "docs" / "walk.md").read_text(encoding="utf-8")
    assert "Leaderboard" in demo
    assert keys.findall(page) == keys.findall(make_docs.trace_walk(trace))


def test_the_format_page_has_the_examples_of_the_demo(make_docs: ModuleType, demo: str, trace_dir: Path) -> None:
    """The worked examples and the list of codes in docs/trace-format.md are those of a fresh trace."""
    assert demo
    page = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
    assert page == make_docs.format_page(page, next(trace_dir.glob("*.trace.json")))


def test_the_commands_page_is_current(make_docs: ModuleType) -> None:
    """docs/commands.md is what --help says today."""
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == make_docs.help_page()


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


def test_links_in_the_pages_lead_somewhere() -> None:
    """Every relative link of the README and the docs names a file that exists."""
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
