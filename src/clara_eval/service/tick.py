"""One tick: look at the chain, decide what is due, do the small things, and hand on the large ones.

Comes in: the app and a way to start an evaluation. Goes out: a `TickReport`, which is also kept in the store, so that
every process shows the same health and metrics whichever of them ticked. Whatever one challenge, its token or its
metadata does is that challenge's own trouble: it is put on the list from the event alone, looked at within a bound of
time, and what fails is a problem of the report. Ours are looked at and acted on first. A transaction that does not land
keeps no evaluation from starting: finalizing comes last and has a share of the time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from clara_eval.actions.publication import NotTried, publish_missing
from clara_eval.actions.reputation import give_missing_feedback
from clara_eval.app import App
from clara_eval.chain.events import find_challenges
from clara_eval.chain.model import Block, Challenge, ChallengeStatus, NewChallenge
from clara_eval.chain.sender import Intention
from clara_eval.chain.sending import posts_covered, send_again
from clara_eval.challenges.attempt_memory import read_attempts
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.claim_recorder import record_claims, watch_claims
from clara_eval.challenges.evaluate import is_meant
from clara_eval.challenges.keeper import finalize
from clara_eval.challenges.post_recorder import record_closed, record_posted
from clara_eval.challenges.result_recorder import has_news, known_results, record_result
from clara_eval.challenges.review import read_review
from clara_eval.challenges.status import FINAL_STATES, STATES, reason_of
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import ClaraError, ConfigError, Stalled, Temporary
from clara_eval.core.gather import gather_or_raise
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import EvalStatus, Summary, read, read_many
from clara_eval.documents.rounds import Created
from clara_eval.documents.store_keys import INDEX, created_key, index_key, status_key
from clara_eval.service.alerts import Alert, Alerts
from clara_eval.service.due import Due, DueAction, Memory, due
from clara_eval.service.endings import stalled_alert
from clara_eval.service.logs import bound_challenge
from clara_eval.service.metrics import Metrics
from clara_eval.service.resting import rest, resting
from clara_eval.store.leases import Busy

_log = structlog.get_logger(__name__)
LAST_TICK = "engine:last-tick"
ANNOUNCED = "engine:announced:"
"""Before the address of every challenge that the factory announced, readable or not."""
RECORDED = "engine:recorded:"
"""Before the address of every challenge whose result is written down for good."""
OVER = "engine:over:"
"""Before the address of every challenge for which nothing will be due any more; the value is how it ended."""
_AT_ONCE = 8
_LOOKED_AT_TOGETHER = 25
"""Challenges that are read in one request, or a few, where nothing is wrong with any of them."""
_TOGETHER_SECONDS = 10.0
"""For reading so many; one that makes its node slow is then waited for alone."""
LOOK_AGAIN_SECONDS = 60.0
"""A challenge whose evaluation is queued or running is not looked at more often: only its own end can bring news."""
FINALIZED_AT_ONCE = 16
_RESULTS_AT_ONCE = 20
_LOW_POSTS = 20
"""More than a post with many winners takes."""

Start = Callable[[Challenge], Awaitable[None]]
Active = Callable[[], Awaitable[frozenset[Address]]]
"""Challenges whose evaluation is queued or running, here or elsewhere."""


async def none_active() -> frozenset[Address]:
    """Where nobody evaluates beside the tick."""
    return frozenset()


class _Looked(NamedTuple):
    """The last look at a challenge."""

    at: float
    challenge: Challenge
    due: Due


@dataclass(slots=True)
class TickReport:
    at: int
    head_block: int = 0
    head_lag_seconds: float = 0.0
    balance_wei: int | None = None
    posts_left: int | None = None
    nonce_gap: str | None = None
    """Nonces that were missing before signed transactions, in words."""
    statuses: dict[str, int] = field(default_factory=dict)
    started: int = 0
    reviews: int = 0
    nearest_deadline_seconds: float | None = None
    window_used: float = 0.0
    month_spend_usd: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ticker:
    app: App
    alerts: Alerts
    metrics: Metrics
    start: Start
    finalize_seconds: float = 120.0
    """For all finalizing of one tick; what is cut off goes on at the next, with the same nonce."""
    look_seconds: float = 60.0
    """For one look at one challenge."""
    publish_seconds: float = 120.0
    """For all publishing of one tick; what is cut off goes on at the next, from where it was."""
    active: Active = none_active
    looks: dict[Address, _Looked] = field(default_factory=dict)
    """Those of this process, for challenges whose evaluation is under way."""

    async def tick(self) -> TickReport:
        """Raises what keeps the whole tick from working, such as a node that does not answer."""
        head = await self.app.chain.blocks.head()
        report = TickReport(int(time.time()), head.number, max(0.0, time.time() - head.timestamp))
        unfound = await self._apart("discovery", self._discover(), report)
        if unfound is not None:
            self.alerts.raise_alert(Alert("DiscoveryFailing", "critical", unfound))
        await self._apart("balance", self._money(report), report)
        await self._apart("nonces", self._nonces(report), report)
        at_rest = await self._at_rest(head, report)
        ours, others = await self._waiting(at_rest)
        active = await self.active()
        ours = self._without_news(ours, active, report)
        looked = await self._look_at_all(ours, head, report)
        looked.sort(key=lambda pair: pair[0].scoring_deadline)
        for challenge, found in looked:
            if challenge.address in active:
                self.looks[challenge.address] = _Looked(time.monotonic(), challenge, found)
            if found.action is DueAction.EVALUATE and challenge.address in active:
                self._watch_deadline(challenge, found, report)
            elif found.action is not DueAction.FINALIZE:
                await self._act(challenge, found, report)
        earlier = await self._look_at_all(others, head, report)
        for challenge, found in earlier:  # signed here before a change of key; of strangers' challenges nothing is due
            if found.action is not DueAction.FINALIZE:
                await self._act(challenge, found, report)
        await self._finalize([*looked, *earlier], report)
        await self._apart("publication", self._publish(report), report)
        await self._apart("feedback", self._give_feedback(report), report)
        await self._apart("results", self._record_results(report, at_rest), report)
        await self._apart("claims", self._record_claims(report), report)
        await self._count(report, at_rest)
        return report

    def _without_news(self, ours: Sequence[Address], active: frozenset[Address], report: TickReport) -> list[Address]:
        """Those to look at; the others are at work and were looked at a moment ago: only their deadline is watched."""
        for address in [a for a in self.looks if a not in active]:
            del self.looks[address]
        late = time.monotonic() - LOOK_AGAIN_SECONDS
        quiet = [look for a in ours if (look := self.looks.get(a)) is not None and look.at > late]
        for look in quiet:
            self._watch_deadline(look.challenge, look.due, report)
        left_alone = {look.challenge.address for look in quiet}
        return [address for address in ours if address not in left_alone]

    async def _apart(self, what: str, part: Awaitable[None], report: TickReport) -> str | None:
        """A part of the tick whose failure, which is given back, keeps no other part from its work."""
        try:
            await part
        except ConfigError:
            raise
        except Exception as bad:  # noqa: BLE001 - challenges that are known are looked at all the same
            _log.warning("tick_part_failed", part=what, problem=str(bad), exc_info=_bug(bad))
            report.problems.append(f"{what}: {reason_of(bad)}")
            return reason_of(bad)
        return None

    async def _finalize(self, looked: list[tuple[Challenge, Due]], report: TickReport) -> None:
        """Several at once: the wallet signs one after the other, and most of the time goes by while they are mined."""
        gate = asyncio.Semaphore(FINALIZED_AT_ONCE)

        async def one(challenge: Challenge, found: Due) -> None:
            async with gate:
                await self._act(challenge, found, report)

        try:
            async with asyncio.timeout(self.finalize_seconds):
                await gather_or_raise(one(*pair) for pair in looked if pair[1].action is DueAction.FINALIZE)
        except TimeoutError:
            _log.warning("finalize_goes_on_later", seconds=self.finalize_seconds)
            report.problems.append("Finalizing is taking long: it continues at the next tick.")

    async def _give_feedback(self, report: TickReport) -> None:
        """Final results become reputation, where that is configured."""
        try:
            async with asyncio.timeout(self.finalize_seconds):
                async for receipt in give_missing_feedback(self.app):
                    self.metrics.transactions.labels("feedback", receipt.outcome.value).inc()
        except TimeoutError:
            report.problems.append("Giving feedback is taking long: it continues at the next tick.")

    async def _record_results(self, report: TickReport, at_rest: Mapping[str, str]) -> None:
        """How rounds ended, for the agents' records: a few at each tick, the rest at the next."""
        app, safe = self.app, await self.app.chain.blocks.safe_block()
        noted = {**await self._under(RECORDED), **{a: state for a, state in at_rest.items() if state != "complete"}}
        index = await self._summaries(a for a in await self._under(INDEX) if a not in noted)
        closed = {to_address(a): one for a, one in index.items() if one.deadline < safe.timestamp}
        known = await known_results(app.store, app.chain_id, closed)
        over = {address for address in closed if address in known and known[address].isOver}
        for address in over:
            await watch_claims(app.store, app.chain, address, safe)
            await app.store.put(app.chain_id, RECORDED + address, "")
        missing = [a for a, summary in closed.items() if a not in over and has_news(known.get(a), summary)]
        for address in missing[:_RESULTS_AT_ONCE]:
            try:
                async with asyncio.timeout(self.look_seconds):
                    await record_result(app.store, app.chain, address, safe)
            except (ClaraError, TimeoutError) as bad:
                _log.warning("result_not_recorded", challenge=address, problem=str(bad))
                report.problems.append(f"{address}: its result is not recorded: {reason_of(bad)}")

    async def _record_claims(self, report: TickReport) -> None:
        """Who took which prize, for the timelines; a long past is read over several ticks."""
        try:
            async with asyncio.timeout(self.look_seconds):
                await record_claims(self.app.store, self.app.chain, await self.app.chain.blocks.safe_block())
        except TimeoutError:
            report.problems.append("Reading old claims is taking long: it continues at the next tick.")

    async def _publish(self, report: TickReport) -> None:
        """Posted results go to every place that lacks them: one that was down, or that is new."""
        failed = [
            f"{told.address}: not published at {told.place}: {told.problem}"
            async for told in publish_missing(self.app, self.publish_seconds)
            if told.error is not None and not isinstance(told.error, (Busy, NotTried))
        ]
        if failed:
            report.problems += failed
            self.alerts.raise_alert(Alert("PublicationFailing", "warning", " ".join(failed[:3])))

    async def _discover(self) -> None:
        """Note every challenge the factory announced, from the event alone: nothing of the challenge is asked here."""
        app = self.app

        async def keep(new: NewChallenge) -> None:
            created = Created(at=new.created_at or None, txHash=new.tx_hash, block=new.block_number)
            pairs = [(ANNOUNCED + new.address, str(new.block_number))]
            pairs += [(created_key(new.address), plain_json(created.model_dump()))] if new.tx_hash else []
            await app.store.put_many(app.chain_id, pairs)

        factory = to_address(app.settings.factory)
        await find_challenges(app.chain.events, app.store, factory, app.settings.first_block, keep)

    async def _money(self, report: TickReport) -> None:
        app = self.app
        if not app.sender.can_sign:
            return
        report.balance_wei, report.posts_left = await posts_covered(app.chain, app.sender.address)
        if report.posts_left < _LOW_POSTS:
            summary = f"The evaluator's balance pays for {report.posts_left} more posts at the present fee."
            self.alerts.raise_alert(Alert("BalanceLow", "critical", summary))

    async def _nonces(self, report: TickReport) -> None:
        """Nonces that are missing before what is signed are filled, also while nothing is to be sent."""
        app = self.app
        gap = await app.sender.find_gap(app.chain_id)
        if gap is None:
            return
        report.nonce_gap = str(gap)
        report.problems.append(report.nonce_gap)
        self.alerts.raise_alert(Alert("NonceGap", "warning", report.nonce_gap))
        await app.sender.close_gap(app.chain_id)

    async def _at_rest(self, head: Block, report: TickReport) -> dict[str, str]:
        """Who said nothing since it was looked at, open or posted; nobody rests where that cannot be known."""
        found: dict[str, str] = {}

        async def read() -> None:
            async with asyncio.timeout(self.look_seconds):
                found.update(await resting(self.app, head))

        await self._apart("events", read(), report)
        return found

    async def _waiting(self, at_rest: Mapping[str, str]) -> tuple[list[Address], list[Address]]:
        """What is not over and not at rest: what may be ours to judge, and what is only shown."""
        over = {**await self._under(OVER), **at_rest}
        known = {**await self._under(ANNOUNCED), **await self._under(INDEX)}
        ours: list[Address] = []
        others: list[Address] = []
        waiting = [to_address(name) for name in known if name not in over]
        summaries = await self._summaries(waiting)
        for address in waiting:
            summary = summaries.get(address)
            if summary is None or not await self._closed(address, summary):
                is_ours = summary is None or summary.evaluator == self.app.evaluator
                (ours if is_ours else others).append(address)
        return ours, others

    async def _summaries(self, addresses: Iterable[str]) -> dict[str, Summary]:
        """What the index says about these; one that was never looked at is not in it."""
        return await read_many(self.app.store, self.app.chain_id, Summary, index_key, addresses)

    async def _under(self, prefix: str) -> dict[str, None]:
        """The addresses behind a prefix, in order."""
        keys = await self.app.store.keys(self.app.chain_id, prefix)
        return dict.fromkeys(key.removeprefix(prefix) for key in keys)

    async def _look_at_all(
        self, addresses: Iterable[Address], head: Block, report: TickReport
    ) -> list[tuple[Challenge, Due]]:
        gate = asyncio.Semaphore(_AT_ONCE)
        wanted = list(addresses)
        known = await self._read_together(wanted, head)

        async def one(address: Address) -> tuple[Challenge, Due] | None:
            async with gate:
                try:
                    async with asyncio.timeout(self.look_seconds):
                        return await self._look(address, head, known.get(address))
                except ConfigError:
                    raise
                except Exception as bad:  # noqa: BLE001 - one challenge that breaks us must not hide the others
                    _log.warning("challenge_not_read", challenge=address, problem=str(bad), exc_info=_bug(bad))
                    report.problems.append(f"{address}: {bad or type(bad).__name__}")
                    return None

        looked = await asyncio.gather(*(one(address) for address in wanted))
        return [pair for pair in looked if pair is not None]

    async def _read_together(self, addresses: Sequence[Address], head: Block) -> dict[Address, Challenge]:
        """Many in one request; where that fails, for one that is broken or for time, each is read alone afterwards."""
        found: dict[Address, Challenge] = {}
        for start in range(0, len(addresses), _LOOKED_AT_TOGETHER):
            group = addresses[start : start + _LOOKED_AT_TOGETHER]
            if len(group) < 2:
                break
            try:
                async with asyncio.timeout(min(self.look_seconds, _TOGETHER_SECONDS)):
                    found.update(
                        {one.address: one for one in await self.app.chain.challenges.challenges_at(group, head)}
                    )
            except ConfigError:
                raise
            except Exception as bad:  # noqa: BLE001 - whichever breaks us is found when each is read alone
                _log.info("challenges_read_one_by_one", count=len(group), problem=reason_of(bad))
        return found

    async def _closed(self, address: Address, summary: Summary) -> bool:
        """Nothing will ever be due again, and the store says so: noted, so that no later tick reads it again."""
        if summary.chainStatus in {"open", "scoring"}:
            return False
        status = await read(self.app.store, self.app.chain_id, EvalStatus, status_key(address))
        name = status.status if status else "pending"
        if name not in FINAL_STATES:
            evaluator = to_address(summary.evaluator)
            if evaluator == self.app.evaluator or (status is not None and await self._is_signed(address, evaluator)):
                return False
        await self.app.store.put(self.app.chain_id, OVER + address, name)
        return True

    async def _is_signed(self, address: str, evaluator: Address) -> bool:
        """Whether that key signed the post of this challenge here."""
        recorded = await self.app.store.transactions(f"{self.app.chain_id}:{address}", Intention.POST_SCORES)
        return any(tx.sender == evaluator for tx in recorded)

    async def _look(self, address: Address, head: Block, known: Challenge | None) -> tuple[Challenge, Due]:
        app = self.app
        challenge = known or (await app.chain.challenges.challenges_at([address], head))[0]
        status = await read(app.store, app.chain_id, EvalStatus, status_key(address))
        await save_summary(app.store, challenge, status.postedBy if status else None)
        state = status.status if status else None
        attempts = await read_attempts(app.store, app.chain_id, address)
        await rest(app, challenge, state, head)
        review = await read_review(app.store, app.chain_id, address) if state == "review" else None
        # A stranger's challenge has no status here, and costs no further question.
        is_signed = status is not None and challenge.evaluator != app.evaluator
        is_signed = is_signed and await self._is_signed(address, challenge.evaluator)
        is_approved = review is not None and review.state == "approved"
        memory = Memory(state, attempts.retry_at, is_approved, is_signed, review.posts_at if review else None)
        found = due(
            challenge,
            memory,
            evaluator=app.evaluator,
            chain_now=head.timestamp,
            wall_now=time.time(),
            can_sign=app.sender.can_sign,
        )
        return challenge, found

    async def _act(self, challenge: Challenge, found: Due, report: TickReport) -> None:
        with bound_challenge(challenge.address):
            self._watch_deadline(challenge, found, report)
            try:
                await self._do(challenge, found.action)
            except Exception as bad:  # noqa: BLE001 - nor keep them from being acted on
                if isinstance(bad, Stalled):
                    self.alerts.raise_alert(stalled_alert(bad, challenge.address))
                _log.warning("action_failed", action=found.action.value, problem=str(bad), exc_info=_bug(bad))
                report.problems.append(f"{challenge.address}: {bad}")
                return
            if found.action is DueAction.EVALUATE:
                report.started += 1

    async def _do(self, challenge: Challenge, action: DueAction) -> None:
        match action:
            case DueAction.EVALUATE:
                await self.start(challenge)
            case DueAction.RECORD:
                posted = await record_posted(self.app.store, self.app.chain.results, challenge)
                by = str(posted.by) if posted else None
                await save_summary(self.app.store, challenge, by)
                _log.info("post_recognised", posted_by=by)
            case DueAction.CLOSE:
                await record_closed(self.app.store, challenge)
                _log.info("challenge_closed", status=challenge.status.name.lower())
            case DueAction.RESEND:
                store, chain = self.app.store, self.app.chain
                count = await send_again(chain, store, challenge.evaluator, partial(is_meant, store, chain))
                raise Temporary(
                    f"An earlier key, {challenge.evaluator}, signed the post, and it is not mined yet: {count} of its "
                    "transactions went out again.",
                    remedy="It goes on at the next tick; only a process with that key can raise the fee, or post anew "
                    "what was read at a block that is gone.",
                )
            case DueAction.FINALIZE:
                receipt = await finalize(challenge, sender=self.app.sender, results=self.app.chain.results)
                self.metrics.transactions.labels("finalize", receipt.outcome.value).inc()
                _log.info("challenge_finalized", outcome=receipt.outcome.value)
            case DueAction.NONE:
                pass

    def _watch_deadline(self, challenge: Challenge, found: Due, report: TickReport) -> None:
        is_missing = found.window_used > 0 and challenge.status in {ChallengeStatus.OPEN, ChallengeStatus.SCORING}
        if not is_missing:
            return
        window = challenge.scoring_deadline - challenge.deadline
        left = challenge.scoring_deadline - challenge.deadline - found.window_used * window
        nearest = report.nearest_deadline_seconds
        report.nearest_deadline_seconds = left if nearest is None else min(nearest, left)
        report.window_used = max(report.window_used, found.window_used)
        if found.is_at_risk:
            gone = f"{100 * found.window_used:.0f} % of the scoring window is gone and nothing is posted ({found.why})."
            self.alerts.raise_alert(Alert("DeadlineAtRisk", "critical", gone, challenge.address))

    async def _count(self, report: TickReport, at_rest: Mapping[str, str]) -> None:
        """Numbers for the metrics, from the index of challenges and the ledger."""
        app = self.app
        over = {key.removeprefix(OVER): name for key, name in await app.store.items(app.chain_id, OVER)}
        over.update(at_rest)
        going = [address for address in await self._under(INDEX) if address not in over]
        told = await read_many(app.store, app.chain_id, EvalStatus, status_key, going)
        states = [told[address].status if address in told else "pending" for address in going]
        report.statuses = dict(Counter([*over.values(), *states]))
        report.reviews = report.statuses.get("review", 0)
        month = time.strftime("%Y-%m", time.gmtime(report.at))
        spends = await app.store.spends(since=report.at - 32 * 86400)
        counted = (s for s in spends if time.strftime("%Y-%m", time.gmtime(s.at)) == month)
        settled = (s.reserved_micro_usd if s.settled_micro_usd is None else s.settled_micro_usd for s in counted)
        report.month_spend_usd = sum(settled) / 1_000_000


def _bug(bad: Exception) -> Exception | None:
    """What is logged with its traceback: everything that is no error of ours."""
    return None if isinstance(bad, (ClaraError, TimeoutError)) else bad


async def save_report(app: App, report: TickReport) -> None:
    await app.store.put(app.chain_id, LAST_TICK, plain_json(asdict(report)))


async def read_report(app: App) -> TickReport | None:
    text = await app.store.get(app.chain_id, LAST_TICK)
    return TickReport(**json.loads(text)) if text else None


def show_report(report: TickReport, metrics: Metrics, month_budget_usd: float | None) -> None:
    """The gauges of this process, from the last tick of any process."""
    metrics.head_block.set(report.head_block)
    metrics.head_lag.set(report.head_lag_seconds)
    if report.balance_wei is not None:
        metrics.balance_wei.set(report.balance_wei)
    if report.posts_left is not None:
        metrics.posts_left.set(report.posts_left)
    for status in STATES:
        metrics.challenges.labels(status).set(report.statuses.get(status, 0))
    metrics.review_queue.set(report.reviews)
    left = report.nearest_deadline_seconds
    metrics.nearest_deadline.set(float("nan") if left is None else left)
    metrics.window_used.set(report.window_used)
    metrics.month_spend.set(report.month_spend_usd)
    metrics.month_budget.set(month_budget_usd or 0)
    metrics.last_good_tick_at.set(report.at)
