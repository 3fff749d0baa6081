"""Entries that are made to be costly: the others are read, compared and paid as without them, within the cap."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cheap_entries import CLAIMS, words
from tests.support.fake_endpoint import Seen
from tests.support.ipfs_gateway import LocalGateway
from tests.support.rounds import opened
from tests.support.scripted_llm import verdict_text
from tests.support.thinking import prompt_of
from tests.support.thinking_endpoint import ThinkingEndpoint
from tests.support.verifiers import node_refusals

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms
from clara_eval.judge.costs.budgets import EntryShare, PriceCard, ReadingBudget, next_to_read
from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.retrying_llm import CONTROL
from clara_eval.submissions.fetch import UriFetch

FEATURES = [
    {"name": name, "type": "integer", "min": 0, "max": 9, "better": "higher", "description": f"The {name}."}
    for name in CLAIMS
]
CONFIG = json.dumps(
    {"version": 1, "features": FEATURES, "criteria": "The best has the most quality, then clarity, then care."}
)
CAP = 25_000_000
USD_PER_MILLION = (24, 30)
HONEST = [f"Plan {n}: measure 7000{n}, then 8000{n}, then 9000{n} times, and write down what came." for n in (8, 6, 4)]


def judge(seen: Seen) -> str:
    """Read what is written, and prefer the larger sum."""
    prompt = prompt_of(seen)
    if prompt.user == CONTROL:
        return "{}"
    if prompt.purpose != "comparison":
        answer = json.loads(words(seen))
        return json.dumps({**answer, **dict.fromkeys((f"{name}_line" for name in CLAIMS), 1)})
    shown = [json.loads(line) for line in prompt.user.splitlines() if line.startswith("{")]
    merits = [sum(float(value or 0) for value in vector.values()) for vector in shown]
    if len(merits) == 4:
        order = sorted(range(4), key=lambda place: -merits[place])
        return json.dumps({"order": ["ABCD"[place] for place in order], "reason": "the larger sum"})
    first, second = merits
    return verdict_text("tie" if first == second else "A" if first > second else "B", 0.8)


def junk(number: int, size: int) -> bytes:
    """A text of its own that says nothing, with a mark by which the scripted model thinks about it."""
    said = random.Random(number).randbytes(size // 2).hex()
    return f"JUNK {' '.join(said[at : at + 6] for at in range(0, size, 6))}"[:size].encode()


async def round_of(chain: LocalChain, gateway: LocalGateway, hostile: Sequence[bytes]) -> Address:
    """A closed round with the honest entries last."""
    terms = PostedTerms(
        challenge_uri=build_metadata(title="t", problem_statement="Plan it.", skills=(), config_text=CONFIG),
        eval_config_hash=config_hash(CONFIG.encode()),
        payout_bps=(5000, 3000, 2000),
        prize_pool=90_000_000,
        open_seconds=HOUR,
    )
    address = await chain.post_challenge(terms)
    contents = [*(text.encode() for text in HONEST), *hostile]
    uris = [gateway.add(one) for one in contents]
    handed = [Handed(a, u, keccak_hex(c)) for a, u, c in zip(chain.agents, uris, contents, strict=False)]
    assert len(handed) == len(contents), "the node has an account for each"
    await chain.submit_all(address, [*handed[3:], *handed[:3]])
    await chain.move_time(HOUR + 1)
    return address


def endless(seen: Seen) -> int:
    return 10**6 if "JUNK" in seen.text else 200


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("count", "size", "think", "model", "dearer"),
    [
        (5, 262_000, lambda _seen: 0, "m", 4),
        (20, 900, endless, "m", 1),
        (20, 900, endless, "gpt-6-luna", 1),
        (8, 60_000, endless, "m", 1),
    ],
    ids=["huge", "endless", "endless-thinker", "long-and-endless"],
)
async def test_costly_entries_keep_nobody_from_being_paid(
    local_chain: LocalChain,
    tmp_path: Path,
    count: int,
    size: int,
    think: Callable[[Seen], int],
    model: str,
    dearer: int,
) -> None:
    """Many entries that are costly to read, next to three honest ones: the honest are paid on chain, and the cap is kept."""
    endpoint = ThinkingEndpoint(think, words=judge)
    price_in, price_out = (dearer * price for price in USD_PER_MILLION)
    read, written = 1_000_000 * price_in, 1_000_000 * price_out
    card = PriceCard(read, written, read, read)
    async with LocalGateway() as gateway, endpoint.running():
        await gateway.start()
        address = await round_of(local_chain, gateway, [junk(n, size) for n in range(count)])
        name = f"openai:{model}@{endpoint.url}"
        async with opened(local_chain, tmp_path, judges_as_set=name, prices=f"{name}={price_in}/{price_out}") as app:
            reaching = replace(app, fetch=UriFetch(gateway.url))
            done = await evaluate(reaching, address, EvaluationRequest())
            path = await write_trace(reaching, address)
            checked = await check_trace(path.read_text(encoding="utf-8").splitlines(keepends=True))
            (line,) = await app.store.spends()
            assert done.receipt is not None or (done.review and done.review.posts_at), "no person is needed"
            if done.receipt is None and done.review is not None and done.review.posts_at is not None:
                deadline = await local_chain.challenge(address).read("deadline")
                await local_chain.move_time(done.review.posts_at - deadline)
                await evaluate(reaching, address, EvaluationRequest())
            paid = [one.account for one in await app.chain.results.winners_on_chain(address, 3)]
    assert node_refusals({"round": path.read_bytes()}, tmp_path) == {"round": ""}
    walk = done.result
    right = [agent.address for agent in local_chain.agents[:3]]
    assert [one.account for one in done.winners.entries] == right
    assert paid == right
    assert line.settled_micro_usd == sum(card.price(*tokens) for tokens in endpoint.charged) <= CAP
    reading = checked.plan.reading
    assert reading is not None
    read = sum(card.cost(paid.answer) for paid in walk.answers.values() if paid.purpose == "features")
    assert read <= reading.micro_usd
    unread = [one for one in walk.rejected if one.is_outage]
    assert unread
    bounds = ("budget for reading", "The budget of $25.00", "CLARA_ANSWER_TOKENS")
    assert all(any(bound in one.reason for bound in bounds) for one in unread)
    assert not {one.submission.submitter for one in walk.rejected} & set(right)
    assert all(comparison.winner is not None for comparison in walk.comparisons)
    assert checked.digest == done.digest


def test_small_entries_are_read_first_and_shares_never_exceed_the_total() -> None:
    """Whatever sizes there are: every bound covers what the entry needs, and all bounds together are in the budget."""
    rng = random.Random(24)
    for _ in range(300):
        usual = {f"{n}": rng.choice((10, 50, 400, 5_000)) + rng.randrange(9) for n in range(rng.randrange(1, 60))}
        left = rng.randrange(1, 40_000)
        order = sorted(usual.values())
        seen: list[int] = []
        while chosen := next_to_read(left, usual):
            assert sum(chosen.values()) <= left
            assert all(usual[name] <= bound for name, bound in chosen.items())
            left -= sum(usual[name] for name in chosen)
            seen += sorted(usual.pop(name) for name in chosen)
        assert seen == order[: len(seen)]
        assert all(needs * 13 // 10 > left for needs in usual.values())


def test_an_entry_that_was_waited_for_in_vain_counts_in_full() -> None:
    """A question without an answer in time may have been charged each time, so the entry's share pays for it."""
    money = ReadingBudget(1_000_000, 3_000_000, 15_000_000, 100)
    prompt = Prompt("features", "system", "user", "{}", 500, "0x00")
    share, other = EntryShare(money, 0, 0), EntryShare(money, 0, 0)
    share.count(prompt, Answer("", "m", "max_tokens", 0, 0))
    other.count(prompt, Answer("", "m", "end", 0, 0))
    assert (share.spent, other.spent) == (2 * money.card.worst(prompt), 0)
