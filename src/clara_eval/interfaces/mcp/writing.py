"""The tools that write: post, submit, object, claim. A local wallet sends nothing without a yes."""

# Tool arguments are camelCase, like every document that other programs read.
# ruff: noqa: ARG001, N803, PLR0917

from __future__ import annotations

from typing import Annotated, Literal

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from mcp_types import CallToolResult
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from clara_eval.actions.claim import claim
from clara_eval.actions.objections import ObjectionInput, ObjectionResult, object_or_show, objection_question
from clara_eval.actions.perform import perform, prepare
from clara_eval.actions.plan import Action
from clara_eval.actions.post import NO_HASH, Posting, post
from clara_eval.actions.submit import SubmissionInput, submit
from clara_eval.documents.actions import ClaimResult, PostResult, SubmitResult
from clara_eval.interfaces import words
from clara_eval.interfaces.mcp import text
from clara_eval.interfaces.mcp.answer import ToolContext, answer, caller_of, tool_errors
from clara_eval.interfaces.mcp.reading import ChallengeAddress, SenderAddress, config_text
from clara_eval.interfaces.mcp.schema import CLAIMS, SPENDS, ToolEntry

Confirm = Annotated[bool, Field(description="The wallet's owner agreed to this very plan.")]


def as_text(value: object) -> object:
    """A model may write 100 for "100"."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


class Agreement(BaseModel):
    """The wallet owner's answer."""

    confirm: bool = Field(description="Yes: sign and send it with the local wallet.")


def can_ask(ctx: ToolContext) -> bool:
    capabilities = ctx.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def _question(ctx: ToolContext, confirm: bool, action: Action) -> Elicit[Agreement] | Agreement:
    """Ask if there is a wallet and a person; the plan is made before the question."""
    caller = caller_of(ctx)
    if caller.account is None or not can_ask(ctx):
        return Agreement(confirm=confirm)
    with tool_errors():
        plan = await prepare(caller, action)
    return Elicit(plan.question, Agreement)


def _decision(ctx: ToolContext, outcome: ElicitationResult[Agreement]) -> Literal["yes", "no", "unasked"]:
    if isinstance(outcome, AcceptedElicitation) and outcome.data.confirm:
        return "yes"
    return "no" if can_ask(ctx) else "unasked"


async def _done(ctx: ToolContext, outcome: ElicitationResult[Agreement], action: Action) -> CallToolResult:
    caller = caller_of(ctx)

    async def report(done: int, total: int, step: str) -> None:
        await ctx.report_progress(done, total, step)

    with tool_errors():
        found = await perform(caller, action, confirmed=_decision(ctx, outcome), report=report)
    result = words.acted(found, text.NAMES)
    return answer(words.acted_text(result, text.NAMES), result)


def posting_of(
    title: str,
    problemStatement: str,
    prize: str,
    deadline: str,
    evaluator: Literal["clara", "self"],
    evalConfigJSON: str | dict[str, object],
    scoringWindow: str,
    payout: str | list[int],
    winnerCount: int,
    token: str,
    skills: list[str],
    maxParticipants: int,
    expectedEntries: int,
    privateSetHash: str,
    allowDuplicate: bool,
) -> Posting:
    return Posting(
        title=title,
        problem_statement=problemStatement,
        prize=prize,
        deadline=deadline,
        evaluator=evaluator,
        eval_config=config_text(evalConfigJSON),
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


async def ask_post(
    ctx: ToolContext, posting: Annotated[Posting, Resolve(posting_of)], sender: str, confirm: bool
) -> Elicit[Agreement] | Agreement:
    return await _question(ctx, confirm, post(posting, sender or None))


async def challenge_post(
    ctx: ToolContext,
    posting: Annotated[Posting, Resolve(posting_of)],
    agreed: Annotated[ElicitationResult[Agreement], Resolve(ask_post)],
    title: Annotated[str, Field(min_length=1, max_length=200, description="One line.")],
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
    evaluator: Annotated[
        Literal["clara", "self"],
        Field(description="clara: AI-judged; self: you score by hand."),
    ] = "clara",
    evalConfigJSON: Annotated[
        str | dict[str, object],
        Field(
            description="Features and criteria, an object or JSON text; needed for clara. Check it with config_check."
        ),
    ] = "",
    scoringWindow: Annotated[str, Field(description="Time for scoring after the deadline.", max_length=60)] = "3 days",
    payout: Annotated[
        str | list[int],
        Field(description="top1, top3 (60/25/15), top5, equal (with winnerCount), or basis points, best first."),
    ] = "top3",
    winnerCount: Annotated[int, Field(ge=0, le=25)] = 0,
    token: Annotated[str, Field(description="Prize token's address; USDC by default.", max_length=60)] = "",
    skills: Annotated[list[str], Field(max_length=20)] = [],  # noqa: B006 - never changed
    maxParticipants: Annotated[int, Field(ge=0, description="0: no limit.")] = 0,
    expectedEntries: Annotated[int, Field(ge=0, le=10_000, description="For the quote.")] = 0,
    privateSetHash: Annotated[str, Field(description="Commits to a hidden harness.", max_length=66)] = "",
    allowDuplicate: Annotated[bool, Field(description="Post although the same one is open.")] = False,
    sender: SenderAddress = "",
    confirm: Confirm = False,
) -> Annotated[CallToolResult, PostResult]:
    """Post a challenge: checks the config, quotes cost and fee, escrows prize and 5 % bond, or returns the plan."""
    return await _done(ctx, agreed, post(posting, sender or None))


def submission_of(
    address: str, content: str, file: str, uri: str, solutionHash: str, agentId: str, register: bool
) -> SubmissionInput:
    return SubmissionInput(
        challenge=address,
        content=content,
        file=file,
        uri=uri,
        solution_hash=solutionHash,
        agent_id=int(agentId) if agentId else None,
        register=register,
    )


async def ask_submit(
    ctx: ToolContext, submission: Annotated[SubmissionInput, Resolve(submission_of)], sender: str, confirm: bool
) -> Elicit[Agreement] | Agreement:
    return await _question(ctx, confirm, submit(submission, sender or None))


async def challenge_submit(
    ctx: ToolContext,
    submission: Annotated[SubmissionInput, Resolve(submission_of)],
    agreed: Annotated[ElicitationResult[Agreement], Resolve(ask_submit)],
    address: ChallengeAddress,
    content: Annotated[str, Field(description="The solution's text; or file, or uri.")] = "",
    file: Annotated[str, Field(description="A local file.")] = "",
    uri: Annotated[
        str, Field(description="data:, https: or ipfs:", validation_alias=AliasChoices("uri", "solutionURI"))
    ] = "",
    solutionHash: Annotated[str, Field(description="keccak256 of what is behind uri.", max_length=66)] = "",
    agentId: Annotated[str, Field(description="Your registry id; looked up by default.", pattern="^[0-9]{0,78}$")] = "",
    register: Annotated[bool, Field(description="Register as an agent first if needed.")] = False,
    sender: SenderAddress = "",
    confirm: Confirm = False,
) -> Annotated[CallToolResult, SubmitResult]:
    """Submit a solution, or replace your earlier one; it becomes public. One submission per hour and address."""
    return await _done(ctx, agreed, submit(submission, sender or None))


async def ask_claim(ctx: ToolContext, address: str, sender: str, confirm: bool) -> Elicit[Agreement] | Agreement:
    return await _question(ctx, confirm, claim(address, sender or None))


async def challenge_claim(
    ctx: ToolContext,
    agreed: Annotated[ElicitationResult[Agreement], Resolve(ask_claim)],
    address: ChallengeAddress,
    sender: SenderAddress = "",
    confirm: Confirm = False,
) -> Annotated[CallToolResult, ClaimResult]:
    """Claim your prize, or your share of an expired challenge; finalizes it first if due."""
    return await _done(ctx, agreed, claim(address, sender or None))


def objection_of(address: str, about: str, reason: str, signature: str) -> ObjectionInput:
    return ObjectionInput(address, about, reason, signature)


async def ask_object(
    ctx: ToolContext, wanted: Annotated[ObjectionInput, Resolve(objection_of)], confirm: bool
) -> Elicit[Agreement] | Agreement:
    with tool_errors():
        asked = await objection_question(caller_of(ctx), wanted) if can_ask(ctx) else None
    return Elicit(asked, Agreement) if asked else Agreement(confirm=confirm)


async def challenge_object(
    ctx: ToolContext,
    wanted: Annotated[ObjectionInput, Resolve(objection_of)],
    agreed: Annotated[ElicitationResult[Agreement], Resolve(ask_object)],
    address: ChallengeAddress,
    about: Annotated[str, Field(description="rejected, copy, feature:NAME or game:ADDRESS.", max_length=60)] = "",
    reason: Annotated[str, Field(description="Why, in one line; public.", max_length=1000)] = "",
    signature: Annotated[str, Field(description="Of `message`, by the submitting address.", max_length=200)] = "",
    confirm: Confirm = False,
) -> Annotated[CallToolResult, ObjectionResult]:
    """Show a result that is announced but not posted yet; with `about`, object to it, once per submitter."""
    with tool_errors():
        found = await object_or_show(caller_of(ctx), wanted, confirmed=_decision(ctx, agreed))
    result = words.objected(found, text.NAMES)
    return answer(text.objected(result), result)


TOOLS: tuple[ToolEntry, ...] = (
    (challenge_post, "Post a challenge and escrow its prize", SPENDS),
    (challenge_submit, "Submit a solution", SPENDS),
    (challenge_object, "Object to an announced result", CLAIMS),
    (challenge_claim, "Claim a prize or refund", CLAIMS),
)
