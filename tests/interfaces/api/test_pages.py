"""The pages from outside: what they show, to whom, how large they are, and what a hostile form or text gets."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import aiohttp
import pytest
import pytest_asyncio
from tests.support.api_service import (
    ADMIN,
    CHAIN,
    POSTED,
    REVIEWED,
    UNKNOWN,
    Service,
    running_service,
    summary,
)
from tests.support.round_pages import CRITERIA, account, put_round
from tests.support.statuses import request_review
from typer.testing import CliRunner

from clara_eval.actions.published import SpendLine
from clara_eval.challenges.review import DRAFT_FORM, AnnouncedDraft, decide
from clara_eval.core.address import Address
from clara_eval.documents.rest import ChallengeSummary, DraftPlaceRecord
from clara_eval.documents.results import REJECTED_IN_REVIEW, Claim, Created, EvalStatus, PrizeClaims, Scores, read
from clara_eval.documents.store_keys import (
    claims_key,
    created_key,
    draft_key,
    index_key,
    provisional_key,
    public_harness_key,
    scores_key,
    status_key,
)
from clara_eval.interfaces.api.challenge_view import entries_near_pay_line, leaderboard_page, timeline
from clara_eval.interfaces.api.limits import MAX_BODY_BYTES, Rate, Rates
from clara_eval.interfaces.api.templating import STATIC, asset, coded, money, share, shortened
from clara_eval.interfaces.cli import app as program
from clara_eval.interfaces.words import plain

SMALL = Address("0x" + "e1" * 20)
LARGE = Address("0x" + "e2" * 20)
HTML = {"accept": "text/html"}
DIGEST = "0x" + "ab" * 32


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with running_service(tmp_path_factory.mktemp("pages")) as running:
        await put_round(running.store, SMALL, 8, title="Gas golf")
        await put_round(running.store, LARGE, 1000, title="A large field", winners=25)
        await request_review(running.store, CHAIN, REVIEWED, DIGEST, ["The prize is large."], 1_794_800_000)
        yield running


async def text_of(service: Service, path: str, status: int = 200, headers: dict[str, str] | None = None) -> str:
    code, _, body = await service.get(path, **(headers or {}))
    assert code == status, body[:500]
    return body.decode()


async def test_the_list_narrows_by_status_skill_and_words(service: Service) -> None:
    """Each filter keeps what fits, together they keep less, and nothing found says how to get back."""
    assert "Gas golf" in await text_of(service, "/")
    posted = await text_of(service, "/?status=posted")
    assert ("Gas golf" in posted, "Waits" in posted) == (True, False)
    assert "Gas golf" in await text_of(service, "/?skill=Solidity&q=gas%20golf")
    nothing = await text_of(service, "/?q=gas+golf&status=review")
    assert ("Nothing matches" in nothing, 'href="/"' in nothing) == (True, True)


async def test_an_empty_list_says_how_to_get_the_first_challenge(tmp_path: Path) -> None:
    """A service without challenges says so, and shows commands that post one and that the program takes."""
    async with running_service(tmp_path, filled=False) as service:
        page = await text_of(service, "/")
    assert "clara-eval challenge post" in page
    assert ("No challenge yet" in page, "within five minutes" in page, "/mcp" in page) == (True, True, True)
    for line in unescape(re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[0]).splitlines():
        _, group, command, *words = shlex.split(line)
        usage = CliRunner().invoke(program, [group, command, "--help"]).stdout
        assert all(word in usage for word in words if word.startswith("--")), line
        required = re.findall(r"(--[a-z]+) <[a-z]+>[^-]*?\[required\]", usage)
        assert set(required) <= set(words)


async def test_a_round_shows_why_it_ended_so(service: Service) -> None:
    """Criteria, weights, executed facts, the pay line, those not ranked and the chance of a paid place are on the page."""
    page = await text_of(service, f"/challenges/{SMALL}")
    for words in (
        CRITERIA,
        "12/12",
        "40,137",
        "Pay line",
        "83 % confidence",
        "Copy of an earlier entry",
        "45 %",
        "claimed",
    ):
        assert words in page
    assert page.index('class="payline"') > page.index(f'title="{account(2)}"')


@pytest.mark.parametrize(("address", "most"), [(SMALL, 100_000), (LARGE, 150_000)])
async def test_a_page_stays_light(service: Service, address: Address, most: int) -> None:
    """A field of a thousand weighs hardly more than one of eight; with style and scripts it is below 150 kB sent."""
    _, _, body = await service.get(f"/challenges/{address}")
    assert len(body) < most
    files = [STATIC / name for name in ("style.css", "htmx.min.js", "sse.min.js", "site.js")]
    assert sum(file.stat().st_size for file in files) < 100_000


async def test_a_thousand_entries_are_paged(service: Service) -> None:
    """Fifty rows a page, the last page is reached, the pay line stands where it belongs, and the matrix stays small."""
    first, last = await text_of(service, f"/challenges/{LARGE}"), await text_of(service, f"/challenges/{LARGE}?page=20")
    assert (first.count('class="n rank"'), last.count('class="n rank"')) == (50, 50)
    assert "Page 20 of 20" in last
    assert first.count('class="payline"') == 1
    assert 0 < first.count("/games/") <= 2 * 12 * 12
    assert "Page 20 of 20" in await text_of(service, f"/challenges/{LARGE}?page=99999")


async def test_an_entry_and_a_comparison_explain_themselves(service: Service) -> None:
    """The page of an entry names its rival at the pay line; a comparison shows both verdicts, as page and in a drawer."""
    entry = await text_of(service, f"/challenges/{SMALL}/{account(3)}")
    for words in ("Why it lost", account(2)[:6], "Place 4 of 8", "gas send 40,000 against 41,000"):
        assert words in entry
    assert "Beating " in entry
    assert "Losing to " in await text_of(service, f"/challenges/{SMALL}/{account(2)}")
    path = f"/challenges/{SMALL}/games/{account(0)}/{account(1)}"
    whole, part = await text_of(service, path), await text_of(service, path, headers={"hx-request": "true"})
    assert whole.count("shown first") == part.count("shown first") == 2
    assert "Judged in both orders." in part
    assert ("<h1" in whole, "<h1" in part, "<html" in part) == (True, False, False)
    await text_of(service, f"/challenges/{SMALL}/{account(999)}", 404)
    await text_of(service, f"/challenges/{LARGE}/games/{account(0)}/{account(900)}", 404)


async def test_an_entry_shows_its_code_its_tests_and_the_difference_to_its_rival(service: Service) -> None:
    """Lines, result and cost of each test beside the rival's, and a diff; the download is the very bytes."""
    path = f"/challenges/{SMALL}/{account(4)}"
    page = await text_of(service, path)
    for words in ("<li>function send() { return 4 }</li>", "Test sends all", "Failed", "Batch gas", "21,137",
                  "+function send() { return 4 }", "-function send() { return 2 }", "version 2"):  # fmt: skip
        assert words in page, words
    assert "-function send() { return 1 }" in await text_of(service, f"{path}?against={account(1)}")
    code, headers, body = await service.get(f"{path}/submission.txt")
    assert (code, body) == (200, b"// send 4\nfunction send() { return 4 }\n")
    assert (headers["content-type"], headers["content-disposition"][:10]) == ("text/plain; charset=utf-8", "attachment")
    await text_of(service, f"/challenges/{SMALL}/{account(999)}/submission.txt", 404)
    assert f'href="/challenges/{SMALL}/{account(0)}#submission"' in await text_of(service, f"/challenges/{SMALL}")


async def test_a_rejected_copy_is_laid_beside_its_original(service: Service) -> None:
    """Its page links the entry that it copies, says that both are equal, and how to object."""
    page = await text_of(service, f"/challenges/{SMALL}/{account(1_000_000)}")
    assert (f'href="/challenges/{SMALL}/{account(0)}"' in page, "equal, line by line" in page) == (True, True)
    assert f"clara-eval challenge object {SMALL} --about copy" in page


async def test_a_comparison_by_a_model_shows_prompt_and_answer(service: Service) -> None:
    """Both prompts with the two vectors and both answers; the judge's endpoint is not told."""
    page = await text_of(service, f"/challenges/{SMALL}/games/{account(0)}/{account(1)}")
    assert unescape(page).count('"gas_send":40137') == 2
    for words in ("the first answer 0xaa", "the first answer 0xbb", CRITERIA, "openai:model"):
        assert words in page
    assert "10.0.0.7" not in page


async def test_private_traces_show_no_submission(tmp_path: Path) -> None:
    """An operator who keeps traces private shows no code, and the page says so."""
    async with running_service(tmp_path, CLARA_TRACES_PUBLIC="never") as service:
        await put_round(service.store, SMALL, 8, title="Gas golf")
        page = await text_of(service, f"/challenges/{SMALL}/{account(4)}")
        assert ("function send" in page, "keeps traces private" in page) == (False, True)
        await text_of(service, f"/challenges/{SMALL}/{account(4)}/submission.txt", 404)


RECORDED = {
    f"Identical to the submission of 0x{'ab' * 20} at 2026-11-16 22:53:43 UTC, which is ranked.": (
        "Identical to the earlier submission of 0xabab…abab."
    ),
    "Run under the limits of the round it ended as: out of gas.": "It ended as: out of gas.",
    "gas is 9, far from the other 6 entries (6 spreads off).": (
        "gas is 9, far from the other 6 entries (6 times their usual spread)."
    ),
    f"The chain committed to 0x{'ab' * 32}; the content hashes to 0x{'cd' * 32}, and the URI does not fit either.": (
        "The content does not match the hash committed on chain: it hashes to 0xcdcd…cdcd, committed is 0xabab…abab."
    ),
}


@pytest.mark.parametrize("recorded", RECORDED)
def test_pages_say_recorded_sentences_plainly(recorded: str) -> None:
    """What traces keep in their own words is said to people in plain ones, with short addresses."""
    assert shortened(recorded) == RECORDED[recorded]


async def test_an_agent_has_a_record(service: Service) -> None:
    """Its entries in posted rounds are listed with places and prizes; one without any is not found."""
    page = await text_of(service, "/agents/0")
    assert (page.count(">1 of 8<"), page.count(">1 of 1000<")) == (1, 1)
    assert f'href="/challenges/{SMALL}/{account(0)}"' in page
    rejected = await text_of(service, "/agents/5000")
    assert (rejected.count("not ranked"), "9 of" in rejected, "<dd>– " in rejected) == (2, False, False)
    await text_of(service, "/agents/77777", 404)
    await text_of(service, "/agents/x", 404)


@pytest.mark.parametrize("path", ["", f"/{account(0)}", f"/games/{account(0)}/{account(1)}", "/verify"])
async def test_what_waits_for_review_is_not_told(service: Service, path: str) -> None:
    """Before the post no page names a place, a fact or a game."""
    address = Address("0x" + "e3" * 20)
    await put_round(service.store, address, 5, title="Not yet", posted=False)
    _, _, body = await service.get(f"/challenges/{address}{path}")
    assert account(1).encode() not in body.replace(path.encode(), b"")
    assert CRITERIA.encode() not in body


async def test_errors_are_pages_for_people_and_documents_for_programs(service: Service) -> None:
    """The same missing challenge is HTML for a browser and a problem document for the API."""
    for path in (f"/challenges/{UNKNOWN}", "/nowhere", "/challenges/zzz", "/?page=0"):
        code, headers, body = await service.get(path, **HTML)
        assert code in {404, 422}
        assert headers["content-type"].startswith("text/html")
        assert b"All challenges" in body
    _, headers, _ = await service.get(f"/api/v1/challenges/{UNKNOWN}", **HTML)
    assert headers["content-type"] == "application/problem+json"


async def test_refusals_before_a_route_are_pages_too(tmp_path: Path) -> None:
    """Whoever is too fast or sends too much sees a page in a browser and a document elsewhere, with what to do."""
    huge = b"x" * (MAX_BODY_BYTES + 1)
    async with running_service(tmp_path, rates=Rates(client=Rate(0.01, 4))) as guarded:
        pages = [await guarded.post("/operator/sign-in", huge, **HTML)]
        documents = [await guarded.post("/api/v1/challenges/evaluate", huge, **HTML)]
        documents.append(await guarded.post("/operator/sign-in", huge, accept="application/json"))
        await guarded.get("/")
        pages.append(await guarded.get("/", **HTML))
        documents.append(await guarded.get("/", accept="application/json"))
        documents.append(await guarded.get("/healthz", **HTML))
    assert [code for code, _, _ in pages] == [413, 429]
    assert [code for code, _, _ in documents] == [413, 413, 429, 429]
    for _, headers, body in pages:
        assert headers["content-type"].startswith("text/html")
        assert (b"All challenges" in body, "content-security-policy" in headers) == (True, True)
    for code, headers, body in documents:
        assert headers["content-type"] == "application/problem+json"
        assert (json.loads(body)["status"], bool(json.loads(body)["remedy"])) == (code, True)
    assert int(pages[1][1]["retry-after"]) > 1


HEADS = ("/", f"/challenges/{SMALL}", "/docs", "/operator", "/favicon.ico", "/healthz", "/metrics", "/openapi.json",
         "/llms.txt", "/api/v1/challenges", *(f"/api/v1/challenges/{SMALL}{part}" for part in (
             "", "/eval-status", "/eval-trace", "/leaderboard", "/events")))  # fmt: skip


@pytest.mark.parametrize("path", HEADS)
async def test_head_answers_like_get_without_a_body(service: Service, path: str) -> None:
    """HEAD has the status and the type of GET, a stream ends after its headers, and the next request is answered."""
    async with asyncio.timeout(10), service.http.head(service.url + path) as answer:
        assert (answer.status, await answer.read()) == (200, b"")
        assert answer.headers["content-type"]
    assert (await service.get("/healthz"))[0] == 200


async def test_head_of_what_is_not_there(service: Service) -> None:
    """It has the status of GET; where only POST is taken HEAD is refused, and the answer names what is taken."""
    async with service.http.head(f"{service.url}/api/v1/challenges/{UNKNOWN}") as answer:
        assert (answer.status, await answer.read()) == (404, b"")
    async with service.http.head(f"{service.url}/api/v1/challenges/evaluate") as answer:
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    async with service.http.delete(f"{service.url}/api/v1/challenges") as answer:
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def _round(**changes: Any) -> ChallengeSummary:
    row = {**summary(SMALL, "Gas golf", 1_000), **changes}
    status = {"status": "complete", "progress": 100, "startedAt": 1_010}
    return ChallengeSummary.model_validate({**row, "evaluation": status})


def test_a_timeline_goes_from_the_escrow_to_the_last_claim() -> None:
    """Each point has its time and its transaction; what is to come is named, and so are the prizes that are left."""
    created = Created(at=500, txHash="0xaa", block=3)
    taken = [Claim(address=account(place), amount="5", at=60_000 + place, txHash=f"0x{place}") for place in range(7)]
    posted = _round(scorePostedAt=2_000, postedBy="evaluator")

    def told(
        row: ChallengeSummary, claims: PrizeClaims | None, now: int
    ) -> list[tuple[str, int | None, str, str | None]]:
        return [(step.name, step.at, step.state, step.tx) for step in timeline(row, None, now, created, claims)]

    began = [("Created", 500, "done", "0xaa"), ("Entries close", 1_000, "done", None), ("Scoring", 1_010, "done", None),
             ("Scores posted", 2_000, "done", None)]  # fmt: skip
    waiting = told(posted, None, 3_000)
    assert waiting == [*began, ("Finalizes", 45_200, "now", None), ("Claimed", None, "next", None)]
    final = _round(scorePostedAt=2_000, postedBy="evaluator", chainStatus="finalized", winnerCount=7)
    some = told(final, PrizeClaims(claims=taken[:1], winners=7), 70_000)
    assert some[4:] == [
        ("Final", 45_200, "done", None),
        ("Claimed", 60_000, "done", "0x0"),
        ("Claims", None, "now", None),
    ]
    assert timeline(final, None, 70_000, created, PrizeClaims(claims=taken[:1], winners=7))[-1].said.startswith(
        "6 prizes"
    )
    assert [name for name, *_ in told(final, PrizeClaims(claims=taken, winners=7), 70_000)].count("Claimed") == 5
    early = _round(deadline=9_000)
    assert next(step.name for step in timeline(early, None, 3_000)) == "Entries close"


@pytest.mark.parametrize(
    ("spent", "evaluation", "wanted"),
    [
        (None, {}, ("Known when scoring starts", "Nothing yet")),
        (None, {"startedAt": 5, "estimateUsd": 0.0}, ("$0 (no model used)", "$0.00")),
        (SpendLine("0x1", 40_000, 0, 1), {"startedAt": 5, "estimateUsd": 0.05}, ("About $0.050", "$0.040")),
        (SpendLine("0x1", 40_000, 0, 1), {"startedAt": 5, "estimateUsd": None}, ("Not known", "$0.040")),
        (
            SpendLine("0x1", 1_070_000, 1_070_000, 1),
            {"startedAt": 5, "estimateUsd": 0.28, "stage": {"costUsd": 0.019}},
            ("About $0.280", "$0.019 so far, $1.07 reserved"),
        ),
    ],
)
def test_money_is_told_as_estimate_spent_and_cap(
    spent: SpendLine | None, evaluation: dict[str, Any], wanted: tuple[str, str]
) -> None:
    """Before, while and after an evaluation; while it runs its own meter counts, not what is set aside."""
    told = money(spent, EvalStatus.model_validate({"status": "comparing", "progress": 50, **evaluation}), 25.0)
    assert (told["estimate"], told["spent"], told["cap"]) == (*wanted, "$25.00 for one challenge")


async def test_the_page_of_a_round_links_every_transaction(tmp_path: Path) -> None:
    """On a network with an explorer the creation, the post and the claims lead there."""
    async with running_service(tmp_path, CLARA_NETWORK="base-sepolia") as service:
        await put_round(service.store, SMALL, 8, title="Gas golf", chain_status="finalized")
        created = Created(at=1_794_700_000, txHash="0x" + "c1" * 32, block=3)
        claim = Claim(address=account(0), amount="333333333", at=1_794_900_000, txHash="0x" + "c2" * 32)
        pairs = [(created_key(SMALL), created), (claims_key(SMALL), PrizeClaims(claims=[claim], winners=3))]
        await service.store.put_many(CHAIN, [(key, found.model_dump_json()) for key, found in pairs])
        page = await text_of(service, f"/challenges/{SMALL}")
    for digits in ("c1", "cd", "c2"):
        assert f'href="https://sepolia.basescan.org/tx/0x{digits * 32}"' in page
    assert ("333.33 USDC by" in page, "2 prizes are not claimed yet." in page) == (True, True)


def test_code_in_a_statement_stands_out_and_nothing_else_does() -> None:
    """Only backticks make code, and what stands between them is escaped like the rest."""
    assert coded("Write `f(<b>)` & <i>") == "Write <code>f(&lt;b&gt;)</code> &amp; &lt;i&gt;"
    assert coded("`" + "x" * 300 + "` ``") == "`" + "x" * 300 + "` ``"


def test_long_numbers_of_a_reason_can_be_read() -> None:
    """Thousands are set apart; years, versions, hashes and what has separators already stay as they are."""
    told = "gas 1007113 against 496725; in 2026, v1.20260101, 0x1234567, 40,000 and 1234567.5"
    assert plain(told) == "gas 1,007,113 against 496,725; in 2026, v1.20260101, 0x1234567, 40,000 and 1234567.5"


async def test_the_docs_page_names_every_operation(service: Service) -> None:
    """What the OpenAPI document has is on the page."""
    page = await text_of(service, "/docs")
    for path in ("/api/v1/challenges/{address}/eval-trace", "/healthz", "/api/v1/challenges/evaluate"):
        assert path in page


async def test_a_check_is_made_in_the_visitors_browser(service: Service) -> None:
    """The address of a check leads to the verifier that runs at the visitor's, with the trace of this challenge."""
    async with service.http.get(f"{service.url}/challenges/{SMALL}/verify", allow_redirects=False) as answer:
        told = answer.status, answer.headers["location"]
    assert told == (307, f"/verify?trace=/api/v1/challenges/{SMALL}/eval-trace")


async def test_static_files_may_be_kept(service: Service) -> None:
    """The address of a file changes with its content, so browsers keep it."""
    code, headers, _ = await service.get(asset("style.css"))
    assert (code, "immutable" in headers["cache-control"]) == (200, True)


def test_a_share_is_never_rounded_to_certainty() -> None:
    """Only what is certain is 100 or 0 percent."""
    assert [share(value) for value in (0.0, 0.004, 0.5, 0.996, 1.0, None)] == [
        "0 %",
        "<1 %",
        "50 %",
        ">99 %",
        "100 %",
        "–",
    ]


async def test_the_board_of_a_large_field(service: Service) -> None:
    """Pages share one scale and one pay line, and side by side stand the best and those around the line."""
    scores = await read(service.store, CHAIN, Scores, scores_key(LARGE))
    assert scores is not None
    (rows, first), (_, last) = leaderboard_page(scores, 1), leaderboard_page(scores, 20)
    assert (first["line"], first["paid"], first["pages"]) == (last["line"], 25, 20)
    assert [row.address for row in rows].index(str(first["below"])) == 25
    chosen = entries_near_pay_line(scores, 8)
    assert len(set(chosen)) == 8
    assert {account(0), account(24), account(25)} <= set(chosen)


# the operator


async def signed_in(service: Service) -> tuple[aiohttp.ClientSession, str]:
    """A browser with a session, and the token of its forms."""
    jar = aiohttp.CookieJar(unsafe=True)
    http = aiohttp.ClientSession(cookie_jar=jar)
    async with http.post(f"{service.url}/operator/sign-in", data={"key": ADMIN}) as answer:
        page = await answer.text()
        cookie = answer.history[0].headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/operator", "Max-Age="))
    found = re.search(r'name="token" value="([0-9a-f]{64})"', page)
    assert found is not None
    return http, found[1]


async def test_the_operator_signs_in_and_decides(service: Service) -> None:
    """With the key there is a queue; a decision names the result on the page and reaches the engine with its note."""
    http, token = await signed_in(service)
    async with http:
        async with http.get(f"{service.url}/operator/reviews/{REVIEWED}") as answer:
            page = await answer.text()
        assert ("The prize is large." in page, DIGEST in page) == (True, True)
        fields = {"token": token, "digest": DIGEST, "decision": "approve", "note": "looked at it", "by": "Ada"}
        url = f"{service.url}/operator/reviews/{REVIEWED}"
        for missing in ("by", "note"):
            async with http.post(url, data={**fields, missing: " ", "confirmed": "yes"}) as answer:
                assert (answer.status, "needs your name and a reason" in await answer.text()) == (422, True)
        async with http.post(url, data=fields) as answer:
            page = await answer.text()
        for words in ("Post this result?", "final: nobody can undo it", "0x" + "44" * 20, "looked at it"):
            assert words in page
        assert not service.engine.decided
        async with http.post(url, data={**fields, "confirmed": "yes"}) as answer:
            assert "being posted" in await answer.text()
        assert service.engine.decided[-1] == (REVIEWED, "approve", "looked at it")
        assert service.engine.decided_by == ["Ada"]
        rule = {**fields, "decision": "rule", "kind": "exclude", "account": account(1)}
        async with http.post(url, data=rule) as answer:
            assert answer.status == 200
        assert (service.engine.ruled[-1].account, service.engine.ruled[-1].by) == (account(1), "Ada")
        async with http.post(
            url, data={**rule, "kind": "judge", "account": "", "digest": "", "judge": "x:y"}
        ) as answer:
            page = await answer.text()
        assert ('value="x:y"' in page, '<option value="judge" selected>' in page) == (True, True)
        stale = {**fields, "digest": "0x" + "12" * 32, "note": "kept", "confirmed": "yes"}
        async with http.post(url, data=stale) as answer:
            page = await answer.text()
        assert ("Another result waits." in page, ">kept</textarea>" in page) == (True, True)
        async with http.post(f"{service.url}/operator/retry/{POSTED}", data={"token": token}) as answer:
            assert "starts again" in await answer.text()
        assert service.engine.asked[-1] == POSTED


async def test_the_operator_reads_what_waits_before_deciding(service: Service) -> None:
    """Entries and comparisons of an unposted result open with the session alone, and signing in leads back."""
    address = Address("0x" + "e4" * 20)
    digest = await put_round(service.store, address, 5, title="To look at", posted=False)
    await request_review(service.store, CHAIN, address, digest, ["The prize is large."], 5, posts_at=9)
    at = f"/operator/reviews/{address}"
    for path in (f"{at}/{account(4)}", f"{at}/games/{account(0)}/{account(1)}"):
        assert f'name="after" value="{path}"' in await text_of(service, path)
    http, _ = await signed_in(service)
    async with http:
        async with http.get(f"{service.url}{at}/{account(4)}") as answer:
            page = await answer.text()
        assert ("function send() { return 4 }" in page, f'href="{at}/{account(2)}"' in page) == (True, True)
        async with http.get(f"{service.url}{at}/games/{account(0)}/{account(1)}") as answer:
            assert "the first answer 0xaa" in await answer.text()
        service.metrics.alerts.labels("NonceGap").inc(2)
        async with http.get(f"{service.url}/operator") as answer:
            queue = await answer.text()
        assert ("NonceGap: 2" in queue, "JudgeBiased" in queue) == (True, False)
        assert queue.index("To look at") < queue.index(f"/operator/reviews/{REVIEWED}")
        assert "1,000 USDC" in queue
        async with http.post(f"{service.url}/operator/sign-in", data={"key": ADMIN, "after": at}) as answer:
            assert str(answer.url).endswith(at)
        async with http.post(
            f"{service.url}/operator/sign-in", data={"key": ADMIN, "after": "//evil.example"}
        ) as answer:
            assert str(answer.url) == f"{service.url}/operator"
    await text_of(service, f"/challenges/{address}/{account(4)}", 403)


async def test_the_timeline_names_who_approved_and_why(tmp_path: Path) -> None:
    """Once scores are posted, the name and the reason of the person who approved them are public."""
    async with running_service(tmp_path) as service:
        digest = await put_round(service.store, SMALL, 8, title="Gas golf")
        await request_review(service.store, CHAIN, SMALL, digest, ["The prize is large."], 5)
        await decide(service.store, CHAIN, SMALL, "approved", note="Read both.", digest=digest, by="Ada")
        assert "By the evaluator. Approved by Ada: Read both." in await text_of(service, f"/challenges/{SMALL}")


async def test_the_board_finds_an_address_and_can_be_taken_away(service: Service) -> None:
    """An address or agent id leads to its row on its page; the board is also CSV, and the feed is Atom."""
    page = await text_of(service, f"/challenges/{LARGE}?find={account(77)[:12]}")
    assert (f'id="at-{account(77)}" class=" found"' in page, "Page 2 of 20" in page) == (True, True)
    assert f'id="at-{account(500)}" class=" found"' in await text_of(service, f"/challenges/{LARGE}?find=500")
    assert "No entry of nobody" in await text_of(service, f"/challenges/{LARGE}?find=nobody")
    lines = (await text_of(service, f"/challenges/{SMALL}/leaderboard.csv")).splitlines()
    assert (lines[0][:13], lines[1][:44], len(lines)) == ("rank,address,", f"1,{account(0)}", 11)
    feed = ET.fromstring(await text_of(service, "/feed.xml"))
    titles = [one.text for one in feed.iter("{http://www.w3.org/2005/Atom}title")]
    assert "Gas golf: Scores posted" in titles
    assert f"card-{SMALL}" in await text_of(service, f"/?q={account(3)}")
    assert 'property="og:title"' in await text_of(service, "/agents/0")


async def test_a_form_of_another_site_does_nothing(service: Service) -> None:
    """Without a session, without the token, with another one or from another origin nothing is decided."""
    http, token = await signed_in(service)
    before = len(service.engine.decided)
    url, fields = f"{service.url}/operator/reviews/{REVIEWED}", {"decision": "reject", "digest": DIGEST}
    async with http:
        for data, headers, wanted in (
            (fields, {}, 403),
            ({**fields, "token": "0" * 64}, {}, 403),
            ({**fields, "token": token}, {"origin": "https://evil.example"}, 403),
            ({**fields, "token": token}, {"sec-fetch-site": "cross-site"}, 403),
        ):
            async with http.post(url, data=data, headers=headers) as answer:
                assert answer.status == wanted
    async with service.http.post(url, data={**fields, "token": token}) as answer:
        assert answer.status == 401
    assert len(service.engine.decided) == before


@pytest.mark.parametrize("cookie", ["", "x", "9999999999.aa.bb", f"9999999999.aa.{'0' * 64}", "1.aa." + "0" * 64, "é"])
async def test_a_forged_session_is_none(service: Service, cookie: str) -> None:
    """A cookie that our key did not seal, or that has run out, shows the door and nothing behind it."""
    async with (
        aiohttp.ClientSession(cookies={"clara_operator": cookie}) as http,
        http.get(f"{service.url}/operator/reviews/{REVIEWED}") as answer,
    ):
        page = await answer.text()
    assert ("Sign in" in page, "The prize is large." in page) == (True, False)


async def test_wrong_keys_are_counted(tmp_path: Path) -> None:
    """A wrong key is told so; whoever tries many is stopped."""
    async with running_service(tmp_path) as service:
        answers = []
        for _ in range(13):
            async with service.http.post(f"{service.url}/operator/sign-in", data={"key": "wrong"}) as answer:
                answers.append(answer.status)
    assert (answers[0], answers[-1]) == (401, 429)


RULES = {
    "criteria": "<b>Cheapest</b> wins.",
    "features": [
        {"name": "metric_send_gas", "weight": 0.75, "better": "lower", "source": "executed"},
        {"name": "readability", "weight": 0.25, "better": None, "source": "llm"},
    ],
    "submissionFormat": "code",
    "language": "solidity",
    "harness": "solidity",
    "maxBytes": 262_144,
}
OPEN = Address("0x" + "0d" * 20)


async def put_open(service: Service, **rules: Any) -> str:
    """The page of an open challenge with these rules."""
    row = summary(OPEN, "Open one", int(time.time()) + 3600) | {"payoutBps": [7000, 3000], "rules": RULES | rules}
    await service.store.put(CHAIN, index_key(OPEN), json.dumps(row))
    return await text_of(service, f"/challenges/{OPEN}")


async def test_an_open_challenge_says_what_wins_and_what_is_paid(service: Service) -> None:
    """Criteria, features with weight and source, format, limit, prizes, dates and three ways to enter are on its page."""
    page = await put_open(service)
    for words in (
        "&lt;b&gt;Cheapest&lt;/b&gt; wins.",
        "Send gas <small>Lower is better, executed</small>",
        "Readability <small>claimed: read by a model</small>",
        "<span>75 %</span>",
        "<dt>Place 2</dt><dd>300 USDC</dd>",
        "<dt>Format</dt><dd>code</dd>",
        "code in solidity of at most 262,144 bytes",
        f"clara-eval challenge submit {OPEN} --file SOLUTION --send",
        f"{service.url}/mcp",
        "submit(agentId, solutionURI, solutionHash)",
    ):
        assert words in page, words
    assert "metric_" not in page
    assert json.loads(await text_of(service, f"/api/v1/challenges/{OPEN}"))["rules"]["features"][0]["weight"] == 0.75


async def test_an_open_challenge_shows_its_harness_or_what_it_is_committed_by(service: Service) -> None:
    """A public harness can be read, as text; a hidden one has its hash, and what happens if it is withheld."""
    await service.store.put(CHAIN, public_harness_key(OPEN), "contract <i>Test</i> {}")
    assert "<li>contract &lt;i&gt;Test&lt;/i&gt; {}</li>" in await put_open(service)
    told = json.loads(await text_of(service, f"/api/v1/challenges/{OPEN}"))
    assert told["rules"]["harnessSource"] == "contract <i>Test</i> {}"
    await service.store.put(CHAIN, public_harness_key(OPEN), "")
    hidden = {"hiddenHarness": True, "harnessHash": "0x" + "9a" * 32}
    page = await put_open(service, **hidden, ifNotRevealed="fail")
    assert ("0x" + "9a" * 32 in page, "nothing is scored" in page) == (True, True)
    assert "judged without it" in await put_open(service, **hidden, ifNotRevealed="public")


async def test_an_open_challenge_shows_what_its_evaluator_did_before(service: Service) -> None:
    """Scores posted, late, changed by objections, posted by the poster instead, and expired, of this evaluator alone."""
    own = {"evaluator": "0x" + "77" * 20}
    rounds: list[dict[str, Any]] = [
        {**own, "postedBy": "evaluator", "scorePostedAt": 1_000},
        {**own, "postedBy": "evaluator", "scorePostedAt": 9_999_999},
        {**own, "postedBy": "poster", "scorePostedAt": 1_000},
        {**own, "chainStatus": "expired"},
        {"postedBy": "evaluator"},
    ]
    at = [Address(f"0x{number:040x}") for number in range(700, 700 + len(rounds))]
    rows = [(index_key(one), json.dumps(summary(one, "", 50) | more)) for one, more in zip(at, rounds, strict=True)]
    row = summary(OPEN, "Open one", int(time.time()) + 3600) | own
    places = [{"address": account(n), "rank": n + 1, "score": 9, "status": "ranked"} for n in range(2)]
    draft = {"digest": "0x1", "announcedAt": 1, "until": 2, "places": places, "margin": ""}
    final = [{"rankings": [{"address": place["address"]} for place in order], "postedBy": "evaluator"}
             for order in (places, places[::-1])]  # fmt: skip
    rows += [(draft_key(one), json.dumps(draft)) for one in at[:3]]
    rows += [(scores_key(one), json.dumps(scores)) for one, scores in zip(at, [*final, final[1]], strict=False)]
    await service.store.put_many(CHAIN, [*rows, (index_key(OPEN), json.dumps(row | {"rules": RULES}))])
    told = json.loads(await text_of(service, f"/api/v1/challenges/{OPEN}"))["evaluatorRecord"]
    assert told == {"posted": 2, "late": 1, "upheld": 1, "overridden": 1, "expired": 1}
    assert "<dt>Challenges judged</dt><dd>2</dd>" in await text_of(service, f"/challenges/{OPEN}")


STATES = [
    ({"chainStatus": "cancelled"}, {"status": "pending", "progress": 0}, "Cancelled", "has the prize back"),
    ({"chainStatus": "expired"}, {"status": "failed", "progress": 100}, "Expired", "claim an equal share"),
    ({}, {"status": "failed", "progress": 100, "reason": f"{REJECTED_IN_REVIEW}: a leak."}, "Rejected in review", "a leak."),
    ({}, {"status": "review", "progress": 90, "postsAt": 1_794_900_000}, "In review", "the stated default is posted"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "evaluation", "label", "words"), STATES)
async def test_each_end_has_an_honest_page(
    service: Service, row: dict[str, Any], evaluation: dict[str, Any], label: str, words: str
) -> None:
    """Its own name and what follows; no overdue scores, no bar that never moves, and no stream if nothing comes."""
    address = Address("0x" + "0e" * 20)
    found = summary(address, "Ended", 1_000) | row
    pairs = [(index_key(address), found), (status_key(address), evaluation)]
    await service.store.put_many(CHAIN, [(key, json.dumps(value)) for key, value in pairs])
    page = await text_of(service, f"/challenges/{address}")
    assert (f'">{label}</span>' in page, words in page) == (True, True)
    assert ("<progress" in page, "sse-connect" in page) == (False, label == "In review")
    assert ("overdue" in page) == (label == "In review")


async def test_an_announced_result_says_until_when_to_object_and_how(service: Service) -> None:
    """The draft's places, the end of the window and the command are on the page while objections are open."""
    address, until = Address("0x" + "0f" * 20), int(time.time()) + 600
    draft = AnnouncedDraft(
        "0x" + "ab" * 32, until - 60, until, (DraftPlaceRecord(account(1), 1, 9000, "ranked"),), "Clear."
    )
    said = {"status": "publishing", "progress": 91, "objectionsUntil": until}
    pairs = [
        (index_key(address), json.dumps(summary(address, "Drafted", 1_000))),
        (status_key(address), json.dumps(said)),
    ]
    await service.store.put_many(CHAIN, [*pairs, (draft_key(address), DRAFT_FORM.text(draft))])
    page = await text_of(service, f"/challenges/{address}")
    assert ("Objections open" in page, account(1) in page, "challenge object" in page) == (True, True, True)


async def test_the_live_channel_moves_timeline_and_money_too(service: Service) -> None:
    """One event carries progress, chip, timeline and money, so that no figure on the page contradicts another."""
    address = Address("0x" + "1a" * 20)
    told = {"status": "comparing", "progress": 45, "startedAt": 2_000, "estimateUsd": 0.25}
    pairs = [(index_key(address), summary(address, "It runs", 1_000)), (status_key(address), told)]
    await service.store.put_many(CHAIN, [(key, json.dumps(value)) for key, value in pairs])
    async with asyncio.timeout(10), service.http.get(f"{service.url}/challenges/{address}/live") as answer:
        event = (await answer.content.readuntil(b"\r\n\r\n")).decode()
    for words in ('id="phase"', 'id="facts" hx-swap-oob', "Under way.", "About $0.250", 'data-title="45 % · It runs"'):
        assert words in event, words


async def test_an_open_challenge_has_a_provisional_board_or_says_why_there_is_none(service: Service) -> None:
    """Measured facts of public entries with the reference as a row, also in REST; else the reason; never a text of theirs."""
    assert "None: entries are measured within minutes" in await put_open(service)
    llm = [{"name": "readability", "weight": 1.0, "better": "higher", "source": "llm"}]
    assert "everything that counts is read by a model" in await put_open(service, features=llm)
    assert "the harness is hidden until entries close" in await put_open(service, hiddenHarness=True)
    facts = {"metric_send_gas": 21_000}
    entries = [
        {"hash": "reference", "facts": facts},
        {"address": account(1), "agentId": 1, "hash": "0x1", "facts": facts},
        {"address": account(2), "agentId": 2, "hash": "0x2", "problem": "<b>Not on chain</b>"},
    ]
    await service.store.put(CHAIN, provisional_key(OPEN), json.dumps({"at": 1_794_800_000, "entries": entries}))
    page = await put_open(service)
    assert [words in page for words in ("Public tests, final after entries close", "21,000", "the baseline")] == [
        True
    ] * 3
    assert ("&lt;b&gt;Not on chain" in page, "<b>Not on chain" in page) == (True, False)
    assert "the hidden set decides" in await put_open(service, hiddenHarness=True)
    told = json.loads(await text_of(service, f"/api/v1/challenges/{OPEN}"))["provisional"]
    assert [row["facts"] for row in told["entries"]] == [facts, facts, {}]
    row = summary(OPEN, "Closed", int(time.time()) - 5) | {"rules": RULES}
    await service.store.put(CHAIN, index_key(OPEN), json.dumps(row))
    assert json.loads(await text_of(service, f"/api/v1/challenges/{OPEN}"))["provisional"] is None


async def test_tables_are_sorted_by_links(service: Service) -> None:
    """Agents, the list and a board are ordered by an address of their own; nonsense is an error or the usual order."""
    agents = await text_of(service, "/agents")
    numbers = [int(one) for one in re.findall(r'<a href="/agents/(\d+)">Agent', agents)]
    by_id = [
        int(one) for one in re.findall(r'<a href="/agents/(\d+)">Agent', await text_of(service, "/agents?sort=id"))
    ]
    assert (by_id == sorted(by_id), numbers[0], len(by_id)) == (True, 0, 50)
    assert 'aria-sort="descending"' in await text_of(service, "/agents?sort=won&page=2")
    await text_of(service, "/agents?sort=nonsense", 422)
    cards = {
        sort: re.findall(r'id="card-(0x\w+)"', await text_of(service, f"/?sort={sort}")) for sort in ("", "entries")
    }
    assert (cards["entries"][0], sorted(cards[""])) == (LARGE, sorted(cards["entries"]))
    board = await text_of(service, f"/challenges/{LARGE}?sort=wins")
    plain = await text_of(service, f"/challenges/{LARGE}?sort=nonsense")
    assert ('class="payline"' in board, 'class="payline"' in plain) == (False, True)
    assert "?page=2&amp;sort=wins#result" in board


async def test_a_board_can_be_embedded_and_nothing_else(service: Service) -> None:
    """The board for frames holds no script and no form; every other page refuses to be framed."""
    _, headers, body = await service.get(f"/challenges/{SMALL}/embed")
    assert "frame-ancestors *" in headers["content-security-policy"]
    assert (b"<script" in body, b"<form" in body, account(0).encode() in body) == (False, False, True)
    for path in ("/", f"/challenges/{SMALL}", "/post", "/operator", "/agents"):
        assert "frame-ancestors 'none'" in (await service.get(path))[1]["content-security-policy"]
    assert b"&lt;iframe" in (await service.get(f"/challenges/{SMALL}"))[2]
