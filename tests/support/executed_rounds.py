"""Set-up shared by tests: what test_execution.py and others use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.rounds import opened, run

from clara_eval.app import App
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import Checked
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import (
    HOUR,
    Handed,
    LocalChain,
    PostedTerms,
)
from clara_eval.harness import Harness
from clara_eval.harness.model import HarnessDocument, hide

CRITERIA = "The submission that passes every test of the harness with the least work is the best one."


PUBLIC = """
export const test_two = (s) => { if (s.double(2) !== 4) throw new Error("two"); };
export const metric_work = (s) => s.double(3);
"""


HIDDEN = PUBLIC + 'export const test_minus = (s) => { if (s.double(-3) !== -6) throw new Error("minus"); };'


GOOD = "export const double = (n) => n + n; // an honest one"


SLOW = "export function double(n) { let t = 0; for (let i = 0; i < 900; i++) t += i; return 2 * n; }"


WRONG = "export const double = (n) => n * n; // squares it instead"


ENDLESS = "export function double(n) { for (;;) { n += 1; } }"


BROKEN = "export function { this is not code"


TEXTS = (GOOD, SLOW, WRONG, ENDLESS, BROKEN)


FEATURES = ("tests_passed", "fuel_two", "test_minus", "loads", "runs")


async def post(
    chain: LocalChain,
    harness: dict[str, Any],
    features: Sequence[str],
    texts: Sequence[str],
    committed: str = "",
    *,
    close: bool = True,
) -> Address:
    """A round with this harness and these submissions, closed unless said otherwise."""
    document = {"version": 1, "features": [*features], "criteria": CRITERIA, "judge": "rules", "harness": harness}
    text = json.dumps(document)
    terms = PostedTerms(
        challenge_uri=build_metadata(title="Double", problem_statement="Double it.", skills=(), config_text=text),
        eval_config_hash=config_hash(text.encode()),
        private_set_hash=committed or "0x" + "00" * 32,
        prize_pool=500_000_000,
        payout_bps=(7000, 3000),
        open_seconds=HOUR,
    )
    address = await chain.post_challenge(terms)
    await chain.submit_all(
        address,
        [Handed(chain.agents[n], data_uri(t.encode()), keccak_hex(t.encode())) for n, t in enumerate(texts)],
    )
    if close:
        await chain.move_time(HOUR + 1)
    return address


async def lines_of(app: App, address: Address) -> list[str]:
    return (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)


def values(done: Evaluation | Checked, chain: LocalChain, number: int) -> dict[str, Any]:
    return done.result.features[chain.agents[number].address].vector.as_dict()


async def public_round(chain: LocalChain, place: Path) -> tuple[Evaluation, list[str]]:
    spec = {"language": "javascript", "source": PUBLIC}
    address = await post(chain, spec, ("tests_passed", "fuel_two", "test_two", "loads", "runs"), TEXTS)
    async with opened(chain, place) as app:
        done = await run(app, address)
        return done, await lines_of(app, address)


def hidden(if_not_revealed: str, **more: str) -> tuple[dict[str, Any], HarnessDocument]:
    document = hide(Harness("javascript", HIDDEN))
    return {"language": "javascript", "hidden": True, "ifNotRevealed": if_not_revealed, **more}, document
