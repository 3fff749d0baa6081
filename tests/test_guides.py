"""The guides are true: the quick start runs as written, and the transcripts are what the commands print."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from clara_eval.cli.commands import COMMANDS
from clara_eval.settings import Settings

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PROGRAM = str(Path(sys.executable).parent)


def blocks(page: str) -> list[str]:
    return re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL
    )


def shell(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=place,
        env={"PATH": f"{PROGRAM}:{os.environ['PATH']}", "HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_the_quick_start_runs_as_it_is_written(tmp_path: Path) -> None:
    """All its commands in one shell: a chain, a challenge, two agents, an evaluation, a check, and a paid prize."""
    done = shell("trap 'kill ${DEVNET:-0} 2>/dev/null || true' EXIT\n" + "\n".join(blocks("quickstart")), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100.00 USDC" in done.stdout
    assert "commits to this digest" in done.stdout
    assert "Claim 100 USDC" in done.stdout


def test_the_posters_commands_run(tmp_path: Path) -> None:
    """Features, a starter, its check, its price and a rehearsal, in an empty folder without any setting."""
    done = shell("\n".join(blocks("poster")), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "eval-config.json is usable." in done.stdout
    assert re.search(r"parses +True", done.stdout)


@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_guides_name_only_commands_and_settings_that_exist(page: Path) -> None:
    """Each `clara-eval …` is in the list of commands, and each setting is one."""
    text = page.read_text(encoding="utf-8")
    for words in re.findall(r"clara-eval ([a-z]+(?: [a-z]+)?)", text):
        assert words in COMMANDS or words.split()[0] in COMMANDS, words
    known = {field.alias for field in Settings.model_fields.values()}
    for name in re.findall(r"\bCLARA_[A-Z_]+[A-Z]\b", text):
        assert name.removesuffix("_FILE") in known or name.startswith("CLARA_DEVNET_"), name


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shell_transcripts", ROOT / "scripts" / "make_shell_transcripts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(300)
def test_the_lives_in_a_shell_are_what_happens(script: ModuleType) -> None:
    """A poster's and an operator's life, lived again, print what the committed pages show, in a shell's own words."""
    for name, text in asyncio.run(script.transcripts()).items():
        page = (script.OUT / f"{name}.md").read_text(encoding="utf-8")
        assert script.shape(text) == script.shape(page)
        assert not re.search(r"\b(challenge|config)_[a-z_]+\b", text)
