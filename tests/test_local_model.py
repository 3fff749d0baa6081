"""A whole round judged by a real, small, bad language model: it ends, it can be checked, and its bias is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clara_eval.app import open_app
from clara_eval.demo.lifecycle import local_settings, write_trace
from clara_eval.demo.round import data_uri, entry
from clara_eval.devnet.local_chain import HOUR, USDC, Handed, LocalChain, Terms
from clara_eval.eval_config import build_metadata, config_hash
from clara_eval.hashing import keccak_hex
from clara_eval.pipeline.replay import check_trace
from clara_eval.publish.send import Pace
from clara_eval.use_cases.evaluate import EvaluationRequest, evaluate

CONFIG = json.dumps(
    {
        "version": 1,
        "features": [
            {"name": "max_complexity", "source": "measured"},
            {"name": "tests", "source": "measured"},
            {"name": "is_complete", "type": "boolean", "better": "higher"},
        ],
        "criteria": "The best rate limiter is complete, simple and tested: low complexity, more tests.",
        "language": "python",
    }
)
NAMES = ("deque_window", "token_bucket", "nested_flags")


@pytest.mark.local_model
@pytest.mark.timeout(1500)
async def test_a_real_round_with_the_real_local_model(local_chain: LocalChain, tmp_path: Path) -> None:
    """The round runs to its end; answers that follow the side shown up as swap disagreement, not as a ranking."""
    metadata = build_metadata(title="t", problem_statement="p", skills=(), config_text=CONFIG)
    terms = Terms(challenge_uri=metadata, eval_config_hash=config_hash(CONFIG.encode()), open_seconds=HOUR)
    address = await local_chain.post_challenge(replace(terms, prize_pool=500 * USDC, payout_bps=(10_000,)))
    contents = [entry(name).encode() for name in NAMES]
    await local_chain.submit_all(
        address, [Handed(local_chain.agents[n], data_uri(c), keccak_hex(c)) for n, c in enumerate(contents)]
    )
    await local_chain.move_time(HOUR + 1)
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path).model_copy(
        update={"judges": "local:smollm2"}
    )
    async with open_app(settings, pace=Pace(poll_seconds=0.05)) as app:
        done = await evaluate(app, address, EvaluationRequest(dry_run=True))
        path = await write_trace(app, address)
    ranking = done.walk.ranking
    assert ranking is not None
    assert len(done.walk.comparisons) == 6
    decided = [c for c in done.walk.comparisons if c.winner is not None]
    assert decided, "the model gave no verdict at all"
    # This model names the same side whatever it is shown: both orders then cancel out instead of making a ranking.
    assert ranking.consistency.swap_consistency is not None
    assert ranking.consistency.swap_consistency < 0.5
    assert ranking.standings[0].elo - ranking.standings[-1].elo < 10
    checked = await check_trace(path.read_text(encoding="utf-8").splitlines(keepends=True))
    assert checked.digest == done.digest
