"""Count challenges by status and this month's spending, for the metrics."""

from __future__ import annotations

import time
from collections import Counter

from clara_eval.challenges.challenge_index import read_many
from clara_eval.documents.results import EvalStatus
from clara_eval.documents.store_keys import INDEX, status_key
from clara_eval.service.duty import OVER, Tick


async def count(tick: Tick) -> None:
    app, report = tick.app, tick.report
    over = {key.removeprefix(OVER): name for key, name in await app.store.items(app.chain_id, OVER)}
    going = [address for address in await tick.addresses(INDEX) if address not in over]
    known = await read_many(app.store, app.chain_id, EvalStatus, status_key, going)
    states = [known[address].status if address in known else "pending" for address in going]
    report.statuses = dict(Counter([*over.values(), *states]))
    report.reviews = report.statuses.get("review", 0)
    month = time.strftime("%Y-%m", time.gmtime(report.at))
    spends = await app.store.spends(since=report.at - 32 * 86400)
    counted = (s for s in spends if time.strftime("%Y-%m", time.gmtime(s.at)) == month)
    settled = (s.reserved_micro_usd if s.settled_micro_usd is None else s.settled_micro_usd for s in counted)
    report.month_spend_usd = sum(settled) / 1_000_000
