"""What a visitor's wallet signs: the plans of the actions, without a key on this side."""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from clara_eval.actions.claim import claim
from clara_eval.actions.objections import ObjectionInput, ObjectionResult, object_or_show
from clara_eval.actions.perform import perform
from clara_eval.actions.post import Posting, post
from clara_eval.app import Caller
from clara_eval.documents.actions import ActResult
from clara_eval.documents.rest import AddressText, RestRequest

router = APIRouter(prefix="/api/v1/actions", include_in_schema=False)
"""For the pages' own scripts; programs have the tools under `/mcp`."""


def caller_of(request: Request) -> Caller:
    found: Caller = request.app.state.caller
    return found


RemoteCaller = Annotated[Caller, Depends(caller_of)]


class ClaimPlanRequest(RestRequest):
    address: AddressText
    sender: AddressText


class PostPlanRequest(RestRequest):
    sender: AddressText
    title: str = Field(max_length=200)
    problemStatement: str = Field(max_length=20_000)
    prize: str = Field(max_length=60)
    deadline: str = Field(max_length=60)
    payout: str = Field("", max_length=200)
    evalConfigJSON: str = Field(max_length=40_000)
    skills: list[str] = Field([], max_length=20)


class ObjectionPlanRequest(RestRequest):
    address: AddressText
    about: str = Field(max_length=60)
    reason: str = Field(max_length=1000)


@router.post("/claim")
async def plan_claim(body: ClaimPlanRequest, caller: RemoteCaller) -> ActResult:
    return await perform(caller, claim(body.address, body.sender), confirmed="unasked")


@router.post("/post")
async def plan_post(body: PostPlanRequest, caller: RemoteCaller) -> ActResult:
    posting = Posting(
        title=body.title,
        problem_statement=body.problemStatement,
        prize=body.prize,
        deadline=body.deadline,
        payout=body.payout,
        eval_config=body.evalConfigJSON,
        skills=tuple(body.skills),
    )
    return await perform(caller, post(posting, body.sender), confirmed="unasked")


@router.post("/object")
async def plan_objection(body: ObjectionPlanRequest, caller: RemoteCaller) -> ObjectionResult:
    return await object_or_show(caller, ObjectionInput(body.address, body.about, body.reason), confirmed="unasked")
