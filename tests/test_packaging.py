"""The package as strangers get it: a light wheel, the same from the same source, whose missing parts name their remedy."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from clara_eval.core.extras import MODULES
from clara_eval.core.version import __version__
from clara_eval.devnet.anvil import find_anvil

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOST_PACKAGES = 70


def tracked(into: Path) -> Path:
    """A copy of the tracked files, with times and permissions of its own."""
    names = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in names.strip("\0").split("\0"):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, into / name)
            (into / name).chmod(0o600)
    return into


def built(source: Path, place: Path) -> Path:
    """The wheel of that source."""
    hatchling = Path(sys.executable).with_name("hatchling")
    subprocess.run([hatchling, "build", "-t", "wheel", "-d", place], cwd=source, capture_output=True, check=True)
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    return built(tracked(place / "source"), place)


def needed(dist: Distribution, extras: tuple[str, ...] = ("",)) -> Iterator[str]:
    """What a distribution asks for on this machine."""
    for text in dist.requires or []:
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
            yield canonicalize_name(wanted.name)
            for extra in wanted.extras:
                yield from needed(distribution(wanted.name), (extra,))


def closure() -> set[str]:
    """Every distribution that the package alone brings."""
    found: set[str] = set()
    waiting = list(needed(distribution("clara-eval")))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needed(distribution(name))
    return found


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty venv with the wheel and exactly the distributions that it declares, linked from this one."""
    place = tmp_path_factory.mktemp("light")
    venv.create(place / "venv", symlinks=True)
    site = next((place / "venv" / "lib").glob("python*")) / "site-packages"
    for name in closure():
        tops = {file.parts[0] for file in distribution(name).files or [] if file.parts[0] != ".."}
        for top in tops:
            source = Path(str(distribution(name).locate_file(top)))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    with zipfile.ZipFile(wheel) as content:
        content.extractall(site)
    return place


def run(light: Path, *words: str, path: str = "/usr/bin:/bin", **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [light / "venv" / "bin" / "python", "-m", "clara_eval", *words],
        cwd=light,
        env={"PATH": path, "HOME": str(light), **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_wheel_is_the_same_from_the_same_source(wheel: Path, tmp_path: Path) -> None:
    """Another folder, other times, other permissions: the same bytes."""
    again = built(tracked(tmp_path / "elsewhere" / "clara"), tmp_path)
    assert hashlib.sha256(again.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_everybody_builds_with_the_same_hatchling() -> None:
    """The wheel names the version that built it: project file, container, page and lock name one."""
    places = ("pyproject.toml", "deploy/Containerfile", "docs/install.md", "requirements-dev.lock")
    told = {place: re.findall(r"hatchling==([\d.]+)", (ROOT / place).read_text(encoding="utf-8")) for place in places}
    assert set(map(len, told.values())) == {1}, told
    assert len({version for versions in told.values() for version in versions}) == 1, told


def test_the_wheel_carries_no_test_code(wheel: Path) -> None:
    """Neither tests nor the parts that only tests use."""
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if re.search(r"(^|/)(test_|conftest|testing/)", name)] == []
    assert f"clara_eval-{__version__}.dist-info/METADATA" in names


def test_the_package_alone_is_light() -> None:
    """No SDK of a model, no database driver, no web framework; few packages."""
    found = closure()
    heavy = {"anthropic", "openai", "psycopg", "fastapi", "uvicorn", "dbos", "mcp", "cloudflare", "boto3", "sqlalchemy"}
    assert found & heavy == set()
    assert len(found) <= MOST_PACKAGES


def test_the_demo_runs_from_the_wheel(light: Path) -> None:
    """With anvil on the PATH and nothing else of the project, one whole round ends with a verified trace."""
    done = run(light, "demo", path=f"{find_anvil().parent}:/usr/bin:/bin")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"verify +replayed: all \d+ entries hold", done.stdout + done.stderr)


def test_without_anvil_the_remedy_needs_no_makefile(light: Path) -> None:
    """One line with a command that works wherever npm is."""
    done = run(light, "demo")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].endswith("Run `npm install @foundry-rs/anvil`.")


CONFIG = str(next((ROOT / "examples").rglob("*config*.json")))
MISSING = [
    (("serve",), {}, "server"),
    (("mcp",), {}, "mcp"),
    (("status", "0x" + "11" * 20), {"CLARA_DATABASE_URL": "postgresql://u@127.0.0.1/d"}, "postgres"),
    (("config", "quote", CONFIG), {"CLARA_JUDGES": "anthropic:claude-x", "ANTHROPIC_API_KEY": "k"}, "anthropic"),
    (("config", "quote", CONFIG), {"CLARA_JUDGES": "openai:m", "OPENAI_API_KEY": "k"}, "openai"),
]


@pytest.mark.parametrize(("words", "settings", "extra"), MISSING, ids=[extra for _, _, extra in MISSING])
def test_a_missing_part_names_its_remedy(
    light: Path, words: tuple[str, ...], settings: dict[str, str], extra: str
) -> None:
    """One line, exit code 2, and the line is the one that installs the part."""
    done = run(light, *words, CLARA_CHALLENGE_FACTORY="0x" + "22" * 20, **settings)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert f"pip install 'clara-eval[{extra}]'" in line


def test_a_language_without_its_grammar_names_its_remedy(light: Path) -> None:
    """Go is recognised without its grammar; measuring it stops in one line with what installs it."""
    (light / "main.go").write_text("package main\n\nfunc main() {\n\tx := 1\n\tprintln(x)\n}\n")
    config = {"version": 1, "features": ["max_complexity"], "criteria": "Simple code is better than clever code here."}
    (light / "config.json").write_text(json.dumps(config))
    done = run(light, "config", "rehearse", "config.json", "--sample", "main.go", CLARA_JUDGES="rules")
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    assert "Reading go needs" in done.stderr
    assert "pip install 'clara-eval[languages]'" in done.stderr


def test_the_page_is_true_in_an_empty_home(tmp_path: Path) -> None:
    """Its lines for the package and for the wheel of `make wheel`, word for word, end with a program that starts."""
    source, uv = tracked(tmp_path / "a clone"), [sys.executable, "-m", "uv"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    lines = re.findall(r"^pip install (.+?)(?:  +#|$)", page, re.MULTILINE)
    asked = [shlex.split(line) for line in lines if line in (".", "dist/clara_eval-*.whl")]
    assert len(asked) == 2
    built(source, source / "dist")
    cache = subprocess.run([*uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    home = {**os.environ, "HOME": str(tmp_path / "home"), "UV_CACHE_DIR": cache, "UV_SYSTEM_CERTS": "1"}
    for number, words in enumerate(asked):
        place = tmp_path / f"venv {number}"
        venv.create(place)
        given = [str(path) for word in words for path in (source.glob(word) if "*" in word else [source / word])]
        subprocess.run([*uv, "pip", "install", "-q", "--python", place / "bin/python", *given], env=home, check=True)
        said = subprocess.run([place / "bin/clara-eval", "--version"], env=home, capture_output=True, check=True)
        assert __version__ in said.stdout.decode()


def test_every_extra_is_described_and_known() -> None:
    """The page, the project file and the code name the same extras."""
    declared = set(PROJECT["optional-dependencies"]) - {"dev", "all"}
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z]+)` \|", page, flags=re.MULTILINE)) == declared
    assert set(MODULES) == declared - {"local"}  # whose weights are a second step that `judge/providers/local.py` tells
    assert PROJECT["version"] == __version__
