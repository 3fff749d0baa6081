"""Submissions that are URLs: what they lead to is judged, recorded and replayed; the URL is what was committed to."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from aiohttp import web as server
from tests.support.forged_trace import Entries, forged
from tests.support.hostile_web import HostileWeb, ScriptedResolver
from tests.support.ipfs_gateway import LocalGateway
from tests.support.large_round import no_listener
from tests.support.rounds import opened, run
from tests.support.verifiers import node_refusals, refusal_of

from clara_eval.actions.judge import JudgeRequest, judge_entries
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadTrace
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import DAY, Handed, LocalChain, PostedTerms
from clara_eval.evaluation.folder import FolderFetch, FolderVenue, NamedContent, account_of, check_folder
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.evaluation.run import evaluate_round
from clara_eval.evaluation.sources import RECEIVED, Received
from clara_eval.evaluation.trace import read_entries
from clara_eval.harness import Machine
from clara_eval.store.open import opened_store
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import drafted
from clara_eval.submissions.fetch import UriFetch

LINES = {"name": "lines", "type": "integer", "source": "measured", "better": "lower", "min": 0, "max": 5000}
CONFIG = json.dumps(
    {"version": 1, "judge": "rules", "features": [LINES], "criteria": "Short.", "submissionFormat": "url"}
)
PLAN = EvaluationPlan(("rules",))


def work(number: int) -> bytes:
    """A text like no other's, a line longer for each number."""
    return b"".join(b"Line %d of work %d says w%x.\n" % (n, number, n * 97 + number * 13) for n in range(number + 2))


def zipped(**files: bytes) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w") as archive:
        for name, body in files.items():
            archive.writestr(f"{name}.txt", body)
    return out.getvalue()


@pytest.fixture(scope="module")
async def hostile() -> AsyncIterator[HostileWeb]:
    async with HostileWeb() as running:
        yield running


@dataclass
class Linked:
    """A folder whose entries are URLs into a web that misbehaves."""

    hostile: HostileWeb
    store: SqlStore
    entries: dict[str, bytes]

    @property
    def venue(self) -> FolderVenue:
        return FolderVenue.of(self.contents, CONFIG.encode(), (6000, 4000), "", "")

    @property
    def contents(self) -> list[NamedContent]:
        return [
            NamedContent(name, content, submitted_at=n) for n, (name, content) in enumerate(self.entries.items(), 1)
        ]

    async def run(self) -> EvaluationResult:
        resolver = ScriptedResolver({"solutions.example": [["127.0.0.1"]], "rebound.example": [["10.0.0.7"]]})
        fetch = FolderFetch({one.uri: one for one in self.contents}, UriFetch(web=self.hostile.web(resolver=resolver)))
        sources = self.venue.sources(fetch, self.store, None, Machine())  # type: ignore[arg-type] # rules ask no model
        return await evaluate_round(self.venue.given, PLAN, sources, no_listener)

    async def trace(self) -> list[str]:
        with drafted(self.venue.trace(PLAN, await self.run())) as draft:
            return "".join(draft.pieces()).splitlines(keepends=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with opened_store(f"sqlite:///{tmp_path}/links.db") as running:
        yield running


def serve(hostile: HostileWeb, path: str, body: bytes) -> bytes:
    """Put a body at a path; the URL of it."""

    async def answer(_: server.Request) -> server.Response:
        return server.Response(body=body, content_type="text/plain")

    hostile.routes[path] = answer
    return hostile.url(path).encode()


def ranked(result: EvaluationResult) -> list[str]:
    assert result.ranking is not None
    return [one.item for one in result.ranking.standings]


def rejected(result: EvaluationResult) -> dict[str, tuple[str, str]]:
    return {one.submission.submitter: (one.code, one.reason) for one in result.rejected}


async def test_every_link_that_cannot_be_followed_gets_its_verdict(hostile: HostileWeb, store: SqlStore) -> None:
    """Private addresses, credentials, endless bodies, 404 and what is no URL are refused in words; others are ranked."""
    web = hostile.url
    links = {
        "good": (serve(hostile, "work/1", work(1)), ""),
        "spaced": (b" \n" + serve(hostile, "work/2", work(2)) + b"\r\n", ""),
        "plain http": (serve(hostile, "work/3", work(3)).replace(b"https:", b"http:"), ""),
        "archive": (serve(hostile, "archive", zipped(a=work(4), b=work(5))), ""),
        "not a URL": (b"See my work at https://example.com/", "not_url"),
        "two URLs": (b"https://example.com/a\nhttps://example.com/b", "not_url"),
        "data": (b"data:text/plain,hello there my good friends", "not_url"),
        "file": (b"file:///etc/passwd", "not_url"),
        "binary": (b"\x89PNG\x00\x00", "not_url"),
        "empty": (b"", "not_url"),
        "endless URL": (b"https://example.com/" + b"a" * 2_000, "not_url"),
        "nothing there": (web("status/404").encode(), "not_found"),
        "forbidden": (web("status/403").encode(), "unreadable"),
        "endless body": (web("huge").encode(), "too_large"),
        "endless redirects": (web("loop").encode(), "too_many_redirects"),
        "bomb": (web("bomb").encode(), "too_large"),
        "loopback": (b"https://127.0.0.1/work", "forbidden_address"),
        "metadata service": (b"http://169.254.169.254/latest/meta-data/", "forbidden_address"),
        "to loopback": (web("redirect?to=https://127.0.0.1/").encode(), "forbidden_address"),
        "to metadata": (web("redirect?to=http://169.254.169.254/").encode(), "unsupported_scheme"),
        "to a private name": (web("redirect?to=https://rebound.example/").encode(), "forbidden_address"),
        "to a file": (web("redirect?to=file:///etc/passwd").encode(), "unsupported_scheme"),
        "user info": (b"https://ann:secret@example.com/work", "bad_uri"),
        "port": (b"https://example.com:22/work", "forbidden_address"),
        "no CID": (b"ipfs://../../etc/passwd", "bad_uri"),
        "image": (web("image").encode(), "binary"),
        "blank": (web("blank").encode(), "empty"),
        "damaged archive": (serve(hostile, "cut", zipped(a=work(6))[:-30]), "bad_archive"),
    }
    result = await Linked(hostile, store, {name: link for name, (link, _) in links.items()}).run()
    found = rejected(result)
    assert {name: found.get(account_of(name), ("", ""))[0] for name in links} == {
        n: code for n, (_, code) in links.items()
    }
    assert all(len(reason) > 30 for _, reason in found.values())
    assert not any(one.is_outage for one in result.rejected)
    assert ranked(result) == [account_of(name) for name in ("good", "spaced", "plain http", "archive")]


async def test_a_link_is_read_once_and_not_further(hostile: HostileWeb, store: SqlStore, tmp_path: Path) -> None:
    """Content that changes between two runs is what was read first; a link to a link is judged as the text it is."""
    reads = 0

    async def changing(_: server.Request) -> server.Response:
        nonlocal reads
        reads += 1
        return server.Response(body=work(reads))

    hostile.routes["changing"] = changing
    further = serve(hostile, "further", b"https://solutions.example/one/more/step/to/take\n")
    linked = Linked(hostile, store, {"a": hostile.url("changing").encode(), "b": further})
    before = list(hostile.hits)
    first = await linked.trace()
    assert await linked.trace() == first
    assert reads == 1
    assert hostile.hits[len(before) :].count("further") == 1
    assert "one/more/step/to/take" not in hostile.hits
    assert ranked(await linked.run()) == [account_of("b"), account_of("a")]
    assert (await check_folder(first)).winners == ("b", "a")
    assert node_refusals({"links": first}, tmp_path) == {"links": ""}


async def test_copies_are_found_behind_links(hostile: HostileWeb, store: SqlStore) -> None:
    """The URL of somebody else, and another URL with the same work, are copies of the earlier entry."""
    first, other = serve(hostile, "original", work(7)), serve(hostile, "mirror", work(7))
    own = serve(hostile, "own", work(1))
    result = await Linked(hostile, store, {"author": first, "same URL": first, "mirror": other, "own": own}).run()
    assert {account: code for account, (code, _) in rejected(result).items()} == {
        account_of("same URL"): "copy",
        account_of("mirror"): "copy",
    }


async def test_a_host_that_is_away_is_asked_again(hostile: HostileWeb, store: SqlStore) -> None:
    """An outage behind a link is no verdict: it is asked again, and read when it is back."""

    async def away(_: server.Request) -> server.Response:
        return server.Response(status=503)

    hostile.routes["away"] = away
    ready = serve(hostile, "ready", work(1))
    linked = Linked(hostile, store, {"away": hostile.url("away").encode(), "ready": ready})
    # As if it had been away before, so that this test does not wait.
    missed = Received(None, code="unreachable", reason="It answers 503.", is_outage=True)
    await store.add_entry(linked.venue.run, f"outage/{account_of('away')}/linked", RECEIVED.text(missed))
    found = (await linked.run()).rejected
    assert [(one.submission.submitter, one.is_outage) for one in found] == [(account_of("away"), True)]
    assert found[0].reason == "Its URL: It answers 503."
    serve(hostile, "away", work(2))
    assert not (await linked.run()).rejected


def changed(name: str, **values: Any) -> Any:
    """Give the linked content of an entry other values."""

    def change(entries: Entries) -> None:
        entries[f"solution/{account_of(name)}"]["linked"].update(values)

    return change


def without(name: str) -> Any:
    def change(entries: Entries) -> None:
        del entries[f"solution/{account_of(name)}"]["linked"]

    return change


def beside_no_url(entries: Entries) -> None:
    refused = entries[f"solution/{account_of('c')}"]
    refused["linked"] = entries[f"solution/{account_of('a')}"]["linked"]


async def test_both_verifiers_replay_links_without_a_network(
    hostile: HostileWeb, store: SqlStore, tmp_path: Path
) -> None:
    """The trace holds as it is; with other, no or additional linked content neither verifier holds it."""
    names = {"a": serve(hostile, "a", work(1)), "b": serve(hostile, "b", work(3)), "c": b"no URL at all, but words"}
    names["d"] = hostile.url("status/404").encode()
    lines = await Linked(hostile, store, names).trace()
    other = base64.b64encode(work(2)).decode()
    traces = {"as it is": lines} | {
        name: list(forged(lines, change))
        for name, change in {
            "other content": changed("b", content=other),
            "no content": changed("b", content=None, code="not_found", reason="Nothing."),
            "a refused one is there": changed("d", content=other, code="", reason=""),
            "another reason to refuse": changed("d", code="too_large"),
            "immutable": changed("a", immutable=True),
            "not recorded": without("a"),
            "a refused one not recorded": without("d"),
            "recorded without a URL": beside_no_url,
        }.items()
    }
    ours = set()
    for name, trace in traces.items():
        try:
            await check_folder(trace)
        except BadTrace:
            continue
        ours.add(name)
    theirs = {name for name, refusal in node_refusals(traces, tmp_path).items() if not refusal}
    assert ours == theirs == {"as it is"}


async def test_a_round_of_links_on_chain(local_chain: LocalChain, tmp_path: Path) -> None:
    """On chain the hash is of the URL's text; what an ipfs: link leads to is fixed, judged, posted and verified."""
    async with LocalGateway() as gateway:
        await gateway.start()
        metadata = build_metadata(title="Links", problem_statement="Write.", skills=(), config_text=CONFIG)
        terms = PostedTerms(challenge_uri=metadata, eval_config_hash=config_hash(CONFIG.encode()), payout_bps=(10_000,))
        address = await local_chain.post_challenge(terms)
        urls = [gateway.add(work(number)).encode() for number in (2, 1)] + [b"https://127.0.0.1/"]
        handed = [Handed(local_chain.agents[n], data_uri(url), keccak_hex(url)) for n, url in enumerate(urls)]
        await local_chain.submit_all(address, handed)
        await local_chain.move_time(DAY + 1)
        async with opened(local_chain, tmp_path, ipfs_gateway=gateway.url) as app:
            done = await run(app, address)
            assert ranked(done.result) == [local_chain.agents[n].address for n in (1, 0)]
            assert [one.code for one in done.result.rejected] == ["forbidden_address"]
            trace = await write_trace(app, address)
    lines = trace.read_text(encoding="utf-8").splitlines(keepends=True)
    bodies = {entry.key: entry.body for entry in read_entries(lines)}
    solution: Any = bodies[f"solution/{local_chain.agents[1].address}"]
    assert (solution["solutionHash"], solution["keccak"]) == (keccak_hex(urls[1]), keccak_hex(work(1)))
    assert (solution["hashKind"], solution["pinned"], solution["linked"]["immutable"]) == ("content", True, True)
    assert await refusal_of(lines) == ""
    assert node_refusals({"chain": lines}, tmp_path) == {"chain": ""}


async def test_judge_follows_the_links_of_a_folder(tmp_path: Path) -> None:
    """`judge` reads URLs through the gateway of the settings; the second run asks it nothing."""
    async with LocalGateway() as gateway:
        await gateway.start()
        contents = [NamedContent(f"entry {n}", gateway.add(work(n)).encode()) for n in (3, 1, 2)]
        settings = Settings.from_env({"CLARA_NETWORK": "local", "CLARA_IPFS_GATEWAY": gateway.url})
        request = JudgeRequest(contents, CONFIG.encode(), judges="rules", winners=1)
        found = await judge_entries(request, settings, tmp_path / "out")
        assert [row.id for row in found.ranking] == ["entry 1", "entry 2", "entry 3"]
        asked = gateway.asked
        assert (await judge_entries(request, settings, tmp_path / "out")).digest == found.digest
        assert gateway.asked == asked
