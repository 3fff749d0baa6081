"""The table of commands, its help, and how a command ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.shell import Shell
from typer.testing import CliRunner

from clara_eval.core.errors import (
    BadAnswer,
    BadInput,
    BadSubmission,
    CannotAct,
    CannotPublish,
    ClaraError,
    ConfigError,
    Disagrees,
    NeedsReview,
    NotFound,
    NotYet,
    Temporary,
    Unscorable,
)
from clara_eval.interfaces.cli import COMMANDS, GROUPS, app, main
from clara_eval.interfaces.cli.output import EXIT_CODES, fail

WIDTH = 80


CODES: dict[type[ClaraError], int] = {
    NotFound: 1, NotYet: 1, CannotAct: 1, CannotPublish: 1, Unscorable: 1, NeedsReview: 1, Disagrees: 1,
    ConfigError: 2, BadInput: 2, Temporary: 2, BadAnswer: 2, BadSubmission: 2,
}  # fmt: skip


def ran(shell: Shell, *words: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shell.program, *words],
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
    if " " not in words and words not in {name for names in GROUPS.values() for name in names}:
        return  # a name of before, which the help no longer lists
    listed = CliRunner().invoke(app, [*words.split()[:-1], "-h"], env={"COLUMNS": str(WIDTH)}).stdout
    assert any(
        line.split(maxsplit=1) == [words.rsplit(maxsplit=1)[-1], COMMANDS[words].line] for line in listed.splitlines()
    )


@pytest.mark.parametrize(("words", "kind"), [("status nonsense", "BadInput"), ("serve --port 99999", "ConfigError")])
def test_an_error_is_a_document_too(words: str, kind: str, shell: Shell, tmp_path: Path) -> None:
    """With --json an error is one document with its kind, message and remedy; people still read it on stderr."""
    wanted = [*words.split(), *(["--json"] if "status" in words else [])]
    done = ran(shell, *wanted, cwd=tmp_path)
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
def test_wrong_usage_is_a_document_under_json(words: str, shell: Shell, tmp_path: Path) -> None:
    """A missing argument, an unknown option or command and a bad value are one document each, and exit code 2."""
    done = ran(shell, *words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"]


def test_nothing_known_is_a_no(shell: Shell, tmp_path: Path) -> None:
    """Asking for an evaluation or a trace that nobody made is answered with exit code 1, as a document if asked."""
    address = "0x" + "1" * 40
    for command in ("status", "trace"):
        done = ran(shell, command, address, "--json", cwd=tmp_path, CLARA_DATABASE_URL="sqlite:///here.db")
        assert done.returncode == 1
        assert json.loads(done.stdout)["ok"] is False
        assert ran(shell, command, address, cwd=tmp_path, CLARA_DATABASE_URL="sqlite:///here.db").stdout == ""


def test_a_misspelt_command_is_suggested(shell: Shell, tmp_path: Path) -> None:
    """The commands of the table are known to the one who looks for a near name."""
    assert "Did you mean 'config'?" in ran(shell, "confg", cwd=tmp_path).stderr
    assert "Did you mean 'validate'?" in ran(shell, "config", "valdate", cwd=tmp_path).stderr


def ended(*words: str) -> int:
    """The exit code of the whole program, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["clara-eval", *words])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


@pytest.mark.parametrize("words", [words for words, entry in COMMANDS.items() if entry.target])
def test_every_command_keeps_the_one_rule_of_exit_codes(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Help ends with 0; wrong usage ends with 2 on every command, with one sentence, and with --json as a document."""
    assert ended(*words.split(), "--help") == 0
    capsys.readouterr()
    assert ended(*words.split(), "--no-such-option", "--json") == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)
    assert (error["ok"], "no-such-option" in error["error"]["message"]) == (False, True)
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_every_error_has_its_exit_code(kind: type[ClaraError], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """1 where the answer is no, 2 where there is none: an outage, wrong settings or input are never an answer."""
    error = kind("What happened.")
    error.see = "status"
    with pytest.raises(SystemExit) as end:
        fail(error, as_json=True)
    assert end.value.code == code
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["error"]["kind"]) == (False, kind.__name__)
    assert document["error"]["remedy"] == "Follow `clara-eval status ADDRESS --watch`."


def test_the_rule_is_in_the_help() -> None:
    """Whoever writes a script finds every code where options are explained."""
    told = " ".join(CliRunner().invoke(app, ["-h"], env={"COLUMNS": "80"}).stdout.split())
    assert all(f"{code} {meaning}" in told for code, meaning in EXIT_CODES.items())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lea", ["leaderboard"]),
        ("config va", ["validate"]),
        ("evaluate --dr", ["--dry-run"]),
        ("review r", ["rule", "reject"]),
    ],
)
def test_a_shell_completes_commands_and_options(
    typed: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tab offers commands, those below a group, and options, without running anything."""
    line = f"clara-eval {typed}"
    asked = {"_CLARA_EVAL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert ended() == 0
    assert capsys.readouterr().out.split() == offered
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", ["status ADDRESS", "trace ADDRESS", "verify ADDRESS", "spend", "review list", "review show ADDRESS"]
)
def test_commands_that_only_look_leave_nothing_behind(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked in an empty folder, they answer and make neither a store nor a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLARA_DATABASE_URL", "sqlite:///var/store.db")
    ended(*words.replace("ADDRESS", "0x" + "1" * 40).split())
    assert not list(tmp_path.iterdir())


def test_a_demo_that_fails_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no chain can be started, the folder for its trace goes again; one that was there stays."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("clara_eval.devnet.demo.command.run_demo", no_chain)
    assert ended("demo", "--trace-dir", "made/for/it") == 2
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    assert ended("demo", "--trace-dir", "mine/traces") == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


async def no_chain(*_words: object) -> None:
    raise ConfigError("No node can be started here.")
