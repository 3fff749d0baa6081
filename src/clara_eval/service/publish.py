"""Publish posted results at every place that lacks them: one that was down, or that is new."""

from __future__ import annotations

from clara_eval.actions.publication import NotTried, publish_missing
from clara_eval.service.alerts import Alert
from clara_eval.service.duty import Tick
from clara_eval.store.leases import Busy


async def publish_results(tick: Tick) -> None:
    failed = [
        f"{told.address}: not published at {told.place}: {told.problem}"
        async for told in publish_missing(tick.app, tick.limits.publish_seconds)
        if told.error is not None and not isinstance(told.error, (Busy, NotTried))
    ]
    if failed:
        tick.report.problems += failed
        tick.alerts.raise_alert(Alert("PublicationFailing", "warning", " ".join(failed[:3])))
