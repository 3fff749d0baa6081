"""A whole round judged by a real, small, bad language model: it ends, it can be checked, and its bias is told.

It compares facts but cannot read programs for them: a round that needs its reading ends without a ranking.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import open_app
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import local_settings, write_trace
from clara_eval.devnet.demo.round import data_uri, entry
from clara_eval.devnet.local_chain import (
    HOUR,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
)

MEASURED = [{"name": "max_complexity", "source": "measured"}, {"name": "tests", "source": "measured"}]
READ = {"name": "is_complete", "type": "boolean", "better": "higher"}
CONFIG = json.dumps(
    {
        "version": 1,
        "features": MEASURED,
        "criteria": "The best rate limiter is complete, simple and tested: low complexity, more tests.",
        "language": "python",
    }
)
NAMES = ("deque_window", "token_bucket", "nested_flags")


async def closed(chain: LocalChain, config: str) -> Address:
    """A round with three entries whose deadline has passed."""
    metadata = build_metadata(title="t", problem_statement="p", skills=(), config_text=config)
    terms = PostedTerms(challenge_uri=metadata, eval_config_hash=config_hash(config.encode()), open_seconds=HOUR)
    address = await chain.post_challenge(replace(terms, prize_pool=500 * USDC, payout_bps=(10_000,)))
    contents = [entry(name).encode() for name in NAMES]
    await chain.submit_all(
        address, [Handed(chain.agents[n], data_uri(c), keccak_hex(c)) for n, c in enumerate(contents)]
    )
    await chain.move_time(HOUR + 1)
    return address


def judged_locally(chain: LocalChain, place: Path) -> Settings:
    return local_settings(chain, place / "store.db", place).model_copy(update={"judges_as_set": "local:smollm2"})


@pytest.mark.local_model
@pytest.mark.timeout(1500)
async def test_a_model_that_cannot_read_programs_ranks_nobody(local_chain: LocalChain, tmp_path: Path) -> None:
    """What it says about programs does not describe them: nothing is invented, and the reason is named."""
    address = await closed(local_chain, json.dumps({**json.loads(CONFIG), "features": [*MEASURED, READ]}))
    async with open_app(judged_locally(local_chain, tmp_path), pace=SendTimeouts(poll_seconds=0.05)) as app:
        with pytest.raises(Temporary, match=r"No submission could be read|not what was asked for"):
            await evaluate(app, address, EvaluationRequest(dry_run=True))


@pytest.mark.local_model
@pytest.mark.timeout(1500)
async def test_a_real_round_with_the_real_local_model(local_chain: LocalChain, tmp_path: Path) -> None:
    """The round runs to its end; answers that follow the side shown up as swap disagreement, not as a ranking."""
    address = await closed(local_chain, CONFIG)
    async with open_app(judged_locally(local_chain, tmp_path), pace=SendTimeouts(poll_seconds=0.05)) as app:
        done = await evaluate(app, address, EvaluationRequest(dry_run=True))
        path = await write_trace(app, address)
    ranking = done.result.ranking
    assert ranking is not None
    assert len(done.result.comparisons) == 6
    decided = [c for c in done.result.comparisons if c.winner is not None]
    assert decided, "the model gave no verdict at all"
    # This model names the same side whatever it is shown: both orders then cancel out instead of making a ranking.
    assert ranking.consistency.swap_consistency is not None
    assert ranking.consistency.swap_consistency < 0.5
    assert ranking.standings[0].elo - ranking.standings[-1].elo < 10
    checked = await check_trace(path.read_text(encoding="utf-8").splitlines(keepends=True))
    assert checked.digest == done.digest
