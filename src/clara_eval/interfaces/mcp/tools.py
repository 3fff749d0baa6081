"""The MCP tools. Invariant: a local wallet sends nothing before its owner agrees."""

# Tool arguments are camelCase, like every document that other programs read.
# ruff: noqa: N803, PLR0917

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast

from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, Resolve
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, WithJsonSchema

from clara_eval.actions import challenges, results
from clara_eval.actions.claim import claim, named_place, own_scores
from clara_eval.actions.objections import ObjectionInput, ObjectionResult, object_or_show, objection_question
from clara_eval.actions.perform import Action, perform, prepare
from clara_eval.actions.post import NO_HASH, Posting, post
from clara_eval.actions.quote import ConfigResult, check_config_for
from clara_eval.actions.submit import SubmissionInput, TryResult, draft_text, submit, try_draft
from clara_eval.app import Caller
from clara_eval.documents import actions as documents
from clara_eval.interfaces import words
from clara_eval.interfaces.mcp import text

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
SPENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
CLAIMS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
ToolEntry = tuple[Callable[..., Any], str, ToolAnnotations]  # A tool's function, title and hints for clients
ToolContext = Context[Caller, object]
Decision = Literal["yes", "no", "unasked"]
T = TypeVar("T")
# Existing clients use the aliases. The schema shows only the first name, so that a model learns one.
ChallengeAddress = Annotated[
    str,
    Field(description="The challenge's address, 0x….", validation_alias=AliasChoices("address", "challengeAddress")),
]
SenderAddress = Annotated[str, Field(description="Your address, if this server has no wallet of yours.")]
TITLE_CHARS = 100  # of the problem statement, used as the title if a client sends none


class Agreement(BaseModel):
    """The wallet owner's answer."""

    confirm: bool = Field(description="Yes: sign and send it with the local wallet.")


def can_ask(ctx: ToolContext) -> bool:
    capabilities = ctx.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def confirmed_tool(
    result: type[BaseModel],
    question: Callable[[Caller, T], Awaitable[str | None]],
    act: Callable[[ToolContext, T, Decision], Awaitable[CallToolResult]],
) -> Callable[[Callable[..., T]], Callable[..., Awaitable[CallToolResult]]]:
    """Make a tool from a function that reads its arguments: ask the wallet's owner if possible, then act."""

    def make_tool(read: Callable[..., T]) -> Callable[..., Awaitable[CallToolResult]]:
        async def ask(ctx: ToolContext, wanted: T, confirm: bool) -> Elicit[Agreement] | Agreement:
            asked = await question(caller_of(ctx), wanted) if can_ask(ctx) else None
            return Elicit(asked, Agreement) if asked else Agreement(confirm=confirm)

        async def tool(ctx: ToolContext, wanted: T, agreed: ElicitationResult[Agreement], **_: Any) -> CallToolResult:
            is_agreed = isinstance(agreed, AcceptedElicitation) and agreed.data.confirm
            return await act(ctx, wanted, "yes" if is_agreed else "no" if can_ask(ctx) else "unasked")

        ask.__annotations__["wanted"] = Annotated[Any, Resolve(read)]
        named = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        shown = [
            named("ctx", annotation=ToolContext),
            named("wanted", annotation=Annotated[Any, Resolve(read)]),
            named("agreed", annotation=Annotated[ElicitationResult[Agreement], Resolve(ask)]),
            *(one.replace(kind=one.KEYWORD_ONLY) for one in inspect.signature(read, eval_str=True).parameters.values()),
            named(
                "confirm",
                annotation=Annotated[bool, Field(description="The wallet's owner agreed to this very plan.")],
                default=False,
            ),
        ]
        returned = Annotated[CallToolResult, result]
        tool.__name__, tool.__doc__ = read.__name__, read.__doc__
        tool.__annotations__ = {**{one.name: one.annotation for one in shown}, "return": returned}
        vars(tool)["__signature__"] = inspect.Signature(shown, return_annotation=returned)
        return tool

    return make_tool


def caller_of(ctx: ToolContext) -> Caller:
    return ctx.request_context.lifespan_context


def tool_result(text: str, document: BaseModel | Mapping[str, object]) -> CallToolResult:
    shown = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=cast("Any", shown))


async def challenge_browse(
    ctx: ToolContext,
    status: Annotated[
        Literal["open", "scoring", "finalized", "cancelled", "expired", "any"],
        BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
        Field(description="`open`: submissions are accepted now."),
    ] = "open",
    skill: Annotated[str, Field(description="Only with this skill.", max_length=60)] = "",
    evaluator: Annotated[
        Literal["clara", "self", "any"], Field(description="Who scores: Clara or the poster.")
    ] = "any",
    minPrize: Annotated[float, Field(ge=0, description="In whole tokens.")] = 0,
    maxPrize: Annotated[float | None, Field(ge=0)] = None,
    limit: Annotated[int, Field(ge=1, le=50)] = 20,
    offset: Annotated[int, Field(ge=0, description="`nextOffset` of the last page.")] = 0,
) -> Annotated[CallToolResult, documents.BrowseResult]:
    """List challenges, newest first."""
    wanted = challenges.ChallengeFilter(
        status=status,
        skill=skill,
        evaluator=evaluator,
        min_prize=minPrize,
        max_prize=maxPrize,
        limit=limit,
        offset=offset,
    )
    found = await challenges.browse(caller_of(ctx), wanted)
    return tool_result(text.browse(found), found)


async def challenge_detail(
    ctx: ToolContext, address: ChallengeAddress, sender: SenderAddress = ""
) -> Annotated[CallToolResult, documents.DetailResult]:
    """Show one challenge in full: problem, eval config, terms, winners, your submission."""
    found = words.explain_config(await challenges.detail(caller_of(ctx), address, sender or None), text.NAMES)
    return tool_result(text.detail(found), found)


async def challenge_eval_status(
    ctx: ToolContext,
    address: ChallengeAddress,
    waitSeconds: Annotated[int, Field(ge=0, le=300, description="Wait for a change; 0 asks once.")] = 0,
) -> Annotated[CallToolResult, documents.EvalStatusResult]:
    """Show the progress of an evaluation, and why it waits or stopped."""
    caller, clock = caller_of(ctx), asyncio.get_running_loop()
    pause, longest = (1.0, 300) if caller.is_local else (5.0, 30)  # in seconds; remote callers poll less often
    end = clock.time() + min(waitSeconds, longest)
    found = await results.eval_status(caller, address)
    first = found.status
    while results.is_waiting(found) and found.status == first and clock.time() < end:
        await ctx.report_progress(found.progress, 100, found.status)
        await asyncio.sleep(min(pause, max(0.0, end - clock.time())))
        found = await results.eval_status(caller, address)
    if waitSeconds:
        await ctx.report_progress(found.progress, 100, found.status)
    shown = words.explain_status(found, text.NAMES)
    return tool_result(text.status(shown), shown)


async def challenge_leaderboard(
    ctx: ToolContext, address: ChallengeAddress, limit: Annotated[int, Field(ge=1, le=200)] = 50
) -> Annotated[CallToolResult, documents.LeaderboardResult]:
    """Show every place with Elo, interval and prize, once scores are posted."""
    found = words.add_trace(await results.leaderboard(caller_of(ctx), address, limit=limit), text.NAMES)
    return tool_result(text.leaderboard(found), found)


async def challenge_score(
    ctx: ToolContext,
    address: ChallengeAddress,
    submitter: Annotated[str, Field(description="Whose; your own wallet's by default.", max_length=60)] = "",
) -> Annotated[CallToolResult, documents.ScoreResult]:
    """Explain why a submission won or lost: place, prize, comparisons, facts, closest rival, trace."""
    found = words.explain_score(await results.score(caller_of(ctx), address, submitter or None), text.NAMES)
    return tool_result(text.score(found), found)


async def challenge_try(
    ctx: ToolContext,
    address: ChallengeAddress,
    content: Annotated[str, Field(description="The draft itself.", max_length=300_000)] = "",
    file: Annotated[str, Field(description="Or a local file.", max_length=400)] = "",
) -> Annotated[CallToolResult, TryResult]:
    """Measure a draft before submitting: the public harness and every measured feature, on your machine."""
    caller = caller_of(ctx)
    found = await try_draft(caller, address, draft_text(caller, content, file))
    return tool_result(words.trial_text(found), found)


def config_text(config: object) -> object:
    """Return a config object as JSON, and text unchanged: the chain commits to the hash of its bytes."""
    return json.dumps(config, ensure_ascii=False) if isinstance(config, dict) else config


ConfigJson = Annotated[
    str,
    BeforeValidator(config_text),
    WithJsonSchema({"type": ["string", "object"], "description": "Features and criteria, an object or JSON text."}),
]  # Typed as a string only: the SDK would parse JSON for an object type and lose the exact bytes.


async def config_check(ctx: ToolContext, evalConfigJSON: ConfigJson) -> Annotated[CallToolResult, ConfigResult]:
    """Check an eval config: problems with remedies, features, cost. Sends nothing."""
    caller = caller_of(ctx)
    found = await check_config_for(caller.records, evalConfigJSON.encode(), caller.settings)
    return tool_result(text.config_report(found), found)


def as_text(value: object) -> object:
    """Turn a number into text: a model may write 100 for "100"."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def as_list(value: object) -> object:
    """Split a comma list: some clients write "a, b" for ["a", "b"]."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


async def _question(caller: Caller, action: Action) -> str | None:
    return (await prepare(caller, action)).question if caller.account is not None else None


async def _perform(ctx: ToolContext, action: Action, confirmed: Decision) -> CallToolResult:
    done = await perform(caller_of(ctx), action, confirmed=confirmed, report=ctx.report_progress)
    found = words.add_next_step(done, text.NAMES)
    return tool_result(words.action_text(found, text.NAMES), found)


@confirmed_tool(documents.ActResult, _question, _perform)
def challenge_post(
    problemStatement: Annotated[str, Field(min_length=1, max_length=50_000, description="The whole task; public.")],
    prize: Annotated[
        str,
        BeforeValidator(as_text),
        Field(
            description='The prize pool: "100" or "12.5 USDC".',
            max_length=60,
            validation_alias=AliasChoices("prize", "prizePool"),
        ),
    ],
    deadline: Annotated[
        str, BeforeValidator(as_text), Field(description='"7 days", "36h" or "2026-12-01T12:00:00Z".', max_length=60)
    ],
    title: Annotated[str, Field(max_length=200, description="One line; else the beginning of the problem.")] = "",
    evaluator: Annotated[
        Literal["clara", "self"] | None,
        Field(description="clara: AI-judged; self: you score it. Without a config: self."),
    ] = None,
    evalConfigJSON: ConfigJson = "",
    scoringWindow: Annotated[str, Field(description="Time for scoring after the deadline.", max_length=60)] = "3 days",
    payout: Annotated[
        str | list[int],
        Field(
            description="top1, top3 (60/25/15), top5, equal (with winnerCount), or basis points, best first.",
            validation_alias=AliasChoices("payout", "payoutSplit"),
        ),
    ] = "",
    winnerCount: Annotated[int, Field(ge=0, le=25)] = 0,
    token: Annotated[str, Field(description="A symbol or address; USDC by default.", max_length=60)] = "",
    skills: Annotated[list[str], BeforeValidator(as_list), Field(max_length=20)] = [],  # noqa: B006 - never changed
    maxParticipants: Annotated[int, Field(ge=0, description="0: no limit.")] = 0,
    expectedEntries: Annotated[int, Field(ge=0, le=10_000, description="For the quote.")] = 0,
    privateSetHash: Annotated[str, Field(description="Commits to a hidden harness.", max_length=66)] = "",
    allowDuplicate: Annotated[bool, Field(description="Post although the same one is open.")] = False,
    sender: SenderAddress = "",
) -> Action:
    """Post a challenge: check the config, quote cost and fee; escrow prize and 5 % bond, or return a plan."""
    posting = Posting(
        title=title or problemStatement.strip()[:TITLE_CHARS],
        problem_statement=problemStatement,
        prize=prize,
        deadline=deadline,
        evaluator=evaluator or ("clara" if evalConfigJSON.strip() else "self"),
        eval_config=evalConfigJSON,
        scoring_window=scoringWindow,
        payout=payout if isinstance(payout, str) else tuple(payout),
        winner_count=winnerCount or None,
        token=token or None,
        skills=tuple(skills),
        max_participants=maxParticipants,
        expected_entries=expectedEntries or None,
        private_set_hash=privateSetHash or NO_HASH,
        allow_duplicate=allowDuplicate,
    )
    return post(posting, sender or None)


@confirmed_tool(documents.ActResult, _question, _perform)
def challenge_submit(
    address: ChallengeAddress,
    content: Annotated[str, Field(description="The solution's text; or file, or uri.")] = "",
    file: Annotated[str, Field(description="A local file.")] = "",
    uri: Annotated[
        str, Field(description="data:, https: or ipfs:", validation_alias=AliasChoices("uri", "solutionURI"))
    ] = "",
    solutionHash: Annotated[str, Field(description="keccak256 of what is behind uri.", max_length=66)] = "",
    agentId: Annotated[
        str,
        BeforeValidator(as_text),
        Field(description="Your registry id; looked up by default.", pattern="^[0-9]{0,78}$"),
    ] = "",
    register: Annotated[bool, Field(description="Register as an agent first if needed.")] = False,
    sender: SenderAddress = "",
) -> Action:
    """Submit a solution, or replace your earlier one, once per hour and address. It becomes public."""
    agent = int(agentId) if agentId else None
    given = SubmissionInput(
        challenge=address, content=content, file=file, uri=uri, solution_hash=solutionHash, agent_id=agent,
        register=register,
    )  # fmt: skip
    return submit(given, sender or None)


@confirmed_tool(documents.ActResult, _question, _perform)
def challenge_claim(address: ChallengeAddress, sender: SenderAddress = "") -> Action:
    """Claim your prize, or your share of an expired challenge; finalizes it first if due."""
    return claim(address, sender or None)


@confirmed_tool(documents.ActResult, _question, _perform)
def challenge_post_scores(
    address: ChallengeAddress,
    winners: Annotated[list[str], Field(min_length=1, max_length=200, description="0x… or 0x…=SCORE, best first.")],
    sender: SenderAddress = "",
) -> Action:
    """Score your own challenge after the deadline: pays the winners; cannot be undone."""
    return own_scores(address, tuple(map(named_place, winners)), sender or None)


async def _object(ctx: ToolContext, wanted: ObjectionInput, confirmed: Decision) -> CallToolResult:
    found = words.add_objection_step(await object_or_show(caller_of(ctx), wanted, confirmed=confirmed), text.NAMES)
    return tool_result(words.objection_text(found), found)


@confirmed_tool(ObjectionResult, objection_question, _object)
def challenge_object(
    address: ChallengeAddress,
    about: Annotated[str, Field(description="rejected, copy, feature:NAME or game:ADDRESS.", max_length=60)] = "",
    reason: Annotated[str, Field(description="Why, in one line; public.", max_length=1000)] = "",
    signature: Annotated[str, Field(description="Of `message`, by the submitting address.", max_length=200)] = "",
) -> ObjectionInput:
    """Show a result that is announced but not posted yet; with `about`, object to it, once per submitter."""
    return ObjectionInput(address, about, reason, signature)


TOOLS: tuple[ToolEntry, ...] = (
    (challenge_browse, "Browse challenges", READS),
    (challenge_detail, "Show one challenge", READS),
    (challenge_eval_status, "Follow an evaluation", READS),
    (challenge_score, "Explain one submitter's score", READS),
    (challenge_leaderboard, "Show the leaderboard", READS),
    (config_check, "Check an eval config", READS),
    (challenge_post, "Post a challenge and escrow its prize", SPENDS),
    (challenge_submit, "Submit a solution", SPENDS),
    (challenge_post_scores, "Post your own scores", SPENDS),
    (challenge_object, "Object to an announced result", CLAIMS),
    (challenge_claim, "Claim a prize or refund", CLAIMS),
)
LOCAL_TOOLS: tuple[ToolEntry, ...] = ((challenge_try, "Measure a draft", READS),)
"""Only for callers on this machine, because it runs the given program."""
