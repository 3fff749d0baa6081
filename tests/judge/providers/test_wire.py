"""The Claude and OpenAI adapters on the wire: what is sent, what is read, and what each failure becomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web
from tests.support.fake_endpoint import (
    FakeEndpoint,
    Fault,
    Script,
    Seen,
    completion_body,
)

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, Temporary
from clara_eval.judge.port import Prompt, RateLimited, Unanswered
from clara_eval.judge.providers.anthropic import AnthropicLlm
from clara_eval.judge.providers.anthropic import thinks as claude_thinks
from clara_eval.judge.providers.openai import SEED, OpenAiLlm, RequestForm, request_body
from clara_eval.judge.providers.openai import thinks as openai_thinks
from clara_eval.judge.providers.wire import error_text, retry_after

KEY = "sk-very-secret-0123456789"
VERDICT = {
    "type": "object",
    "properties": {
        "winner": {"type": "string", "enum": ["A", "B", "tie"]},
        "confidence": {"type": "number"},
        "reason": {"type": "string"},
    },
    "required": ["winner", "confidence", "reason"],
    "additionalProperties": False,
}
PROMPT = Prompt("comparison", "Judge by gas.", "A: 1, B: 2", json.dumps(VERDICT), 200, "0x00")
Either = AnthropicLlm | OpenAiLlm


@asynccontextmanager
async def _claude(script: Script | None = None, **options: Any) -> AsyncIterator[tuple[AnthropicLlm, FakeEndpoint]]:
    async with FakeEndpoint(script=script).running() as endpoint:
        llm = AnthropicLlm("claude-test", api_key=KEY, base_url=endpoint.root, **options)
        try:
            yield llm, endpoint
        finally:
            await llm.close()


@asynccontextmanager
async def _openai(script: Script | None = None, **options: Any) -> AsyncIterator[tuple[OpenAiLlm, FakeEndpoint]]:
    async with FakeEndpoint(script=script).running() as endpoint:
        llm = OpenAiLlm("gpt-test", api_key=KEY, base_url=endpoint.url, **options)
        try:
            yield llm, endpoint
        finally:
            await llm.close()


BOTH = pytest.mark.parametrize("open_llm", [_claude, _openai])


async def test_claude_request() -> None:
    """Claude gets the schema, a caching mark on the constant part only, and neither temperature nor seed."""
    async with _claude() as (llm, endpoint):
        answer = await llm.complete(PROMPT)
    (seen,) = endpoint.seen
    assert seen.path == "/v1/messages"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["anthropic-version"]
    assert seen.body["model"] == "claude-test"
    assert seen.body["max_tokens"] == 200
    assert seen.body["system"] == [{"type": "text", "text": "Judge by gas.", "cache_control": {"type": "ephemeral"}}]
    assert seen.body["messages"] == [{"role": "user", "content": "A: 1, B: 2"}]
    assert seen.body["output_config"]["format"]["type"] == "json_schema"
    assert seen.body["output_config"]["format"]["schema"] == VERDICT
    assert set(seen.body) == {"model", "max_tokens", "system", "messages", "output_config"}
    assert json.loads(answer.text)["winner"] in ("A", "B", "tie")
    assert (answer.model, answer.stop, answer.sampling) == ("claude-test-20260101", "end", "neither")
    assert (answer.input_tokens, answer.cached_tokens) == (10 // 4 + 1 + 13 // 4, 13 // 4)


@pytest.mark.specification("1", "temperature=0, seeded")
async def test_openai_request() -> None:
    """An OpenAI-compatible endpoint gets temperature 0, the seed, the token limit and the strict schema."""
    async with _openai() as (llm, endpoint):
        answer = await llm.complete(PROMPT)
    (seen,) = endpoint.seen
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body == {
        "model": "gpt-test",
        "messages": [{"role": "system", "content": "Judge by gas."}, {"role": "user", "content": "A: 1, B: 2"}],
        "max_tokens": 200,
        "temperature": 0,
        "seed": SEED,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "comparison", "strict": True, "schema": VERDICT},
        },
    }
    assert json.loads(answer.text)["winner"] in ("A", "B", "tie")
    assert (answer.model, answer.stop, answer.input_tokens) == ("gpt-test-2026-01-01", "end", 23 // 4 + 1)
    assert answer.sampling == f"temperature 0, seed {SEED}"


async def test_openai_falls_back_to_plain_json_once() -> None:
    """An endpoint that refuses the response format is asked again without it, and is not offered it a second time."""

    def refuse_format(seen: Seen) -> Fault | None:
        if "response_format" in seen.body:
            return Fault("status", 400, message="response_format of type json_schema is not supported")
        return Fault("text", text='{"winner": "A"}')

    async with _openai(refuse_format) as (llm, endpoint):
        first, second = await llm.complete(PROMPT), await llm.complete(PROMPT)
    assert first.text == second.text == '{"winner": "A"}'
    assert ["response_format" in seen.body for seen in endpoint.seen] == [True, False, False]
    told = endpoint.seen[1].body["messages"][0]["content"]
    assert told.startswith("Judge by gas.")
    assert PROMPT.schema_json in told


async def test_openai_drops_what_a_model_refuses() -> None:
    """A reasoning model that refuses temperature, seed and the old token limit still answers, within its limit."""

    def picky(seen: Seen) -> Fault | None:
        for name in ("temperature", "seed", "max_tokens"):
            if name in seen.body:
                return Fault(
                    "status", 400, message=f"Unsupported parameter: '{name}' is not supported with this model."
                )
        return None

    async with _openai(picky) as (llm, endpoint):
        answer = await llm.complete(PROMPT)
    last = endpoint.seen[-1].body
    assert answer.sampling == "neither"
    assert last["max_completion_tokens"] == 200
    assert not {"temperature", "seed", "max_tokens"} & set(last)
    assert len(endpoint.seen) == 4


async def test_many_callers_meet_one_refusal_together() -> None:
    """Callers whose requests were refused at the same time all end with an answer."""

    def refuse_format(seen: Seen) -> Fault | None:
        return Fault("status", 400, message="unknown field json_schema") if "response_format" in seen.body else None

    async with _openai(refuse_format) as (llm, _):
        answers = await asyncio.gather(*(llm.complete(PROMPT) for _ in range(10)))
    assert len(answers) == 10


@BOTH
@pytest.mark.parametrize(
    ("status", "message", "wanted"),
    [
        (429, "slow down", RateLimited),
        (529, "Overloaded", RateLimited),
        (500, "oops", Temporary),
        (502, "bad gateway", Temporary),
        (503, "busy", Temporary),
        (408, "timeout", Temporary),
        (401, f"Incorrect API key provided: {KEY}", ConfigError),
        (403, "no access", ConfigError),
        (404, "model not found", ConfigError),
        (400, "prompt is too long: 300000 tokens > 200000 maximum", BadAnswer),
        (413, "request too large", BadAnswer),
        (400, "Output blocked by content filtering policy", BadAnswer),
        (400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", BadAnswer),
        (403, "The chosen model requires moderation and your input was flagged", BadAnswer),
        (400, "Your credit balance is too low", ConfigError),
        (429, "You exceeded your current quota: insufficient_quota", ConfigError),
        (400, "something is wrong with this field", ConfigError),
    ],
)
async def test_refusals_become_our_errors(open_llm: Any, status: int, message: str, wanted: type[ClaraError]) -> None:
    """Each status becomes the error that says what to do next, names the judge, and holds no secret."""
    async with open_llm(lambda _: Fault("status", status, message=message)) as (llm, endpoint):
        with pytest.raises(wanted) as caught:
            await llm.complete(PROMPT)
    assert llm.name.split("@")[0] in str(caught.value)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(endpoint.seen) == 1, "the SDK's own retries must be off"
    if wanted is ConfigError:
        assert caught.value.remedy


@BOTH
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry-after": "7"}, 7.0), ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5), ({}, None)],
)
async def test_retry_after_is_handed_on(open_llm: Any, headers: dict[str, str], seconds: float | None) -> None:
    """A 429 carries the provider's own waiting time, where it names one."""
    async with open_llm(lambda _: Fault("status", 429, headers)) as (llm, _):
        with pytest.raises(RateLimited) as caught:
            await llm.complete(PROMPT)
    assert caught.value.retry_after_seconds == seconds


def test_retry_after_as_date_and_nonsense() -> None:
    """A date is turned into seconds from now; nonsense is no waiting time; nobody waits longer than ten minutes."""
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    header = format_datetime(moment + timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": header}, moment.timestamp) == 30
    assert retry_after({"retry-after": header}, lambda: moment.timestamp() + 60) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "nan"}) is None
    assert retry_after({"retry-after": "-5"}) is None
    assert retry_after({"retry-after": "31536000"}) == 600


@BOTH
@pytest.mark.parametrize("kind", ["hang", "reset", "cut"])
async def test_lost_answers_are_unanswered(open_llm: Any, kind: Any) -> None:
    """A call that was sent and brought nothing back may have been charged, and says so by its class."""
    async with open_llm(lambda _: Fault(kind)) as (llm, _):
        llm.call_seconds = 0.15
        with pytest.raises(Unanswered):
            await llm.complete(PROMPT)


@BOTH
async def test_nobody_listens(open_llm: Any) -> None:
    """A connection that was never made is an outage, and not a call that may have been charged."""
    async with open_llm() as (llm, _):
        nowhere = type(llm)("m", api_key=KEY, base_url="http://127.0.0.1:9/v1")
        with pytest.raises(Temporary, match="cannot be reached") as caught:
            await nowhere.complete(PROMPT)
        await nowhere.close()
    assert not isinstance(caught.value, Unanswered)


@BOTH
async def test_garbage_is_an_outage(open_llm: Any) -> None:
    """A 200 whose body is not the documented shape is an outage that may have been charged, never an answer."""
    async with open_llm(lambda _: Fault("garbage")) as (llm, _):
        with pytest.raises(Unanswered, match="not a"):
            await llm.complete(PROMPT)


@BOTH
@pytest.mark.parametrize(("kind", "stop"), [("refusal", "refusal"), ("max_tokens", "max_tokens"), ("text", "end")])
async def test_stops(open_llm: Any, kind: Any, stop: str) -> None:
    """A refusal and a cut answer are answers with their reason to stop, so that the reader can say why."""
    async with open_llm(lambda _: Fault(kind, text='{"winner": ')) as (llm, _):
        answer = await llm.complete(PROMPT)
    assert (answer.stop, answer.text) == (stop, '{"winner": ')


@asynccontextmanager
async def _saying(text: str, content_type: str = "application/json", status: int = 200) -> AsyncIterator[str]:
    """A server that answers everything with this; gives its address."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=content_type, status=status)

    async with _app(answer) as root:
        yield root


@asynccontextmanager
async def _app(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_post("/v1/messages", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_error_inside_a_200_is_an_error() -> None:
    """A gateway that wraps an upstream error into a 200 is read by the error's own code."""
    async with _saying('{"error": {"code": 429, "message": "upstream is busy"}}') as root:
        llm = OpenAiLlm("m", api_key=KEY, base_url=f"{root}/v1")
        with pytest.raises(RateLimited, match="upstream is busy"):
            await llm.complete(PROMPT)
        await llm.close()


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ("null", (8, 4)),
        ("{}", (8, 4)),
        ('{"prompt_tokens": 7, "total_tokens": 7}', (7, 4)),
        ('{"prompt_tokens": 7, "completion_tokens": null}', (7, 4)),
        ('{"prompt_tokens": 7, "completion_tokens": 3}', (7, 3)),
    ],
)
async def test_what_an_endpoint_does_not_count_is_counted_by_size(usage: str, tokens: tuple[int, int]) -> None:
    """An answer whose usage is missing in whole or in part is an answer, and not a free one."""
    choices = '[{"message": {"content": "0123456789"}, "finish_reason": "stop"}]'
    async with _saying(f'{{"choices": {choices}, "usage": {usage}}}') as root:
        llm = OpenAiLlm("m", api_key=KEY, base_url=f"{root}/v1")
        answer = await llm.complete(PROMPT)
        await llm.close()
    assert (answer.text, answer.input_tokens, answer.output_tokens) == ("0123456789", *tokens)


@pytest.mark.parametrize("number", ["Infinity", "1e999", "NaN", '"many"', "[1]", "1e30", "-1"])
async def test_a_count_that_is_no_number_is_an_outage(number: str) -> None:
    """Counts that cannot be read are no crash, with either provider."""
    completion = f'{{"choices": [{{"message": {{"content": "x"}}}}], "usage": {{"prompt_tokens": {number}}}}}'
    message = f'{{"content": [], "model": "m", "usage": {{"input_tokens": {number}, "output_tokens": 1}}}}'
    async with _saying(completion) as root:
        llm = OpenAiLlm("m", api_key=KEY, base_url=f"{root}/v1")
        with pytest.raises(Unanswered):
            await llm.complete(PROMPT)
        await llm.close()
    async with _saying(message) as root:
        claude = AnthropicLlm("m", api_key=KEY, base_url=root)
        with pytest.raises(Unanswered):
            await claude.complete(PROMPT)
        await claude.close()


async def test_a_key_is_hidden_before_a_long_message_is_cut() -> None:
    """A page that quotes the key where the message is cut shows no part of it."""
    async with _saying("x" * 290 + KEY, "text/plain", 500) as root:
        llm = OpenAiLlm("m", api_key=KEY, base_url=f"{root}/v1")
        with pytest.raises(Temporary, match="500") as caught:
            await llm.complete(PROMPT)
        await llm.close()
    assert KEY[:6] not in str(caught.value)


async def test_an_answer_without_end_is_not_read() -> None:
    """A broken endpoint that goes on writing is an outage that may be charged, long before the memory is full."""
    written = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(40):
            await response.write(b" " * 2**20)
            written += 1
        return response

    async with _app(answer) as root:
        llm = OpenAiLlm("m", api_key=KEY, base_url=f"{root}/v1")
        with pytest.raises(Unanswered, match="TooLong"):
            await llm.complete(PROMPT)
        await llm.close()
    assert written < 40


@pytest.mark.parametrize(("no_proxy", "proxied"), [("", True), ("elsewhere.example", True), ("127.0.0.1", False)])
async def test_the_way_out_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, proxied: bool
) -> None:
    """Calls go through HTTP_PROXY with its own login, unless NO_PROXY names the host."""
    asked: list[web.BaseRequest] = []

    async def proxy(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request)
        return web.json_response(completion_body(await request.json(), '{"winner": "A"}'))

    for name in ("http_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    runner = web.ServerRunner(web.Server(proxy))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{runner.addresses[0][1]}")
    monkeypatch.setenv("no_proxy", no_proxy)
    async with _openai() as (llm, endpoint):
        await llm.complete(PROMPT)
        assert [str(request.url) for request in asked] == ([f"{endpoint.url}/chat/completions"] if proxied else [])
        assert len(endpoint.seen) == (0 if proxied else 1)
    if proxied:
        assert asked[0].headers["Proxy-Authorization"] == "Basic dXNlcjp3b3Jk"
    await runner.cleanup()


def test_a_request_is_the_same_however_it_is_written() -> None:
    """The part that is kept and the part that is new make one JSON document, whatever stands in the prompt."""
    user = 'A: "x" \\ \n é 漢 \u2028 }]} ""'
    form = RequestForm("m", "max_tokens")
    for number, shown in enumerate((form, form._replace(refused=frozenset({"response_format", "seed"})))):
        body = json.loads(request_body(shown, replace(PROMPT, user=user)))
        assert body["messages"][1] == {"role": "user", "content": user}
        assert body["messages"][0]["content"].startswith(PROMPT.system)
        assert ("seed" in body) == ("response_format" in body) == (number == 0)


THINKERS = ["gpt-5", "gpt-5.4-mini", "gpt-6-luna", "o4-mini", "openai/gpt-oss-120b", "anthropic/claude-opus-5"]
THINKERS += ["qwen3-8b", "deepseek-r1", "kimi-k2-thinking", "z-ai/glm-5"]
PLAIN = ["gpt-4.1", "gpt-4o-mini", "gpt-35-turbo", "gpt-5-chat-latest", "qwen2.5-7b", "qwen3-30b-instruct", "m"]
PLAIN += ["anthropic/claude-sonnet-4.5", "llama-4-scout"]


def test_which_models_think_is_known_by_their_names() -> None:
    """Today's families; a model that is not known begins without room for thinking."""
    assert [name for name in THINKERS if not openai_thinks(name)] == []
    assert [name for name in PLAIN if openai_thinks(name)] == []
    assert all(claude_thinks(f"claude-{name}") for name in ("opus-5", "haiku-5-5", "sonnet-5", "mythos-preview"))
    assert not any(claude_thinks(f"claude-{name}") for name in ("sonnet-4-5", "opus-4-8", "3-5-haiku-latest"))


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_thinking_model_is_asked_to_think_little(is_refused: bool) -> None:
    """The effort is low and no temperature is sent; a model that refuses the effort is asked without it, for good."""

    def picky(seen: Seen) -> Fault | None:
        is_told = "reasoning_effort" in seen.body or "effort" in seen.body.get("output_config", {})
        return Fault("status", 400, message="reasoning_effort: unsupported") if is_refused and is_told else None

    async with FakeEndpoint(script=picky).running() as endpoint:
        one = OpenAiLlm("gpt-6-luna", api_key=KEY, base_url=endpoint.url)
        other = AnthropicLlm("claude-opus-5", api_key=KEY, base_url=endpoint.root)
        for llm in (one, other):
            for _ in range(2):
                await llm.complete(PROMPT)
            await llm.close()
    bodies = [seen.body for seen in endpoint.seen]
    assert not any("temperature" in body for body in bodies)
    efforts = [body.get("reasoning_effort") or body.get("output_config", {}).get("effort") for body in bodies]
    assert efforts == (["low", None, None] * 2 if is_refused else ["low"] * 4)


async def test_a_limit_that_is_too_large_changes_nothing_for_others() -> None:
    """A refusal that names the token limit because it is too large is about this prompt, not about the limit's name."""
    words = "max_tokens is too large: 9000. This model supports at most 4096 completion tokens."
    async with _openai(lambda _: Fault("status", 400, message=words)) as (llm, endpoint):
        for _ in range(2):
            with pytest.raises(BadAnswer, match="does not take this prompt"):
                await llm.complete(PROMPT)
    assert all("max_tokens" in seen.body for seen in endpoint.seen)
    assert len(endpoint.seen) == 2


def test_a_refusal_in_another_shape_is_understood() -> None:
    """Endpoints that name the refused field outside of a message are understood, too."""
    refusal = {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs"}]}
    assert "seed" in error_text(json.dumps(refusal).encode())
