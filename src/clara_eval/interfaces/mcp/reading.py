"""The tools that read: browse, detail, status, leaderboard, score, config check, and try."""

# ruff: noqa: N803 - tool arguments are camelCase, like every document that other programs read

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Literal

from mcp_types import CallToolResult
from pydantic import AliasChoices, Field

from clara_eval.actions import challenges, results
from clara_eval.actions.quote import ConfigResult, check_config
from clara_eval.actions.submit import TryResult, draft_text, try_draft
from clara_eval.documents.actions import (
    BrowseResult,
    DetailResult,
    EvalStatusResult,
    LeaderboardResult,
    ScoreResult,
    StatusFound,
)
from clara_eval.interfaces import words
from clara_eval.interfaces.mcp import text
from clara_eval.interfaces.mcp.answer import ToolContext, answer, caller_of, tool_errors
from clara_eval.interfaces.mcp.schema import READS, ToolEntry

# The other names are those of existing clients: accepted, and not in the schema, so that a model learns one.
ChallengeAddress = Annotated[
    str,
    Field(description="The challenge's address, 0x….", validation_alias=AliasChoices("address", "challengeAddress")),
]
SenderAddress = Annotated[str, Field(description="Your address, if this server has no wallet of yours.")]
POLL_SECONDS = 1.0
REMOTE_POLL_SECONDS = 5.0
REMOTE_WAIT_SECONDS = 30
"""Bounds for remote callers, to spare the service's node."""


async def challenge_browse(
    ctx: ToolContext,
    status: Annotated[
        Literal["open", "scoring", "finalized", "cancelled", "expired", "any"],
        Field(description="`open`: submissions are accepted now."),
    ] = "open",
    skill: Annotated[str, Field(description="Only with this skill.", max_length=60)] = "",
    evaluator: Annotated[
        Literal["clara", "self", "any"], Field(description="Who scores: Clara or the poster.")
    ] = "any",
    limit: Annotated[int, Field(ge=1, le=50)] = 20,
    offset: Annotated[int, Field(ge=0, description="`nextOffset` of the last page.")] = 0,
) -> Annotated[CallToolResult, BrowseResult]:
    """List challenges, newest first."""
    wanted = challenges.ChallengeFilter(status=status, skill=skill, evaluator=evaluator, limit=limit, offset=offset)
    with tool_errors():
        found = await challenges.browse(caller_of(ctx), wanted)
    return answer(text.browse(found), found)


async def challenge_detail(
    ctx: ToolContext, address: ChallengeAddress, sender: SenderAddress = ""
) -> Annotated[CallToolResult, DetailResult]:
    """One challenge in full: problem, eval config, terms, winners, your submission."""
    with tool_errors():
        found = words.detail(await challenges.detail(caller_of(ctx), address, sender or None), text.NAMES)
    return answer(text.detail(found), found)


async def challenge_eval_status(
    ctx: ToolContext,
    address: ChallengeAddress,
    waitSeconds: Annotated[int, Field(ge=0, le=300, description="Wait for a change; 0 asks once.")] = 0,
) -> Annotated[CallToolResult, EvalStatusResult]:
    """How far the evaluation is, and why it waits or stopped."""
    with tool_errors():
        found = words.status(await _followed(ctx, address, waitSeconds), text.NAMES)
    return answer(text.status(found), found)


async def _followed(ctx: ToolContext, address: str, seconds: int) -> StatusFound:
    """Wait until the status is final, changed in kind, or the time is over."""
    caller, clock = caller_of(ctx), asyncio.get_running_loop()
    pause = POLL_SECONDS if caller.is_local else REMOTE_POLL_SECONDS
    end = clock.time() + (seconds if caller.is_local else min(seconds, REMOTE_WAIT_SECONDS))
    found = await results.eval_status(caller, address)
    first = found.status
    while results.is_waiting(found) and found.status == first and clock.time() < end:
        await ctx.report_progress(found.progress, 100, found.status)
        await asyncio.sleep(min(pause, max(0.0, end - clock.time())))
        found = await results.eval_status(caller, address)
    if seconds:
        await ctx.report_progress(found.progress, 100, found.status)
    return found


async def challenge_leaderboard(
    ctx: ToolContext,
    address: ChallengeAddress,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> Annotated[CallToolResult, LeaderboardResult]:
    """Everybody's place with Elo, interval and prize, once scores are posted."""
    with tool_errors():
        found = words.leaderboard(await results.leaderboard(caller_of(ctx), address, limit=limit), text.NAMES)
    return answer(text.leaderboard(found), found)


async def challenge_score(
    ctx: ToolContext,
    address: ChallengeAddress,
    submitter: Annotated[str, Field(description="Whose; your own wallet's by default.", max_length=60)] = "",
) -> Annotated[CallToolResult, ScoreResult]:
    """Why a submission won or lost: place, prize, games, facts, closest rival, trace."""
    with tool_errors():
        found = words.score(await results.score(caller_of(ctx), address, submitter or None), text.NAMES)
    return answer(text.score(found), found)


async def challenge_try(
    ctx: ToolContext,
    address: ChallengeAddress,
    content: Annotated[str, Field(description="The draft itself.", max_length=300_000)] = "",
    file: Annotated[str, Field(description="Or a local file.", max_length=400)] = "",
) -> Annotated[CallToolResult, TryResult]:
    """Measure a draft before submitting: the public harness and every measured feature, on your machine."""
    with tool_errors():
        caller = caller_of(ctx)
        found = await try_draft(caller, address, draft_text(caller, content, file))
    return answer(words.tried_text(found), found)


async def config_check(
    ctx: ToolContext,
    evalConfigJSON: Annotated[str | dict[str, object], Field(description="The eval config, an object or JSON text.")],
) -> Annotated[CallToolResult, ConfigResult]:
    """Check an eval config before posting: every problem with its remedy, the features, the cost. Sends nothing."""
    found = check_config(config_text(evalConfigJSON).encode(), caller_of(ctx).settings)
    return answer(text.checked_config(found), found)


def config_text(config: str | dict[str, object]) -> str:
    return config if isinstance(config, str) else json.dumps(config, ensure_ascii=False)


TOOLS: tuple[ToolEntry, ...] = (
    (challenge_browse, "Browse challenges", READS),
    (challenge_detail, "Show one challenge", READS),
    (challenge_eval_status, "Follow an evaluation", READS),
    (challenge_score, "Explain one submitter's score", READS),
    (challenge_leaderboard, "Show the leaderboard", READS),
    (config_check, "Check an eval config", READS),
)
LOCAL_TOOLS: tuple[ToolEntry, ...] = ((challenge_try, "Measure a draft", READS),)
"""Only for callers at this machine: it runs what it is given."""
