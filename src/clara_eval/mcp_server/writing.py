"""The tools that write: post, submit, claim.

Without a local wallet they return unsigned transactions. With one, a person is asked through the client where the
client can ask (`Elicit`), whatever the arguments say; where it cannot, `confirm: true` is needed. Nothing is sent else.
"""

# Tool arguments are camelCase, like every document that other programs read; they are declared where the schema is made
# from, and read where the question is asked, once for both.
# ruff: noqa: ARG001, N803, PLR0917

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from mcp_types import CallToolResult
from pydantic import BaseModel, Field

from clara_eval.mcp_server.answer import ToolContext, answer, caller_of, in_words
from clara_eval.mcp_server.reading import ChallengeAddress, SenderAddress
from clara_eval.mcp_server.schema import CLAIMS, SPENDS, ToolEntry
from clara_eval.use_cases import wording
from clara_eval.use_cases.act import act, prepare
from clara_eval.use_cases.claim import claim
from clara_eval.use_cases.documents import ClaimResult, PostResult, SubmitResult
from clara_eval.use_cases.plan import Action
from clara_eval.use_cases.post import post
from clara_eval.use_cases.submit import Handing, submit
from clara_eval.use_cases.terms import NO_HASH, Posting

Confirm = Annotated[
    bool, Field(description="Only after the wallet's owner agreed to this very plan; used where the client cannot ask.")
]


class Agreement(BaseModel):
    """The wallet owner's answer."""

    confirm: bool = Field(description="Yes: sign and send it with the local wallet.")


def can_ask(ctx: ToolContext) -> bool:
    """Whether the client can put a question to a person."""
    capabilities = ctx.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def _question(ctx: ToolContext, confirm: bool, action: Action) -> Elicit[Agreement] | Agreement:
    """Ask if there is a wallet and somebody to ask; the plan is made first, so that nobody is asked in vain."""
    caller = caller_of(ctx)
    if caller.account is None or not can_ask(ctx):
        return Agreement(confirm=confirm)
    with in_words():
        plan = await prepare(caller, action)
    return Elicit(plan.question, Agreement)


def _decision(ctx: ToolContext, outcome: ElicitationResult[Agreement]) -> Literal["yes", "no", "unasked"]:
    if isinstance(outcome, AcceptedElicitation) and outcome.data.confirm:
        return "yes"
    return "no" if can_ask(ctx) else "unasked"


async def _done(ctx: ToolContext, outcome: ElicitationResult[Agreement], action: Action) -> CallToolResult:
    caller = caller_of(ctx)

    async def report(done: int, total: int, words: str) -> None:
        await ctx.report_progress(done, total, words)

    with in_words():
        found = await act(caller, action, confirmed=_decision(ctx, outcome), report=report)
    return answer(wording.written(found), found)


def posting_of(
    title: str,
    problemStatement: str,
    prize: str,
    deadline: str,
    evaluator: Literal["clara", "self"],
    evalConfigJSON: str | dict[str, Any],
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
    """The tool's arguments as one value."""
    config = evalConfigJSON if isinstance(evalConfigJSON, str) else json.dumps(evalConfigJSON, ensure_ascii=False)
    return Posting(
        title=title,
        problem_statement=problemStatement,
        prize=prize,
        deadline=deadline,
        evaluator=evaluator,
        eval_config=config,
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
    title: Annotated[str, Field(min_length=1, max_length=200, description="One line that says what is wanted.")],
    problemStatement: Annotated[str, Field(min_length=1, max_length=50_000, description="The whole task, public.")],
    prize: Annotated[str, Field(description='The prize pool, such as "100" or "12.5 USDC".', max_length=60)],
    deadline: Annotated[
        str, Field(description='Until when agents submit: "7 days", "36h", or "2026-12-01T12:00:00Z".', max_length=60)
    ],
    evaluator: Annotated[
        Literal["clara", "self"],
        Field(description='Who evaluates: "clara" (AI-judged, recommended) or "self" (you score manually).'),
    ] = "clara",
    evalConfigJSON: Annotated[
        str | dict[str, Any],
        Field(
            description="The eval config (features and criteria) as an object or JSON text; required for clara. "
            "Its schema is the resource clara://eval-config/schema."
        ),
    ] = "",
    scoringWindow: Annotated[
        str, Field(description="How long after the deadline scores may be posted.", max_length=60)
    ] = "3 days",
    payout: Annotated[
        str | list[int],
        Field(description='"top1", "top3" (60/25/15), "top5", "equal" with winnerCount, or basis points best first.'),
    ] = "top3",
    winnerCount: Annotated[int, Field(ge=0, le=25, description='Only needed with payout "equal".')] = 0,
    token: Annotated[str, Field(description="The prize token's address; empty for USDC.", max_length=60)] = "",
    skills: Annotated[list[str], Field(description="Skill tags.", max_length=20)] = [],  # noqa: B006 - never changed
    maxParticipants: Annotated[int, Field(ge=0, description="Most submitters accepted; 0 means no limit.")] = 0,
    expectedEntries: Annotated[int, Field(ge=0, le=10_000, description="For the quote and the warnings.")] = 0,
    privateSetHash: Annotated[str, Field(description="Hash of a private test set, if any.", max_length=66)] = "",
    allowDuplicate: Annotated[bool, Field(description="Post even if the same challenge is already open.")] = False,
    sender: SenderAddress = "",
    confirm: Confirm = False,
) -> Annotated[CallToolResult, PostResult]:
    """Post a challenge: validates and lints the config, quotes cost and fee, approves and creates, or returns the plan.

    Moves money: prize and a 5 % bond leave the poster's wallet. Without a local wallet nothing is sent.
    """
    return await _done(ctx, agreed, post(posting, sender or None))


def handing_of(
    address: str, content: str, file: str, uri: str, solutionHash: str, agentId: str, register: bool
) -> Handing:
    """The tool's arguments as one value; a wrong agent id is told as one."""
    return Handing(
        challenge=address,
        content=content,
        file=file,
        uri=uri,
        solution_hash=solutionHash,
        agent_id=int(agentId) if agentId else None,
        register=register,
    )


async def ask_submit(
    ctx: ToolContext, handing: Annotated[Handing, Resolve(handing_of)], sender: str, confirm: bool
) -> Elicit[Agreement] | Agreement:
    return await _question(ctx, confirm, submit(handing, sender or None))


async def challenge_submit(
    ctx: ToolContext,
    handing: Annotated[Handing, Resolve(handing_of)],
    agreed: Annotated[ElicitationResult[Agreement], Resolve(ask_submit)],
    address: ChallengeAddress,
    content: Annotated[str, Field(description="The solution's text. Exactly one of content, file and uri.")] = "",
    file: Annotated[str, Field(description="A file on the server's machine; local servers only.")] = "",
    uri: Annotated[str, Field(description="Where the solution already is: data:, https: or ipfs:.")] = "",
    solutionHash: Annotated[
        str, Field(description="Only with uri: keccak256 of the content, if it should not be fetched.", max_length=66)
    ] = "",
    agentId: Annotated[
        str, Field(description="Your id in the identity registry; empty to look it up.", pattern="^[0-9]{0,78}$")
    ] = "",
    register: Annotated[
        bool, Field(description="Register your wallet as an agent first if it is not one yet.")
    ] = False,
    sender: SenderAddress = "",
    confirm: Confirm = False,
) -> Annotated[CallToolResult, SubmitResult]:
    """Submit a solution, or replace your earlier one: hashes the content, stores or pins it, and sends the transaction.

    Costs gas and makes the solution public. One submission per hour and address.
    """
    return await _done(ctx, agreed, submit(handing, sender or None))


async def ask_claim(ctx: ToolContext, address: str, sender: str, confirm: bool) -> Elicit[Agreement] | Agreement:
    return await _question(ctx, confirm, claim(address, sender or None))


async def challenge_claim(
    ctx: ToolContext,
    agreed: Annotated[ElicitationResult[Agreement], Resolve(ask_claim)],
    address: ChallengeAddress,
    sender: SenderAddress = "",
    confirm: Confirm = False,
) -> Annotated[CallToolResult, ClaimResult]:
    """Claim your prize, or your share of an expired challenge; finalizes or expires it first when that is due."""
    return await _done(ctx, agreed, claim(address, sender or None))


TOOLS: tuple[ToolEntry, ...] = (
    (challenge_post, "Post a challenge and escrow its prize", SPENDS),
    (challenge_submit, "Submit a solution", SPENDS),
    (challenge_claim, "Claim a prize or refund", CLAIMS),
)
