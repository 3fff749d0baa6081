"""Run a challenge on a local chain from escrow to claimed prizes, and verify its trace."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import App, open_app
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.calls import finalize
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import Checked, check_trace
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError
from clara_eval.core.model import FINALIZATION_SECONDS
from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.demo.round import DemoRound, Story, gas_golf, post_round, rate_limiter, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain, local_chain
from clara_eval.documents.results import EvalStatus
from clara_eval.documents.store_keys import scores_key
from clara_eval.harness import Machine, MissingEngine
from clara_eval.store.trace_archive import stream_trace

ACCOUNTS = 16  # Owner, poster, evaluator and 13 agents
Tell = Callable[[str, str], None]  # Called with the name of a stage and one sentence about what happened


@dataclass(frozen=True, slots=True)
class DemoResult:
    round: DemoRound
    evaluation: Evaluation
    checked: Checked
    trace_path: Path
    balances: dict[Address, tuple[int, int]]  # Before and after the claims, in base units
    claimed: dict[Address, bool]
    scores: dict[str, object]  # The public `scores` document


def local_settings(chain: LocalChain, database: Path, trace_dir: Path) -> Settings:
    return Settings.model_validate(
        {
            "CLARA_NETWORK": "local",
            "CLARA_RPC_URL": chain.rpc_url,
            "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
            "CLARA_FROM_BLOCK": chain.deployment.from_block,
            "CLARA_EVALUATOR_KEY": SecretStr(chain.evaluator.key),
            "CLARA_DATABASE_URL": f"sqlite:///{database}",
            "CLARA_TRACE_DIR": trace_dir,
        }
    )


async def run_demo(trace_dir: Path, tell: Tell, listener: Callable[[EvalStatus], None] | None = None) -> DemoResult:
    """Run the lifecycle on a temporary node and store; results are checked on the chain."""
    with tempfile.TemporaryDirectory(prefix="clara-demo-") as folder:
        async with local_chain(AnvilOptions(accounts=ACCOUNTS)) as chain:
            tell("chain", f"a local node answers at {chain.rpc_url}, contracts are deployed")
            settings = local_settings(chain, Path(folder) / "store.db", trace_dir)
            async with open_app(settings, pace=SendTimeouts(poll_seconds=0.05)) as app:
                story = choose_story(app.machine, tell)
                posted = await post_round(chain, story=story)
                tell("challenge", f"{posted} is posted: 500 USDC for the best three, config committed by hash")
                round_ = await submit_round(chain, posted, story)
                tell("submissions", f"{len(round_.names)} agents submitted before the deadline")
                await chain.move_time(HOUR + 1)
                return await _judge_and_pay(app, chain, round_, tell, listener)


def choose_story(machine: Machine, tell: Tell) -> Story:
    """Return the round that runs submissions, or one that needs no engine if there is none."""
    try:
        machine.require("solidity")
    except MissingEngine as missing:
        tell("engine", f"{missing.message} This round is therefore judged without running anything. {missing.remedy}")
        return rate_limiter()
    tell("engine", "submissions are compiled and run in a closed EVM: the same numbers on every machine")
    return gas_golf()


async def _judge_and_pay(
    app: App, chain: LocalChain, round_: DemoRound, tell: Tell, listener: Callable[[EvalStatus], None] | None
) -> DemoResult:
    evaluation = await evaluate(app, round_.address, EvaluationRequest(progress=listener))
    if evaluation.receipt is None:
        raise ClaraError("The demo round waits for a review, which it should not.")
    tell("publish", f"scores are posted in {evaluation.receipt.tx_hash}")
    path = await write_trace(app, round_.address)
    await chain.move_time(FINALIZATION_SECONDS + 1)
    await finalize(evaluation.challenge, sender=app.sender)
    tell("finalize", "12 hours later anybody may finalize; the service does")
    balances, claimed = await claim_prizes(app, chain, evaluation)
    tell("claim", f"{sum(claimed.values())} winners claimed their prizes")
    with path.open(encoding="utf-8") as lines:
        checked = await check_trace(lines, app.chain, machine=app.machine)
    tell("verify", f"replayed: all {checked.entries} entries hold, and the posted transaction commits to them")
    scores = await read_document(app.store, app.chain_id, scores_key(round_.address)) or {}
    return DemoResult(round_, evaluation, checked, path, balances, claimed, scores)


async def write_trace(app: App, address: Address) -> Path:
    app.settings.trace_dir.mkdir(parents=True, exist_ok=True)
    path = app.settings.trace_dir / f"{address}.trace.json"
    with path.open("w", encoding="utf-8") as out:
        async for part in stream_trace(app.store, app.chain_id, address):
            out.write(part)
    return path.resolve()


async def claim_prizes(
    app: App, chain: LocalChain, evaluation: Evaluation
) -> tuple[dict[Address, tuple[int, int]], dict[Address, bool]]:
    accounts = {agent.address: agent for agent in chain.agents}
    winners = [winner.account for winner in evaluation.winners.entries]
    contract = chain.challenge(evaluation.challenge.address)
    balances = {}
    for account in winners:
        before = await chain.balance(account)
        await chain.send(accounts[account], contract, "claimPrize")
        balances[account] = (before, await chain.balance(account))
    return balances, await app.chain.results.has_claimed(evaluation.challenge.address, winners)


def demo_document(result: DemoResult) -> dict[str, object]:
    evaluation, outcome = result.evaluation, result.evaluation.result
    standings = outcome.ranking.standings if outcome.ranking else ()
    agents = {s.submitter: s.agent_id for s in evaluation.challenge.submissions}
    runs = outcome.execution.executed if outcome.execution else {}
    executed = {account: run.summary() for account, run in runs.items()}
    receipt = evaluation.receipt
    gained = {account: after - before for account, (before, after) in result.balances.items()}
    return {
        "challenge": evaluation.challenge.address,
        "chainId": evaluation.challenge.chain_id,
        "submissions": len(evaluation.challenge.submissions),
        "rejected": [{"account": r.submission.submitter, "code": r.code, "reason": r.reason} for r in outcome.rejected],
        "ranking": [
            {
                "account": s.item,
                "agentId": agents[Address(s.item)],
                "rank": s.rank,
                "elo": s.elo,
                "score": s.score,
                "low": s.low,
                "high": s.high,
                "pTop": s.p_top,
                "tiedWith": outcome.ranking.tied_with(s.item) if outcome.ranking else [],
                "executed": executed.get(Address(s.item)),
            }
            for s in standings
        ],
        "winners": [
            {
                "account": w.account,
                "agentId": w.agent_id,
                "prizeAmount": str(w.prize_amount),
                "claimed": result.claimed[w.account] and gained[w.account] == w.prize_amount,
            }
            for w in evaluation.winners.entries
        ],
        "prizePool": str(evaluation.challenge.prize_pool),
        "txHash": receipt.tx_hash if receipt else None,
        "traceDigest": evaluation.digest,
        "tracePath": str(result.trace_path),
        "verified": result.checked.digest == evaluation.digest and result.checked.posted is not None,
    }
