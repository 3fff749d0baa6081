"""Posted results in Cloudflare KV: the specified documents, byte for byte as they are here, whatever interrupts."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from clara_eval.app import open_app
from clara_eval.challenge.model import Address
from clara_eval.cli import app as command
from clara_eval.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.settings import Settings
from clara_eval.store.open import opened_store
from clara_eval.testing.kv_server import ACCOUNT, NAMESPACE, TOKEN, LocalKv
from clara_eval.testing.step_worker import KILLED, PACE, StepWorkers
from clara_eval.trace.archive import stream_trace
from clara_eval.trace.store_keys import features_key, pairwise_key, scores_key, status_key, trace_key
from clara_eval.use_cases.evaluate import evaluate
from clara_eval.use_cases.test_publication import closed_round

MINIFLARE = Path(__file__).parents[1] / "testing" / "kv_miniflare.mjs"
CHAIN = 31337


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
        origin = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        yield f"{origin}/client/v4"
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 30)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
async def test_a_real_kv_holds_the_same_bytes_after_kills_in_the_middle(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Killed before and after writes at five places, then let alone: a client of its own reads what is here."""
    address = await closed_round(local_chain)
    async with miniflare(tmp_path / "kv") as url, StepWorkers(environ_of(local_chain, tmp_path, url)) as workers:
        assert await workers.run("evaluate", address, kill="before:kv_put:1") == KILLED, workers.told
        for point in ("after:kv_put:1", "before:kv_put:3", "after:kv_put:4", "after:kv_put:2"):
            assert await workers.run("tick", kill=point) == KILLED, (point, workers.told)
        assert await workers.run("tick") == 0, workers.told
    dumped = await asyncio.create_subprocess_exec(
        "node", str(MINIFLARE), "dump", str(tmp_path / "kv"), NAMESPACE, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await asyncio.wait_for(dumped.communicate(), 60)
    assert json.loads(told) == await public_keys_of(kv_settings(local_chain, tmp_path, url), address)


def test_syncing_needs_a_place(tmp_path: Path) -> None:
    """Without a place the command ends with what to set."""
    where = {"CLARA_DATABASE_URL": f"sqlite:///{tmp_path}/clara.db"}
    told = CliRunner().invoke(command, ["publication", "sync"], env=where)
    assert told.exit_code == 1
    assert "CLARA_KV_ACCOUNT" in str(told.exception)


async def test_syncing_by_hand_puts_what_is_missing_once(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round from before the setting goes out by `publication sync ADDRESS`; a second call writes nothing."""
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
