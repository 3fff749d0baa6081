"""Cloudflare KV on the wire: documented endpoints and limits, every fault that can pass, and what cannot."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from pydantic import SecretStr
from tests.support.kv_server import (
    ACCOUNT,
    NAMESPACE,
    TOKEN,
    Fault,
    LocalKv,
)

from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.documents.store_keys import trace_key
from clara_eval.store.publication import cloudflare_kv
from clara_eval.store.publication.cloudflare_kv import MOST_KEYS, MOST_VALUE_BYTES, CloudflareKv, bulks
from clara_eval.store.publication.publish_documents import Refused

ADDRESS, DIGEST = "0x" + "ab" * 20, "0x" + "cd" * 32
PAIRS = [(f"challenges:{ADDRESS}:features:0x{number:040x}", json.dumps({"ö": number})) for number in range(30)]


@pytest.fixture
async def kv() -> AsyncIterator[LocalKv]:
    async with LocalKv() as running:
        yield running


def place(kv: LocalKv) -> CloudflareKv:
    return CloudflareKv(ACCOUNT, NAMESPACE, SecretStr(TOKEN), kv.url, pause_seconds=0.01)


async def parts(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def test_keys_arrive_as_they_are(kv: LocalKv) -> None:
    """One request for many keys, the same bytes there."""
    await place(kv).put_keys(84532, PAIRS)
    assert list(kv.values.items()) == PAIRS
    assert len(kv.writes) == 1


@pytest.mark.parametrize("fault", ["429", "500", "cut before", "cut after", "half", "garbage", "page", "says no"])
async def test_what_passes_is_tried_again(kv: LocalKv, fault: Fault) -> None:
    """Refusals, lost connections, half-written bulks, and a 200 that is none end with every key there."""
    kv.faults.extend([fault, fault])
    await place(kv).put_keys(84532, PAIRS)
    assert dict(kv.values) == dict(PAIRS)


async def test_a_key_that_was_written_a_moment_ago_is_waited_for(kv: LocalKv) -> None:
    """One write a second is what a key takes: the newer value is there when it returns."""
    await place(kv).put_keys(84532, [("k", "older")])
    await place(kv).put_keys(84532, [("k", "newer")])
    assert kv.values == {"k": "newer"}


async def test_keys_that_are_never_written_are_an_outage(kv: LocalKv) -> None:
    """The service keeps refusing the same keys: nothing is called published."""
    kv.faults.extend(["half"] * 20)
    with pytest.raises(Temporary, match="did not write"):
        await place(kv).put_keys(84532, PAIRS)


@pytest.mark.parametrize("fault", ["garbage", "page", "says no"])
async def test_only_an_answer_that_says_so_is_success(kv: LocalKv, fault: Fault) -> None:
    """What is not the documented envelope, or says that it failed, is an outage, whatever its status and counts."""
    kv.seconds_a_key = 0.01
    kv.faults.extend([fault] * 20)
    with pytest.raises(Temporary, match=r"unreadable|did not write"):
        await place(kv).put_keys(84532, PAIRS)


async def test_other_credentials_of_the_environment_are_not_sent(
    kv: LocalKv, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the SDK would take from the environment does not replace the token, which stands in no log."""
    for name in ("CLOUDFLARE_EMAIL", "CLOUDFLARE_API_KEY", "CLOUDFLARE_API_USER_SERVICE_KEY"):
        monkeypatch.setenv(name, "of-another-account")
    caplog.set_level(logging.DEBUG)
    kv.faults.extend(["429", "cut after"])
    await place(kv).put_keys(84532, PAIRS)
    assert dict(kv.values) == dict(PAIRS)
    assert {name: value for name, value in kv.headers.items() if name.startswith(("Auth", "X-Auth"))} == {
        "Authorization": f"Bearer {TOKEN}"
    }
    assert "/bulk" in caplog.text
    assert TOKEN not in caplog.text


async def test_what_the_service_will_never_take_concerns_these_documents(kv: LocalKv) -> None:
    """It is told as refused, with the service's words and without the token that they repeat."""
    kv.faults.append("400")
    with pytest.raises(Refused, match="HTTP 400: unusable") as caught:
        await place(kv).put_keys(84532, PAIRS)
    assert TOKEN not in str(caught.value)


async def test_a_wrong_token_names_the_setting_and_not_the_token(kv: LocalKv) -> None:
    """Nothing is tried again, and the secret stands in no text."""
    wrong = replace(place(kv), token=SecretStr("not-the-token"))
    with pytest.raises(ConfigError, match="CLARA_KV_TOKEN") as caught:
        await wrong.put_keys(84532, PAIRS)
    assert "not-the-token" not in f"{caught.value} {caught.value!r} {wrong!r}"


async def test_a_wrong_namespace_is_told(kv: LocalKv) -> None:
    """An unknown namespace is the operator's matter, not an outage."""
    with pytest.raises(ConfigError, match="CLARA_KV_NAMESPACE"):
        await replace(place(kv), namespace="c" * 32).put_keys(84532, PAIRS)


def test_bulks_stay_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more keys or bytes than one request may carry, all of them, in order; what none can carry is refused."""
    many = [{"key": str(number), "value": "x"} for number in range(MOST_KEYS + 1)]
    assert [len(bulk) for bulk in bulks(many)] == [MOST_KEYS, 1]
    monkeypatch.setattr(cloudflare_kv, "MOST_REQUEST_BYTES", 200)
    large = [{"key": str(number), "value": "ö" * 40} for number in range(9)]
    split = list(bulks(large))
    assert all(len(json.dumps(bulk, ensure_ascii=False).encode()) <= 220 for bulk in split)
    assert [pair for bulk in split for pair in bulk] == large
    with pytest.raises(Refused, match="larger than Cloudflare KV takes"):
        list(bulks([{"key": "k" * 513, "value": ""}]))


async def test_a_trace_is_readable_under_its_key(kv: LocalKv) -> None:
    """The whole document under the specification's key, with its digest beside it."""
    assert await place(kv).trace_digest(84532, ADDRESS) is None
    await place(kv).take_trace(84532, ADDRESS, DIGEST, parts('{"entries":[', '"ö"]}'))
    assert kv.values[trace_key(ADDRESS)] == '{"entries":["ö"]}'
    assert await place(kv).trace_digest(84532, ADDRESS) == DIGEST


async def test_a_trace_beyond_the_limit_is_listed_under_its_key(kv: LocalKv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the limit's size, all there before the key that names them in order."""
    monkeypatch.setattr(cloudflare_kv, "MOST_VALUE_BYTES", 200)
    texts = [f"{number:02}" + "x" * 70 for number in range(9)]
    await place(kv).take_trace(84532, ADDRESS, DIGEST, parts(*texts))
    listed = json.loads(kv.values[trace_key(ADDRESS)])
    assert listed["digest"] == DIGEST
    assert "".join(kv.values[name] for name in listed["parts"]) == "".join(texts)
    assert kv.writes[-1] == [trace_key(ADDRESS)]


async def test_a_real_trace_beyond_the_limit_goes_on_where_it_was(kv: LocalKv) -> None:
    """Also where one line alone is larger than a value; parts that are there are not sent again."""
    texts = ['{"entries":[\n', "ö" * MOST_VALUE_BYTES, "\n]}\n"]
    kv.faults.extend(["", "", "400"])
    with pytest.raises(Refused):
        await place(kv).take_trace(84532, ADDRESS, DIGEST, parts(*texts))
    assert trace_key(ADDRESS) not in kv.values
    await place(kv).take_trace(84532, ADDRESS, DIGEST, parts(*texts))
    listed = json.loads(kv.values[trace_key(ADDRESS)])["parts"]
    assert "".join(kv.values[name] for name in listed) == "".join(texts)
    assert kv.writes == [[name] for name in [*listed, trace_key(ADDRESS)]], "each once, the key that lists them last"


def test_settings_that_cannot_be_are_told_at_once() -> None:
    """Which of the four it is, and never the token."""
    good = {"CLARA_KV_ACCOUNT": ACCOUNT, "CLARA_KV_NAMESPACE": NAMESPACE, "CLARA_KV_TOKEN": TOKEN}
    assert Settings.from_env(good).kv == (ACCOUNT, NAMESPACE, SecretStr(TOKEN))
    wrong = {
        "CLARA_KV_ACCOUNT": "my-account",
        "CLARA_KV_NAMESPACE": "b" * 31,
        "CLARA_KV_TOKEN": "sec\nret",
        "CLARA_KV_URL": "kv.test",
    }
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=name) as caught:
            _ = Settings.from_env(good | {name: value}).kv
        assert "ret" not in str(caught.value)
