"""Watch the evaluator's wallet: its balance, and nonces that are missing before signed transactions."""

from __future__ import annotations

from clara_eval.chain.account import posts_covered
from clara_eval.service.alerts import Alert
from clara_eval.service.duty import Tick

_LOW_POSTS = 20
"""More than one post with many winners costs."""


async def watch_balance(tick: Tick) -> None:
    sender, report = tick.app.sender, tick.report
    if not sender.can_sign:
        return
    report.balance_wei, report.posts_left = await posts_covered(tick.app.chain, sender.address)
    if report.posts_left < _LOW_POSTS:
        summary = f"The balance of {sender.address} pays for {report.posts_left} more posts at the present fee."
        tick.alerts.raise_alert(Alert("BalanceLow", "critical", summary))


async def fill_nonces(tick: Tick) -> None:
    """Fill missing nonces, also while nothing is to be sent."""
    app = tick.app
    gap = await app.sender.find_gap(app.chain_id)
    if gap is None:
        return
    tick.report.nonce_gap = str(gap)
    tick.report.problems.append(str(gap))
    tick.alerts.raise_alert(Alert("NonceGap", "warning", str(gap)))
    await app.sender.close_gap(app.chain_id)
