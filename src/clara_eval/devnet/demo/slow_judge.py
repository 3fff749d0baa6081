"""A judge for the demo: an OpenAI-compatible endpoint on this machine that answers by rules, slowly.

Requests, payments, records and replay are real; no key and no network are needed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.judge.comparison import JudgeVector, make_vector
from clara_eval.judge.rules import RulesJudge

MODEL = "demo-judge"
_VECTOR = re.compile(r"^\{.*\}$", re.MULTILINE)


@asynccontextmanager
async def slow_judge(schema: FeatureSchema, seconds: float) -> AsyncIterator[str]:
    """An OpenAI-compatible endpoint on a free port of this machine."""
    judge = RulesJudge(schema)

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        first, second = _vectors(schema, asked["messages"][-1]["content"])
        await asyncio.sleep(seconds)
        verdict = judge.verdict(first, second)
        text = json.dumps({"winner": verdict.winner, "confidence": verdict.confidence, "reason": verdict.reason})
        words = sum(len(message["content"]) for message in asked["messages"]) // 4
        return web.json_response(
            {
                "id": "demo",
                "object": "chat.completion",
                "model": MODEL,
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
                "usage": {
                    "prompt_tokens": words,
                    "completion_tokens": len(text) // 4,
                    "total_tokens": words + len(text) // 4,
                },
            }
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"openai:{MODEL}@http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


def _vectors(schema: FeatureSchema, prompt: str) -> tuple[JudgeVector, JudgeVector]:
    """The two vectors of a comparison prompt, each on a line of its own."""
    first, second = (make_vector(schema, json.loads(found)) for found in _VECTOR.findall(prompt)[:2])
    return first, second
