"""Entries judged without a chain: killed and continued, as on chain, replayed by both verifiers, refused in words."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.fake_endpoint import FakeEndpoint, Seen
from tests.support.forged_trace import Entries, forged
from tests.support.hackathon import essay, hackathon
from tests.support.rounds import opened, run
from tests.support.scripted_judge import scripted_words
from tests.support.shell import Shell
from tests.support.verifiers import PROGRAM, node_refusals
from typer.testing import CliRunner

import clara_eval
from clara_eval.actions.folder import entries_of, read_entries
from clara_eval.actions.judge import JudgeRequest, judge_entries, quote_judging
from clara_eval.actions.verify import verify_any
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput, BadTrace, ConfigError, NotFound
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import DAY, Handed, LocalChain, PostedTerms
from clara_eval.evaluation.folder import CheckedFolder, check_folder
from clara_eval.interfaces.cli import app
from clara_eval.judge.port import Prompt
from clara_eval.submissions.files import pack_files

LINES = {"name": "lines", "type": "integer", "source": "measured", "better": "lower", "min": 0, "max": 5000}
QUALITY = {"name": "quality", "type": "integer", "min": 0, "max": 100, "better": "higher"}
MEASURED = json.dumps({"version": 1, "features": [LINES], "criteria": "Short is better."})
READ = json.dumps({"version": 1, "features": [QUALITY, LINES], "criteria": "Quality first."})
HARNESS = """
export const test_add = (s) => { if (s.add(1, 2) !== 3) throw new Error("add"); };
export const metric_rank = (s) => s.rank();
"""
RANK = {"name": "metric_rank", "type": "number", "source": "measured", "min": 0, "max": 100, "better": "higher"}
PASSED = {"name": "tests_passed", "type": "number", "source": "measured", "min": 0, "max": 1, "better": "higher"}
RUN = json.dumps(
    {
        "version": 1,
        "criteria": "The higher rank.",
        "features": [RANK, PASSED],
        "harness": {"language": "javascript", "source": HARNESS},
    }
)


def program(number: int) -> bytes:
    """An archive of modules and CommonJS that import each other in a circle; that of nine asks for a missing file."""
    words = " + ".join(f"w{number * 31 + place}" for place in range(6))
    files = {
        "main.js": "import plus, { rank as own } from './lib/plus.js';\nexport { plus as add };\n"
        f"export const rank = () => own() + {number};\nexport const zero = 0;\n",
        "lib/plus.js": "import * as main from '../main.js';\nexport { rank } from './rank.js';\n"
        "export default (a, b) => a + b + main.zero;\n",
        "lib/rank.js": f"const {words.replace(' +', ' = 1,')} = 1;\nexports.rank = () => 0 * ({words});\n"
        + ("require('./none');\n" if number == 9 else ""),
        "read.me": essay(number),
    }
    return pack_files({name: text.encode() for name, text in files.items()})


class Paused(FakeEndpoint):
    """Delivers so many answers, and holds all others back."""

    def __init__(self) -> None:
        super().__init__(words=scripted_words)
        self.most = 0.0
        self.turn = self._in_turn
        self._more = asyncio.Condition()

    @asynccontextmanager
    async def _in_turn(self, _seen: Seen) -> AsyncIterator[None]:
        async with self._more:
            await self._more.wait_for(lambda: self.paid < self.most)
        yield

    async def let(self, most: float) -> None:
        """Deliver so many answers in all."""
        async with self._more:
            self.most = most
            self._more.notify_all()


@pytest.mark.timeout(900)  # six processes, one after the other, on a busy machine
async def test_a_hackathon_is_killed_three_times_and_paid_once(shell: Shell, tmp_path: Path) -> None:
    """Thirty entries of several files: killed while reading and comparing, continued, every answer paid for once."""
    hackathon(tmp_path / "in")
    (tmp_path / "config.json").write_text(READ)
    endpoint = Paused()
    async with endpoint.running():
        judge = f"openai:m@{endpoint.url}"
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CLARA_PRICES": f"{judge}=1/2"}
        words = f"judge in --config config.json --out out --judges {judge} --max-usd 9 --json".split()

        async def started() -> asyncio.subprocess.Process:
            pipe = asyncio.subprocess.PIPE
            command = [shell.program, *words]
            return await asyncio.create_subprocess_exec(
                *command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe
            )

        for most in (7, 45, 80):
            await endpoint.let(most)
            process = await started()
            while endpoint.paid < most:
                assert process.returncode is None, (await process.communicate())[1]
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)  # what was delivered is saved
            process.send_signal(signal.SIGUSR1)
            await process.communicate()
            assert process.returncode == 128 + signal.SIGKILL
        await endpoint.let(float("inf"))
        process = await started()
        told, progress = await process.communicate()
        assert process.returncode == 0, progress
        assert b"calls" in progress
        assert b"$" in progress
        assert set(endpoint.paid_by_text.values()) == {1}
        paid = endpoint.paid
        again = await started()
        assert json.loads((await again.communicate())[0])["traceDigest"] == json.loads(told)["traceDigest"]
        assert endpoint.paid == paid
    found = json.loads(told)
    assert {row["id"] for row in found["rankings"] if row["winner"]} == {"team 27", "team 28", "team 29"}
    assert found["costUsd"] > 0
    assert all(row["features"]["quality"] == int(row["id"].split()[1]) for row in found["rankings"])
    _check_files(tmp_path / "out", found)
    for command in (["node", str(PROGRAM)], [shell.program, "verify"]):
        checked = await asyncio.create_subprocess_exec(*command, "out/trace.json", cwd=tmp_path)
        assert await checked.wait() == 0


def test_a_list_comes_from_standard_input_and_a_budget_that_is_too_small_is_refused(
    shell: Shell, tmp_path: Path
) -> None:
    """`judge -` reads the list and writes the result; `--max-usd` below the estimate asks nothing and exits with 2."""
    listed = "".join(json.dumps({"id": f"e{n}", "content": essay(n)}) + "\n" for n in range(3))
    judge = "openai:m@http://127.0.0.1:9/v1"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CLARA_PRICES": f"{judge}=1000/1000"}

    def judged(config: str, *words: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "config.json").write_text(config)
        command = [shell.program, "judge", "-", "--config", "config.json", *words]
        return subprocess.run(
            command, input=listed, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    done = judged(MEASURED, "--out", "out", "--json")
    assert (done.returncode, {row["id"] for row in json.loads(done.stdout)["rankings"]}) == (0, {"e0", "e1", "e2"})
    assert (tmp_path / "out" / "trace.json").exists()
    refused = judged(READ, "--out", "other", "--judges", judge, "--max-usd", "0.01")
    assert (refused.returncode, "does not pay for 3 entries" in refused.stderr) == (2, True)
    assert not (tmp_path / "other" / "trace.json").exists()


def _check_files(out: Path, found: dict[str, Any]) -> None:
    assert json.loads((out / "scores.json").read_text(encoding="utf-8")) == found
    rows = list(csv.DictReader((out / "leaderboard.csv").open(encoding="utf-8")))
    assert [row["id"] for row in rows] == [row["id"] for row in found["rankings"]]
    assert f"| 1 | **{rows[0]['id']}** |" in (out / "leaderboard.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("config", "entry"), [(READ, lambda n: essay(n).encode()), (RUN, program)], ids=["texts", "javascript"]
)
async def test_a_chain_and_a_folder_give_the_same_ranking_and_features(
    local_chain: LocalChain, tmp_path: Path, config: str, entry: Callable[[int], bytes]
) -> None:
    """The same entries, config and judge: the places and every fact are the same, wherever they came from."""
    texts = {str(number): entry(number) for number in (3, 1, 4, 5, 9, 2)}
    uri = build_metadata(title="", problem_statement="", skills=[], config_text=config)
    terms = PostedTerms(challenge_uri=uri, eval_config_hash=config_hash(config.encode()), payout_bps=(5000, 5000))
    address = await local_chain.post_challenge(terms)
    pairs = list(zip(local_chain.agents, texts.values(), strict=False))
    handed = [Handed(agent, data_uri(text, "text/plain"), keccak_hex(text)) for agent, text in pairs]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(DAY + 1)
    async with FakeEndpoint(words=scripted_words).running() as endpoint:
        judge = f"openai:m@{endpoint.url}"
        changes = {"judges_as_set": judge, "prices": f"{judge}=0/0"}
        async with opened(local_chain, tmp_path, **changes) as app:
            on_chain = (await run(app, address, dry_run=True)).result
            request = JudgeRequest(entries_of(texts), config.encode(), winners=2)
            judged = await judge_entries(request, app.settings, tmp_path / "out")
    names = {agent.address: name for (agent, _), name in zip(pairs, texts, strict=True)}
    assert [names[place.account] for place in on_chain.placed] == [place.id for place in judged.ranking]
    features = {names[account]: facts.to_json()["features"] for account, facts in on_chain.features.items()}
    assert features == {place.id: place.features for place in judged.ranking}
    if config == RUN:
        ranks = {place.id: place.features["metric_rank"] for place in judged.ranking}
        assert ranks == {"1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "9": None}
        assert [place.id for place in judged.ranking] == ["5", "4", "3", "2", "1", "9"]


async def judged_lines(place: Path) -> list[str]:
    contents = entries_of({f"e{number}": essay(number) + "\n" * number for number in range(4)})
    await judge_entries(JudgeRequest(contents, MEASURED.encode()), Settings.from_env({}), place)
    return (place / "trace.json").read_text(encoding="utf-8").splitlines(keepends=True)


def _other_id(bodies: Entries) -> None:
    bodies["folder"]["entries"][0]["id"] = "somebody else"


def _swapped_ids(bodies: Entries) -> None:
    first, second = bodies["folder"]["entries"][:2]
    first["id"], second["id"] = second["id"], first["id"]


def _other_hash(bodies: Entries) -> None:
    bodies["folder"]["entries"][0]["solutionHash"] = "0x" + "ab" * 32


def _more_winners(bodies: Entries) -> None:
    bodies["folder"] |= {"winnerCount": 4, "payoutBps": [2500] * 4}


def _later(bodies: Entries) -> None:
    bodies["folder"]["entries"][0]["submittedAt"] = 7


def _other_header(bodies: Entries) -> None:
    bodies["header"]["folder"] = "0x" + "1" * 40


def _posted(bodies: Entries) -> None:
    bodies["calldata"] = "0x"


def _no_folder(bodies: Entries) -> None:
    del bodies["folder"]


async def test_both_verifiers_hold_the_trace_of_a_folder_and_refuse_a_forged_one(tmp_path: Path) -> None:
    """Ids, hashes, winners and the header follow from one another; each lie is refused by both programs."""
    lines = await judged_lines(tmp_path / "out")
    checked = await check_folder(lines)
    assert len(checked.winners) == 3
    assert not any("chain" in point for point in checked.not_proven)
    changes = (_other_id, _swapped_ids, _other_hash, _more_winners, _later, _other_header, _posted, _no_folder)
    lies = {change.__name__: forged(lines, change) for change in changes}
    for lie in lies.values():
        with pytest.raises(BadTrace):
            await check_folder(lie)
    refused = node_refusals({"true": lines, **lies}, tmp_path)
    assert refused.pop("true") == ""
    assert all(refused.values()), refused


async def test_a_folder_is_not_a_challenge(tmp_path: Path) -> None:
    """Who asks for a comparison with a chain is told that no chain knows a folder."""
    await judged_lines(tmp_path / "out")
    trace = str(tmp_path / "out" / "trace.json")
    settings = Settings.from_env({})
    assert isinstance(await verify_any(trace, settings), CheckedFolder)
    with pytest.raises(BadTrace, match="No chain"):
        await verify_any(trace, settings, rpc="http://127.0.0.1:1")


async def test_a_result_is_viewed_in_a_browser_by_names(tmp_path: Path) -> None:
    """The pages of one folder: every link leads somewhere, names stand for addresses, no prize and no chain is named."""
    await judged_lines(tmp_path / "out")
    (tmp_path / "out" / "judge.db").unlink()
    command = [sys.executable, "-m", "clara_eval", "view", "out"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    pipe = asyncio.subprocess.PIPE
    viewer = await asyncio.create_subprocess_exec(
        *command,
        cwd=tmp_path,
        env=environment,
        stdout=pipe,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what runs in the background ignores it
    )
    assert viewer.stdout is not None
    told = (await viewer.stdout.readline()).decode().split()
    base = told[1].rstrip("/")
    try:
        async with aiohttp.ClientSession() as web:
            seen, waiting = dict[str, str](), ["/"]
            while waiting:
                async with web.get(base + (path := waiting.pop())) as answered:
                    assert answered.status == 200, path
                    seen[path] = await answered.text()
                links = re.findall(r'href="(/[^"#]*)', seen[path])
                waiting += [link for link in set(links) - seen.keys() - set(waiting) if "/static/" not in link]
    finally:
        viewer.send_signal(signal.SIGINT)
        await viewer.wait()
    assert viewer.returncode == 130
    words = re.sub(r"<[^>]*>", " ", seen["/"])
    assert all(f"e{number}" in words for number in range(4))
    assert "winner" in words
    assert "Prize pool" not in words
    assert any("The answer of entry 3" in page for page in seen.values())
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".db") == []


def test_a_folder_without_a_trace_is_not_viewed(tmp_path: Path) -> None:
    """The command says what is missing and where it comes from."""
    refused = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert isinstance(refused.exception, NotFound)
    assert "trace.json" in refused.exception.message
    assert "judge" in refused.exception.remedy


@pytest.mark.parametrize(
    ("files", "reason", "remedy"),
    [
        ({}, "no entries", "one file or folder for each entry"),
        ({"in/only.py": b"x"}, "one entry, 'only.py'", "one file or folder"),
        ({"in/a.py": b"x", "in/b/.git/x": b"x"}, "'b' is a folder without files", "fill it"),
        ({"in": b"id,text\n1,x\n"}, "not an entry.* It has 'id', 'text'", "id,content or id,path"),
        ({"in": b"id,content\na,x\na,y\n"}, "the id 'a' twice", "id of its own"),
        ({"in": b"id,content,path\na,x,y\n"}, "Line 2 of", "exactly one of content and path"),
        ({"in": b'{"id": "a", "content": "x"}\n{"id"\n'}, "Line 2 of", "one JSON object per line"),
        ({"in": b'{"id": "a", "path": "gone.py"}\n'}, "gone.py' .the entry 'a'. cannot be read", "Make it readable"),
        ({"in": b'{"id": "a", "content": "x", "submittedAt": "soon"}\n'}, "'soon'", "unix seconds"),
        ({"in": b'{"id": "\\u0000", "content": "x"}\n'}, "is not usable", "printable"),
        ({"in": b"\xff\xfe"}, "not text in UTF-8", "JSON Lines or CSV"),
    ],
)
def test_bad_entries_are_named_with_reason_and_remedy(
    files: dict[str, bytes], reason: str, remedy: str, tmp_path: Path
) -> None:
    """An empty folder, an entry that cannot be read, an id twice, missing columns: each is told with what to do."""
    if not files or next(iter(files)).startswith("in/"):
        (tmp_path / "in").mkdir()
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=reason) as bad:
        read_entries(str(tmp_path / "in"))
    assert remedy in bad.value.remedy


def test_links_in_an_entry_are_refused(tmp_path: Path) -> None:
    """A link in an entry's folder could show any file of the organiser's machine."""
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "main.py").write_text("x = 1\n")
    (tmp_path / "in" / "a" / "secret").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="is a link"):
        read_entries(str(tmp_path / "in"))


def test_lists_tell_contents_paths_and_moments(tmp_path: Path) -> None:
    """JSON Lines and CSV give the same entries; a moment is unix seconds or ISO 8601."""
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "list.jsonl").write_text(
        '{"id": 1, "path": "a.py", "submittedAt": 60}\n\n{"id": "b", "content": "two\\nlines"}\n'
    )
    (tmp_path / "list.csv").write_text('id,path,content,submittedAt\n1,a.py,,1970-01-01T00:01:00Z\nb,,"two\nlines",\n')
    first, second = (read_entries(str(tmp_path / f"list.{kind}")) for kind in ("jsonl", "csv"))
    assert first == second
    assert [(one.id, one.uri, one.content, one.submitted_at) for one in first] == [
        ("1", "entry:1/a.py", b"x = 1\n", 60),
        ("b", "entry:b", b"two\nlines", 0),
    ]


def test_a_moment_without_a_time_zone_is_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list gives the same moments, and so the same ties, on a machine in any time zone."""
    (tmp_path / "list.csv").write_text(
        "id,content,submittedAt\na,x,1970-01-01T00:01:00\nb,y,1970-01-01T02:01:00+02:00\n"
    )
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        found = read_entries(str(tmp_path / "list.csv"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [one.submitted_at for one in found] == [60, 60]


async def test_what_cannot_be_judged_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    """A config that needs a model, more winners than entries, an unknown judge and a hidden harness."""
    contents, settings = entries_of({"a": essay(1), "b": essay(2)}), Settings.from_env({})
    hidden = json.dumps(json.loads(MEASURED) | {"harness": {"language": "python", "hidden": True}})
    refused = {
        "only a language model": JudgeRequest(contents, READ.encode()),
        "3 winners of 2 entries": JudgeRequest(contents, MEASURED.encode(), winners=3),
        "there is no judge": JudgeRequest(contents, MEASURED.encode(), judges="nobody"),
        "hidden harness": JudgeRequest(contents, hidden.encode()),
        "function of a Python program": JudgeRequest(contents, READ.encode(), judges="callable:f"),
    }
    for reason, request in refused.items():
        with pytest.raises((BadInput, ConfigError), match=reason) as bad:
            await judge_entries(request, settings, tmp_path / "out")
        assert bad.value.remedy


def test_a_quote_asks_nothing_and_writes_nothing() -> None:
    """The quote counts the entries and their size."""
    contents = entries_of({str(number): essay(number) for number in range(30)})
    judge = "openai:m@http://127.0.0.1:1/v1"
    settings = Settings.from_env({"CLARA_PRICES": f"{judge}=1/2"})
    found = quote_judging(JudgeRequest(contents, READ.encode(), judge), settings)
    assert found.quote.size.submissions == 30
    assert (found.quote.models_micro_usd or 0) > 0


async def test_functions_judge_and_a_second_call_asks_nothing(tmp_path: Path) -> None:
    """A function, plain or async, reads and compares; with `out` its answers are kept."""
    asked: list[str] = []

    def answer(prompt: Prompt) -> str:
        asked.append(prompt.purpose)
        return scripted_words(Seen("", {}, _as_request(prompt), 0, 0))

    async def later(prompt: Prompt) -> str:
        return answer(prompt)

    texts = {str(number): essay(number) for number in (1, 5, 3)}
    for function in (answer, later):
        for _ in range(2):
            judged = await clara_eval.judge(texts, READ, judges=function, winners=1, out=tmp_path / function.__name__)
            assert [place.id for place in judged.ranking] == ["5", "3", "1"]
            assert judged.ranking[0].winner
            assert "before" in judged.ranking[0].reason
            count = len(asked)
        assert set(asked) == {"features", "comparison"}
        assert len(asked) == count
        asked.clear()


def _as_request(prompt: Prompt) -> dict[str, Any]:
    schema = {"json_schema": {"schema": json.loads(prompt.schema_json)}}
    return {"messages": [{"role": "user", "content": prompt.user}], "response_format": schema}
