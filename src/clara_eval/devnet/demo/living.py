"""Rounds on a local chain for `serve --demo`: final, failed, in review, open, running."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import structlog
from aiohttp import ClientError, web
from pydantic import SecretStr

from clara_eval.actions.evaluate import evaluate
from clara_eval.app import open_app, open_machine
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.calls import finalize
from clara_eval.config.eval_config import FeatureSchema, compile_schema, parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError
from clara_eval.core.extras import is_installed
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import FINALIZATION_SECONDS
from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.demo.lifecycle import choose_story, claim_prizes, local_settings
from clara_eval.devnet.demo.round import Story, explanation, post_round, rate_limiter, submit_entries, submit_round
from clara_eval.devnet.local_chain import DAY, HOUR, USDC, LocalChain, local_chain
from clara_eval.judge.comparison import RulesJudge, make_vector

REVIEW_ABOVE_USD = 1000.0
REVIEWED_POOL = 2500 * USDC
PRICE = "3/15"  # Assumed price of the demo's judge, dollars per million input/output tokens, to show a budget.
POLL_SECONDS = 2.0
PURPOSES = ("webhooks", "a chat server", "sign-ins", "a search box", "a ticket shop")
MODEL = "demo-judge"
_VECTOR = re.compile(r"^\{.*\}$", re.MULTILINE)
_log = structlog.get_logger(__name__)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tempo:
    answer_seconds: float = 1.6  # Latency of the slow judge; a round asks it 42 times in sequence
    open_seconds: int = 25  # How long the running round takes entries
    most_seconds: float = 300.0  # The next round is opened after this time, even if the last has no post


@asynccontextmanager
async def living_world(settings: Settings, say: Say, tempo: Tempo | None = None) -> AsyncIterator[Settings]:
    tempo = tempo or Tempo()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clara-serve-")))
        say("A local chain is being started and the contracts deployed.")
        options = AnvilOptions(accounts=30, start_at=int(time.time()) - DAY)
        chain = await stack.enter_async_context(local_chain(options))
        judge = await stack.enter_async_context(_serve_judge(tempo))
        local = _demo_settings(settings, chain, folder, judge)
        await _post_past_rounds(chain, local, say)
        config = json.loads(rate_limiter().config)
        if judge != "rules":
            del config["judge"]
        story = replace(rate_limiter(), config=json.dumps(config, indent=1))
        for work in (_keep_posting(chain, story, tempo, say), _keep_mining(chain)):
            stack.callback(asyncio.create_task(work).cancel)
        yield local


@asynccontextmanager
async def _serve_judge(tempo: Tempo) -> AsyncIterator[str]:
    """Serve a slow judge and yield its name for CLARA_JUDGES; `rules` without the extra `openai`."""
    if not is_installed("openai"):
        yield "rules"
        return
    schema, _ = compile_schema(parse_eval_config(rate_limiter().config))
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _make_endpoint(schema, tempo.answer_seconds))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"openai:{MODEL}@http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def _make_endpoint(schema: FeatureSchema, seconds: float) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return an OpenAI-compatible handler that judges by rules, after `seconds`."""
    judge = RulesJudge(schema)

    async def answer(request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        vectors = _VECTOR.findall(messages[-1]["content"])[:2]
        first, second = (make_vector(schema, json.loads(vector)) for vector in vectors)
        await asyncio.sleep(seconds)
        verdict = judge.verdict(first, second)
        text = json.dumps({"winner": verdict.winner, "confidence": verdict.confidence, "reason": verdict.reason})
        asked, answered = sum(len(message["content"]) for message in messages) // 4, len(text) // 4
        usage = {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        body = {"id": "demo", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}
        return web.json_response(body)

    return answer


def _demo_settings(settings: Settings, chain: LocalChain, folder: Path, judge: str) -> Settings:
    """Return the operator's settings with those of the demo on top."""
    own = local_settings(chain, folder / "demo.db", folder / "traces")
    return settings.model_copy(
        update={
            **{name: getattr(own, name) for name in own.model_fields_set},
            **dict.fromkeys(("evaluator_keystore", "signer_url", "evaluator_address")),
            **dict.fromkeys(("kv_account", "kv_namespace", "kv_token")),
            "usdc_address": chain.deployment.token,
            "judges_as_set": judge,
            "prices": "" if judge == "rules" else f"{judge}={PRICE}",
            "max_concurrency": 1,
            "review_above_usd": REVIEW_ABOVE_USD,
            "admin_api_key": settings.admin_api_key or SecretStr(secrets.token_hex(16)),
        }
    )


async def _post_past_rounds(chain: LocalChain, settings: Settings, say: Say) -> None:
    """Post a final round with claims, one for review, one that fails, and one that is open."""
    with closing(open_machine(settings)) as machine:
        story = choose_story(machine, lambda _stage, _sentence: None)
    story = replace(story, config=json.dumps({**json.loads(story.config), "judge": "rules"}, indent=1))
    say("A round is being judged, finalized and claimed; others are posted for a review, a failure and new entries.")
    finished = await post_round(chain, open_seconds=HOUR, story=story)
    await submit_round(chain, finished, story)
    await chain.move_time(HOUR)
    async with open_app(settings, pace=SendTimeouts(poll_seconds=0.05)) as app:
        evaluation = await evaluate(app, finished)
        await chain.move_time(FINALIZATION_SECONDS + 1)
        await finalize(evaluation.challenge, sender=app.sender)
        await claim_prizes(app, chain, evaluation)
    text = explanation()
    await submit_round(chain, await post_round(chain, pool=REVIEWED_POOL, open_seconds=HOUR, story=text), text)
    changed = replace(rate_limiter(), title="Rate limiter whose config was changed after the post")
    failing = await post_round(chain, open_seconds=HOUR, story=changed, committed=keccak_hex(b"another config"))
    await submit_entries(chain, failing, changed)
    await chain.move_to(int(time.time()))
    open_story = replace(rate_limiter(), title="Rate limiter for a public API, open for entries")
    await submit_entries(chain, await post_round(chain, open_seconds=3 * DAY, story=open_story), open_story, most=3)


async def _keep_posting(chain: LocalChain, story: Story, tempo: Tempo, say: Say) -> None:
    """Open the next round while one is judged, so that one is always running; log failures."""
    last: Address | None = None
    for number in count(1):
        try:
            numbered = _add_number(story, number)
            address = await post_round(chain, open_seconds=tempo.open_seconds, story=numbered)
            await submit_entries(chain, address, numbered)
            if number == 1:
                say(f"A running round is posted; its entries close in {tempo.open_seconds} seconds.")
            await asyncio.sleep(tempo.open_seconds)
            if last is not None:
                await _wait_for_post(chain, last, tempo)
            last = address
        except (ClaraError, TimeoutError, OSError, ClientError) as bad:
            _log.warning("demo_round_failed", problem=str(bad))
            await asyncio.sleep(tempo.open_seconds)


def _add_number(story: Story, number: int) -> Story:
    """Put the number into the criteria, so that no cached answer of an earlier round matches."""
    config = json.loads(story.config)
    config["criteria"] += f" This is round {number}."
    title = f"Rate limiter for {PURPOSES[number % len(PURPOSES)]}, round {number}"
    return replace(story, title=title, config=json.dumps(config, indent=1))


async def _wait_for_post(chain: LocalChain, address: Address, tempo: Tempo) -> None:
    contract = chain.challenge(address)
    for _ in range(round(tempo.most_seconds / POLL_SECONDS)):
        if await contract.read("scorePostedAt"):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _keep_mining(chain: LocalChain) -> None:
    """Mine a block every 5 seconds: without blocks the time of the chain does not move."""
    while True:
        await asyncio.sleep(5)
        await chain.mine()
