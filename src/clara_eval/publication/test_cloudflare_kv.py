"""Cloudflare KV on the wire: documented endpoints and limits, every fault that can pass, and what cannot."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from pydantic import SecretStr

from clara_eval.errors import ConfigError, Temporary
from clara_eval.publication import cloudflare_kv
from clara_eval.publication.cloudflare_kv import MOST_KEYS, CloudflareKv, bulks
from clara_eval.testing.kv_server import ACCOUNT, NAMESPACE, TOKEN, Fault, LocalKv
from clara_eval.trace.store_keys import trace_key

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


@pytest.mark.parametrize("fault", ["429", "500", "cut before", "cut after", "half"])
async def test_what_passes_is_tried_again(kv: LocalKv, fault: Fault) -> None:
    """Refusals, lost connections before and after the write, and half-written bulks end with every key there."""
    kv.faults.extend([fault, fault])
    await place(kv).put_keys(84532, PAIRS)
    assert dict(kv.values) == dict(PAIRS)


async def test_keys_that_are_never_written_are_an_outage(kv: LocalKv) -> None:
    """The service keeps refusing the same keys: nothing is called published."""
    kv.faults.extend(["half"] * 20)
    with pytest.raises(Temporary, match="did not write"):
        await place(kv).put_keys(84532, PAIRS)


async def test_an_unreadable_answer_is_an_outage(kv: LocalKv) -> None:
    """What is not the documented envelope is never taken for success."""
    kv.faults.extend(["garbage"] * 20)
    with pytest.raises(Temporary):
        await place(kv).put_keys(84532, PAIRS)


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
    with pytest.raises(ConfigError, match="larger than Cloudflare KV takes"):
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
