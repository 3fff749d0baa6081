"""Both stores keep the same promises."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from clara_eval.chain.model import Checkpoint
from clara_eval.chain.transaction import StoredTransaction
from clara_eval.core.errors import ConfigError, Deferred, Temporary
from clara_eval.core.tasks import check_lease
from clara_eval.documents.results import EvalStatus
from clara_eval.judge.costs.budgets import Caps
from clara_eval.judge.port import Answer, PaidAnswer
from clara_eval.store.leases import Busy, held
from clara_eval.store.open import open_store, opened_store
from clara_eval.store.sql_store import DATABASE, DatabaseRetries, SqlStore, migrations
from clara_eval.store.sqlite import SqliteStore

RUN = "31337:0x" + "1" * 40
NO_CAPS = Caps(None, None, None)


def paid(request: str, run: str = RUN) -> PaidAnswer:
    return PaidAnswer(request, run, "openai:x", "comparison", Answer("{}", "x", "end", 10, 2), 120)


async def test_the_first_entry_wins(store: SqlStore) -> None:
    """A second writer of an entry gets back what is already saved."""
    assert await store.add_entry(RUN, "plan", "1") == "1"
    assert await store.add_entry(RUN, "plan", "2") == "1"
    assert await store.entry(RUN, "plan") == "1"
    assert await store.entry(RUN, "nothing") is None


async def test_entries_come_in_order_below_a_prefix(store: SqlStore) -> None:
    """Entries below a prefix come back in order of key, those of other runs and prefixes do not."""
    for key in ("a/2", "b/1", "a/1"):
        await store.add_entry(RUN, key, key)
    await store.add_entry("other", "a/3", "x")
    assert await store.entries(RUN, "a/") == [("a/1", "a/1"), ("a/2", "a/2")]
    await store.forget_run(RUN)
    assert await store.entries(RUN, "") == []


async def test_many_documents_are_written_together_and_the_last_of_a_key_stands(store: SqlStore) -> None:
    """A key that comes twice has its last value, old values are replaced, and nothing to write is no error."""
    await store.put(1, "k/0", "old")
    pairs = [(f"k/{number}", f'"ü\\ %s ? {number}"') for number in range(700)]
    await store.put_many(1, [*pairs, ("k/3", "last")])
    assert dict(await store.items(1, "k/")) == {**dict(pairs), "k/3": "last"}
    await store.put_many(1, [])
    assert await store.items(2, "k/") == []


async def test_answers_are_kept_whole_and_once(store: SqlStore) -> None:
    """A paid answer comes back as it was, also among more requests than one statement takes."""
    first = paid("0x1")
    await store.save_answer(first)
    assert await store.save_answer(replace(first, answer=Answer("other", "x", "end", 1, 1))) == first
    await store.save_answer(replace(paid("0x2"), cost_micro_usd=None))
    many = [f"0x{n}" for n in range(1200)]
    found = await store.answers(many)
    assert found == {"0x1": first, "0x2": replace(paid("0x2"), cost_micro_usd=None)}
    assert [request for request, _, _ in await store.calls_of(RUN)] == ["0x1", "0x2"]


async def test_public_keys_are_per_network(store: SqlStore) -> None:
    """The same key on two chains holds two values, and the last write counts."""
    await store.put(1, "challenges:0xa:scores", "old")
    await store.put_many(1, [("challenges:0xa:scores", "new"), ("challenges:0xb:scores", "b")])
    await store.put(2, "challenges:0xa:scores", "elsewhere")
    assert await store.get(1, "challenges:0xa:scores") == "new"
    assert await store.keys(1, "challenges:0x") == ["challenges:0xa:scores", "challenges:0xb:scores"]
    assert await store.get(3, "challenges:0xa:scores") is None


async def test_transactions_and_checkpoints_come_back(store: SqlStore) -> None:
    """Signed transactions are listed by intention and by sender; a checkpoint is replaced."""
    tx = StoredTransaction(RUN, "post_scores", 0, "0xs", 7, "0xh0", "0xraw", 10**12, 10**9)
    await store.save_transaction(tx)
    await store.save_transaction(replace(tx, attempt=1, tx_hash="0xh1"))
    assert [t.attempt for t in await store.transactions(RUN, "post_scores")] == [0, 1]
    assert (await store.pending_nonces("0xs"))[0].tx_hash == "0xh1"
    await store.save_checkpoint("factory", Checkpoint(1, "0x1"))
    await store.save_checkpoint("factory", Checkpoint(2, "0x2"))
    assert await store.checkpoint("factory") == Checkpoint(2, "0x2")


async def test_a_lease_has_one_holder_until_it_runs_out(store: SqlStore) -> None:
    """A second holder waits; the first may renew; after its time anybody may take it."""
    now = 1000.0
    timed = SqlStore(store.driver, now=lambda: now)
    assert await timed.take_lease("wallet", "one", 10)
    assert not await timed.take_lease("wallet", "two", 10)
    assert await timed.take_lease("wallet", "one", 10)
    now = 1011.0
    assert await timed.take_lease("wallet", "two", 10)
    await timed.drop_lease("wallet", "one")
    assert not await timed.take_lease("wallet", "one", 10)


async def test_a_clock_that_was_set_back_holds_no_lease_for_long(store: SqlStore) -> None:
    """A lease from an hour ahead is cut to its own length; a living holder renews it, a dead one's runs out."""
    now = 5000.0
    timed = SqlStore(store.driver, now=lambda: now)
    assert await timed.take_lease("wallet", "one", 10)
    now = 1000.0
    assert not await timed.take_lease("wallet", "two", 10), "cut, not taken: the holder may live"
    now = 1009.0
    assert not await timed.take_lease("wallet", "two", 10)
    assert await timed.take_lease("wallet", "one", 10), "it lives and renews"
    now = 1018.0
    assert not await timed.take_lease("wallet", "two", 10)
    now = 1020.0
    assert await timed.take_lease("wallet", "two", 10)


async def test_the_databases_clock_decides_about_leases(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers whose clocks are a day off neither evict each other nor keep what they lost."""
    assert await store.take_lease("wallet", "one", 30)
    for wrong in (86_400, -86_400):
        monkeypatch.setattr("time.time", lambda wrong=wrong: 1_800_000_000 + wrong)
        assert not await store.take_lease("wallet", "two", 30)
        assert await store.take_lease("wallet", "one", 0.01)
        await asyncio.sleep(0.05)
        assert await store.take_lease("wallet", "two", 0.01)
        await asyncio.sleep(0.05)
        assert await store.take_lease("wallet", "one", 30)


async def test_another_program_that_holds_the_file_does_not_hold_the_loop(tmp_path: Path) -> None:
    """While it does the loop turns, writes wait and succeed afterwards, and reading goes on."""
    opened = await open_store(f"sqlite:///{tmp_path}/store.db")
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writes = [
        asyncio.create_task(opened.put(1, "key", "value")),
        asyncio.create_task(opened.add_entry(RUN, "k", "v")),
        asyncio.create_task(opened.reserve_spend(RUN, "0xposter", "evaluation", 1, Caps(None, None, None))),
    ]
    longest, last = 0.0, time.monotonic()
    for _ in range(50):
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert not any(write.done() for write in writes)
    assert await opened.get(1, "key") is None
    other.execute("ROLLBACK")
    other.close()
    await asyncio.gather(*writes)
    assert await opened.get(1, "key") == "value"
    assert longest < 1, "the loop stood still"
    await opened.close()


async def test_caps_hold_under_concurrency(store: SqlStore) -> None:
    """Of many reservations made at once exactly as many pass as fit under the cap."""
    caps = Caps(None, 100, None)
    outcomes = await asyncio.gather(
        *(store.reserve_spend(f"run{n}", "0xposter", "evaluation", 30, caps) for n in range(12)), return_exceptions=True
    )
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 3
    assert all(isinstance(outcome, (int, Deferred)) for outcome in outcomes)
    assert sum(spend.reserved_micro_usd for spend in await store.spends()) == 90


async def test_settling_frees_what_was_not_spent(store: SqlStore) -> None:
    """After settling, only the real amount counts; reserving the same run again replaces its line."""
    caps = Caps(per_challenge=100, per_poster_day=100, per_month=100)
    spend = await store.reserve_spend("run1", "0xposter", "evaluation", 90, caps)
    with pytest.raises(Deferred) as over:
        await store.reserve_spend("run2", "0xposter", "evaluation", 20, caps)
    assert over.value.retry_at is not None
    await store.settle_spend(spend, 40)
    await store.reserve_spend("run2", "0xposter", "evaluation", 60, caps)
    assert await store.reserve_spend("run1", "0xposter", "evaluation", 40, caps) == spend
    assert {s.run: s.settled_micro_usd for s in await store.spends()} == {"run1": None, "run2": None}


async def test_a_store_is_opened_again_with_what_it_held(tmp_path: Path) -> None:
    """Closing and opening loses nothing and migrates nothing twice."""
    for _ in range(2):
        again = await open_store(f"sqlite:///{tmp_path}/deep/er/store.db")
        await again.add_entry(RUN, "k", "v")
        await again.close()
    assert (tmp_path / "deep/er/store.db").exists()


async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    """Whoever asks after the end gets SQLite's own error, not one about the error."""
    store = await SqliteStore.open(tmp_path / "clara.db")
    await store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await store.get(1, "key")


async def test_a_file_that_is_held_for_a_moment_is_opened_afterwards(tmp_path: Path) -> None:
    """Whole-file locks, as while another process recovers after a kill, delay an opening and a transaction, no more."""
    place = tmp_path / "store.db"
    first = await SqliteStore.open(place)
    await first.add_entry(RUN, "k", "v")
    await first.close()

    def hold(seconds: float) -> None:
        with closing(sqlite3.connect(place, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            is_held.set()
            time.sleep(seconds)
            other.execute("COMMIT")

    is_held = threading.Event()
    holding = asyncio.create_task(asyncio.to_thread(hold, 0.5))
    await asyncio.to_thread(is_held.wait)
    store = await SqliteStore.open(place)
    await holding
    assert await store.entry(RUN, "k") == "v"
    await store.close()


RECOVERS = """
import fcntl, sys, time
with open(sys.argv[1], "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX, 8, 120)  # all locks of SQLite's WAL index
    shared.write(bytes(96))  # both copies of its header, as after a kill
    shared.flush()
    print(flush=True)
    time.sleep(0.5)
"""


async def test_a_new_store_is_read_while_another_process_recovers_it(tmp_path: Path) -> None:
    """The first read of a store waits for a process that recovers the file, and finds its tables."""
    place = tmp_path / "store.db"
    async with opened_store(f"sqlite:///{place}") as store:
        with closing(sqlite3.connect(place)) as holder:
            holder.execute("SELECT name FROM migrations")  # so that there is an index
            other = await asyncio.create_subprocess_exec(
                sys.executable, "-c", RECOVERS, f"{place}-shm", stdout=asyncio.subprocess.PIPE
            )
            assert other.stdout is not None
            assert await other.stdout.readline() == b"\n"
            assert await store.get(1, "key") is None
            assert await other.wait() == 0


async def test_a_wrong_database_url_is_explained() -> None:
    """An unknown scheme and an unwritable place are errors of the setting, with a remedy."""
    with pytest.raises(ConfigError, match="sqlite:///path"):
        await open_store("mysql://host/db")
    with pytest.raises(ConfigError, match="cannot be opened"):
        await open_store("sqlite:////proc/nowhere/store.db")
    with pytest.raises(ConfigError, match="cannot be read as a URL") as caught:
        await open_store("postgresql://me:hunter2@[host/db")
    assert "hunter2" not in str(caught.value)


async def test_a_damaged_file_is_explained(tmp_path: Path) -> None:
    """A store whose pages were overwritten says so, instead of ending as a bug."""
    store = await open_store(f"sqlite:///{tmp_path}/store.db")
    for number in range(200):
        await store.add_entry(RUN, f"k{number}", "v" * 200)
    await store.close()
    path = tmp_path / "store.db"
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises((Temporary, ConfigError), match="SQLite"):
        await (await open_store(f"sqlite:///{path}")).entries(RUN, "")


async def test_a_file_held_by_another_program_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locked store is a reason to try again, said in words."""
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    holder.execute("PRAGMA journal_mode=WAL")
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("clara_eval.store.sqlite.DATABASE", DatabaseRetries(statement_seconds=0))
    try:
        with pytest.raises(Temporary, match="locked"):
            await open_store(f"sqlite:///{tmp_path}/store.db")
    finally:
        holder.close()


async def test_postgres_finds_keys_in_every_language(postgres_url: str) -> None:
    """Keys are compared by their bytes, whatever language the server's text has: else nothing is below a prefix."""
    store = await open_store(postgres_url)
    try:
        found = await store.driver.fetch(
            "SELECT table_name, collation_name FROM information_schema.columns WHERE column_name = 'key'"
        )
    finally:
        await store.close()
    assert sorted(found) == [("entries", "C"), ("public_keys", "C")]


async def test_a_connection_that_the_server_ended_is_not_noticed(postgres_url: str) -> None:
    """What the server closes while nobody uses it, as at a restart, is replaced before the next statement."""
    store = await open_store(postgres_url)
    await store.put(1, "before", "1")
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as admin:
        ended = await admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND datname = current_database()"
        )
        assert (await ended.fetchone() or (0,))[0] >= 1
    await asyncio.sleep(0.05)
    assert await store.get(1, "before") == "1"
    await store.close()


async def test_a_user_without_rights_is_told_what_to_grant(postgres_url: str) -> None:
    """A Postgres user that may not create tables ends the start with the remedy."""
    name = f"guest_{uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as admin:
        await admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        try:
            with pytest.raises(ConfigError, match="GRANT CREATE"):
                await open_store(postgres_url.replace("//postgres:", f"//{name}:x", 1))
        finally:
            await admin.execute(f"DROP ROLE {name}".encode())


async def test_what_is_unsure_grows_and_counts_under_every_cap(store: SqlStore) -> None:
    """It adds up over attempts on a line of its own, which a new reservation of the run does not replace."""
    assert await store.unsure_of(RUN) == 0
    await store.add_unsure(RUN, 1)
    assert await store.spends() == [], "nothing is reserved, so nothing can have been sent"
    caps = Caps(per_challenge=100, per_poster_day=100, per_month=100)
    line = await store.reserve_spend(RUN, "poster", "evaluation", 60, caps)
    await store.add_unsure(RUN, 25)
    await store.add_unsure(RUN, 15)
    await store.settle_spend(line, 10)
    assert await store.unsure_of(RUN) == 40
    assert [(s.poster, s.purpose, s.settled_micro_usd) for s in await store.spends()] == [
        ("poster", "evaluation", 10),
        ("poster", "unsure", 40),
    ]
    with pytest.raises(Deferred):
        await store.reserve_spend(RUN, "poster", "evaluation", 61, caps)
    await store.reserve_spend(RUN, "poster", "evaluation", 60, caps)
    with pytest.raises(Deferred):
        await store.reserve_spend("31337:0xother", "poster", "evaluation", 1, caps)


async def test_a_write_that_must_not_be_lost_waits_no_longer_than_stated() -> None:
    """It succeeds when the database is back; else the outage is raised within the stated longest wait."""
    assert DATABASE.longest_seconds == 81
    policy, failures = DatabaseRetries(statement_seconds=0.1, write_seconds=0.3, pause_seconds=0.05), iter("ab")

    async def shaky() -> None:
        for _ in failures:
            raise Temporary("Postgres does not answer.")

    await policy.until_written(shaky)

    async def away() -> None:
        await asyncio.sleep(policy.statement_seconds)
        raise Temporary("Postgres does not answer.")

    began = asyncio.get_running_loop().time()
    with pytest.raises(Temporary):
        await policy.until_written(away)
    assert asyncio.get_running_loop().time() - began <= policy.longest_seconds + 0.2


async def test_a_thawed_worker_stops_before_it_pays(tmp_path: Path) -> None:
    """After a freeze longer than its lease a run that was taken over pays nothing more, and the other keeps the lease."""
    store = await open_store(f"sqlite:///{tmp_path}/store.db")
    paid: list[str] = []

    async def pay(what: str) -> None:
        await check_lease()
        paid.append(what)

    async def run() -> None:
        async with held(store, "evaluation:1:0xa", "run-1", 0.5):
            await pay("before")
            frozen.set()
            time.sleep(0.8)  # noqa: ASYNC251 - the whole process stands still, its renewals too
            await store.driver.fetch("UPDATE leases SET holder = 'run-2', until_at = until_at + 600")
            await asyncio.gather(*(pay("after") for _ in range(8)))

    frozen = asyncio.Event()
    with pytest.raises(Busy, match="taken over"):
        await run()
    assert frozen.is_set()
    assert paid == ["before"]
    assert not await store.take_lease("evaluation:1:0xa", "run-3", 1)
    await store.close()


async def test_a_freeze_without_a_takeover_costs_nothing(tmp_path: Path) -> None:
    """If nobody took the lease meanwhile, the thawed run takes it again and goes on."""
    store = await open_store(f"sqlite:///{tmp_path}/store.db")
    async with held(store, "evaluation:1:0xa", "run-1", 0.3):
        time.sleep(0.5)  # noqa: ASYNC251 - the whole process stands still
        await check_lease()
        assert not await store.take_lease("evaluation:1:0xa", "run-2", 1)
    await store.close()


async def test_a_database_of_a_newer_version_is_refused_in_one_sentence(tmp_path: Path, postgres_url: str) -> None:
    """An older program does not touch tables that it does not know, in SQLite and in Postgres."""
    for url in (f"sqlite:///{tmp_path}/newer.db", postgres_url):
        async with opened_store(url) as store:
            await store.driver.fetch("INSERT INTO migrations (name) VALUES ('9999_later')")
        with pytest.raises(ConfigError, match=r"written by a newer version .its tables have 9999_later"):
            await open_store(url)


@pytest.mark.parametrize(
    "written", sorted((Path(__file__).parent / "databases").glob("*.sql")), ids=lambda path: path.stem
)
async def test_what_an_earlier_version_wrote_is_read(written: Path, tmp_path: Path) -> None:
    """A database as an earlier version left it gets the newer tables, and everything in it is used further."""
    text = await asyncio.to_thread(written.read_text, encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "store.db")) as made:
        made.executescript(text)
    store, run = await SqliteStore.open(tmp_path / "store.db"), "31337:0x" + "ab" * 20
    try:
        ((request, _, _),) = await store.calls_of(run)
        paid = (await store.answers([request]))[request]
        (signed,) = await store.transactions(run, "post_scores")
        status = await store.get(31337, f"challenges:0x{'ab' * 20}:eval-status")
        applied = {row[0] for row in await store.driver.fetch("SELECT name FROM migrations")}
        assert await store.entry(run, "digest") == '"0x01"'
        assert [spend.reserved_micro_usd for spend in await store.spends()] == [1000]
    finally:
        await store.close()
    assert (paid.answer.output_tokens, paid.cost_micro_usd, signed.nonce, signed.signed_at) == (2, 7, 3, 0)
    assert EvalStatus.model_validate_json(status or "").progress == 50
    assert applied == {name for name, _ in migrations("sqlite")}
