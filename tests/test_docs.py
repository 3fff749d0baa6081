"""The documentation is what the program says."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.support.scripts import load_script

from clara_eval.actions.evaluate import LEASE_SECONDS
from clara_eval.actions.operator import ADDRESS_BYTES, CONNECTIONS, FILES, MEMORY_BYTES
from clara_eval.challenges.model_pool import LEAST_BOUND
from clara_eval.code.similarity import (
    MEASURES,
    MIN_COPY_WINDOWS,
    MIN_SHARE,
    PROPERTIES_WIDTH,
    RENAMED_WIDTH,
    TOKENS_WIDTH,
)
from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.config.settings import Settings
from clara_eval.harness import cpython, quickjs
from clara_eval.harness.model import RunLimits
from clara_eval.interfaces.serve import REQUEST_SECONDS
from clara_eval.judge.comparison import MAX_TOKENS
from clara_eval.judge.costs.quote import THINKING_TOKENS
from clara_eval.judge.extraction import Subject, extraction_questions
from clara_eval.judge.reading import THINKING_ROOM, TokenLimits
from clara_eval.judge.retrying_llm import SLOWEST_TOKENS_PER_SECOND, RetryPolicy
from clara_eval.submissions.copies import CONTESTED_SECONDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SUBJECT = Subject("0x", "0x", "0x", "full")


@pytest.fixture(scope="module")
def make_docs() -> ModuleType:
    return load_script("make_docs")


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
    """The result in the README is the one that the demo prints."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert masked(make_docs.part(readme, "demo")) == masked(demo)


def test_the_pages_name_every_package() -> None:
    """The README and the page on architecture name each package of the source."""
    packages = {path.name for path in (ROOT / "src" / "clara_eval").iterdir() if (path / "__init__.py").exists()}
    for page in ("README.md", "docs/architecture.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [name for name in sorted(packages) if f"`{name}`" not in text] == []


def test_the_example_shows_the_kinds_of_entries_a_trace_has(make_docs: ModuleType, demo: str, trace_dir: Path) -> None:
    """docs/trace-example.md has every kind of entry of the demo's trace, in its order, and today's rules and prompts."""
    trace = next(trace_dir.glob("*.trace.json"))
    keys = re.compile(r"^### `([a-z]+)", re.MULTILINE)
    page = (ROOT / "docs" / "trace-example.md").read_text(encoding="utf-8")
    assert "Leaderboard" in demo
    fresh = make_docs.trace_example(trace)
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


def numbers() -> list[tuple[str, str]]:
    """Pages, and what they say with the numbers of the program."""
    limits, tokens, mebi = RunLimits(), TokenLimits(0, 0), 1024**2
    read = [FeatureSchema(tuple(Feature(f"f{n}", "integer", source="llm") for n in range(count))) for count in (0, 1)]
    base, one = (extraction_questions(schema, "text", SUBJECT)[0].prompt.max_tokens for schema in read)
    least = dict(zip(("tokens", "words", "renamed", "again", "statements", "minified"), MEASURES, strict=True))
    rows = ((f"`tokens` | windows of {TOKENS_WIDTH} tokens", "tokens"), (f"`tokens` (prose) | windows of {TOKENS_WIDTH} words", "words"),
            (f"`minified` | windows of {PROPERTIES_WIDTH} property names", "minified"))  # fmt: skip
    needs = (
        f"{FILES} file descriptors, {MEMORY_BYTES // mebi} MB of memory ({ADDRESS_BYTES // mebi // 1024} GB of address"
    )
    times = {4: "four"}[tokens.growth]
    asked = Settings.model_fields["answer_tokens"].default
    return [
        (
            "guides/harness.md",
            f"may use {limits.gas:,} gas, or {limits.fuel:,} fuel and {limits.memory_bytes // mebi} MB;",
        ),
        (
            "guides/model.md",
            f"({MAX_TOKENS} tokens for a comparison; {base}, plus {one - base} per feature, for a reading)",
        ),
        ("guides/model.md", f"plus {THINKING_ROOM:,} for a model known to think"),
        ("guides/model.md", f"{times} times the limit, up to `CLARA_ANSWER_TOKENS` ({asked:,};"),
        ("guides/model.md", f"lowers it to {LEAST_BOUND:,})"),
        ("guides/model.md", f"assumes {THINKING_TOKENS:,} tokens of thinking"),
        ("guides/model.md", f"{RetryPolicy().call_seconds:.0f} seconds per call, longer for a large limit"),
        ("guides/model.md", f"({SLOWEST_TOKENS_PER_SECOND} tokens per second)"),
        ("decisions/10-copies.md", f"equal tokens of at least {MIN_COPY_WINDOWS} windows"),
        ("decisions/10-copies.md", f"finds {100 * MIN_SHARE:.0f} % of one work"),
        ("decisions/10-copies.md", f"`renamed` | windows of {RENAMED_WIDTH} tokens without chosen names"),
        ("decisions/10-copies.md", f"Within {CONTESTED_SECONDS} seconds"),
        *(("decisions/10-copies.md", f"| {row} | {least[kind][1]} |") for row, kind in rows),
        ("operations.md", f"needs {needs} space) and, on Postgres, {CONNECTIONS} connections."),
        ("operations.md", f"evaluations of a dead one after {LEASE_SECONDS:.0f} s."),
        ("operations.md", f"must arrive within {REQUEST_SECONDS:.0f} s"),
        ("install.md", f"{len(needed('clara-eval'))} packages: demo"),
        ("install.md", re.findall(r"`npm install [^`]+`", quickjs.REMEDY)[0]),
        ("install.md", re.findall(r"`npm install [^`]+`", cpython.REMEDY)[0]),
        ("install.md", PROJECT["build-system"]["requires"][0]),
    ]


def needed(name: str) -> set[str]:
    """The packages that a plain installation brings, by the declarations of those that are installed."""
    found: set[str] = set()
    for text in requires(name) or []:
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            found |= {canonicalize_name(need.name), *needed(need.name)}
    return found


@pytest.mark.parametrize(("page", "said"), numbers())
def test_the_numbers_on_the_pages_are_those_of_the_program(page: str, said: str) -> None:
    """Limits, sizes and versions that a page names are the constants of the program."""
    assert said in " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


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
NAMED = sorted(set(re.findall(r"(?<!group )`((?:[a-z_]+\.)+(?!html`|py`|toml`)\w+)`", ARCHITECTURE)))
RECIPES = re.findall(r"^### \d+\. (.*?)\n\n(.*?)(?=^#|\Z)", ARCHITECTURE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", NAMED)
def test_every_name_of_the_architecture_exists(name: str) -> None:
    """Each function or class that the page names, on the path of an evaluation and in the recipes, is in the package."""
    assert callable(pkgutil.resolve_name(f"clara_eval.{name}"))


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
