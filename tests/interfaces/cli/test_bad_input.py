"""What users get wrong, through the real commands: one clear message, the right exit code, no traceback, no secret."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clara_eval.core.errors import ClaraError, ConfigError
from clara_eval.core.version import RULES, __version__
from clara_eval.devnet.anvil import find_anvil
from clara_eval.interfaces.cli import app
from clara_eval.store.open import open_store
from clara_eval.store.trace_archive import save_trace

ADDRESS = "0x" + "1" * 40
DEAD = "http://user:hunter2@127.0.0.1:9/key-hunter2"
HERE: dict[str, str] = {
    "CLARA_NETWORK": "local",
    "CLARA_RPC_URL": DEAD,
    "CLARA_CHALLENGE_FACTORY": "0x" + "2" * 40,
    "CLARA_EVALUATOR_KEY": "0x" + "5c" * 32,
    "CLARA_DATABASE_URL": "sqlite:///store.db",
}
SECRETS = ("hunter2", "5c5c5c5c")


@dataclass(frozen=True, slots=True)
class Case:
    words: str
    code: int
    says: str
    settings: dict[str, str] = field(default_factory=dict)


CASES = [
    Case("status nonsense", 2, "40 hex digits"),
    Case(f"status {ADDRESS} --json", 1, "No evaluation"),
    Case(f"status {ADDRESS}", 2, "CLARA_NETWORK='mars'", {"CLARA_NETWORK": "mars"}),
    Case(f"status {ADDRESS}", 2, "not a known database", {"CLARA_DATABASE_URL": "mysql://root:hunter2@host/x"}),
    *(
        Case(f"{words}", 2, f"CLARA_DATABASE_URL='{url}' names no file", {"CLARA_DATABASE_URL": url})
        for words in ("publication sync", f"status {ADDRESS}", "spend")
        for url in ("sqlite:///:memory:", "sqlite:", "sqlite://", "sqlite:///")
    ),
    Case(f"status {ADDRESS}", 2, "cannot be read as a URL", {"CLARA_DATABASE_URL": "postgresql://a:hunter2@[b/x"}),
    Case(f"status {ADDRESS}", 2, "not a database", {"CLARA_DATABASE_URL": "sqlite:///binary"}),
    Case(f"status {ADDRESS}", 2, "CLARA_PORT", {"CLARA_PORT": "99999"}),
    Case(f"trace {ADDRESS} -o out.json", 1, "No trace"),
    Case(f"verify {ADDRESS} --json", 2, "No trace"),
    Case("verify missing.json --json", 2, "no file"),
    Case("verify folder", 2, "cannot be read"),
    Case(f"verify {'x' * 300}", 2, "cannot be read"),
    Case("verify binary", 1, "not UTF-8"),
    Case("verify empty --json", 1, '"entry": "format"'),
    Case("verify zipped.gz", 1, "not UTF-8"),
    Case("config validate missing.json", 2, "No such file"),
    Case("config validate folder --json", 2, "directory"),
    Case("config validate empty --json", 1, "not valid JSON"),
    Case("config hash binary --json", 1, "UTF-8"),
    Case("config init empty", 2, "exists already"),
    Case("rank missing.csv --json", 2, "No such file"),
    Case("rank empty --json", 2, "left,right,winner"),
    Case("rank", 2, "No file given"),
    Case("spend --since yesterday --json", 2, "YYYY-MM-DD"),
    Case("devnet --warp sideways", 2, "sideways"),
    Case("devnet --warp 1h --rpc http://[::1", 2, "address"),
    Case("serve --port 99999", 2, "not a port"),
    Case("demo --trace-dir empty --json", 2, "--trace-dir"),
    Case("serve --worker-only --api-only", 2, "exclude each other"),
    Case(f"evaluate {ADDRESS}", 2, "CLARA_EVALUATOR_KEY is not a private key", {"CLARA_EVALUATOR_KEY": "hunter2"}),
    Case(f"evaluate {ADDRESS} --json", 2, "not an http or https URL", {"CLARA_RPC_URL": "http://127.0.0.1:99999"}),
    Case("check --json", 1, '"ok": false', {"CLARA_RPC_URL": "http://[::1"}),
    Case("check", 1, "[/x]", {"CLARA_DATABASE_URL": "sqlite:///[/x]/store.db"}),
    Case(f"evaluate {ADDRESS}", 2, "no judge", {"CLARA_JUDGES": "tarot:cards"}),
    Case(f"challenge submit {ADDRESS}", 2, "clara-eval:", {"CLARA_RPC_URL": "nowhere"}),
    Case("challenge list --status lost", 2, "is not one of"),
    Case("challenge list --limit 0", 2, "--limit"),
    Case("nonsense", 2, "nonsense"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what people point commands at, and settings whose secrets must never be shown."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\x00\xff\xfe" * 400)
    (tmp_path / "zipped.gz").write_bytes(b"\x1f\x8b\x08\x00" + b"\x00" * 30)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CLARA_")]:
        monkeypatch.delenv(name)
    for name, value in HERE.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.words[:40]} {' '.join(case.settings)}".strip())
def test_bad_input_is_answered_in_words(case: Case, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake has its exit code and its sentence; standard output is empty or, with --json, one document."""
    for name, value in case.settings.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, case.words.split())
    refused = isinstance(result.exception, ClaraError)
    told = f"clara-eval: {result.exception}" if refused else ""
    assert refused or isinstance(result.exception, SystemExit), repr(result.exception)
    assert (2 if refused else result.exit_code) == case.code
    everything = result.stdout + result.stderr + told
    assert case.says in everything
    assert not any(secret in everything for secret in SECRETS)
    assert "Traceback" not in everything
    if "--json" in case.words and result.stdout:
        json.loads(result.stdout)
    assert not (place / "out.json").exists()


def hears_ctrl_c() -> None:
    """What a terminal gives its programs; a suite started in the background would hand down deafness."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(*words: str, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clara_eval", *words],
        env={"PATH": os.environ["PATH"], **HERE, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_ctrl_c,  # noqa: PLW1509 - it does nothing but this
    )


@pytest.mark.usefixtures("place")
def test_the_real_command_ends_with_one_sentence_in_the_poorest_surroundings() -> None:
    """Without HOME, in the C locale, on a dumb and narrow terminal an error is one line and exit code 2."""
    process = command("verify", "fehlt\u2028ü.json", LC_ALL="C", TERM="dumb", COLUMNS="40", NO_COLOR="1")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("clara-eval: ")
    assert err.count("\n") == 1


def test_a_terminal_without_unicode_shows_what_it_can(place: Path) -> None:
    """Output that the terminal cannot show is replaced, and JSON is escaped; neither ends the command."""
    (place / "games.csv").write_text("left,right,winner\nä,b,left\n", encoding="utf-8")
    for words in (["rank", "games.csv"], ["rank", "games.csv", "--json"]):
        process = command(*words, PYTHONIOENCODING="ascii")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    assert json.loads(out)["ranking"][0]["item"] == "ä"


@pytest.mark.usefixtures("place")
def test_an_error_moves_no_terminal() -> None:
    """Whatever an error quotes, no control character of it reaches the terminal."""
    out, err = command("config", "validate", "\x1b[2Jmissing.json").communicate(timeout=60)
    assert (out, "\x1b" in err) == ("", False)
    assert r"\x1b[2Jmissing.json" in err


def test_a_file_name_that_is_no_text_leaves_json_readable(place: Path) -> None:
    """A name in another encoding is escaped: the document is still UTF-8."""
    Path(os.fsdecode(bytes(place) + b"/\xff.json")).write_text(
        '{"version":1,"features":["parses"],"criteria":"Parses."}'
    )
    words: list[str | bytes] = [sys.executable, "-m", "clara_eval", "config", "validate", b"\xff.json", "--json"]
    done = subprocess.run(words, env={"PATH": os.environ["PATH"], **HERE}, capture_output=True, check=False)
    assert json.loads(done.stdout.decode("utf-8"))["file"] == "\udcff.json"


def test_a_trace_is_printed_as_it_is_on_every_terminal(place: Path) -> None:
    """A terminal without Unicode, or a pipe behind it, gets the very bytes: a changed one would not verify."""

    async def save() -> None:
        store = await open_store(f"sqlite:///{place}/store.db")
        await save_trace(store, 31337, ADDRESS, ['{"reason":"größer – besser"}\n'], "0xdigest")
        await store.close()

    asyncio.run(save())
    done = subprocess.run(
        [sys.executable, "-m", "clara_eval", "trace", ADDRESS],
        env={"PATH": os.environ["PATH"], **HERE, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == '{"reason":"größer – besser"}\n'.encode()


def test_a_new_key_is_told_wherever_it_is(place: Path) -> None:
    """A folder whose name looks like markup is shown as it is, on one line."""
    folder = place / "[/x]" / ("long " * 20)
    command_line = ["keys", "new", str(folder / "key.json")]
    for weak in ("x", "a" * 40, "abababababab"):
        refused = CliRunner().invoke(app, command_line, env={"CLARA_EVALUATOR_PASSWORD": weak})
        assert isinstance(refused.exception, ConfigError)
        assert not (folder / "key.json").exists()
    done = CliRunner().invoke(app, command_line, env={"CLARA_EVALUATOR_PASSWORD": "correct horse battery"})
    assert done.exit_code == 0, repr(done.exception)
    assert f"CLARA_EVALUATOR_KEYSTORE={folder}/key.json and" in done.stdout


def test_a_key_needs_a_password_that_can_be_asked_for(place: Path) -> None:
    """Without a terminal and without the setting there is one sentence with the remedy, and no file."""
    refused = CliRunner().invoke(app, ["keys", "new", str(place / "key.json")], env={"CLARA_EVALUATOR_PASSWORD": None})
    assert isinstance(refused.exception, ConfigError)
    assert "CLARA_EVALUATOR_PASSWORD" in refused.exception.remedy
    assert not (place / "key.json").exists()


@pytest.mark.usefixtures("place")
def test_a_reader_that_has_enough_is_no_error() -> None:
    """A closed pipe ends a command without noise."""
    process = command("--help")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.wait(timeout=60)
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


@pytest.mark.usefixtures("place")
def test_the_version_names_the_rules_by_which_traces_are_replayed() -> None:
    """Whoever has a trace of other rules finds out which program checks it."""
    out, _ = command("--version").communicate(timeout=60)
    assert out == f"clara-eval {__version__}, rules {RULES}\n"


@pytest.mark.usefixtures("place")
def test_ctrl_c_leaves_no_traceback() -> None:
    """Ctrl-C in the middle of work ends with 130, or by the signal (130 to a shell), and without a traceback."""
    process = command("serve", "--demo")
    assert process.stderr is not None
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    # CPython ends by the signal if it met the interrupt inside an `exec` of text, as imports of dataclasses do.
    assert (process.returncode in {130, -signal.SIGINT}, out, err.strip()) == (True, "", "")


@pytest.mark.usefixtures("place")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_disk_is_said() -> None:
    """Output that finds no space ends with a sentence and exit code 2."""
    Path("config.json").write_text('{"version":1,"features":["parses"],"criteria":"It parses."}')
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "clara_eval", "config", "validate", "config.json", "--json"],
            env={"PATH": os.environ["PATH"], **HERE},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "no space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("place")
def test_no_folder_for_temporary_files_is_said() -> None:
    """Where nothing can be written, the sentence names what to set, and the exit code is 2."""
    done = subprocess.run(
        [sys.executable, "-m", "clara_eval", "demo"],
        env={**os.environ, "PATH": f"{find_anvil().parent}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].endswith("Name one that can with TMPDIR.")
    assert "Traceback" not in done.stderr
