"""Nothing hidden on a page, no caller whose address is made up, no tool called by a foreign name."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.api_service import CHAIN, POSTED, running_service, summary

from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError
from clara_eval.documents.store_keys import index_key
from clara_eval.interfaces.api import templating
from clara_eval.interfaces.api.limits import Rate, Rates
from clara_eval.interfaces.api.templating import visible

HOSTILE = "Pay\u202e0x1\u202c\x00\x1b[31m\u200b\u2066\ufeff\U000e0041\ufe0f\x85\u061c\tend\r\nline"
TEMPLATE = (
    '{% macro cell(x) %}<td title="{{ x }}">{{ x }}</td>{% endmacro %}{{ cell(text) }}{{ text | upper }}{{ text }}'
)
PAGE = templating._environment().from_string(TEMPLATE)


def hidden(text: str) -> list[str]:
    """Characters that nobody sees, or that turn what stands after them."""
    return [char for char in text if unicodedata.category(char) in {"Cc", "Cf", "Co", "Cn"} and char != "\n"]


@given(st.text(st.characters(), max_size=80))
def test_a_template_writes_nothing_invisible(text: str) -> None:
    """Whatever a value holds, in text, attributes, filters and macros, the page has no control or format character."""
    page = PAGE.render(text=text)
    assert not hidden(page)
    assert page.count("<td") == 1
    page.encode("utf-8")


def test_what_is_hidden_is_spelled_out() -> None:
    """A reader sees that something was hidden, and where; ordinary letters of any script stay."""
    page = templating._environment().from_string("{{ text }}").render(text="a\u202eb \x1b é 漢 <i>")
    assert page == "a\\u202eb \\x1b é 漢 &lt;i&gt;"


def test_every_page_is_made_by_the_one_environment() -> None:
    """No other module of the door makes a Jinja environment of its own."""
    folder = Path(templating.__file__).parent
    modules = [path for path in folder.glob("*.py") if not path.name.startswith("test_")]
    assert [path.name for path in modules if " Environment(" in path.read_text(encoding="utf-8")] == ["templating.py"]
    assert templating._environment().finalize is visible


async def test_pages_hide_nothing_that_a_poster_wrote(tmp_path: Path) -> None:
    """Title, statement and the symbol of a token reach the page without their control and bidirectional characters."""
    async with running_service(tmp_path) as service:
        told = summary(POSTED, HOSTILE, 10) | {"problemStatement": HOSTILE}
        told["token"] |= {"symbol": HOSTILE}
        await service.store.put(CHAIN, index_key(POSTED), json.dumps(told))
        for path in ("/", f"/challenges/{POSTED}", f"/challenges/{HOSTILE}"):
            _, _, body = await service.get(path)
            assert not hidden(body.decode()), path
            assert b"\\u202e" in body or HOSTILE in path


async def _answered(folder: Path, forwarded: tuple[str, str], proxies: str = "") -> list[int]:
    """How two requests in the same second end, of which each names another client."""
    rates = Rates(client=Rate(per_second=0.001, burst=1))
    async with running_service(folder, rates=rates, CLARA_TRUSTED_PROXIES=proxies) as service:
        return [(await service.get("/healthz", **{"x-forwarded-for": one}))[0] for one in forwarded]


async def test_forwarded_addresses_count_only_from_configured_proxies(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A made-up X-Forwarded-For gives nobody a fresh limit; behind a configured proxy each client has its own."""
    both = ("203.0.113.1", "203.0.113.2")
    assert await _answered(tmp_path_factory.mktemp("none"), both) == [200, 429]
    assert await _answered(tmp_path_factory.mktemp("other"), both, proxies="10.0.0.0/8") == [200, 429]
    assert await _answered(tmp_path_factory.mktemp("ours"), both, proxies="127.0.0.1, 10.0.0.0/8") == [
        200,
        200,
    ]
    # What a client wrote before the proxy's own entry is not believed.
    prefixed = ("198.51.100.7, 203.0.113.1", "198.51.100.8, 203.0.113.1")
    assert await _answered(tmp_path_factory.mktemp("prefixed"), prefixed, proxies="127.0.0.1") == [
        200,
        429,
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLARA_TRUSTED_PROXIES", "*"),
        ("CLARA_TRUSTED_PROXIES", "proxy.internal"),
        ("CLARA_PUBLIC_HOSTS", "*"),
        ("CLARA_PUBLIC_HOSTS", "https://eval.example.org"),
        ("CLARA_CORS_ORIGINS", "https://app.example.org/"),
        ("CLARA_CORS_ORIGINS", "https://*.example.org"),
    ],
)
def test_settings_that_would_trust_everybody_are_refused(name: str, value: str) -> None:
    """Neither list takes a wildcard, and the error names the setting."""
    with pytest.raises(ConfigError, match=name):
        Settings.from_env({name: value})


CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def test_the_tools_answer_only_to_their_own_names(tmp_path: Path) -> None:
    """A page that points its own name at this machine is refused by Host, a foreign page by Origin."""
    accepts = {"accept": "application/json, text/event-stream"}
    public, page = "eval.example.org", "https://app.example.org"
    async with running_service(tmp_path, CLARA_PUBLIC_HOSTS=public, CLARA_CORS_ORIGINS=page) as service:

        async def call(**headers: str) -> int:
            return (await service.post("/mcp/", CALL, **{**accepts, **headers}))[0]

        assert await call() == 200
        assert await call(host="eval.example.org", origin="https://eval.example.org") == 200
        assert await call(origin=page) == 200
        for host, origin in OWN_PAGES:
            assert await call(host=host, origin=origin) == 200, (host, origin)
        for host in ("evil.example", "eval.example.org.evil.example", "127.0.0.1.evil.example", "eval.example.org:1"):
            assert await call(host=host) == 421
        for host, origin in FOREIGN_PAGES:
            assert await call(host=host, origin=origin) == 403, (host, origin)
        port = int(service.url.rsplit(":", 1)[1])
        twice = f"Origin: http://127.0.0.1:{port}\r\nOrigin: https://evil.example\r\n"
        assert await _status(port, f"Host: 127.0.0.1:{port}\r\n{twice}") == 403
        assert await _status(port, f"Host: 127.0.0.1:{port}\r\nOrigin: \r\n") == 403
        assert await _status(port, f"Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n") in {400, 421}


OWN_PAGES = [
    ("eval.example.org", "https://eval.example.org"),
    ("eval.example.org", "https://eval.example.org:443"),
    ("eval.example.org:443", "https://eval.example.org"),
    ("EVAL.example.org", "HTTPS://Eval.Example.ORG"),
    ("localhost:8080", "http://localhost:8080"),
    ("localhost:8080", "https://app.example.org:443"),
    ("[::1]:8080", "http://[0:0:0:0:0:0:0:1]:8080"),
]
FOREIGN_PAGES = [
    ("localhost:8080", origin)
    for origin in (
        "https://evil.example",
        "null",
        "localhost:8080",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:8080",
        "http://localhost:evil.example",
        "http://localhost:8080.evil.example",
        "http://localhost:8080@evil.example",
        "http://evil.example@localhost:8080",
        "http://localhost:8080/",
        "http://localhost:8080?",
        "http://localhost:08080",
        "http://localhost.:8080",
        "http://localhost:8080 http://evil.example",
        "http://localhost:8080, http://evil.example",
        "file://localhost:8080",
        "https://eval.example.org.evil.example",
        "https://app.example.org.evil.example",
        "https://evil.app.example.org",
        "https://app.example.org:444",
        "http://app.example.org",
        "http://[::1",
        "*",
    )
] + [
    ("eval.example.org", "https://eval.example.org:8443"),
    ("eval.example.org", "https://localhost"),
    ("eval.example.org", "http://127.0.0.1:8080"),
]
"""The host that is called, and a page that is not of it."""


async def _status(port: int, headers: str) -> int:
    """The status of a call whose header lines are written as they are."""
    body = json.dumps(CALL)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    accepts = "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
    writer.write(
        f"POST /mcp/ HTTP/1.1\r\n{headers}{accepts}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
    )
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])
