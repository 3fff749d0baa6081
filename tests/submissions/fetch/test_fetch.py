"""Addresses of strangers against a server that misbehaves: a verdict for each, and no way into the private network."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from importlib.resources import files

import pytest
from tests.support.collecting import collect_solution
from tests.support.hostile_web import GOOD, NAME, HostileWeb, ScriptedResolver

from clara_eval.core.address import Address
from clara_eval.core.errors import BadSubmission
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import Submission
from clara_eval.submissions.fetch import FetchLimits, UriFetch, Web
from clara_eval.submissions.fetch.web import check_url, is_public
from clara_eval.submissions.model import Outage, Rejected, Solution

SSRF = [
    payload["text"]
    for line in (files("clara_eval") / "redteam" / "data" / "own.jsonl").read_text(encoding="utf-8").splitlines()
    if (payload := json.loads(line))["class"] == "url_ssrf"
]
NO_RETRY: tuple[float, ...] = ()


@pytest.fixture(scope="module")
async def hostile() -> AsyncIterator[HostileWeb]:
    async with HostileWeb() as running:
        yield running


def submission(uri: str, solution_hash: str | None = None) -> Submission:
    committed = solution_hash or keccak_hex(uri.encode())
    return Submission(Address("0x" + "ab" * 20), 1, uri, committed, 1_000, 1)


async def collect(hostile: HostileWeb, path: str) -> Solution | Rejected:
    fetch = UriFetch(web=hostile.web())
    return await collect_solution(fetch, submission(hostile.url(path)), NO_RETRY)


async def test_a_good_answer_is_read_whole_without_cookies(hostile: HostileWeb) -> None:
    """An ordinary https page becomes a solution; the request carries no cookie and no credentials."""
    first = await collect(hostile, "good")
    second = await collect(hostile, "good")
    assert isinstance(first, Solution)
    assert first.content == GOOD.encode()
    assert (first.hash_kind, first.pinned) == ("uri", False)
    assert second == first
    assert not {"Cookie", "Authorization", "Referer"} & set().union(*hostile.headers)


async def test_a_hash_over_the_content_pins_an_https_page(hostile: HostileWeb) -> None:
    """A keccak over the content makes even a mutable address pinned; another keccak is a wrong hash."""
    fetch = UriFetch(web=hostile.web())
    pinned = await collect_solution(fetch, submission(hostile.url("good"), keccak_hex(GOOD.encode())), NO_RETRY)
    wrong = await collect_solution(fetch, submission(hostile.url("good"), "0x" + "11" * 32), NO_RETRY)
    assert isinstance(pinned, Solution)
    assert (pinned.hash_kind, pinned.pinned) == ("content", True)
    assert isinstance(wrong, Rejected)
    assert wrong.code == "wrong_hash"
    assert "0x1111" in wrong.reason


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("status/404", "not_found"),
        ("status/410", "not_found"),
        ("status/403", "unreadable"),
        ("status/204", "unreadable"),
        ("status/304", "unreadable"),
        ("status/500", "unreachable"),
        ("status/503", "unreachable"),
        ("status/429", "unreachable"),
        ("huge", "too_large"),
        ("announced", "too_large"),
        ("bomb", "too_large"),
        ("brotli", "unreadable"),
        ("broken-gzip", "unreadable"),
        ("not-gzip", "unreadable"),
        ("cut", "unreadable"),
        ("redirect?to=https://[::1", "bad_uri"),
        ("loop", "too_many_redirects"),
        ("hops/4", "too_many_redirects"),
        ("latin1", "not_utf8"),
        ("image", "binary"),
        ("nul", "binary"),
        ("control", "binary"),
        ("empty", "empty"),
        ("blank", "empty"),
        ("master-key", "empty"),
        ("redirect?to=https://169.254.169.254/latest/meta-data/", "forbidden_address"),
        ("redirect?to=http://169.254.169.254/", "unsupported_scheme"),
        ("redirect?to=https://localhost/", "forbidden_address"),
        ("redirect?to=https://127.0.0.1/", "forbidden_address"),
        ("redirect?to=https://[::1]/", "forbidden_address"),
        ("redirect?to=https://private.example/", "unreachable"),
        ("redirect?to=file:///etc/passwd", "unsupported_scheme"),
        ("redirect?to=https://user:secret@solutions.example/", "bad_uri"),
        ("redirect?to=https://solutions.example:22/", "forbidden_address"),
    ],
)
async def test_every_misbehaviour_gets_its_verdict(hostile: HostileWeb, path: str, code: str) -> None:
    """Whatever the server does, the submission gets one named verdict and nothing is raised."""
    verdict = await collect(hostile, path)
    assert isinstance(verdict, Rejected)
    assert verdict.code == code, verdict.reason


@pytest.mark.parametrize("path", ["drip", "silent"])
async def test_slowness_ends_with_the_clock(hostile: HostileWeb, path: str) -> None:
    """A server that drips or is silent costs one attempt's time and becomes `timeout`."""
    fetch = UriFetch(web=hostile.web(FetchLimits(max_bytes=20_000, total_seconds=0.15)))
    verdict = await collect_solution(fetch, submission(hostile.url(path)), NO_RETRY)
    assert isinstance(verdict, Rejected)
    assert verdict.code == "timeout"


async def test_three_redirects_are_followed(hostile: HostileWeb) -> None:
    """Up to three redirects lead to the content; packed bodies are unpacked."""
    assert isinstance(await collect(hostile, "hops/3"), Solution)
    packed = await collect(hostile, "packed")
    assert isinstance(packed, Solution)
    assert packed.text == GOOD


async def test_an_outage_is_retried_and_never_a_verdict_by_itself(hostile: HostileWeb) -> None:
    """A 500 followed by a good answer is a solution; a 500 to the end is an outage."""
    from aiohttp import web as server

    answers = [server.Response(status=500), server.Response(status=503), server.Response(text=GOOD)]

    async def flaky(_: server.Request) -> server.StreamResponse:
        return answers.pop(0)

    hostile.routes["flaky"] = flaky
    fetch = UriFetch(web=hostile.web())
    patient = (0.0, 0.0)
    assert isinstance(await collect_solution(fetch, submission(hostile.url("flaky")), patient), Solution)
    verdict = await collect_solution(fetch, submission(hostile.url("status/500")), NO_RETRY)
    assert isinstance(verdict, Rejected)
    assert verdict.is_outage


async def test_a_name_server_that_fails_for_half_the_hosts_rejects_nobody(hostile: HostileWeb) -> None:
    """Hosts that resolve are read; the others are an outage."""
    fetch = UriFetch(web=hostile.web())
    for number in range(3):
        assert isinstance(await collect_solution(fetch, submission(hostile.url("good")), NO_RETRY), Solution)
        lost = submission(f"https://host-{number}.example/solution.py")
        verdict = await collect_solution(fetch, lost, NO_RETRY)
        assert isinstance(verdict, Rejected)
        assert verdict.is_outage


async def test_retry_after_is_handed_on(hostile: HostileWeb) -> None:
    """The server's Retry-After reaches the caller in seconds."""
    with pytest.raises(Outage) as caught:
        await UriFetch(web=hostile.web()).fetch(hostile.url("status/429"))
    assert caught.value.retry_after_seconds == 7


async def test_changing_content_is_caught_by_the_hash(hostile: HostileWeb) -> None:
    """Content that changes after the commitment is a wrong hash, not a different solution."""
    from aiohttp import web as server

    async def changed(_: server.Request) -> server.StreamResponse:
        return server.Response(text=GOOD + "# changed after the deadline\n")

    hostile.routes["changing"] = changed
    verdict = await collect_solution(
        UriFetch(web=hostile.web()), submission(hostile.url("changing"), keccak_hex(GOOD.encode())), NO_RETRY
    )
    assert isinstance(verdict, Rejected)
    assert verdict.code == "wrong_hash"


async def test_an_unknown_authority_is_refused(hostile: HostileWeb) -> None:
    """A certificate that no trusted authority signed is a lasting verdict."""
    web = Web(resolver=hostile.web().resolver, exempt=hostile.web().exempt)
    with pytest.raises(BadSubmission) as caught:
        await UriFetch(web=web).fetch(hostile.url("good"))
    assert caught.value.code == "unreadable"


async def test_a_name_that_leads_inside_is_refused_before_connecting(hostile: HostileWeb) -> None:
    """A name with any private address among its answers is refused, and no request reaches the server."""
    for addresses in (["10.0.0.1"], ["93.184.215.14", "127.0.0.1"], ["::ffff:169.254.169.254"], ["64:ff9b::a00:1"]):
        resolver = ScriptedResolver({NAME: [addresses]})
        web = Web(resolver=resolver, tls=hostile.web().tls)
        with pytest.raises(BadSubmission) as caught:
            await UriFetch(web=web).fetch(f"https://{NAME}/good")
        assert caught.value.code == "forbidden_address"
        assert resolver.asked == [NAME]


async def test_rebinding_gets_one_look_up_and_the_checked_address(hostile: HostileWeb) -> None:
    """The connection goes to the address that was checked: a name server's second answer is never asked for."""
    before = len(hostile.hits)
    resolver = ScriptedResolver({NAME: [["192.0.2.1"], ["127.0.0.1"]]})
    web = Web(resolver=resolver, tls=hostile.web().tls, exempt=hostile.web().exempt)
    with pytest.raises(BadSubmission):
        await UriFetch(web=web).fetch(hostile.url("good"))
    assert resolver.asked == [NAME]
    turning = ScriptedResolver({NAME: [["127.0.0.1"], ["169.254.169.254"]]})
    web = Web(resolver=turning, tls=hostile.web().tls, exempt=hostile.web().exempt)
    assert (await UriFetch(web=web).fetch(hostile.url("good"))).content == GOOD.encode()
    assert turning.asked == [NAME]
    assert len(hostile.hits) == before + 1


async def test_a_redirect_is_resolved_and_checked_again(hostile: HostileWeb) -> None:
    """After a redirect the same name is looked up anew, and a private answer is refused."""
    resolver = ScriptedResolver({NAME: [["127.0.0.1"], ["10.1.2.3"]]})
    with pytest.raises(BadSubmission) as caught:
        await UriFetch(web=hostile.web(resolver=resolver)).fetch(hostile.url("hops/1"))
    assert caught.value.code == "forbidden_address"


@pytest.mark.parametrize("text", SSRF)
async def test_strings_of_the_ssrf_collection_reach_nothing(text: str) -> None:
    """Every string of the collection ends in a verdict or an outage of a name that does not exist, offline."""
    fetch = UriFetch(web=Web(resolver=ScriptedResolver({})))
    verdict = await collect_solution(fetch, submission(text), NO_RETRY)
    assert isinstance(verdict, Rejected)


@pytest.mark.parametrize(
    "text",
    [
        "https://127.0.0.1/",
        "https://127.1/",
        "https://0/",
        "https://0x7f.1/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://017700000001/",
        "https://localhost/",
        "https://localhost./",
        "https://printer.local/",
        "https://metadata.google.internal/",
        "https://intranet/",
        "https://[::1]/",
        "https://[::]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[::ffff:a9fe:a9fe]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://100.64.0.1/",
        "https://192.168.1.1/",
        "https://224.0.0.1/",
        "https://255.255.255.255/",
        "https://example.com:8443/",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://example.com\\@127.0.0.1/",
        "https://example.com/a b",
        "https://example.com/\r\nHost: internal",
        "https://１２７.０.０.１/",
        "https://127。0。0。1/",
        "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
        "https://127.0.0.1%2f.example.com/",
        "https://example.com%00.evil.com/",
        "https://a..b.com/",
        "https://127.0.0.1#@example.com/",
        "https:///nohost",
        "https://",
        "https://[::1",
        "http://example.com/",
        "ftp://example.com/",
        "https://example.com/" + "a" * 3000,
    ],
)
def test_addresses_are_refused_by_their_form(text: str) -> None:
    """Private, disguised, credentialed or malformed addresses are refused before any look-up."""
    with pytest.raises(BadSubmission):
        check_url(text)


def test_public_addresses_are_public() -> None:
    """Ordinary public addresses pass; anything else, also nonsense, does not."""
    assert all(map(is_public, ("8.8.8.8", "93.184.215.14", "2606:4700:4700::1111")))
    assert not any(map(is_public, ("10.0.0.1", "nonsense", "", "fe80::1%eth0", "2606:4700::1%1", "0.0.0.0")))
    assert not any(map(is_public, ("fec0::1", "192.0.0.192", "3fff::1")))
    assert check_url("https://example.com/solution.sol").host == "example.com"
    assert check_url("https://bücher.example/x").raw_host == "xn--bcher-kva.example"


def test_nothing_private_is_exempt_unless_a_test_says_so() -> None:
    """A fetch as the service builds it has no exemption, no own resolver and no own authority."""
    web = UriFetch(ipfs_gateway="https://ipfs.io").web
    assert (web.exempt, web.resolver, web.tls) == (frozenset(), None, None)


@pytest.mark.parametrize(
    ("uri", "content", "media_type"),
    [
        ("data:text/plain;base64," + base64.b64encode(GOOD.encode()).decode(), GOOD, "text/plain"),
        ("data:application/json;charset=utf-8;base64,eyJhIjogMX0=", '{"a": 1}', "application/json"),
        ("DATA:,a%20plain%2Dtext", "a plain-text", "text/plain"),
        ("data:text/x-python,print(1)%0A", "print(1)\n", "text/x-python"),
        ("data:text/plain,gr%C3%BC%C3%9Fe grüße", "grüße grüße", "text/plain"),
    ],
)
async def test_data_uris_hold_their_content(uri: str, content: str, media_type: str) -> None:
    """base64 and percent forms give exactly their bytes, which the URI fixes for ever."""
    fetched = await UriFetch().fetch(uri)
    assert (fetched.content.decode(), fetched.media_type, fetched.immutable) == (content, media_type, True)


@pytest.mark.parametrize(
    "uri",
    [
        "data:text/plain;base64",
        "data:text/plain;base64,a",
        "data:text/plain;base64,YWJj!",
        "data:text/plain;base64,YW Jj",
        "data:text/plain;base64,YWJj\n",
        "data:text/plain;base64,%ZZ",
        "data:text/plain;base64,é",
        "data:,100%",
        "data:,%4",
        "data:,first#second",
        "data:,line\nline",
        "data:,\ud800",
        "data:" + "x" * 300 + ",a",
    ],
)
async def test_malformed_data_uris_are_refused(uri: str) -> None:
    """A data: URI that two readers could read in two ways is refused."""
    with pytest.raises(BadSubmission) as caught:
        await UriFetch().fetch(uri)
    assert caught.value.code == "bad_data_uri"


@pytest.mark.parametrize("header", ["data:,", "data:;base64,"])
async def test_large_data_uris_are_refused(header: str) -> None:
    """The limit holds for data: URIs, at the byte."""
    fetch = UriFetch(web=Web(limits=FetchLimits(max_bytes=30)))
    body = "a" * 30 if header == "data:," else base64.b64encode(b"a" * 30).decode()
    more = "a" * 31 if header == "data:," else base64.b64encode(b"a" * 31).decode()
    assert len((await fetch.fetch(header + body)).content) == 30
    for uri in (header + more, header + "A" * 4_000):
        with pytest.raises(BadSubmission) as caught:
            await fetch.fetch(uri)
        assert caught.value.code == "too_large"


@pytest.mark.parametrize(
    "uri", ["", ":", "ipns://k51qzi5uqu5d", "javascript:alert(1)", "/etc/passwd", "ar://x", "\ud800"]
)
async def test_other_schemes_are_refused(uri: str) -> None:
    """Only data:, https: and ipfs: are read; a mutable ipns: name is not."""
    verdict = await collect_solution(UriFetch(), Submission(Address("0x" + "ab" * 20), 1, uri, "0x", 1, 1), NO_RETRY)
    assert isinstance(verdict, Rejected)
    assert verdict.code == "unsupported_scheme"
