"""The models of one run: each on its line, all with one budget, within one reservation of the ledger.

Invariant: what a run may spend is reserved under every cap before its first call; it cannot spend more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from clara_eval.chain.model import Challenge
from clara_eval.challenges.round_costs import Reservation, RoundCosts, check_worth_starting
from clara_eval.config.eval_config import EvalConfig
from clara_eval.config.settings import Settings
from clara_eval.core.dollars import MICRO
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge import AnswerAhead, Asker, CachedLlm, CallListener, FallbackLlm, Gate, Prompt, RetryPolicy
from clara_eval.judge.attestation import KeyReport, Quotes
from clara_eval.judge.costs.budgets import RunBudget, caps_of
from clara_eval.judge.port import ConnectedLlm, Llm
from clara_eval.judge.provider import BatchRun
from clara_eval.judge.providers.attested import Attested, SigningOpenAi
from clara_eval.judge.providers.registry import (
    build_llm,
    parse_judge,
    provider_of,
)
from clara_eval.store.sql_store import SqlStore

UNKNOWN_THINKING = 8_192
"""Tokens reserved beyond the limit of an answer, at a foreign endpoint whose limit may leave thinking out."""


@dataclass(slots=True)
class RunModels:
    lines: dict[str, CachedLlm]
    budget: RunBudget
    run: str
    find_report: Callable[[str, str, str], Awaitable[KeyReport]]
    estimate_usd: float | None

    def asker(self, name: str) -> Asker:
        return self.lines[name]

    def reader(self, names: Sequence[str]) -> Asker:
        lines = [self.lines[name] for name in names]
        return lines[0] if len(lines) == 1 else FallbackLlm(lines)

    async def key_report(self, judge: str, key: str) -> KeyReport:
        return await self.find_report(judge, key, self.run)

    def meter(self) -> tuple[int, float]:
        return sum(line.answered for line in self.lines.values()), self.budget.spent / MICRO


@dataclass(slots=True)
class ModelPool:
    """Models, built once and shared by runs."""

    settings: Settings
    store: SqlStore
    watch: CallListener | None = None
    """Set by a service that counts calls."""
    poll_seconds: float = 20.0
    """Between two looks at a batch."""
    patience: RetryPolicy = field(default_factory=RetryPolicy)
    """How long an outage is waited for within one attempt."""
    quote_root: bytes | None = None
    """Another root of enclaves' certificates than Intel's, in DER."""
    _llms: dict[str, ConnectedLlm] = field(default_factory=dict)
    _gates: dict[str, Gate] = field(default_factory=dict)
    """Of each judge one for all runs: how many calls it bears at once is the provider's affair."""
    _attested: dict[tuple[str, str], Attested] = field(default_factory=dict)

    @property
    def costs(self) -> RoundCosts:
        return RoundCosts(self.settings)

    def affordable(self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan) -> EvaluationPlan:
        return self.costs.affordable(challenge, config, plan)

    @property
    def quotes(self) -> Quotes:
        return Quotes(self.settings.pccs_url, self.quote_root)

    @asynccontextmanager
    async def open_run(
        self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan, seconds: float
    ) -> AsyncIterator[RunModels]:
        """Open the models of a run; on leaving, what was spent replaces what was reserved."""
        unsure = await self.store.unsure_of(challenge.run)
        spent = unsure + sum([paid.cost_micro_usd or 0 async for paid in self.store.answers_of(challenge.run)])
        caps, quoted = caps_of(self.settings), self.costs.run_quote(challenge, config, plan)
        most = quoted.most_to_spend(caps, spent) if self.costs.is_costly(plan) else None
        is_answered = most is not None and await self.store.entry(challenge.run, "unanswered") is not None
        if is_answered:
            most = spent  # everything is answered; what a late entry needs is reserved when it is asked
        elif most is not None and not spent:
            check_worth_starting(quoted, caps.tightest)
        ledger = Reservation(self.settings, self.store, challenge, unsure)
        budget = RunBudget(
            most,
            spent_before=spent,
            lost_before=unsure,
            kept_micro_usd=quoted.kept_for_comparing(caps.tightest),
            extend=ledger.extend,
        )
        lines = {
            name: self.line(name, challenge.run, budget, seconds, self._ahead(name, challenge.run, budget, seconds))
            for name in plan.models
        }
        # Last before the run: a model that cannot be built must not leave a reservation behind.
        if self.costs.is_costly(plan) and not is_answered:
            await ledger.take(most or spent)
        try:
            expected = quoted.models_micro_usd
            yield RunModels(
                lines, budget, challenge.run, self.key_report, None if expected is None else expected / MICRO
            )
        finally:
            for name in plan.models:
                self._attested.pop((name, challenge.run), None)
            if ledger.line is not None:
                await self._close_reservation(ledger.line, challenge.run, budget, unsure)

    async def _close_reservation(self, ledger: int, run: str, budget: RunBudget, unsure_before: int) -> None:
        """The paid amount on the run's line; what may have been charged for nothing goes to its own, for good."""
        if budget.unsure_micro_usd:
            await self.store.add_unsure(run, budget.unsure_micro_usd)
        unsure = unsure_before + budget.unsure_micro_usd
        await self.store.settle_spend(ledger, budget.spent - unsure)

    def line(
        self, name: str, run: str, budget: RunBudget, seconds: float, ahead: AnswerAhead | None = None
    ) -> CachedLlm:
        """One model on its line for a run, for so many seconds."""
        at_once = provider_of(parse_judge(name)).most_at_once or self.settings.max_concurrency
        clock = asyncio.get_running_loop().time
        policy = replace(self.patience, deadline=clock() + seconds, most_in_flight=at_once)
        if name not in self._gates:
            self._gates[name] = Gate(at_once, clock=clock)
        llm, card = self._judge(name, run), self.costs.card(name)
        return CachedLlm(
            llm, self.store, run=run, budget=budget, card=card, policy=policy, watch=self.watch, ahead=ahead,
            gate=self._gates[name], beyond_limit=UNKNOWN_THINKING if self._is_foreign_thinker(name) else 0,
        )  # fmt: skip

    def _is_foreign_thinker(self, name: str) -> bool:
        """Whether its endpoint may leave thinking out of the limit: the providers' own count it."""
        judge = parse_judge(name)
        return judge.base_url is not None and provider_of(judge).thinks(judge)

    def _judge(self, name: str, run: str) -> Llm:
        """The model; if its endpoint signs, behind the checks of its signatures."""
        llm = self._llm(name)
        if not isinstance(llm, SigningOpenAi):
            return llm
        if (name, run) not in self._attested:
            self._attested[name, run] = Attested(llm, run, self.store, self.quotes)
        return self._attested[name, run]

    async def key_report(self, judge: str, key: str, run: str) -> KeyReport:
        self._judge(judge, run)
        return await self._attested[judge, run].key_report(key)

    def _ahead(self, name: str, run: str, budget: RunBudget, seconds: float) -> AnswerAhead | None:
        """Ask in message batches, if the model has them and the time allows it."""
        ends_at = asyncio.get_running_loop().time() + seconds
        card = self.costs.card(name)
        in_batches = provider_of(parse_judge(name)).answer_in_batches if self.settings.batches == "auto" else None
        if in_batches is None:
            return None

        async def look(prompts: Sequence[Prompt]) -> None:
            left = ends_at - asyncio.get_running_loop().time()
            batch = BatchRun(self._llm(name), self.store, run, budget, card, self.poll_seconds)
            await in_batches(batch, prompts, left)

        return look

    def _llm(self, name: str) -> ConnectedLlm:
        if name not in self._llms:
            self._llms[name] = build_llm(name, self.settings)
        return self._llms[name]

    async def close(self) -> None:
        for llm in self._llms.values():
            await llm.close()
