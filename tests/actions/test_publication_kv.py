"""Posted results in Cloudflare KV: the specified documents, byte for byte as they are here, whatever interrupts."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr
from tests.support.fake_endpoint import FakeEndpoint, Seen
from tests.support.kv_server import ACCOUNT, NAMESPACE, TOKEN, LocalKv
from tests.support.rounds import closed_round
from tests.support.scripted_judge import scripted_words
from tests.support.shell import Shell
from tests.support.step_worker import KILLED, PACE, StepWorkers
from typer.testing import CliRunner

from clara_eval.actions import publication
from clara_eval.actions.evaluate import evaluate
from clara_eval.actions.operator import preflight
from clara_eval.actions.publication import publish_after_post, publish_missing
from clara_eval.app import App, open_app
from clara_eval.chain.model import Challenge
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError, ConfigError
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import DAY, USDC, Handed, LocalChain, PostedTerms
from clara_eval.documents.results import Summary
from clara_eval.documents.store_keys import (
    features_key,
    index_key,
    pairwise_key,
    scores_key,
    status_key,
    trace_key,
)
from clara_eval.interfaces.cli import app as command
from clara_eval.service.due import EngineOptions
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alerts, Metrics
from clara_eval.store.leases import Busy
from clara_eval.store.open import opened_store
from clara_eval.store.publication.ipfs import IpfsPublication
from clara_eval.store.trace_archive import save_trace, stream_trace

MINIFLARE = Path(__file__).parents[1] / "support" / "kv_miniflare.mjs"
CHAIN = 31337
PATIENCE_SECONDS = 600.0
"""For what only a hang would exceed, however busy the machine is."""
SHARE_SECONDS = 100.0
"""Of one of two places: shorter than any limit of its own connection."""
ROUND = Address("0x" + "ab" * 20)
SUMMARY = {
    "chainId": CHAIN, "title": "t", "problemStatement": "p", "skills": [], "poster": "0x1", "evaluator": "0x2",
    "token": {"address": "0x3", "symbol": "T", "decimals": 6, "isKnown": True}, "prizePool": "1", "winnerCount": 1,
    "payoutBps": [10_000], "deadline": 1, "scoringDeadline": 2, "submissionCount": 2, "chainStatus": "finalized",
    "scorePostedAt": 1, "postedBy": "evaluator", "block": 1,
}  # fmt: skip


def kv_settings(chain: LocalChain, place: Path, url: str) -> Settings:
    token = SecretStr(TOKEN)
    changes = {"kv_url": url, "kv_account": ACCOUNT, "kv_namespace": NAMESPACE, "kv_token": token}
    return local_settings(chain, place / "store.db", place).model_copy(update=changes)


def environ_of(chain: LocalChain, place: Path, url: str) -> dict[str, str]:
    settings = kv_settings(chain, place, url)
    shown = settings.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value) for name, value in shown.items()
    }


async def public_keys_of(settings: Settings, address: Address) -> dict[str, str]:
    """What an independent reader has to find: the keys as they are here, and the trace as one document."""
    starts = (features_key(address, ""), pairwise_key(address, "", "")[:-1], scores_key(address), status_key(address))
    async with opened_store(settings.database_url) as store:
        found = {key: value for start in starts for key, value in await store.items(CHAIN, start)}
        trace = "".join([part async for part in stream_trace(store, CHAIN, address)])
    return {**found, trace_key(address): trace}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit of time ends a publication in these tests."""
    monkeypatch.setattr(publication, "AFTER_POST_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(publication, "LIVE_PUT_SECONDS", PATIENCE_SECONDS)


@pytest.mark.specification("7", "KV: eval-status, features, pairwise, scores, eval-trace")
async def test_a_posted_result_has_exactly_the_specified_documents(local_chain: LocalChain, tmp_path: Path) -> None:
    """The five kinds of keys with every specified field, equal to the local ones; the last written says complete."""
    address = await closed_round(local_chain)
    async with LocalKv() as kv:
        settings = kv_settings(local_chain, tmp_path, kv.url)
        async with open_app(settings, pace=PACE) as app:
            await evaluate(app, address)
        assert kv.values == await public_keys_of(settings, address)
        read = {key.removeprefix(f"challenges:{address}:"): json.loads(value) for key, value in kv.values.items()}
        assert kv.writes[-1] == [status_key(address)]
    assert {"status", "progress", "startedAt"} <= set(read["eval-status"])
    assert read["eval-status"]["status"] == "complete"
    assert all({"address", "score", "elo"} <= set(row) for row in read["scores"]["rankings"])
    assert read["scores"]["publishedAt"] > 0
    facts = [value for key, value in read.items() if key.startswith("features:")]
    assert facts
    assert all(set(one) >= {"features", "extractedAt"} for one in facts)
    assert read["eval-trace"]["digest"] == read["scores"]["traceDigest"]
    ranks = {row["address"]: row["rank"] for row in read["scores"]["rankings"]}
    assert any(key.startswith("pairwise:") for key in read)
    for key, game in read.items():
        if key.startswith("pairwise:"):
            _, first, second = key.split(":")
            assert set(game) >= {"winner", "confidence", "reason"}
            better = {"A": first, "B": second}.get(game["winner"])
            assert better is None or ranks[better] == min(ranks[first], ranks[second])


async def test_a_running_round_shows_status_and_facts_before_the_post(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that waits for a person has its status and features in KV, without ranking, pairs or trace."""
    monkeypatch.setattr(publication, "LIVE_SECONDS", 0.01)
    address = await closed_round(local_chain, pool=2000 * USDC)
    states: list[str] = []
    async with LocalKv() as kv:
        kv.seconds_a_key = 0.0
        kv.on_write = lambda pairs: states.extend(
            json.loads(value)["status"] for key, value in pairs if "status" in key
        )
        settings = kv_settings(local_chain, tmp_path, kv.url)
        async with open_app(settings, pace=PACE) as app:
            done = await evaluate(app, address)
        local = await public_keys_of(settings, address)
    assert (done.receipt, states[-1]) == (None, "review")
    assert {"extracting", "comparing"} & set(states), "while it ran"
    facts = {key: value for key, value in local.items() if key.startswith(features_key(address, ""))}
    assert len(facts) == len(done.challenge.submissions) - len(done.result.rejected)
    assert kv.values == facts | {status_key(address): local[status_key(address)]}


async def test_facts_appear_while_other_entries_are_still_read(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model answers about the last entry only once KV holds the facts of another; at the end all are there."""
    monkeypatch.setattr(publication, "LIVE_SECONDS", 0.01)
    quality = {"name": "quality", "type": "integer", "min": 0, "max": 100, "better": "higher"}
    config = json.dumps({"version": 1, "features": [quality], "criteria": "Quality."})
    uri = build_metadata(title="t", problem_statement="p", skills=[], config_text=config)
    terms = PostedTerms(challenge_uri=uri, eval_config_hash=config_hash(config.encode()), payout_bps=(10_000,))
    address = await local_chain.post_challenge(terms)
    texts = [f"quality: {n}\nThe words of entry {n} are w{n * 97:x}, w{n * 13:x} and others.\n" for n in range(3)]
    handed = [
        Handed(agent, data_uri(text.encode()), keccak_hex(text.encode()))
        for agent, text in zip(local_chain.agents, texts, strict=False)
    ]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(DAY + 1)
    there = asyncio.Event()

    def written(pairs: Sequence[tuple[str, str]]) -> None:
        if any(key.startswith(features_key(address, "")) for key, _ in pairs):
            there.set()

    @asynccontextmanager
    async def turn(seen: Seen) -> AsyncIterator[None]:
        if "quality: 2" in seen.text:
            await asyncio.wait_for(there.wait(), PATIENCE_SECONDS)
        yield

    endpoint = FakeEndpoint(words=scripted_words)
    endpoint.turn = turn
    async with LocalKv() as kv, endpoint.running():
        kv.seconds_a_key, kv.on_write = 0.0, written
        judge = f"openai:m@{endpoint.url}"
        settings = kv_settings(local_chain, tmp_path, kv.url)
        settings = settings.model_copy(update={"judges_as_set": judge, "prices": f"{judge}=0/0"})
        async with open_app(settings, pace=PACE) as app:
            await evaluate(app, address)
        first = next(keys for keys in kv.writes if any(key.startswith(features_key(address, "")) for key in keys))
        assert 0 < sum(key.startswith(features_key(address, "")) for key in first) < len(texts)
        local = await public_keys_of(settings, address)
    facts = {key: value for key, value in local.items() if key.startswith(features_key(address, ""))}
    assert len(facts) == len(texts)
    assert {key: kv.values.get(key) for key in facts} == facts


async def test_check_tries_the_token_and_the_namespace(local_chain: LocalChain, tmp_path: Path) -> None:
    """`check` writes a key that vanishes; a token or namespace that does not work is named with its setting."""
    async with LocalKv() as kv:
        settings = kv_settings(local_chain, tmp_path, kv.url)
        place = f"kv-{NAMESPACE}"
        found = {one.name: one for one in await preflight(settings)}
        assert found[place].ok
        assert list(kv.values) == ["clara-eval:check"]
        refused = await preflight(settings.model_copy(update={"kv_token": SecretStr("other")}))
        assert "CLARA_KV_TOKEN" in next(one.detail for one in refused if one.name == place)
        missing = await preflight(settings.model_copy(update={"kv_namespace": "c" * 32}))
        assert "CLARA_KV_NAMESPACE" in missing[-1].detail


@asynccontextmanager
async def miniflare(folder: Path) -> AsyncIterator[str]:
    """A real KV in that folder, served by the endpoints of Cloudflare's API."""
    process = await asyncio.create_subprocess_exec(
        "node", str(MINIFLARE), "serve", str(folder), NAMESPACE, TOKEN,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        origin = (await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)).decode().strip()
        yield f"{origin}/client/v4"
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


async def dump(folder: Path) -> dict[str, str]:
    """Everything in that KV, as a client of its own reads it."""
    process = await asyncio.create_subprocess_exec(
        "node", str(MINIFLARE), "dump", str(folder), NAMESPACE, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    found: dict[str, str] = json.loads(told)
    return found


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")


@needs_node
async def test_a_real_kv_holds_the_same_bytes_after_kills_in_the_middle(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Killed before or after each of its writes, then let alone: a client of its own reads what is here."""
    address = await closed_round(local_chain)
    async with miniflare(tmp_path / "kv") as url, StepWorkers(environ_of(local_chain, tmp_path, url)) as workers:
        assert await workers.run("evaluate", address, kill="before:kv_put:1") == KILLED, workers.told
        for point in ("after:kv_put:1", "before:kv_put:2", "after:kv_put:1", "before:kv_put:2", "after:kv_put:1"):
            assert await workers.run("tick", kill=point) == KILLED, (point, workers.told)
        assert await workers.run("tick") == 0, workers.told
    assert await dump(tmp_path / "kv") == await public_keys_of(kv_settings(local_chain, tmp_path, url), address)


@needs_node
async def test_a_large_round_is_the_same_after_a_kill_at_every_write(local_chain: LocalChain, tmp_path: Path) -> None:
    """Several bulks and a trace of several values, killed before or after each write: status last, the same bytes."""
    many = [f"0x{number:040x}" for number in range(30)]
    async with opened_store(f"sqlite:///{tmp_path}/store.db") as store:
        pairs = [(features_key(ROUND, one), '{"features":{"ü":1}}') for one in many]
        pairs += [(pairwise_key(ROUND, a, b), f'{{"winner":"A","reason":"{b}"}}') for a in many for b in many if a != b]
        pairs += [(scores_key(ROUND), '{"traceDigest":"0xd","postedBy":"evaluator"}')]
        await store.put_many(CHAIN, [*pairs, (status_key(ROUND), '{"status":"complete"}')])
        lines = [f"{number} " + "ö" * 500_000 + "\n" for number in range(27)]
        await save_trace(store, CHAIN, ROUND, lines, "0xd")
    kills = 0
    async with miniflare(tmp_path / "kv") as url, StepWorkers(environ_of(local_chain, tmp_path, url)) as workers:
        while await workers.run("sync", ROUND, kill=("before:kv_put:2", "after:kv_put:1")[kills % 2]) == KILLED:
            kills += 1
        assert workers.told == ""
    read, local = await dump(tmp_path / "kv"), await public_keys_of(kv_settings(local_chain, tmp_path, url), ROUND)
    trace = local.pop(trace_key(ROUND))
    listed = json.loads(read.pop(trace_key(ROUND)))["parts"]
    assert "".join(read.pop(name) for name in listed) == trace
    assert (read, len(listed)) == (local, 2)
    assert kills >= 6, "2 bulks, 2 parts, their list, scores, status"


async def test_a_round_that_is_looked_at_again_is_the_same_there(local_chain: LocalChain, tmp_path: Path) -> None:
    """A second `evaluate` of what is posted writes its status anew: there, too."""
    address = await closed_round(local_chain)
    async with LocalKv() as kv:
        settings = kv_settings(local_chain, tmp_path, kv.url)
        async with open_app(settings, pace=PACE) as app:
            await evaluate(app, address)
            before = kv.values[status_key(address)]
            await asyncio.sleep(1.1)
            await evaluate(app, address)
        assert kv.values == await public_keys_of(settings, address)
        assert kv.values[status_key(address)] != before
        assert kv.writes[-1] == [status_key(address)]


async def nobody(_challenge: Challenge) -> None:
    """No evaluation is due here."""


async def with_posted(app: App, number: int) -> Address:
    """A posted round that the service knows, without a chain behind it."""
    address = Address(f"0x{number:040x}")
    pairs = [(scores_key(address), '{"traceDigest":"0xd","postedBy":"evaluator"}')]
    pairs += [(status_key(address), '{"status":"complete","progress":100}'), (features_key(address, "0x1"), "{}")]
    await save_trace(app.store, CHAIN, address, ["{}\n"], "0xd")
    await app.store.put_many(CHAIN, pairs)
    summary = Summary.model_validate(SUMMARY | {"address": address})
    await app.store.put(CHAIN, index_key(address), summary.model_dump_json())
    return address


async def test_one_refused_challenge_keeps_no_other_from_going(local_chain: LocalChain, tmp_path: Path) -> None:
    """Documents that the place never takes are told at every tick, and all the others are there."""
    async with LocalKv() as kv, open_app(kv_settings(local_chain, tmp_path, kv.url), pace=PACE) as app:
        first, second = await with_posted(app, 1), await with_posted(app, 2)
        for _ in range(2):
            kv.faults.append("400")
            told = {one.address: one.problem async for one in publish_missing(app)}
            assert "HTTP 400" in (told[first] or "")
        assert told == {first: told[first]}, "the second one is there since the first round"
        assert status_key(second) in kv.values
        assert [one.problem async for one in publish_missing(app)] == [None]
        assert status_key(first) in kv.values


async def test_a_place_that_never_answers_keeps_no_other_waiting(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither right after the post nor at a tick; an operator hears of it."""
    loop, ahead = asyncio.get_running_loop(), [0.0]
    real = loop.time

    async def answer_nobody(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Take a request; the loop's clock then goes to the end of the time that the place has."""
        await reader.read(1)
        ahead[0] += SHARE_SECONDS + 1

    monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])
    async with (
        LocalKv() as kv,
        open_app(kv_settings(local_chain, tmp_path, kv.url)) as opened,
        await asyncio.start_server(answer_nobody, "127.0.0.1", 0) as silent,
    ):
        stuck = IpfsPublication(f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}")
        app = replace(opened, places=(stuck, *opened.places))
        first, second = await with_posted(app, 1), await with_posted(app, 2)
        metrics = Metrics()
        monkeypatch.setattr(publication, "AFTER_POST_SECONDS", 2 * SHARE_SECONDS)
        await publish_after_post(app, first)
        assert set(kv.values) >= {status_key(first), trace_key(first)}
        report = await run_tick(
            app, Alerts(metrics), metrics, nobody, options=EngineOptions(publish_seconds=2 * SHARE_SECONDS)
        )
        late = (
            f"{first}: not published at ipfs: ipfs did not take everything in time. It is tried again at the next tick."
        )
        assert [one for one in report.problems if "not published" in one] == [late]
        assert {status_key(first), status_key(second)} <= set(kv.values)
        assert b'clara_alerts_total{alert="PublicationFailing"} 1.0' in metrics.render()


class Broken(IpfsPublication):
    """A place with a bug."""

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> str:
        raise RuntimeError(f"no {chain_id} {address} {digest} {parts}")


async def test_a_bug_in_one_place_makes_no_failure_of_a_post(local_chain: LocalChain, tmp_path: Path) -> None:
    """The evaluation ends as posted, and the next place has everything."""
    address = await closed_round(local_chain)
    async with LocalKv() as kv:
        settings = kv_settings(local_chain, tmp_path, kv.url)
        async with open_app(settings, pace=PACE) as opened:
            done = await evaluate(replace(opened, places=(Broken("http://127.0.0.1:9"), *opened.places)), address)
        assert done.receipt is not None
        assert kv.values == await public_keys_of(settings, address)


async def test_two_at_once_publish_it_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whoever comes second is told so, and nothing is written twice."""
    async with LocalKv() as kv, open_app(kv_settings(local_chain, tmp_path, kv.url), pace=PACE) as app:
        address = await with_posted(app, 1)
        kv.faults.append("429")

        async def syncing() -> list[ClaraError | None]:
            return [one.error async for one in publish_missing(app, only=[address])]

        done = sorted([await one for one in [asyncio.create_task(syncing()) for _ in range(2)]], key=str)
        assert isinstance(done[0][0], Busy)
        assert done[1] == [None]
        assert sorted(key for bulk in kv.writes for key in bulk) == sorted(kv.values)


def synced(program: str, environ: dict[str, str], *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the real command."""
    done = subprocess.run(
        [program, "publication", "sync", *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environ},
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


async def test_how_syncing_ends(local_chain: LocalChain, shell: Shell, tmp_path: Path) -> None:
    """0 all there, 1 nothing posted, 2 a place or setting that does not work; one document, and never the token."""
    async with LocalKv() as kv:
        environ = environ_of(local_chain, tmp_path, kv.url)
        async with open_app(kv_settings(local_chain, tmp_path, kv.url), pace=PACE) as app:
            first, second = await with_posted(app, 1), await with_posted(app, 2)

        async def ends(*words: str, **changes: str) -> tuple[int, str]:
            code, out, errors = await asyncio.to_thread(synced, shell.program, environ | changes, *words)
            assert TOKEN not in out + errors
            assert "Traceback" not in errors
            return code, out + ("" if out else errors)

        unknown = "0x" + "9" * 40
        code, said = await ends("--json", CLARA_KV_NAMESPACE="c" * 32)
        rows = json.loads(said)["published"]
        assert (code, [row["challenge"] for row in rows]) == (2, [first, second])
        assert "CLARA_KV_NAMESPACE" in rows[0]["problem"]
        assert rows[1]["problem"].startswith("Not tried")
        code, said = await ends(CLARA_KV_TOKEN="x-other-token")
        assert (code, "CLARA_KV_TOKEN" in said, "1 more not tried" in said) == (2, True, True)
        assert "x-other-token" not in said
        half, nowhere, never = await asyncio.gather(
            ends("--json", CLARA_KV_NAMESPACE=""),
            ends("--json", CLARA_KV_ACCOUNT="", CLARA_KV_NAMESPACE="", CLARA_KV_TOKEN=""),
            ends(unknown),
        )
        assert (half[0], json.loads(half[1])["error"]["kind"]) == (2, "ConfigError")
        assert (nowhere[0], json.loads(nowhere[1])["error"]["message"]) == (2, "No place of publication is set.")
        assert (never[0], f"No result of ours is posted for {unknown}." in never[1]) == (1, True)
        assert kv.values == {}
        code, said = await ends()
        assert (code, said.count("published")) == (0, 2)
        assert await ends() == (0, f"Nothing to do: everything that is posted is at kv-{NAMESPACE}.\n")


def test_syncing_needs_a_place(tmp_path: Path) -> None:
    """Without a place the command ends with what to set."""
    where = {"CLARA_DATABASE_URL": f"sqlite:///{tmp_path}/clara.db"}
    told = CliRunner().invoke(command, ["publication", "sync"], env=where)
    assert isinstance(told.exception, ConfigError)
    assert "CLARA_KV_ACCOUNT" in str(told.exception)


async def test_syncing_by_hand_puts_what_is_missing_once(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round from before the setting goes out by `publication sync ADDRESS`; another call writes only if told to."""
    address = await closed_round(local_chain)
    plain = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    async with open_app(plain, pace=PACE) as app:
        await evaluate(app, address)
    async with LocalKv() as kv:
        for name, value in environ_of(local_chain, tmp_path, kv.url).items():
            monkeypatch.setenv(name, value)
        words = ["publication", "sync", address, "--json"]
        first = await asyncio.to_thread(CliRunner().invoke, command, words)
        place = f"kv-{NAMESPACE}"
        rows = [{"place": place, "challenge": address, "problem": None}]
        assert json.loads(first.stdout) == {"places": [place], "published": rows}
        assert kv.values == await public_keys_of(plain, address)
        count = len(kv.writes)
        again = await asyncio.to_thread(CliRunner().invoke, command, words)
        assert json.loads(again.stdout)["published"] == []
        assert len(kv.writes) == count
        kv.values.clear()
        anew = await asyncio.to_thread(CliRunner().invoke, command, [*words, "--again"])
        assert json.loads(anew.stdout)["published"] == rows
        assert kv.values == await public_keys_of(plain, address)
