"""The config commands as a poster uses them: files in, findings out, exit codes that scripts can trust."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.agents import GOOD_SOLUTION
from tests.support.configs import APPENDIX, config_text
from typer.testing import CliRunner

from clara_eval.config.eval_config import (
    config_hash,
    parse_eval_config,
)
from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, KINDS, MEASURED, template_text
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli import app


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["config", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("name", sorted(KINDS))
def test_init_writes_a_config_that_validates(tmp_path: Path, name: str) -> None:
    """Every template lands in the file as it is, and `validate` finds it usable."""
    path = tmp_path / "mine.json"
    code, shown = run("init", path, "--template", name)
    assert (code, "mine.json" in shown) == (0, True)
    assert path.read_text(encoding="utf-8") == template_text(name)
    code, shown = run("validate", path)
    assert code == 0
    assert "is usable." in shown


def test_init_never_overwrites(tmp_path: Path) -> None:
    """A file that exists stays as it is, and the error names it."""
    path = write(tmp_path, "mine")
    with pytest.raises(BadInput, match=r"config\.json exists already"):
        run("init", path)
    assert path.read_text(encoding="utf-8") == "mine"
    with pytest.raises(BadInput, match="cannot be written"):
        run("init", tmp_path / "missing" / "config.json")


def test_init_asks_a_person_at_a_terminal(tmp_path: Path) -> None:
    """On a real terminal the kinds are listed and one is asked for; a wrong answer is told and asked again."""
    shown, code = typed(tmp_path, ["config", "init", "mine.json"], "nothing such\r", "gas\r", "\r", "\r")
    assert code == 0, shown
    assert shown.count("What kind of challenge [measured]") == 2
    assert all(kind in shown for kind in KINDS)
    assert "There is no kind 'nothing such'." in shown
    assert (tmp_path / "mine.json").read_text(encoding="utf-8") == template_text("gas")
    assert "config validate mine.json" in shown


def test_init_takes_criteria_and_language_from_the_answers(tmp_path: Path) -> None:
    """Three questions make a first config: the kind, what is good, and the language of the entries."""
    answers = ("code\r", "Correct for every input, then short and clear.\r", "javascript\r")
    shown, code = typed(tmp_path, ["config", "init", "mine.json"], *answers)
    assert code == 0, shown
    written = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))
    assert written["criteria"] == "Correct for every input, then short and clear."
    assert written["language"] == "javascript"
    assert written["features"] == json.loads(template_text("code"))["features"]


def test_init_takes_what_works_for_an_answer_that_is_empty(tmp_path: Path) -> None:
    """Enter alone means what is proposed; an end of input writes nothing and says so."""
    shown, code = typed(tmp_path, ["config", "init", "mine.json"], "\r", "\r", "\r")
    assert (code, "template measured" in shown) == (0, True)
    shown, code = typed(tmp_path, ["config", "init", "other.json"], "\x04")
    assert (code, (tmp_path / "other.json").exists()) == (1, False)


def typed(folder: Path, words: list[str], *answers: str) -> tuple[str, int]:
    """What the program shows on a pseudo-terminal while somebody types, and its exit code."""
    program = Path(sys.executable).with_name("clara-eval")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(program, [str(program), *words], {"PATH": os.environ["PATH"], "TERM": "xterm", "HOME": str(folder)})
    seen, waiting = b"", list(answers)
    try:
        while piece := os.read(terminal, 4096):
            seen += piece
            if waiting and seen.rstrip().endswith(b"]:"):
                os.write(terminal, waiting.pop(0).encode())
                seen += b" "
    except OSError:  # Linux says so when the program has ended
        pass
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return seen.decode(), os.waitstatus_to_exitcode(status)


def test_init_as_json_names_the_hash(tmp_path: Path) -> None:
    """With --json one document comes out, with the hash of what was written."""
    path = tmp_path / "mine.json"
    code, shown = run("init", path, "--json")
    assert (code, json.loads(shown)["hash"]) == (0, config_hash(path.read_bytes()))


def test_validate_shows_the_compiled_schema(tmp_path: Path) -> None:
    """A usable config is shown with its types, untyped names and both hashes."""
    path = write(tmp_path, config_text(features=["novelty", "slippage_bound", {"name": "notes", "type": "text"}]))
    code, shown = run("validate", path, "--json")
    document = json.loads(shown)
    assert (code, document["ok"], document["problems"], document["untyped"]) == (0, True, [], ["slippage_bound"])
    assert [one["judged"] for one in document["features"]] == [True, True, False]
    assert document["hash"] == config_hash(path.read_bytes())
    code, shown = run("validate", path)
    assert "for people only" in shown
    assert "a model may choose its type" in shown


def test_validate_lists_every_problem_and_says_no(tmp_path: Path) -> None:
    """An unusable config exits 1 and names each place, in both forms; a stranger's text is shown harmlessly."""
    path = write(tmp_path, config_text(version=2, features=["[red]\x1b[31mX[/]"], kriteria=1))
    code, shown = run("validate", path, "--json")
    document = json.loads(shown)
    assert (code, document["ok"]) == (1, False)
    assert {one["path"] for one in document["problems"]} == {"$.version", "$.features[0]", "$.kriteria"}
    assert all(one["severity"] == "error" and one["remedy"] for one in document["problems"])
    code, shown = run("validate", path)
    assert code == 1
    assert "3 errors" in shown
    assert 'Did you mean "criteria"?' in shown
    assert "\x1b[31mX" not in shown


def test_warnings_alone_do_not_say_no(tmp_path: Path) -> None:
    """A doubtful config is usable, with its warnings shown."""
    code, shown = run("validate", write(tmp_path, config_text(criteria="Be fair.")))
    assert code == 0
    assert "with 1 warning" in shown


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 2_000_000, b"nonsense"])
def test_any_file_gets_an_answer(tmp_path: Path, text: bytes) -> None:
    """Whatever is in the file, validate and hash exit 1 with one JSON document."""
    path = write(tmp_path, text)
    for command in ("validate", "hash"):
        code, shown = run(command, path, "--json")
        assert (code, json.loads(shown)["ok"]) == (1, False)


def test_hash_is_over_bytes_or_canonical_form(tmp_path: Path) -> None:
    """The plain hash is the one to commit for a string; --canonical is the one for an object."""
    path = write(tmp_path, APPENDIX)
    assert run("hash", path) == (0, config_hash(APPENDIX.encode()) + "\n")
    canonical = config_hash(parse_eval_config(APPENDIX).canonical)
    assert run("hash", path, "--canonical") == (0, canonical + "\n")
    assert json.loads(run("hash", path, "--canonical", "--json")[1])["hash"] == canonical


def test_a_missing_file_ends_with_one_sentence_and_exit_2(tmp_path: Path) -> None:
    """Through the real door: no traceback, the file named, exit code 2, and the error as the one document."""
    missing = tmp_path / "nope.json"
    done = subprocess.run(
        [sys.executable, "-m", "clara_eval", "config", "validate", str(missing), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert str(missing) in json.loads(done.stdout)["error"]["message"]
    assert "nope.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_init_chooses_what_works_with_what_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a model the starter is one that tools measure; with a model, one that it reads; no warning either way."""
    for judges, kind in (("rules", "measured"), ("openai:gpt-5@http://127.0.0.1:1/v1", "code")):
        monkeypatch.setenv("CLARA_JUDGES", judges)
        code, shown = run("init", tmp_path / f"{kind}.json", "--json")
        assert (code, json.loads(shown)["template"], json.loads(shown)["warnings"]) == (0, kind, [])
    monkeypatch.setenv("CLARA_JUDGES", "rules")
    code, shown = run("init", tmp_path / "text.json", "--template", "text", "--json")
    assert "needs a language model" in json.loads(shown)["warnings"][0]


def test_every_measurable_feature_is_listed_with_a_sentence() -> None:
    """The catalogue, what running tells and what a harness adds; `--measured` leaves out what a model reads."""
    code, shown = run("features", "--json")
    document = json.loads(shown)
    names = {feature["name"] for feature in document["features"]}
    assert (code, names) == (0, {*MEASURED, *EXECUTED, *COMMON})
    assert all(feature["description"] for feature in document["features"])
    _, text = run("features")
    assert all(re.search(rf"^  {name} +\S", text, re.MULTILINE) for name in (*names, *document["harness"]))
    _, measured = run("features", "--measured", "--json")
    assert {one["name"] for one in json.loads(measured)["features"]} == {*MEASURED, *EXECUTED}


def test_a_measured_config_is_rehearsed_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are measured, and run under the harness where there is one; nothing is asked of a model."""
    monkeypatch.setenv("CLARA_JUDGES", "rules")
    for kind, sample in (("measured", GOOD_SOLUTION), ("gas", SUM)):
        config, draft = tmp_path / f"{kind}.json", tmp_path / f"{kind}.draft"
        config.write_text(template_text(kind))
        draft.write_text(sample)
        code, shown = run("rehearse", config, "--sample", draft, "--json")
        document = json.loads(shown)
        assert (code, document["warnings"]) == (0, [])
        assert None not in document["readings"][0]["facts"].values(), document["readings"]
    assert document["readings"][0]["facts"]["tests_passed"] == 1


SUM = """// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;
contract Submission {
    function sum(uint256[] calldata list) external pure returns (uint256 total) {
        for (uint256 i = 0; i < list.length; ++i) total += list[i];
    }
}
"""
