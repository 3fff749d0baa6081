"""`settings`, and the help in groups with an example that works for every command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli import COMMANDS, GROUPS, LazyGroup, app

SECRET = "0x" + "ab" * 32


def shown(*words: str, folder: Path, **environ: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, list(words), env=environ)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_setting_is_listed_with_value_default_and_source(tmp_path: Path) -> None:
    """The environment, `.env` and a file of a secret are told apart; a secret and an address with one are hidden."""
    (tmp_path / ".env").write_text("CLARA_PORT=9000\n")
    (tmp_path / "key").write_text(SECRET)
    environ = {
        "CLARA_RPC_URL": "https://name:word@node.example/v2/token",
        "CLARA_WALLET_KEY_FILE": str(tmp_path / "key"),
        "CLARA_ADMIN_API_KEY": SECRET,
    }
    text = shown("settings", "--json", folder=tmp_path, **environ)
    rows = {row["name"]: row for row in json.loads(text)["settings"]}
    assert set(rows) == {field.alias for field in Settings.model_fields.values()}
    assert rows["CLARA_PORT"] == {"name": "CLARA_PORT", "value": "9000", "default": "8080", "source": ".env"}
    assert rows["CLARA_HOST"]["source"] == "default"
    assert rows["CLARA_WALLET_KEY"]["source"] == "CLARA_WALLET_KEY_FILE"
    assert rows["CLARA_RPC_URL"]["value"] == "https://node.example/…"
    for secret in (SECRET, "word", "token"):
        assert secret not in text
        assert secret not in shown("settings", folder=tmp_path, **environ)


def test_an_unknown_name_is_told_with_the_near_one(tmp_path: Path) -> None:
    """A misspelt setting would be ignored; the names of the devnet are no settings and no mistake."""
    told = shown("settings", folder=tmp_path, CLARA_JUDGE="rules", CLARA_DEVNET_TOKEN="0x1")
    assert "CLARA_JUDGE is not a setting. Did you mean CLARA_JUDGES?" in told
    assert "CLARA_DEVNET_TOKEN" not in told


def test_the_help_is_in_five_groups_of_at_most_thirty_entries(tmp_path: Path) -> None:
    """What is listed exists; below the groups there are at most 45 commands; `help COMMAND` is its help."""
    listed = [name for names in GROUPS.values() for name in names]
    assert len(GROUPS) == 5
    assert len(listed) == len(set(listed)) <= 30
    assert set(listed) <= set(COMMANDS)
    assert sum(bool(entry.target) for entry in COMMANDS.values()) <= 45  # 40 are names of the design
    top = shown("--help", folder=tmp_path)
    assert all(f"\n{title}:" in top for title in GROUPS)
    assert shown("help", folder=tmp_path) == top
    assert shown("help", "config", "hash", folder=tmp_path) == shown("config", "hash", "--help", folder=tmp_path)


@pytest.mark.parametrize("words", [words for words, entry in COMMANDS.items() if entry.target])
def test_the_example_of_each_command_is_one_that_it_takes(words: str, tmp_path: Path) -> None:
    """The help shows it, and the command understands every word of it."""
    helped = shown(*words.split(), "--help", folder=tmp_path)
    example = helped.partition("Example:\n")[2].strip()
    assert example.startswith(f"clara-eval {words}")
    group = LazyGroup()
    group.path, _, name = words.rpartition(" ")
    arguments = shlex.split(example)[1 + len(words.split()) :]
    group.get_command(None, name).make_context(name, arguments)
