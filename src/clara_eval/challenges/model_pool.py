"""Open the models of one run with a shared budget, reserved in the ledger of costs.

Invariant: the budget of a run is reserved under every cap before its first call; it cannot spend more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from clara_eval.chain.model import Challenge
from clara_eval.config.eval_config import EvalConfig
from clara_eval.config.settings import Settings
from clara_eval.core.errors import Deferred
from clara_eval.core.model import MICRO
from clara_eval.evaluation.folder import FolderVenue
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge import provider as providers
from clara_eval.judge.attestation import Attested, KeyReport, Quotes, SigningOpenAi
from clara_eval.judge.costs import budgets
from clara_eval.judge.costs.quote import LEAST_RESERVE, READING_SHARE, Jury, Quote, Size, quote
from clara_eval.judge.port import Asker, ConnectedLlm, Llm, NothingJudged, Prompt
from clara_eval.judge.retrying_llm import CallListener, Gate, RetryingLlm, RetryPolicy
from clara_eval.judge.structured_llm import AnswerAhead, CachedLlm, FallbackLlm
from clara_eval.store.sql_store import SqlStore

LEAST_BOUND = 8_192  # Tokens: no cap lowers the limit of an answer below this, because thinking models need them
UNKNOWN_THINKING = 8_192  # Tokens reserved above the limit at other endpoints, which may not count thinking
PaidRound = Challenge | FolderVenue  # Both have a run, a poster and a number of submissions


@dataclass(slots=True)
class Reservation:
    """The ledger's line for the cost of one run; the cost of unanswered calls, `unsure`, has its own."""

    store: SqlStore
    challenge: PaidRound
    caps: budgets.Caps
    unsure: int  # Micro-USD
    line: int | None = None  # Its id in the ledger
    most: int = 0  # Micro-USD reserved by `extend`

    async def take(self, most: int) -> None:
        run, poster = self.challenge.run, self.challenge.poster
        self.line = await self.store.reserve_spend(run, poster, "evaluation", max(0, most - self.unsure), self.caps)

    async def extend(self, needed: int) -> int:
        """Reserve more for answers longer than quoted, up to the challenge's cap; return the new amount."""
        cap = self.caps.per_challenge
        wanted = needed + LEAST_RESERVE if cap is None else min(needed + LEAST_RESERVE, cap)
        if wanted >= needed and wanted > self.most:
            await self.take(wanted)
            self.most = wanted
        return self.most


def check_worth_starting(quoted: Quote, cap: int | None) -> None:
    """Raise Deferred if the cap does not pay for entries of usual size."""
    expected = quoted.models_micro_usd
    if cap is None or expected is None or expected <= cap:
        return
    raise Deferred(
        f"The budget of ${cap / MICRO:.2f} does not pay for {quoted.size.submissions} entries of usual size: about "
        f"${expected / MICRO:.2f}.",
        remedy="Raise CLARA_BUDGET_PER_CHALLENGE_USD, or name a cheaper model in CLARA_JUDGES.",
    )


@dataclass(slots=True)
class RunModels:
    lines: dict[str, CachedLlm]
    budget: budgets.RunBudget
    run: str
    find_report: Callable[[str, str, str], Awaitable[KeyReport]]
    estimate_usd: float | None

    def reader(self, names: Sequence[str]) -> Asker:
        lines = [self.lines[name] for name in names]
        return lines[0] if len(lines) == 1 else FallbackLlm(lines)

    async def key_report(self, judge: str, key: str) -> KeyReport:
        return await self.find_report(judge, key, self.run)

    def meter(self) -> tuple[int, float]:
        return sum(line.llm.answered for line in self.lines.values()), self.budget.spent / MICRO


@dataclass(slots=True)
class ModelPool:
    settings: Settings
    store: SqlStore
    on_call: CallListener | None = None  # Set by a service that counts calls
    poll_seconds: float = 20.0  # Between two polls of a batch
    patience: RetryPolicy = field(default_factory=RetryPolicy)  # For outages within one attempt
    quote_root: bytes | None = None  # Root certificate of enclaves in DER, instead of Intel's
    _llms: dict[str, ConnectedLlm] = field(default_factory=dict)
    _gates: dict[str, Gate] = field(default_factory=dict)  # One per judge for all runs: the provider limits concurrency
    _attested: dict[tuple[str, str], Attested] = field(default_factory=dict)

    def affordable(self, challenge: PaidRound, config: EvalConfig, plan: EvaluationPlan) -> EvaluationPlan:
        """Return the plan with limits on answers, and no more games than the challenge's cap pays for."""
        cap = budgets.caps_of(self.settings).tightest
        looks = challenge.submission_count * (challenge.submission_count - 1)
        tokens = providers.token_limits(self.settings, [providers.parse_judge(name) for name in plan.models])
        while True:
            plan = replace(plan, tokens=tokens)
            quoted = self._quote(challenge, config, plan, looks)
            if cap is None or quoted.most_for_reading <= cap * READING_SHARE or tokens.most // 2 < LEAST_BOUND:
                break
            tokens = replace(tokens, most=tokens.most // 2)
        plan = replace(plan, reading=self._reading_budget(plan, quoted, cap))
        affordable = quoted.affordable_looks(cap)
        if affordable is None:
            return plan
        games = affordable * sum(line.purpose == "comparison" for line in quoted.lines)
        return replace(plan, max_games=games if plan.max_games is None else min(plan.max_games, games))

    def _reading_budget(self, plan: EvaluationPlan, quoted: Quote, cap: int | None) -> budgets.ReadingBudget | None:
        """Return the budget for reading at the dearest reader's price; None without a cap or price."""
        line = next((line for line in quoted.lines if line.purpose == "features"), None)
        cards = [card for card in map(self.card, plan.readers) if card is not None]
        if cap is None or line is None or not line.micro_usd or len(cards) < len(plan.readers):
            return None
        rates = max(max(card.input, card.cache_write) for card in cards), max(card.output for card in cards)
        return budgets.ReadingBudget(quoted.for_reading(cap), *rates, line.output_tokens // line.calls)

    def run_quote(self, challenge: PaidRound, config: EvalConfig, plan: EvaluationPlan) -> Quote:
        games = plan.max_games or challenge.submission_count * (challenge.submission_count - 1) * len(plan.judges)
        return self._quote(challenge, config, plan, -(-games // len(plan.judges)))

    def _quote(self, challenge: PaidRound, config: EvalConfig, plan: EvaluationPlan, looks: int) -> Quote:
        size = Size(challenge.submission_count, looks)
        thinking = providers.thinking_models(providers.parse_judge(name) for name in plan.models)
        return quote(config, size, Jury({name: self.card(name) for name in plan.models}, (), thinking, plan.tokens))

    def card(self, name: str) -> budgets.PriceCard | None:
        return providers.price_card(providers.parse_judge(name), budgets.parse_prices(self.settings.prices))

    @asynccontextmanager
    async def open_run(
        self, challenge: PaidRound, config: EvalConfig, plan: EvaluationPlan, seconds: float
    ) -> AsyncIterator[RunModels]:
        """Open the models of a run; at the end, its cost replaces the reservation."""
        unsure = await self.store.unsure_of(challenge.run)
        spent = unsure + sum(cost or 0 for _, _, cost in await self.store.calls_of(challenge.run))
        caps, quoted = budgets.caps_of(self.settings), self.run_quote(challenge, config, plan)
        if caps.tightest is not None and quoted.unpriced:
            raise budgets.no_price(quoted.unpriced[0])  # before the first paid call
        is_costly = any(self.card(name) != budgets.FREE for name in plan.models)
        most = quoted.most_to_spend(caps, spent) if is_costly else None
        is_answered = most is not None and await self.store.entry(challenge.run, "unanswered") is not None
        expected = quoted.models_micro_usd
        if is_answered:
            most = spent  # everything is answered; calls for a late entry extend the reservation
        elif most is not None and not spent:
            check_worth_starting(quoted, caps.tightest)
        wasted_prefix = f"wasted/{','.join(plan.models)}/"  # another jury, or a restart, begins at 0
        earlier = await self.store.entries(challenge.run, wasted_prefix)
        wasted = sum(int(amount) for _, amount in earlier)
        ledger = Reservation(self.store, challenge, caps, unsure)
        kept = quoted.kept_for_comparing(caps.tightest)
        most_wasted = max(budgets.WASTE_TIMES * expected, budgets.LEAST_WASTE) if expected else None
        budget = budgets.RunBudget(most, spent, unsure, kept_micro_usd=kept, most_wasted=most_wasted, wasted=wasted)
        budget.extend = ledger.extend
        lines = {
            name: self.line(name, challenge.run, budget, seconds, self._ahead(name, challenge.run, budget, seconds))
            for name in plan.models
        }
        # Reserve last: a model that cannot be built must not leave a reservation behind.
        if is_costly and not is_answered:
            await ledger.take(most or spent)
        try:
            estimate = None if expected is None else expected / MICRO
            yield RunModels(lines, budget, challenge.run, self.key_report, estimate)
        except NothingJudged as bad:
            budget.waste(await self.store.forget_answers(bad.requests))
            raise
        finally:
            if budget.wasted > wasted:
                await self.store.add_entry(challenge.run, f"{wasted_prefix}{len(earlier)}", str(budget.wasted - wasted))
            for name in plan.models:
                self._attested.pop((name, challenge.run), None)
            if ledger.line is not None:
                # Calls that may have been charged without an answer keep their own line in the ledger.
                if budget.unsure_micro_usd:
                    await self.store.add_unsure(challenge.run, budget.unsure_micro_usd)
                await self.store.settle_spend(ledger.line, budget.spent - unsure - budget.unsure_micro_usd)

    def line(
        self, name: str, run: str, budget: budgets.RunBudget, seconds: float, ahead: AnswerAhead | None = None
    ) -> CachedLlm:
        judge = providers.parse_judge(name)
        provider = providers.provider_of(judge)
        clock = asyncio.get_running_loop().time
        policy = replace(self.patience, deadline=clock() + seconds)
        gate = self._gates.setdefault(name, Gate(provider.most_at_once or self.settings.max_concurrency, clock=clock))
        llm, card = self._judge(name, run), self.card(name)
        # Endpoints other than the provider's own may not count thinking towards the limit.
        beyond_limit = UNKNOWN_THINKING if judge.base_url is not None and provider.thinks(judge) else 0
        retrying = RetryingLlm(llm, budget, card, policy, gate, self.on_call, beyond_limit)
        return CachedLlm(retrying, self.store, run, ahead)

    def _judge(self, name: str, run: str) -> Llm:
        llm = self._llm(name)
        if not isinstance(llm, SigningOpenAi):
            return llm
        if (name, run) not in self._attested:
            self._attested[name, run] = Attested(llm, run, self.store, Quotes(self.settings.pccs_url, self.quote_root))
        return self._attested[name, run]

    async def key_report(self, judge: str, key: str, run: str) -> KeyReport:
        self._judge(judge, run)
        return await self._attested[judge, run].key_report(key)

    def _ahead(self, name: str, run: str, budget: budgets.RunBudget, seconds: float) -> AnswerAhead | None:
        clock = asyncio.get_running_loop().time
        ends_at, in_batches = clock() + seconds, providers.provider_of(providers.parse_judge(name)).answer_in_batches
        if in_batches is None or self.settings.batches != "auto":
            return None

        async def answer_ahead(prompts: Sequence[Prompt]) -> None:
            batch = providers.BatchRun(self._llm(name), self.store, run, budget, self.card(name), self.poll_seconds)
            await in_batches(batch, prompts, ends_at - clock())

        return answer_ahead

    def _llm(self, name: str) -> ConnectedLlm:
        if name not in self._llms:
            self._llms[name] = providers.build_llm(name, self.settings)
        return self._llms[name]

    async def close(self) -> None:
        for llm in self._llms.values():
            await llm.close()
