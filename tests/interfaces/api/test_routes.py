"""The REST door from outside: endpoints, keys, limits, headers, problem documents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.support.api_service import (
    ADMIN,
    CHAIN,
    POSTED,
    QUIET,
    REVIEWED,
    UNKNOWN,
    Service,
    running_service,
    scores,
    status,
    summary,
)
from tests.support.statuses import request_review

from clara_eval.challenges.status import StatusWriter
from clara_eval.config.settings import Settings
from clara_eval.core.address import ZERO_ADDRESS
from clara_eval.core.errors import ConfigError
from clara_eval.documents.results import MEANINGS
from clara_eval.documents.store_keys import index_key, scores_key, status_key
from clara_eval.evaluation.trace import read_entries
from clara_eval.interfaces.api.context import AdminKey
from clara_eval.interfaces.api.limits import Buckets, Rate, Rates

BASE = "/api/v1/challenges"
BEARER = {"authorization": f"Bearer {ADMIN}"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with running_service(tmp_path_factory.mktemp("api")) as running:
        yield running


def problem(answer: tuple[int, dict[str, str], bytes], status: int) -> dict[str, Any]:
    """The problem document of an answer that has to be one."""
    code, headers, body = answer
    assert code == status, body
    assert headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = json.loads(body)
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    return found


@pytest.mark.specification("7", "`GET …/eval-status`: status and progress")
async def test_status_of_a_known_challenge(service: Service) -> None:
    """The specified fields come back as they are stored; a challenge not begun is pending."""
    code, headers, body = await service.get(f"{BASE}/{POSTED}/eval-status")
    assert (code, json.loads(body)["status"], json.loads(body)["progress"]) == (200, "complete", 100)
    assert headers["content-type"] == "application/json"
    _, _, quiet = await service.get(f"{BASE}/{QUIET}/eval-status")
    assert json.loads(quiet)["status"] == "pending"


async def test_a_challenge_without_our_evaluator_is_scored_elsewhere(service: Service) -> None:
    """REST and the page say who scores it and promise no evaluation."""
    known = json.loads(await service.store.get(CHAIN, index_key(QUIET)) or "")
    await service.store.put(CHAIN, index_key(QUIET), json.dumps(known | {"evaluator": ZERO_ADDRESS}))
    _, _, body = await service.get(f"{BASE}/{QUIET}/eval-status")
    assert json.loads(body)["status"] == "elsewhere"
    _, _, page = await service.get(f"/challenges/{QUIET}")
    assert "The poster scores this challenge" in page.decode()
    assert "The evaluation starts when entries close" not in page.decode()


async def test_status_is_not_sent_twice(service: Service) -> None:
    """The same ETag gives 304 without a body."""
    _, headers, _ = await service.get(f"{BASE}/{POSTED}/eval-status")
    code, _, body = await service.get(f"{BASE}/{POSTED}/eval-status", **{"if-none-match": headers["etag"]})
    assert (code, body) == (304, b"")


@pytest.mark.parametrize("path", ["", "/eval-status", "/eval-trace", "/leaderboard", "/events"])
async def test_unknown_challenges_are_404(service: Service, path: str) -> None:
    """Every reading endpoint says that it does not know the challenge, and what to do."""
    assert "remedy" in problem(await service.get(f"{BASE}/{UNKNOWN}{path}"), 404)


@pytest.mark.parametrize("path", ["", "/eval-status", "/eval-trace", "/leaderboard", "/events"])
async def test_nonsense_addresses_are_422(service: Service, path: str) -> None:
    """What is not an address is named as such, never looked up."""
    assert problem(await service.get(f"{BASE}/nonsense{path}"), 422)["errors"][0]["path"] == "path.address"


async def test_an_address_in_capitals_is_the_same(service: Service) -> None:
    """Checksummed and lower-case addresses mean one challenge."""
    code, _, _ = await service.get(f"{BASE}/0x{POSTED[2:].upper()}/eval-status")
    assert code == 200


async def test_evaluate_asks_for_the_key(service: Service) -> None:
    """Without a key and with a wrong one the engine is not asked."""
    body = {"challengeAddress": QUIET}
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"x-api-key": ADMIN + "x"},
        {"authorization": f"Basic {ADMIN}"},
    ):
        problem(await service.post(f"{BASE}/evaluate", body, **headers), 401)
    assert service.engine.asked == []


@pytest.mark.specification("7", "`POST /api/v1/challenges/evaluate` with the admin API key")
@pytest.mark.parametrize("headers", [BEARER, {"x-api-key": ADMIN}])
async def test_evaluate_with_the_key(service: Service, headers: dict[str, str]) -> None:
    """The administrator's request is queued and says where to follow it."""
    code, _, body = await service.post(f"{BASE}/evaluate", {"challengeAddress": QUIET}, **headers)
    assert code == 202
    assert json.loads(body)["statusUrl"] == f"{BASE}/{QUIET}/eval-status"
    assert service.engine.asked[-1] == QUIET


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"challengeAddress":5}', b'{"challengeAddress":"0x1"}', b"{}", b'{"challengeAddress":"%s","x":1}' % QUIET.encode()]
)  # fmt: skip
async def test_bad_bodies_are_problem_documents(service: Service, body: bytes) -> None:
    """Broken JSON, wrong types and unknown keys are all 422 with the place named."""
    assert problem(await service.post(f"{BASE}/evaluate", body, **BEARER), 422)["errors"]


async def test_a_body_without_a_content_type_is_told_so(service: Service) -> None:
    """A program that forgot the header learns which one, not that its object is no dictionary."""
    body = json.dumps({"challengeAddress": QUIET}).encode()
    for kind in ("", "text/plain"):
        told = problem(await service.post(f"{BASE}/evaluate", body, **BEARER, **{"content-type": kind}), 422)
        assert (told["detail"], told["remedy"]) == (
            "The body is not marked as JSON.",
            "Send the header content-type: application/json.",
        )


async def test_bytes_that_are_no_text(service: Service) -> None:
    """A body that is not UTF-8 cannot be read at all."""
    problem(await service.post(f"{BASE}/evaluate", b"\xff", **BEARER), 400)


async def test_an_engine_that_does_not_know_the_challenge(service: Service) -> None:
    """A contract that is no challenge is 404 for the administrator too."""
    problem(await service.post(f"{BASE}/evaluate", {"challengeAddress": UNKNOWN}, **BEARER), 404)


async def test_review_needs_the_key_and_a_waiting_challenge(service: Service) -> None:
    """A decision reaches the engine once, with its reason; where nothing waits it is refused."""
    path, body = f"{BASE}/{REVIEWED}/review", {"decision": "approve", "note": "looked"}
    problem(await service.post(path, body), 401)
    code, _, _ = await service.post(path, {**body, "by": "Ada"}, **BEARER)
    assert (code, service.engine.decided) == (200, [(REVIEWED, "approve", "looked")])
    assert service.engine.decided_by == ["Ada"]
    problem(await service.post(path, {**body, "by": "x" * 81}, **BEARER), 422)
    problem(await service.post(f"{BASE}/{POSTED}/review", body, **BEARER), 409)
    problem(await service.post(path, {"decision": "maybe"}, **BEARER), 422)


async def test_a_ruling_reaches_the_engine_and_the_sheet_the_administrator(service: Service) -> None:
    """A ruling needs the key, its content and the digest; the sheet needs the key and a review."""
    path, digest = f"{BASE}/{REVIEWED}/review", "0x" + "ab" * 32
    ruling = {"kind": "exclude", "account": "0x" + "a1" * 20}
    body = {"decision": "rule", "reason": "a sock puppet", "ruling": ruling, "traceDigest": digest, "by": "Ada"}
    problem(await service.post(path, body), 401)
    refused = problem(await service.post(path, {**body, "ruling": None}, **BEARER), 409)
    assert refused["remedy"] not in refused["detail"]
    assert (await service.post(path, body, **BEARER))[0] == 200
    assert [(d.kind, d.account, d.note, d.by) for d in service.engine.ruled] == [
        ("exclude", "0x" + "a1" * 20, "a sock puppet", "Ada")
    ]
    problem(await service.get(path), 401)
    problem(await service.get(path, **BEARER), 404)
    await request_review(service.store, CHAIN, REVIEWED, digest, ["why"], 1)
    sheet = json.loads((await service.get(path, **BEARER))[2])
    assert (sheet["traceDigest"], sheet["title"], sheet["reasons"]) == (digest, "Waits", ["why"])


@pytest.mark.specification("10.3", "Should eval traces be public?")
async def test_ranking_and_trace_are_public_after_the_post_only(service: Service) -> None:
    """Before the post the public sees only the status; the administrator sees all."""
    for path in ("leaderboard", "eval-trace"):
        assert (await service.get(f"{BASE}/{POSTED}/{path}"))[0] == 200
        assert "public once" in problem(await service.get(f"{BASE}/{REVIEWED}/{path}"), 403)["detail"]
        assert (await service.get(f"{BASE}/{REVIEWED}/{path}", **BEARER))[0] == 200
        problem(await service.get(f"{BASE}/{QUIET}/{path}"), 404)
    assert json.loads((await service.get(f"{BASE}/{REVIEWED}"))[2])["leaderboard"] is None
    assert json.loads((await service.get(f"{BASE}/{POSTED}"))[2])["leaderboard"]["rankings"][0]["rank"] == 1


@pytest.mark.specification("7", "`GET …/eval-trace`: the full trace")
async def test_a_served_trace_verifies(service: Service) -> None:
    """Several megabytes arrive whole and in order, also compressed, under the digest as ETag."""
    code, headers, body = await service.get(f"{BASE}/{POSTED}/eval-trace")
    assert code == 200
    entries = list(read_entries(body.decode().splitlines(keepends=True)))
    assert len(entries) == 3000
    assert headers["etag"] == f'"{entries[-1].hash}"'
    again, _, empty = await service.get(f"{BASE}/{POSTED}/eval-trace", **{"if-none-match": headers["etag"]})
    assert (again, empty) == (304, b"")


async def test_the_list_filters_and_pages(service: Service) -> None:
    """Latest deadline first, by status, in pages."""
    everything = json.loads((await service.get(BASE))[2])
    assert [row["address"] for row in everything["challenges"]] == [POSTED, REVIEWED, QUIET]
    one = json.loads((await service.get(f"{BASE}?status=review"))[2])
    assert (one["total"], one["challenges"][0]["address"]) == (1, REVIEWED)
    second = json.loads((await service.get(f"{BASE}?limit=1&offset=1"))[2])
    assert (second["total"], second["challenges"][0]["address"]) == (3, REVIEWED)
    problem(await service.get(f"{BASE}?limit=0"), 422)


async def test_events_follow_a_status_to_its_end(service: Service) -> None:
    """Each change is one event, and the stream ends with the evaluation."""
    address = "0x" + "d4" * 20
    await service.store.put(31337, status_key(address), json.dumps(status("comparing", 10)))
    seen = []
    async with service.http.get(f"{service.url}{BASE}/{address}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for raw in answer.content:
            line = raw.decode().strip()
            if line.startswith("data:"):
                seen.append(json.loads(line.removeprefix("data:"))["status"])
                await service.store.put(31337, status_key(address), json.dumps(status("complete", 100)))
    assert seen == ["comparing", "complete"]


async def test_pages_escape_what_strangers_wrote(service: Service) -> None:
    """A title with a script is shown as text, under a policy that would not run it."""
    for path in ("/", f"/challenges/{POSTED}"):
        code, headers, body = await service.get(path)
        assert code == 200
        assert b"<script>" not in body
        assert b"&lt;script&gt;" in body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
    for path in (f"/challenges/{UNKNOWN}", "/challenges/<b>"):
        code, headers, body = await service.get(path)
        assert code == 404
        assert headers["content-type"].startswith("text/html")
        assert b"<b>" not in body


async def test_a_deadline_that_no_calendar_has_breaks_no_page(tmp_path: Path) -> None:
    """The contract takes any deadline; one in the far future is said to be beyond any calendar, and the list stays readable."""
    async with running_service(tmp_path) as service:
        await service.store.put(31337, index_key(QUIET), json.dumps(summary(QUIET, "Far", 2**200)))
        for path in ("/", f"/challenges/{QUIET}"):
            code, _, body = await service.get(path)
            assert code == 200
            assert b"beyond any calendar" in body


async def test_why_a_result_waits_is_not_public(tmp_path: Path) -> None:
    """The reasons of a review name who stands near the money: before the post only the administrator reads them."""
    reason = f"0x{'44' * 20}: its claim is far from what was measured."
    async with running_service(tmp_path) as service:
        await request_review(service.store, 31337, REVIEWED, "0x" + "0" * 64, [reason], 1)
        await StatusWriter(service.store, 31337, REVIEWED).say("review", 90, reason=MEANINGS["review"])
        for path in (f"{BASE}/{REVIEWED}/eval-status", f"{BASE}/{REVIEWED}", BASE, f"/challenges/{REVIEWED}"):
            code, _, body = await service.get(path)
            assert code == 200
            assert b"far from what was measured" not in body
        async with service.http.get(f"{service.url}{BASE}/{REVIEWED}/events") as stream:
            first = [await stream.content.readline() for _ in range(2)]
        assert b"A person looks at the result" in first[1]
        _, _, body = await service.get(f"{BASE}/{REVIEWED}", **BEARER)
        assert b"far from what was measured" in body


async def test_the_page_says_how_sure_the_ranking_is(service: Service) -> None:
    """The pay line's margin, the flags and each chance of a paid place are on the page, as text."""
    _, _, page = await service.get(f"/challenges/{POSTED}")
    for words in (b"&lt;b&gt;one&lt;/b&gt; over two at place 1.", b"&lt;i&gt;A toss-up&lt;/i&gt;", b"90 %"):
        assert words in page


async def test_the_page_shows_the_facts_and_how_to_check_them(service: Service) -> None:
    """Facts are text, the transaction and the digest are there, and so is the command that checks the trace."""
    _, _, page = await service.get(f"/challenges/{POSTED}")
    for words in (b"&lt;u&gt;flat&lt;/u&gt;", b"<td>yes</td>", b"0x" + b"cd" * 32, b"0x" + b"ab" * 32):
        assert words in page
    assert f"clara-eval verify {POSTED}.trace.json --rpc URL".encode() in page
    _, _, waiting = await service.get(f"/challenges/{REVIEWED}")
    assert b"clara-eval verify" not in waiting


async def test_facts_of_another_result_are_not_shown(tmp_path: Path) -> None:
    """When somebody else posted other scores, the facts of our own unposted ranking stay away."""
    foreign = {**scores(posted=True), "traceDigest": None, "postedBy": "poster", "margin": None}
    async with running_service(tmp_path) as service:
        await service.store.put(31337, scores_key(POSTED), json.dumps(foreign))
        code, _, page = await service.get(f"/challenges/{POSTED}")
        assert code == 200
        assert b"&lt;u&gt;flat" not in page


@pytest.mark.parametrize("path", ["/", f"{BASE}/{POSTED}/eval-status", "/healthz", "/metrics", "/nowhere", f"{BASE}/x"])
async def test_every_answer_carries_the_security_headers(service: Service, path: str) -> None:
    """Pages, documents and errors alike."""
    _, headers, _ = await service.get(path)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers


async def test_cors_is_off_by_default(service: Service) -> None:
    """Another origin gets no permission."""
    _, headers, _ = await service.get(BASE, origin="https://elsewhere.example")
    assert "access-control-allow-origin" not in headers


async def test_large_bodies_are_refused(service: Service) -> None:
    """Announced or not, a body over the limit ends with 413."""
    huge = b'{"challengeAddress":"' + b"x" * 100_000 + b'"}'
    problem(await service.post(f"{BASE}/evaluate", huge, **BEARER), 413)

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 10_000

    headers = {"content-type": "application/json", **BEARER}
    async with service.http.post(f"{service.url}{BASE}/evaluate", data=drip(), headers=headers) as answer:
        assert answer.status == 413
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_body_that_grows_during_an_answer_ends_it(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """A stream whose client sends too much is cut; nothing breaks and no second answer is begun."""

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 10_000

    async with service.http.get(f"{service.url}{BASE}/{QUIET}/events", data=drip()) as answer:
        assert answer.status == 200
        with contextlib.suppress(aiohttp.ClientError):
            await answer.read()
    assert (await service.get("/healthz"))[0] == 200
    assert "Exception in ASGI application" not in caplog.text


async def test_wrong_methods_and_places_are_problem_documents(service: Service) -> None:
    """Routing errors look like all others."""
    problem(await service.post(f"{BASE}/{POSTED}/eval-status", {}), 405)
    problem(await service.get("/nowhere"), 404)


async def test_health_follows_the_heartbeat(service: Service) -> None:
    """Alive while the loop beats, degraded while the wallet cannot send, 503 once the beat is stale."""
    service.health.beating()
    assert json.loads((await service.get("/healthz"))[2])["status"] == "ok"
    service.health.wallet_problem = "Nonce 7 is missing."
    code, _, body = await service.get("/healthz")
    assert (code, json.loads(body)["status"], json.loads(body)["problems"]) == (
        200,
        "degraded",
        ["Nonce 7 is missing."],
    )
    service.health.wallet_problem = None
    service.health.beat -= 31
    code, _, body = await service.get("/healthz")
    assert (code, json.loads(body)["status"]) == (503, "stale")
    service.health.beating()


async def test_metrics_count_requests_by_route(service: Service) -> None:
    """Routes are labels, addresses are not: the number of series stays small."""
    await service.get(f"{BASE}/{POSTED}/eval-status")
    _, headers, body = await service.get("/metrics")
    assert headers["content-type"].startswith("text/plain")
    assert b'route="/api/v1/challenges/{address}/eval-status",status="200"' in body
    assert POSTED.encode() not in body


async def test_the_key_is_not_in_memory_as_text() -> None:
    """Only a digest of the admin key is kept, and a short key is refused at the start."""
    key = AdminKey(Settings.from_env({"CLARA_ADMIN_API_KEY": ADMIN}).admin_api_key)
    assert ADMIN not in repr(vars(key))
    assert key.matches(ADMIN)
    assert not key.matches(None)
    with pytest.raises(ConfigError, match="shorter than 16"):
        AdminKey(Settings.from_env({"CLARA_ADMIN_API_KEY": "short"}).admin_api_key)


async def test_without_a_key_nobody_is_admin(tmp_path: Path) -> None:
    """No key configured means closed, not open."""
    async with running_service(tmp_path, CLARA_ADMIN_API_KEY="") as closed:
        body = {"challengeAddress": QUIET}
        assert "CLARA_ADMIN_API_KEY" in problem(await closed.post(f"{BASE}/evaluate", body, **BEARER), 403)["remedy"]
        problem(await closed.get(f"{BASE}/{REVIEWED}/eval-trace", authorization="Bearer "), 403)


async def test_the_operator_may_keep_traces_private(tmp_path: Path) -> None:
    """With traces kept private a stranger is told so; rankings stay public."""
    async with running_service(tmp_path, CLARA_TRACES_PUBLIC="never", CLARA_CORS_ORIGINS="https://a.example") as closed:
        assert "private" in problem(await closed.get(f"{BASE}/{POSTED}/eval-trace"), 403)["detail"]
        assert (await closed.get(f"{BASE}/{POSTED}/eval-trace", **BEARER))[0] == 200
        _, headers, _ = await closed.get(f"{BASE}/{POSTED}/leaderboard", origin="https://a.example")
        assert headers["access-control-allow-origin"] == "https://a.example"


async def test_private_traces_are_not_on_the_page(tmp_path: Path) -> None:
    """Where traces are private, so are the facts and the games in them; the ratings stay."""
    async with running_service(tmp_path, CLARA_TRACES_PUBLIC="never") as closed:
        code, _, page = await closed.get(f"/challenges/{POSTED}")
        assert code == 200
        assert b"&lt;u&gt;flat" not in page
        assert b"win matrix" not in page.lower()


async def test_too_many_requests_are_limited(tmp_path: Path) -> None:
    """Over the rate a client gets 429 with the time to wait, and so does one that tries keys."""
    slow = Rates(client=Rate(0.01, 5), wrong_key=Rate(0.01, 2), admin=Rate(0.01, 1))
    async with running_service(tmp_path, rates=slow) as guarded:
        codes = [(await guarded.post(f"{BASE}/evaluate", {"challengeAddress": QUIET}))[0] for _ in range(3)]
        assert codes == [401, 401, 429]
        assert [(await guarded.get(f"{BASE}/{POSTED}/eval-status"))[0] for _ in range(2)] == [200, 200]
        answer = await guarded.get(f"{BASE}/{POSTED}/eval-status")
        problem(answer, 429)
        assert int(answer[1]["retry-after"]) > 1


async def test_keys_are_not_tried_through_reading_either(tmp_path: Path) -> None:
    """A wrong key on a page that only the administrator reads counts like one on a command; the right one still opens."""
    slow = Rates(wrong_key=Rate(0.01, 2))
    async with running_service(tmp_path, rates=slow) as guarded:
        path = f"{BASE}/{REVIEWED}/leaderboard"
        codes = [(await guarded.get(path, **{"x-api-key": f"guess-{number}"}))[0] for number in range(3)]
        assert codes == [403, 403, 429]
        assert (await guarded.get(path))[0] == 403
        assert (await guarded.get(path, **BEARER))[0] == 200


def test_buckets_fill_again_and_forget() -> None:
    """A bucket refills with time, and the number of remembered names is bounded."""
    now = [0.0]
    buckets = Buckets(Rate(per_second=2, burst=2), clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0.5]
    now[0] = 0.5
    assert buckets.take("a") == 0
    for number in range(10_050):
        buckets.take(str(number))
    assert len(buckets._filled) == 10_000


async def test_a_review_is_decided_by_its_own_example(service: Service) -> None:
    """What the OpenAPI document shows is accepted as it is."""
    shown = json.loads((await service.get("/openapi.json"))[2])
    example = shown["components"]["schemas"]["ReviewRequest"]["examples"][0]
    assert example["traceDigest"]
    code, _, body = await service.post(f"{BASE}/{REVIEWED}/review", example, **BEARER)
    assert (code, json.loads(body)["decision"]) == (200, "approve")


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_agents_tools_answer_under_mcp(service: Service, path: str) -> None:
    """The tools are served beside REST, by the same process, without a redirect."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    code, _, body = await service.post(path, asked, **accept)
    assert code == 200
    for tool in ("challenge_browse", "challenge_eval_status", "challenge_post"):
        assert tool.encode() in body
