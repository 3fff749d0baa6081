"""The table of commands, its help, and how a command ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clara_eval.cli import app
from clara_eval.cli.commands import COMMANDS

WIDTH = 80


def shell(*words: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clara_eval", *words],
        env={"PATH": os.environ["PATH"], "COLUMNS": str(WIDTH), **settings},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_explains_itself(words: str) -> None:
    """Each entry of the table leads to a command that answers `-h` and `--help` alike, and is listed by its group."""
    short, full = (CliRunner().invoke(app, [*words.split(), flag]) for flag in ("-h", "--help"))
    assert (short.exit_code, full.exit_code) == (0, 0), repr(short.exception or full.exception)
    assert short.stdout == full.stdout
    assert f" {words} " in short.stdout.splitlines()[0]
    listed = CliRunner().invoke(app, [*words.split()[:-1], "-h"], env={"COLUMNS": str(WIDTH)}).stdout
    assert any(
        line.split(maxsplit=1) == [words.rsplit(maxsplit=1)[-1], COMMANDS[words].line] for line in listed.splitlines()
    )


@pytest.mark.parametrize(("words", "kind"), [("status nonsense", "BadInput"), ("serve --port 99999", "ConfigError")])
def test_an_error_is_a_document_too(words: str, kind: str, tmp_path: Path) -> None:
    """With --json an error is one document with its kind, message and remedy; people still read it on stderr."""
    wanted = [*words.split(), *(["--json"] if "status" in words else [])]
    done = shell(*wanted, cwd=tmp_path)
    assert done.returncode == 2
    if "--json" in wanted:
        error = json.loads(done.stdout)["error"]
        assert (error["kind"], bool(error["message"]), bool(error["remedy"])) == (kind, True, True)
    else:
        assert done.stdout == ""
    assert done.stderr.startswith("clara-eval: ")


@pytest.mark.parametrize(
    "words", ["status --json", "rank --json --nonsense", "nonsense --json", "rank --seed x --json"]
)
def test_wrong_usage_is_a_document_under_json(words: str, tmp_path: Path) -> None:
    """A missing argument, an unknown option or command and a bad value are one document each, and exit code 2."""
    done = shell(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"]


def test_nothing_known_is_a_no(tmp_path: Path) -> None:
    """Asking for an evaluation or a trace that nobody made is answered with exit code 1, as a document if asked."""
    address = "0x" + "1" * 40
    for command in ("status", "trace"):
        done = shell(command, address, "--json", cwd=tmp_path, CLARA_DATABASE_URL="sqlite:///here.db")
        assert done.returncode == 1
        assert json.loads(done.stdout)["ok"] is False
        assert shell(command, address, cwd=tmp_path, CLARA_DATABASE_URL="sqlite:///here.db").stdout == ""


def test_a_misspelt_command_is_suggested(tmp_path: Path) -> None:
    """The commands of the table are known to the one who looks for a near name."""
    assert "Did you mean 'config'?" in shell("confg", cwd=tmp_path).stderr
    assert "Did you mean 'validate'?" in shell("config", "valdate", cwd=tmp_path).stderr
