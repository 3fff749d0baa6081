"""The whole walk on a real node: ends well, ends in review, ends unscorable, and survives dying anywhere."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.rounds import closed_by_a_payment, closed_round, opened, pass_the_deadline, replace_from, run
from tests.support.statuses import read_status
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.replay import check_trace
from clara_eval.challenges.review import decide
from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.errors import (
    BadInput,
    BadTrace,
    CannotPublish,
    ConfigError,
    Disagrees,
    NeedsReview,
    NotFound,
    NotYet,
    Temporary,
    Unscorable,
)
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import (
    CONFIG,
    data_uri,
    entry,
    post_round,
    submit_round,
)
from clara_eval.devnet.local_chain import HOUR, USDC, Handed, LocalChain
from clara_eval.documents.results import MEANINGS
from clara_eval.documents.store_keys import scores_key
from clara_eval.evaluation.play import Comparison
from clara_eval.evaluation.review_rules import ranking_flags
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.evaluation.run import is_exact, rank_round
from clara_eval.evaluation.trace import Journal
from clara_eval.judge.comparison import RulesJudge
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import stream_trace
from clara_eval.submissions.copies import CONTESTED_SECONDS
from clara_eval.submissions.model import Fetch, Fetched


async def posts(chain: LocalChain, address: Address) -> int:
    contract = chain.challenge(address)
    return len(await as_web3(contract).events.ScoresPosted().get_logs(from_block=0))


async def test_a_round_ends_with_posted_winners_and_all_keys(local_chain: LocalChain, tmp_path: Path) -> None:
    """After a round the contract holds the winners, the pool is split to the unit, and every specified key is there."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        assert done.receipt is not None
        assert done.receipt.outcome is SendOutcome.CONFIRMED
        assert await app.chain.results.winners_on_chain(address, 3) == done.winners.entries
        assert sum(w.prize_amount for w in done.winners.entries) == 500 * USDC
        status = await read_status(app.store, 31337, address)
        assert status is not None
        assert (status["status"], status["progress"], status["postedBy"]) == ("complete", 100, "evaluator")
        scores = await read_document(app.store, 31337, scores_key(address))
        assert scores is not None
        assert [row["rank"] for row in scores["rankings"]] == list(range(1, 11))
        assert scores["txHash"] == done.receipt.tx_hash
        keys = await app.store.keys(31337, f"challenges:{address}:")
        kinds = {key.split(":")[2] for key in keys}
        assert kinds == {"eval-status", "features", "pairwise", "scores", "eval-trace"}
        assert sum(":features:" in key for key in keys) == 7
        assert sum(":pairwise:" in key for key in keys) == 42


async def test_rejected_submissions_rank_last_with_score_zero(local_chain: LocalChain, tmp_path: Path) -> None:
    """Unreadable, wrongly hashed and copied submissions are placed behind all others, in order of submission."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address, dry_run=True)
    assert [r.code for r in done.result.rejected] == ["copy", "wrong_hash", "binary"]
    assert [p.score for p in done.result.placed[7:]] == [0, 0, 0]
    rejected = {r.submission.submitter for r in done.result.rejected}
    assert not rejected & {w.account for w in done.winners.entries}


async def test_a_family_of_similar_entries_is_recorded_and_ranked(local_chain: LocalChain, tmp_path: Path) -> None:
    """Two entries that share most of their text are ranked, named as a family, and the trace holds to it."""
    address = await post_round(local_chain)
    halves = [f"{entry('ring_buffer')}\n\n{entry('deque_window')}{more}" for more in ("", "\n\nVERSION = 2\n")]
    texts = [entry("token_bucket"), entry("nested_flags"), *halves]
    handed = [Handed(local_chain.agents[n], data_uri(t.encode()), keccak_hex(t.encode())) for n, t in enumerate(texts)]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        accounts = [item.agent.address for item in handed]
        assert done.result.likeness.families == dict.fromkeys(accounts[2:], accounts[2])
        assert len(done.result.ranking.standings if done.result.ranking else ()) == 4
        with (await write_trace(app, address)).open() as lines:
            assert (await check_trace(lines, None)).digest == done.digest


async def test_two_entries_of_one_agent_on_paid_places_wait_for_a_person(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """An identity handed on between two submissions makes a family of two addresses: no money before a person looked."""
    chain, address = local_chain, await post_round(local_chain)
    one, other = chain.agents[0], chain.agents[1]
    handed_on = await chain.register(one)
    names = ("token_bucket", "ring_buffer", "nested_flags", "unfinished")
    uris = [data_uri(entry(name).encode()) for name in names]
    await chain.submit(one, address, uris[0])
    await chain.move_time(2)  # within one second the address would say who was first
    between = [web3_of(chain).to_checksum_address(account.address) for account in (one, other)]
    await chain.send(one, chain.registry, "transferFrom", *between, handed_on)
    sealed = bytes.fromhex(keccak_hex(uris[1].encode())[2:])
    await chain.send(other, chain.challenge(address), "submit", handed_on, uris[1], sealed)
    await chain.submit_all(address, [Handed(chain.agents[n], uris[n]) for n in (2, 3)])
    await chain.move_time(HOUR + 1)
    async with opened(chain, tmp_path) as app:
        done = await run(app, address)
        status = await read_status(app.store, 31337, address)
    assert [s.agent_id for s in done.challenge.submissions].count(handed_on) == 2
    assert done.result.likeness.families == {one.address: one.address, other.address: one.address}
    assert {one.address, other.address} <= {winner.account for winner in done.winners.entries}
    assert "family_paid_twice" in {flag.code for flag in done.result.flags if flag.severity == "review"}
    assert (done.receipt, status["status"] if status else None) == (None, "review")


async def test_a_family_that_decides_who_is_paid_waits_for_a_person(local_chain: LocalChain, tmp_path: Path) -> None:
    """Six of one family lose to one entry and beat its rival: without them the rival would be paid, so a person looks."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        given = replace((await run(app, address, dry_run=True)).result.given, winner_count=1, payout_bps=(10000,))
    one, rival, *family = [submission.submitter for submission in given.submissions[:8]]
    games = [(rival, one), *((one, member) for member in family), *((member, rival) for member in family)]
    played = [Comparison(a, b, "judge", "first", None, "", ()) for a, b in games]
    items = sorted({item for game in games for item in game})
    ranking = rank_round(given, items, played, dict.fromkeys(family, family[0]))
    assert ranking is not None
    assert ranking.winners == (one,)
    assert ("pivotal_cluster", "review") in {
        (flag.code, flag.severity) for flag in ranking_flags(ranking, by_arrival=True)
    }


async def test_rules_over_measured_facts_leave_no_doubt(local_chain: LocalChain, tmp_path: Path) -> None:
    """A round by arithmetic is certain of its paid places; one claimed feature, or a model, and it is not exact."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        found = (await run(app, address, dry_run=True)).result
    assert found.ranking is not None
    assert [s.p_top for s in found.ranking.standings] == [1, 1, 1, 0, 0, 0, 0]
    claimed = replace(found.schema.features[0], name="claimed", source="llm")
    rules = RulesJudge(found.schema)
    assert is_exact(found.schema, {"rules": rules})
    assert not is_exact(FeatureSchema((*found.schema.features, claimed)), {"rules": rules})


async def test_without_a_key_nothing_is_sent(local_chain: LocalChain, tmp_path: Path) -> None:
    """With only an address the walk is complete, rehearsed and not sent."""
    address = await closed_round(local_chain)
    await local_chain.send(local_chain.owner, local_chain.challenge(address), "advanceToScoring")
    dry = {"evaluator_key": None, "evaluator_address": local_chain.evaluator.address}
    async with opened(local_chain, tmp_path, **dry) as app:
        done = await run(app, address)
    assert done.receipt is not None
    assert done.receipt.outcome is SendOutcome.DRY_RUN
    assert await posts(local_chain, address) == 0


async def test_a_large_prize_waits_for_a_person(local_chain: LocalChain, tmp_path: Path) -> None:
    """From $1000 on nothing is posted until the result is approved; then exactly that result is posted."""
    address = await closed_round(local_chain, pool=1000 * USDC)
    async with opened(local_chain, tmp_path) as app:
        waiting = await run(app, address)
        assert waiting.receipt is None
        status = await read_status(app.store, 31337, address)
        assert status is not None
        assert status["status"] == "review"
        assert status["reason"] == MEANINGS["review"]
        assert waiting.review is not None
        assert "1,000.00" in waiting.review.reasons[0]
        assert await posts(local_chain, address) == 0
        with pytest.raises(BadInput, match="changed since you looked"):
            await decide(app.store, 31337, address, "approved", note="", digest="0x" + "0" * 64, by="")
        await decide(app.store, 31337, address, "approved", note="looked at", digest=waiting.digest, by="")
        done = await run(app, address)
        assert done.digest == waiting.digest
        assert await posts(local_chain, address) == 1


async def test_a_rejected_review_is_never_posted(local_chain: LocalChain, tmp_path: Path) -> None:
    """What a person rejected stays unposted and fails with their note."""
    address = await closed_round(local_chain, pool=1000 * USDC)
    async with opened(local_chain, tmp_path) as app:
        await run(app, address)
        await decide(app.store, 31337, address, "rejected", note="collusion", digest=None, by="")
        with pytest.raises(NeedsReview, match="collusion"):
            await run(app, address)
        status = await read_status(app.store, 31337, address)
        assert status is not None
        assert status["status"] == "failed"
    assert await posts(local_chain, address) == 0


async def test_a_rejection_outlives_the_rule_that_asked_for_it(local_chain: LocalChain, tmp_path: Path) -> None:
    """A result that a person rejected is not posted when the limit for reviews is lifted afterwards."""
    address = await closed_round(local_chain, pool=1000 * USDC)
    async with opened(local_chain, tmp_path) as app:
        await run(app, address)
        await decide(app.store, 31337, address, "rejected", note="collusion", digest=None, by="")
        with pytest.raises(NeedsReview, match="collusion"):
            await run(replace(app, settings=app.settings.model_copy(update={"review_above_usd": None})), address)
    assert await posts(local_chain, address) == 0


async def test_a_round_of_junk_can_be_posted_but_waits_for_a_person(local_chain: LocalChain, tmp_path: Path) -> None:
    """When rejected submissions reach paid places the result exists and is held for review."""
    address = await post_round(local_chain)
    good = entry("deque_window").encode()
    handed = [Handed(local_chain.agents[0], data_uri(good), keccak_hex(good))]
    handed += [Handed(local_chain.agents[n], data_uri(b"\x00" * 50), None) for n in (1, 2)]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
    assert done.receipt is None
    assert len(done.winners.entries) == 3
    assert {r.code for r in done.result.flags if r.severity == "review"} >= {"paid_rejection"}


async def test_only_junk_is_no_crash(local_chain: LocalChain, tmp_path: Path) -> None:
    """A round without a single readable submission still has a result, which waits for a person."""
    address = await post_round(local_chain)
    handed = [Handed(local_chain.agents[n], f"https://10.0.0.{n}/x", None) for n in range(3)]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
    assert done.result.ranking is None
    assert done.receipt is None
    assert [r.code for r in done.result.rejected] == ["forbidden_address"] * 3


async def test_too_few_submitters_is_unscorable(local_chain: LocalChain, tmp_path: Path) -> None:
    """Two submissions for three winners can never be posted, and the status says so."""
    address = await post_round(local_chain)
    for number in (0, 1):
        await local_chain.submit(local_chain.agents[number], address, data_uri(entry("ring_buffer").encode()))
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(Unscorable, match="2 submitters for 3 winners"):
            await run(app, address)
        status = await read_status(app.store, 31337, address)
        assert status is not None
        assert status["status"] == "unscorable"


async def test_an_open_challenge_is_not_judged(local_chain: LocalChain, tmp_path: Path) -> None:
    """Before the deadline there is nothing to read yet."""
    address = await post_round(local_chain)
    await submit_round(local_chain, address)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(NotYet):
            await run(app, address)


async def test_an_address_without_a_challenge_is_named(local_chain: LocalChain, tmp_path: Path) -> None:
    """An address that is no challenge is not found."""
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(NotFound):
            await run(app, local_chain.poster.address)
        assert await read_status(app.store, 31337, local_chain.poster.address) is None


async def test_trouble_on_a_second_run_undoes_no_post(local_chain: LocalChain, tmp_path: Path) -> None:
    """A posted round stays complete when walking it again comes to another result, as after a change of the code."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        await app.store.driver.fetch("UPDATE entries SET value = '\"0x00\"' WHERE key = 'digest'")
        with pytest.raises(Disagrees):
            await run(app, address, dry_run=True)
        status = await read_status(app.store, 31337, address)
    assert done.receipt is not None
    assert status is not None
    assert status["status"] == "complete"
    assert await posts(local_chain, address) == 1


async def test_a_dry_run_is_no_post(local_chain: LocalChain, tmp_path: Path) -> None:
    """After a complete dry run, a walk that fails is told as failed: nothing stands on the chain."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        await run(app, address, dry_run=True)
        await app.store.driver.fetch("UPDATE entries SET value = '\"0x00\"' WHERE key = 'digest'")
        with pytest.raises(Disagrees):
            await run(app, address)
        status = await read_status(app.store, 31337, address)
    assert status is not None
    assert status["status"] == "failed"


async def test_a_posted_trace_is_never_replaced(local_chain: LocalChain, tmp_path: Path) -> None:
    """Begun anew after its post, a round with another digest stops, and what the chain commits to stays archived."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        await Journal(app.store, done.challenge.run).forget()
        with pytest.raises(Disagrees, match="posted"):
            await run(app, address, dry_run=True, plan=EvaluationPlan(("rules",), max_games=3))
        path = await write_trace(app, address)
        checked = await check_trace(path.read_text(encoding="utf-8").splitlines(keepends=True), app.chain)
        scores = await read_document(app.store, 31337, scores_key(address))
    assert done.receipt is not None
    assert checked.digest == done.digest
    assert scores is not None
    assert (scores["traceDigest"], scores["txHash"]) == (done.digest, done.receipt.tx_hash)


async def test_dying_on_a_second_run_loses_no_scores(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whichever write is the last of a second walk, the scores still tell the transaction that posted them."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        assert done.receipt is not None
        for lifetime in range(1, 30):
            mortal: Any = MortalStore(app.store, lifetime)
            dying = replace(app, store=mortal)
            with suppress(Died):
                await run(dying, address, dry_run=bool(lifetime % 2))
            scores = await read_document(app.store, 31337, scores_key(address))
            assert scores is not None
            assert (scores["txHash"], scores["postedBy"]) == (done.receipt.tx_hash, "evaluator"), lifetime


async def test_somebody_elses_challenge_is_refused(local_chain: LocalChain, tmp_path: Path) -> None:
    """A challenge with another evaluator is not ours to judge."""
    address = await closed_round(local_chain)
    other = local_chain.agents[20]
    async with opened(local_chain, tmp_path, evaluator_key=None, evaluator_address=other.address) as app:
        with pytest.raises(CannotPublish, match="The evaluator of"):
            await run(app, address)


@pytest.mark.parametrize(
    ("commits", "refusal"),
    [(False, "posted by the poster, commits to the trace none"), (True, "winners are not those of the trace")],
)
async def test_the_poster_may_be_first_and_is_named(
    local_chain: LocalChain, tmp_path: Path, commits: bool, refusal: str
) -> None:
    """Scores that the poster posted stand, and our status says whose they are; also where they name our trace."""
    address = await closed_round(local_chain)
    contract = local_chain.challenge(address)
    async with opened(local_chain, tmp_path) as app:
        planned = await run(app, address, dry_run=True)
        await local_chain.send(local_chain.owner, contract, "advanceToScoring")
        rows = [
            (web3_of(local_chain).to_checksum_address(w.account), w.agent_id, 1, w.prize_amount)
            for w in planned.winners.entries
        ]
        call = contract.encode_abi("postScores", args=[rows])
        call += "434c5231" + str(planned.digest)[2:] if commits else ""
        await local_chain.node.receipts([await local_chain.node.post(local_chain.poster, address, call)])
        done = await run(app, address)
        assert done.receipt is not None
        assert done.receipt.outcome is SendOutcome.ALREADY_DONE
        status = await read_status(app.store, 31337, address)
        assert status is not None
        assert status["postedBy"] == "poster"
        scores = await read_document(app.store, 31337, scores_key(address)) or {}
        assert (scores["postedBy"], scores["winners"], scores["traceDigest"]) == ("poster", [], None)
        assert {(row["score"], row["elo"]) for row in scores["rankings"]} == {(1, None)}
        path = await write_trace(app, address)
        with pytest.raises(BadTrace, match=refusal):
            await check_trace(path.read_text(encoding="utf-8").splitlines(keepends=True), app.chain)
    assert await posts(local_chain, address) == 1


async def test_a_config_that_needs_a_model_says_so(local_chain: LocalChain, tmp_path: Path) -> None:
    """With the rules as only judge, a config of claimed features is refused with the remedy."""
    import json

    from clara_eval.config.eval_config import build_metadata, config_hash
    from clara_eval.devnet.local_chain import PostedTerms

    config = json.dumps({"version": 1, "features": ["novelty"], "criteria": CONFIG["criteria"]})
    metadata = build_metadata(title="t", problem_statement="p", skills=(), config_text=config)
    terms = PostedTerms(challenge_uri=metadata, eval_config_hash=config_hash(config.encode()), open_seconds=HOUR)
    address = await local_chain.post_challenge(terms)
    await submit_round(local_chain, address)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(ConfigError, match="CLARA_JUDGES"):
            await run(app, address)


async def test_a_config_with_another_hash_is_never_evaluated(local_chain: LocalChain, tmp_path: Path) -> None:
    """The metadata must hold the config that the chain committed to."""
    from clara_eval.devnet.local_chain import PostedTerms

    good = await post_round(local_chain)
    uri = await as_web3(local_chain.challenge(good)).functions.challengeURI().call()
    address = await local_chain.post_challenge(
        PostedTerms(challenge_uri=uri, eval_config_hash="0x" + "11" * 32, open_seconds=HOUR)
    )
    await submit_round(local_chain, address)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(Exception, match="11" * 32):
            await run(app, address)


class Died(BaseException):
    """Stands for kill -9: nothing catches it."""


@dataclass
class MortalStore:
    """The real store, which dies after a given number of writes to journal, keys or transactions."""

    inner: SqlStore
    writes_left: int

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in ("add_entry", "put", "put_many", "save_transaction"):
            return method

        async def mortal(*args: Any) -> Any:
            result = await method(*args)
            self.writes_left -= 1
            if self.writes_left == 0:
                raise Died
            return result

        return mortal


async def test_dying_after_any_write_ends_in_one_post(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whichever write is the last before the process dies, walking again ends in one post with one digest."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        before = await local_chain.snapshot()
        digests, deaths = set(), 0
        for lifetime in range(1, 60, 3):
            place = tmp_path / str(lifetime)
            async with opened(local_chain, place) as fresh:
                mortal: Any = MortalStore(fresh.store, lifetime)
                sender = replace(fresh.sender, log=mortal)
                dying = replace(fresh, store=mortal, sender=sender)
                try:
                    await run(dying, address)
                except Died:
                    deaths += 1
                done = await run(fresh, address)
            digests.add(done.digest)
            assert await posts(local_chain, address) == 1
            await local_chain.revert(before)
            before = await local_chain.snapshot()
        assert app.chain_id == 31337
    assert len(digests) == 1
    assert deaths > 5


async def test_a_reorg_of_the_pinned_block_starts_anew(local_chain: LocalChain, tmp_path: Path) -> None:
    """When the pinned block is gone the challenge is read again, and the result is the same but for its block."""
    address = await closed_by_a_payment(local_chain)
    async with opened(local_chain, tmp_path) as app:
        first = await run(app, address, dry_run=True)
        await replace_from(local_chain, first.challenge.block.number)
        second = await run(app, address, dry_run=True)
    assert first.challenge.block != second.challenge.block
    assert first.winners == second.winners


async def test_a_post_that_lands_after_its_block_is_gone_keeps_its_trace(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Signed bytes cannot be called back: mined after a reorg made us read anew, they stand with their own trace."""
    address = await closed_by_a_payment(local_chain)
    async with opened(local_chain, tmp_path) as app:
        first = await run(app, address)
        sent = [
            tx
            for intention in ("advance_to_scoring", "post_scores")
            for tx in await app.store.transactions(f"31337:{address}", intention)
        ]
        await replace_from(local_chain, first.challenge.block.number)
        again = await run(app, address, dry_run=True)
        assert again.digest != first.digest
        for tx in sent:
            await local_chain.node.rpc("eth_sendRawTransaction", tx.raw)
        await local_chain.mine(2)
        last = await run(app, address)
        assert last.receipt is not None
        assert last.receipt.outcome is SendOutcome.ALREADY_DONE
        scores = await read_document(app.store, 31337, scores_key(address))
        assert scores is not None
        assert (scores["traceDigest"], scores["postedBy"]) == (first.digest, "evaluator")
        assert (await read_status(app.store, 31337, address) or {})["status"] == "complete"
        pieces = [piece async for piece in stream_trace(app.store, 31337, address)]
        checked = await check_trace("".join(pieces).splitlines(keepends=True), app.chain)
    assert checked.is_replaced
    assert checked.compared[0].endswith("just before the post")
    assert any("was ever on the chain" in point for point in checked.not_proven)
    assert await posts(local_chain, address) == 1


async def test_a_node_that_is_behind_is_no_reorg(local_chain: LocalChain, tmp_path: Path) -> None:
    """While the nodes have not reached the pinned block the walk waits, and forgets nothing."""
    address = await post_round(local_chain)
    await submit_round(local_chain, address)
    before = await local_chain.snapshot()
    await pass_the_deadline(local_chain)
    async with opened(local_chain, tmp_path) as app:
        first = await run(app, address, dry_run=True)
        kept = await app.store.entries(first.challenge.run, "")
        await local_chain.revert(before)
        with pytest.raises(Temporary, match="behind"):
            await run(app, address, dry_run=True)
        assert await app.store.entries(first.challenge.run, "") == kept


async def test_who_had_the_bytes_first_keeps_them_after_resubmitting(local_chain: LocalChain, tmp_path: Path) -> None:
    """A thief who copies a first version while its author replaces it is the later one, gives way where nobody decides,
    and the trace of that holds.
    """
    address = await post_round(local_chain, open_seconds=3 * HOUR)
    author, thief, *others = local_chain.agents
    work = entry("deque_window")
    await local_chain.submit(author, address, data_uri(work.encode()), keccak_hex(work.encode()))
    await local_chain.move_time(2 * CONTESTED_SECONDS)
    rest = [*((agent, entry(name)) for agent, name in zip(others, ("token_bucket", "nested_flags"), strict=False))]
    handed = [
        Handed(agent, data_uri(text.encode()), keccak_hex(text.encode())) for agent, text in [(thief, work), *rest]
    ]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(HOUR + 1)
    better = work + "\n\nVERSION = 2\n"
    await local_chain.submit(author, address, data_uri(better.encode()), keccak_hex(better.encode()))
    await local_chain.move_time(2 * HOUR)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        assert [(one.submitter, one.version) for one in done.challenge.replaced] == [(author.address, 1)]
        (pair,) = done.result.likeness.similar
        assert (pair.earlier, pair.later, pair.contested) == (author.address, thief.address, False)
        assert done.result.rejected == ()
        told = [(flag.severity, flag.account) for flag in done.result.flags if flag.code == "similar_work"]
        assert told == [("review", thief.address), ("info", author.address)]
        assert (done.receipt, thief.address in {one.account for one in done.winners.entries}) == (None, True)
        assert done.review is not None
        assert done.review.posts_at is not None
        await local_chain.move_to(done.review.posts_at)
        posted = await run(app, address)
        assert posted.receipt is not None
        assert [one.account for one in posted.result.placed][-1] == thief.address
        with (await write_trace(app, address)).open() as lines:
            assert (await check_trace(lines, None)).digest == posted.digest


@dataclass(frozen=True)
class Mutable:
    """A web whose addresses hold what somebody put there last."""

    beyond: Fetch
    held: dict[str, bytes]

    async def fetch(self, uri: str) -> Fetched:
        if uri in self.held:
            return Fetched(self.held[uri], "text/plain", immutable=False)
        return await self.beyond.fetch(uri)


async def test_a_mutable_address_near_the_money_waits_for_a_person(local_chain: LocalChain, tmp_path: Path) -> None:
    """Bytes of a rival behind a hash over an address lose to the pinned rival, and an unpinned entry waits."""
    address = await post_round(local_chain)
    work, own = entry("deque_window").encode(), entry("ring_buffer").encode()
    uris = [f"https://files.example/{name}" for name in ("stolen", "own")]
    handed = [Handed(local_chain.agents[n], uri, keccak_hex(uri.encode())) for n, uri in enumerate(uris)]
    await local_chain.submit_all(address, handed)
    pinned = [work, entry("token_bucket").encode()]
    handed = [Handed(local_chain.agents[n], data_uri(one), keccak_hex(one)) for n, one in enumerate(pinned, start=2)]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        web = Mutable(app.fetch, dict(zip(uris, (work, own), strict=True)))
        done = await run(replace(app, fetch=web), address)
    accounts = [agent.address for agent in local_chain.agents]
    assert [(one.submission.submitter, one.code) for one in done.result.rejected] == [(accounts[0], "copy")]
    assert {(flag.code, flag.account) for flag in done.result.flags if flag.severity == "review"} >= {
        ("contested_copy", accounts[2]),
        ("unpinned", accounts[1]),
    }
    assert done.receipt is None
