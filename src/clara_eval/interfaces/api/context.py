"""What the routes and pages need: settings, a reader of results, health, metrics and the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from clara_eval.actions.published import ResultReader
from clara_eval.config.settings import Settings
from clara_eval.service.health import ServiceHealth
from clara_eval.service.metrics import Metrics

if TYPE_CHECKING:
    from clara_eval.service.requests import ServiceRequests


@dataclass(frozen=True, slots=True)
class ApiContext:
    settings: Settings
    reader: ResultReader
    metrics: Metrics
    pulse: ServiceHealth
    engine: ServiceRequests


def context_of(request: Request) -> ApiContext:
    found: ApiContext = request.app.state.context
    return found


def reader_of(request: Request) -> ResultReader:
    return context_of(request).reader


Context = Annotated[ApiContext, Depends(context_of)]
Reader = Annotated[ResultReader, Depends(reader_of)]
