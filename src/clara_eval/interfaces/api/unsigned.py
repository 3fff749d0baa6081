"""What a visitor's wallet signs: the plans of the actions, without a key on this side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from clara_eval.actions.claim import claim
from clara_eval.actions.objections import ObjectionInput, ObjectionResult, object_or_show
from clara_eval.actions.perform import perform
from clara_eval.actions.post import Posting, post
from clara_eval.app import Caller
from clara_eval.documents.actions import ActResult

router = APIRouter(prefix="/api/v1/actions", include_in_schema=False)
"""For the pages' own scripts; programs have the tools under `/mcp`."""


def caller_of(request: Request) -> Caller:
    found: Caller = request.app.state.caller
    return found


RemoteCaller = Annotated[Caller, Depends(caller_of)]


@router.get("/claim/{address}")
async def plan_claim(address: str, sender: str, caller: RemoteCaller) -> ActResult:
    return await perform(caller, claim(address, sender), confirmed="unasked")


@router.get("/object/{address}")
async def plan_objection(address: str, about: str, reason: str, caller: RemoteCaller) -> ObjectionResult:
    return await object_or_show(caller, ObjectionInput(address, about, reason), confirmed="unasked")


@router.post("/post")
async def plan_post(posting: Posting, sender: str, caller: RemoteCaller) -> ActResult:
    return await perform(caller, post(posting, sender), confirmed="unasked")
