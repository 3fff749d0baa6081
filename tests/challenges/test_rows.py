"""What evaluations left behind reads the same from the store and through the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from clara_eval.challenges.stored_results import ApiRecords, StoreRecords, documents_in
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import Temporary
from clara_eval.core.model import Winner
from clara_eval.documents.results import Features, Pairwise, read
from clara_eval.documents.store_keys import features_key, pairwise_key
from clara_eval.evaluation.play import Comparison, votes_document
from clara_eval.evaluation.trace import TraceWriter, render
from clara_eval.store.open import StoreOnDemand
from clara_eval.store.sqlite import SqliteStore
from clara_eval.store.trace_archive import save_trace

ONE, OTHER = Address("0x" + "1" * 40), Address("0x" + "2" * 40)


def vote(judge: str, winner: Winner | None) -> Comparison:
    return Comparison(ONE, OTHER, judge, winner, 0.8, f"{judge} says so", ())


def test_a_jurys_game_is_the_majority_with_every_vote() -> None:
    """The first vote is not the verdict: two of three judges are, as in the store's own document."""
    votes = [vote("a", "first"), vote("b", "second"), vote("c", "second")]
    writer = TraceWriter()
    lines = [writer.line(f"comparison/{n:07}", to_camel_json(one)) for n, one in enumerate(votes)]
    lines.append(writer.line(f"features/{ONE}", {"features": {"tests": 3}}))
    found = documents_in(render(lines, writer.digest), OTHER)
    comparison = Pairwise.model_validate_json(found[pairwise_key(OTHER, ONE, OTHER)])
    assert comparison.model_dump() == votes_document(votes)
    assert comparison.winner == "B"
    assert comparison.reason == "b says so"
    assert Features.model_validate_json(found[features_key(OTHER, ONE)]) == Features(features={"tests": 3})
    assert len(found) == 2


def test_a_question_without_any_verdict_has_no_winner() -> None:
    """Failures are no votes; a split is a tie."""
    assert votes_document([vote("a", None)])["winner"] is None
    assert votes_document([vote("a", "first"), vote("b", None)])["winner"] == "A"
    split = votes_document([vote("a", "first"), vote("b", "second")])
    assert (split["winner"], split["confidence"], split["reason"]) == ("tie", None, "The judges disagree.")
    assert [one["winner"] for one in split["votes"]] == ["A", "B"]


@asynccontextmanager
async def site(pages: dict[str, bytes]) -> AsyncIterator[str]:
    """A web server with these pages under the paths of the service; others are not found."""

    async def page(request: web.Request) -> web.Response:
        content = pages.get(request.match_info["name"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    app = web.Application()
    app.router.add_get("/api/v1/challenges/{address}/{name}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def features(records: ApiRecords, address: Address, submitter: Address) -> Features | None:
    return await read(records, records.chain_id, Features, features_key(address, submitter))


async def test_another_web_site_is_told_as_no_service() -> None:
    """An address that answers with pages instead of documents is named with its setting, and nothing crashes."""
    html = b"<!doctype html><title>Welcome</title>"
    pages = {"eval-status": html, "leaderboard": b"\xff\xfe", "eval-trace": b'{"key":"features/x"}'}
    async with site(pages) as url:
        records = ApiRecords(url, 31337)
        for question in (records.status(ONE), records.scores(ONE), features(records, ONE, OTHER)):
            with pytest.raises(Temporary, match="CLARA_API_URL"):
                await question
        pages["eval-trace"] = b"\xff"
        with pytest.raises(Temporary, match="CLARA_API_URL"):
            await records.trace(ONE, at_most=100)
        with pytest.raises(Temporary, match="CLARA_API_URL"):
            await features(records, ONE, OTHER)


async def test_a_trace_that_comes_later_is_seen() -> None:
    """Nothing found is not remembered: a long-lived server shows the features once the service has them."""
    writer = TraceWriter()
    lines = [writer.line(f"features/{ONE}", {"features": {"tests": 3}})]
    pages: dict[str, bytes] = {}
    async with site(pages) as url:
        records = ApiRecords(url, 31337)
        assert await features(records, OTHER, ONE) is None
        pages["eval-trace"] = "".join(render(lines, writer.digest)).encode()
        assert await features(records, OTHER, ONE) == Features(features={"tests": 3})


def pools() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("pool-")}


async def test_two_questions_at_once_open_one_store(postgres_url: str) -> None:
    """Whatever was opened is closed: no pool of a second store is left behind."""
    before = pools()
    store = StoreOnDemand(postgres_url)
    records = StoreRecords(store, 31337)
    await asyncio.gather(records.status(ONE), records.status(OTHER), records.scores(ONE))
    assert pools() > before
    await store.close()
    assert pools() == before


async def test_no_more_of_a_trace_is_read_than_asked_for(tmp_path: Path) -> None:
    """Whoever may not have a long trace does not make the service hold all of it."""
    store = await SqliteStore.open(str(tmp_path / "store.db"))
    await save_trace(store, 31337, ONE, ["x" * 1_000_000] * 4, "0xdigest")
    records = StoreRecords(StoreOnDemand("", store), 31337)
    assert len(await records.trace(ONE, at_most=10_000_000) or "") == 4_000_000
    assert len(await records.trace(ONE, at_most=1_500_000) or "") == 2_000_000
    await store.close()
