"""Write docs/scale.md: resources for a month of challenges, and a simulation of the scheduler.

Input: the rules of the product (`service.due`, `EngineOptions`, the quote) and the assumptions in `Assumed`. Output:
docs/scale.json with every figure, and the tables of the page between two marks. `--run` simulates again (a minute);
without it the page is written from the document. `tests/test_scale_page.py` compares the two. The simulated clock jumps
from tick to tick; the shipped function decides what is due.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from clara_eval.chain.model import Block, Challenge, ChallengeStatus, PrizeToken
from clara_eval.config.eval_config import parse_eval_config
from clara_eval.core.address import Address
from clara_eval.core.model import FINALIZATION_SECONDS
from clara_eval.judge.costs.budgets import PriceCard
from clara_eval.judge.costs.quote import Jury, Size, quote
from clara_eval.service.due import DEEP_SECONDS, DueAction, EngineOptions, Memory, due
from clara_eval.service.loop import FINALIZED_AT_ONCE

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- begin {name} -->", "<!-- end {name} -->"
DAY = 86_400
MONTH = 30 * DAY
EVALUATOR = Address("0x" + "e1" * 20)
CONFIG = {
    "version": 1,
    "features": ["correctness", "gas_efficiency", "novelty", "edge_case_handling", "code_readability"],
    "criteria": "The best solution minimises gas while it stays correct. Novel approaches count; trivial ones do not.",
    "language": "solidity",
}
MONTHS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions about a usual challenge and the environment; the rest are rules of the product."""

    entries: int = 25
    looks: int = 300
    open_days: float = 7.0
    scoring_days: float = 7.0
    answer_seconds: float = 2.0
    in_flight: int = 64
    provider_calls_per_second: float = 50.0
    evaluation_overhead_seconds: float = 30.0
    """Seconds for reading the chain, fetching, measuring, ranking and writing the trace."""
    transaction_seconds: float = 24.0
    """From sending to ten confirmations: twelve blocks on Base."""
    signing_seconds: float = 0.5
    """About ten requests to the node while the wallet is locked; mining happens outside the lock."""
    finalize_seconds: float = 120.0
    """Time limit per tick, as in `service.due.EngineOptions`."""
    requests_per_look: float = 0.44
    """Requests to the node: 25 challenges in one batch take 11, one alone takes 3."""
    calls_per_look: float = 20.0
    """Calls inside these requests, for node plans that count every call of a batch."""
    requests_per_round: float = 171.0
    calls_per_round: float = 376.0
    """Requests and calls to evaluate, post and finalize.

    81 and 276 were counted without confirmations (25 entries by rules); the rest polls each of three transactions every
    two seconds until it is confirmed.
    """
    node_requests_per_second: float = 25.0
    store_megabytes: float = 1.6
    """Journal, answers, trace and documents of one round with models."""
    input_usd: float = 3.0
    output_usd: float = 15.0
    """Dollars per million tokens."""


@dataclass(slots=True)
class Result:
    """The result of a simulated run."""

    challenges: int
    workers: int
    spread_days: float
    posted: int = 0
    late: int = 0
    posted_after_hours: dict[str, float] = field(default_factory=dict)
    finalized_late_hours: float = 0.0
    longest_queue: int = 0
    most_running: int = 0
    most_concurrent: int = 0
    ticks: int = 0
    looks: int = 0
    days: float = 0.0


@dataclass(slots=True)
class _Round:
    challenge: Challenge
    memory: Memory = field(default_factory=Memory)


class Simulation:
    """Simulate ticks, the queue, concurrent evaluations up to the limit, one wallet, one provider."""

    def __init__(self, assumed: Assumed, challenges: int, workers: int, spread_days: float) -> None:
        self.assumed, self.options = assumed, EngineOptions()
        self.places = min(self.options.global_evaluations, workers * self.options.worker_evaluations)
        self.result = Result(challenges, workers, spread_days)
        self.calls = calls_of(assumed)["calls"]
        step = spread_days * DAY / challenges
        self.rounds = [_Round(_challenge(number, round(DAY + number * step), assumed)) for number in range(challenges)]
        self.still_open = deque(self.rounds)
        self.queue: deque[_Round] = deque()
        self.posted: deque[_Round] = deque()
        self.finalized = 0
        self.running: list[tuple[float, int, bool, _Round]] = []
        """Until when, and whether it is its post that is waited for; the place is free after that."""
        self.wallet_free = 0.0
        self.delays: list[float] = []

    def run(self) -> Result:
        """Run until everything is finalized, or a day after the last scoring deadline."""
        now, last = 0.0, max(one.challenge.scoring_deadline for one in self.rounds) + DAY
        while self.finalized < len(self.rounds) and now < last:
            self._tick(now)
            now += self.options.tick_seconds
            self._work(now)
        return self._finish(now)

    def _tick(self, now: float) -> None:
        """Check what is due for closed and posted challenges; nothing can be due for the others."""
        result = self.result
        result.ticks += 1
        going = len(self.rounds) - self.finalized
        result.looks += going - len(self.still_open)
        result.most_concurrent = max(result.most_concurrent, going)
        while self.still_open and self.still_open[0].challenge.deadline < now:
            one = self.still_open.popleft()
            assert self._due(one, now) is DueAction.EVALUATE
            self.queue.append(one)
        result.longest_queue = max(result.longest_queue, len(self.queue))
        self._start(now)
        self._finalize(now)

    def _finalize(self, now: float) -> None:
        """Finalize in order of the posts, as many as fit into a tick; the rest at the next tick."""
        for _ in range(finalized_a_tick(self.assumed)):
            if not self.posted or self._due(self.posted[0], now) is not DueAction.FINALIZE:
                break
            one = self.posted.popleft()
            late = (self._send(now) - one.challenge.score_posted_at - FINALIZATION_SECONDS) / 3600
            self.result.finalized_late_hours = max(self.result.finalized_late_hours, late)
            self.finalized += 1

    def _due(self, one: _Round, now: float) -> DueAction:
        return due(
            one.challenge, one.memory, evaluator=EVALUATOR, chain_now=int(now), wall_now=now, can_sign=True
        ).action

    def _work(self, until: float) -> None:
        """Process what ends before the next tick; each post starts the next evaluation in the queue."""
        while self.running and self.running[0][0] <= until:
            at, _, is_sent, one = heapq.heappop(self.running)
            if not is_sent:
                heapq.heappush(self.running, (self._send(at), id(one), True, one))
                continue
            self.result.posted += 1
            self.result.late += at > one.challenge.scoring_deadline
            self.delays.append((at - one.challenge.deadline) / 3600)
            one.challenge = replace(one.challenge, score_posted_at=int(at))
            one.memory = Memory("complete")
            self.posted.append(one)
            self._start(at)

    def _start(self, now: float) -> None:
        while self.queue and len(self.running) < self.places:
            one = self.queue.popleft()
            begun = self._send(now)  # advanceToScoring
            one.challenge = replace(one.challenge, status=ChallengeStatus.SCORING)
            share = self.assumed.provider_calls_per_second / (len(self.running) + 1)
            rate = min(self.assumed.in_flight / self.assumed.answer_seconds, share)
            ends = begun + self.assumed.evaluation_overhead_seconds + self.calls / rate
            heapq.heappush(self.running, (ends, id(one), False, one))
            self.result.most_running = max(self.result.most_running, len(self.running))

    def _send(self, now: float) -> float:
        """Return when a transaction that is sent now is mined."""
        self.wallet_free = max(self.wallet_free, now) + self.assumed.signing_seconds
        return self.wallet_free + self.assumed.transaction_seconds

    def _finish(self, now: float) -> Result:
        self.delays.sort()
        share = {"median": 0.5, "p99": 0.99, "longest": 1.0}
        places = {name: min(len(self.delays) - 1, int(part * len(self.delays))) for name, part in share.items()}
        self.result.posted_after_hours = {n: round(self.delays[p], 2) for n, p in places.items()} if self.delays else {}
        self.result.finalized_late_hours = round(self.result.finalized_late_hours, 2)
        self.result.days = round(now / DAY, 1)
        return self.result


def finalized_a_tick(assumed: Assumed) -> int:
    """Return how many challenges the wallet can sign and the chain confirm within a tick's limit."""
    signed = (assumed.finalize_seconds - assumed.transaction_seconds) / assumed.signing_seconds
    confirmed = FINALIZED_AT_ONCE * (assumed.finalize_seconds // assumed.transaction_seconds)
    return int(min(signed, confirmed))


def calls_of(assumed: Assumed) -> dict[str, Any]:
    """Return calls and dollars of a usual challenge, from the quote."""
    size = Size(assumed.entries, assumed.looks)
    read, written = round(assumed.input_usd * 1e6), round(assumed.output_usd * 1e6)
    card = PriceCard(read, written, read // 10, read * 5 // 4)
    found = quote(parse_eval_config(json.dumps(CONFIG)), size, Jury({"model": card}))
    return {"calls": sum(line.calls for line in found.lines), "usd": (found.models_micro_usd or 0) / 1e6}


def looks_of(assumed: Assumed) -> float:
    """Return how often a challenge is read: new, at submissions, from deadline to post, finalized."""
    at_the_end = 3 + DEEP_SECONDS / EngineOptions().tick_seconds + 3
    return 1 + assumed.entries + 1 + at_the_end


def month(challenges: int, assumed: Assumed) -> dict[str, Any]:
    """Return how much of each limited resource so many challenges per month use."""
    one, options = calls_of(assumed), EngineOptions()
    concurrent = challenges * (assumed.open_days * DAY + FINALIZATION_SECONDS) / MONTH
    seconds = assumed.evaluation_overhead_seconds + one["calls"] * assumed.answer_seconds / assumed.in_flight
    looks = looks_of(assumed)
    seconds += 2 * assumed.transaction_seconds  # advanceToScoring before it, postScores after it
    return {
        "challenges": challenges,
        "calls": challenges * one["calls"],
        "callsPerSecond": challenges * one["calls"] / MONTH,
        "usd": challenges * one["usd"],
        "concurrent": concurrent,
        "evaluationsAtOnce": challenges * seconds / MONTH,
        "workers": max(1.0, challenges * seconds / MONTH / options.worker_evaluations),
        "transactions": 3 * challenges,
        "walletShare": 3 * challenges * assumed.signing_seconds / MONTH,
        "finalizeShare": challenges * options.tick_seconds / MONTH / finalized_a_tick(assumed),
        "nodeRequestsPerSecond": challenges * (looks * assumed.requests_per_look + assumed.requests_per_round) / MONTH,
        "nodeCallsPerSecond": challenges * (looks * assumed.calls_per_look + assumed.calls_per_round) / MONTH,
        "storeGigabytes": challenges * assumed.store_megabytes / 1000,
    }


def limits(assumed: Assumed) -> dict[str, float]:
    """Return the challenges per month at which each resource alone is used up."""
    one = month(1, assumed)
    return {
        "finalizing": 1 / one["finalizeShare"],
        "the provider": assumed.provider_calls_per_second / one["callsPerSecond"],
        "requests to the node": assumed.node_requests_per_second / one["nodeRequestsPerSecond"],
        "one evaluator wallet": 1 / one["walletShare"],
        "evaluations at once": EngineOptions().global_evaluations / one["evaluationsAtOnce"],
    }


def simulate(*, quick: bool = False) -> list[Result]:
    """Simulate ten thousand challenges, with deadlines over a week and with one common deadline."""
    count = 200 if quick else 10_000
    plans = [(1, 7.0), (2, 7.0), (4, 7.0), (8, 7.0), (4, 0.0), (8, 0.0)]
    return [Simulation(Assumed(), count, workers, spread).run() for workers, spread in (plans[:2] if quick else plans)]


def figures() -> dict[str, Any]:
    assumed = Assumed()
    return {
        "assumed": asdict(assumed),
        "one": calls_of(assumed),
        "months": [month(count, assumed) for count in MONTHS],
        "simulated": [asdict(result) for result in simulate()],
    }


def tables(document: dict[str, Any]) -> dict[str, str]:
    """Return the generated parts of the page by name."""
    return {"months": _months(document), "simulated": _simulated(document["simulated"])}


def _months(document: dict[str, Any]) -> str:
    head = (
        "| challenges a month | calls | calls/s | models | going on at once | workers | one wallet's time | "
        "finalizing's time | node requests/s | calls in them/s | store |"
    )
    rows = [
        f"| {m['challenges']:,} | {m['calls']:,} | {m['callsPerSecond']:.3g} | ${m['usd']:,.0f} "
        f"| {m['concurrent']:,.0f} | {m['workers']:.3g} | {100 * m['walletShare']:.3g} % "
        f"| {100 * m['finalizeShare']:.3g} % | {m['nodeRequestsPerSecond']:.3g} "
        f"| {m['nodeCallsPerSecond']:.3g} | {_plain(m['storeGigabytes'])} GB |"
        for m in document["months"]
    ]
    one = document["one"]
    note = (
        f"One challenge: {one['calls']:,} calls and ${one['usd']:.2f} of models, by the cost model of `config quote`, "
        f"for {document['assumed']['looks']} pairs."
    )
    return "\n".join([head, "|" + "---|" * 11, *rows, "", note])


def _plain(value: float) -> str:
    """Return a number with two significant digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,g}"


def _simulated(results: list[dict[str, Any]]) -> str:
    head = (
        "| challenges | deadlines | workers | posted | after the scoring deadline | posted after: median | p99 "
        "| longest | longest queue | evaluations at once | finalized late by at most |"
    )
    rows = [
        f"| {r['challenges']:,} | {'over 7 days' if r['spread_days'] else 'in one second'} | {r['workers']} "
        f"| {r['posted']:,} | {r['late']:,} | {_hours(r, 'median')} | {_hours(r, 'p99')} | {_hours(r, 'longest')} "
        f"| {r['longest_queue']:,} | {r['most_running']} | {r['finalized_late_hours']:,.1f} h |"
        for r in results
    ]
    return "\n".join([head, "|" + "---|" * 11, *rows])


def _hours(result: dict[str, Any], name: str) -> str:
    return f"{result['posted_after_hours'][name]:,.2f} h"


def page(text: str, document: dict[str, Any]) -> str:
    """Return the page with its tables regenerated."""
    for name, table in tables(document).items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def _challenge(number: int, deadline: int, assumed: Assumed) -> Challenge:
    zero, address = "0x" + "0" * 64, Address(f"0x{number:040x}")
    return Challenge(
        chain_id=8453, address=address, block=Block(1, zero, 1), poster=address, evaluator=EVALUATOR,
        token=PrizeToken(address, "USDC", 6), prize_pool=1, poster_bond=0, deadline=deadline,
        scoring_deadline=deadline + round(assumed.scoring_days * DAY), challenge_uri="", eval_config_hash=zero,
        private_set_hash=zero, winner_count=1, payout_bps=(10_000,), identity_registry=address, max_participants=0,
        status=ChallengeStatus.OPEN, submission_count=assumed.entries, score_posted_at=0, submissions=(),
    )  # fmt: skip


def main() -> None:
    if "--run" in sys.argv[1:]:
        FIGURES.write_text(json.dumps(figures(), indent=1) + "\n", encoding="utf-8")
    document = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), document), encoding="utf-8")


if __name__ == "__main__":
    main()
