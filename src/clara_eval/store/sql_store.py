"""The store in SQL: one set of statements for SQLite and Postgres, over a driver of three methods.

First write wins everywhere it matters (`ON CONFLICT DO NOTHING`), so a repeated step changes nothing. Spending is
checked and written under one exclusive lock, so caps hold under concurrency. Migrations are a list that only grows.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, astuple, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from clara_eval.core.errors import Deferred
from clara_eval.core.hashing import plain_json
from clara_eval.core.processes import is_gone
from clara_eval.judge.attestation.model import Signed
from clara_eval.judge.costs.ledger import KNOWN_AFTER_SECONDS, Caps, Spend
from clara_eval.judge.port import Answer, PaidAnswer
from clara_eval.store.arrivals import WriteBatcher
from clara_eval.store.ports import Checkpoint, StoredTransaction

Row = tuple[Any, ...]
SqlValue = str | int | float | None
_BULK = 500
"""Placeholders in one statement; SQLite's oldest limit is 999."""

ROOM_SECONDS = 60
"""When to look again for room under a cap that only running evaluations fill."""

Migrations = tuple[tuple[str, tuple[str, ...]], ...]

MIGRATIONS: Migrations = (
    (
        "0001_start",
        (
            "CREATE TABLE entries (run TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run, key))",
            (
                "CREATE TABLE answers (request TEXT PRIMARY KEY, run TEXT NOT NULL, llm TEXT NOT NULL, "
                "purpose TEXT NOT NULL, answer TEXT NOT NULL, cost_micro_usd BIGINT)"
            ),
            "CREATE INDEX answers_by_run ON answers (run)",
            (
                "CREATE TABLE public_keys (chain_id BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, "
                "PRIMARY KEY (chain_id, key))"
            ),
            (
                "CREATE TABLE transactions (run TEXT NOT NULL, intention TEXT NOT NULL, attempt BIGINT NOT NULL, "
                "sender TEXT NOT NULL, nonce BIGINT NOT NULL, tx_hash TEXT NOT NULL UNIQUE, raw TEXT NOT NULL, "
                "max_fee_per_gas BIGINT NOT NULL, max_priority_fee_per_gas BIGINT NOT NULL, "
                "PRIMARY KEY (run, intention, attempt))"
            ),
            "CREATE INDEX transactions_by_sender ON transactions (sender, nonce)",
            "CREATE TABLE checkpoints (name TEXT PRIMARY KEY, block_number BIGINT NOT NULL, block_hash TEXT NOT NULL)",
            "CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_at DOUBLE PRECISION NOT NULL)",
            (
                "CREATE TABLE spends (id {serial}, run TEXT NOT NULL, poster TEXT NOT NULL, purpose TEXT NOT NULL, "
                "reserved_micro_usd BIGINT NOT NULL, settled_micro_usd BIGINT, at BIGINT NOT NULL, "
                "UNIQUE (run, purpose))"
            ),
            "CREATE INDEX spends_by_time ON spends (at)",
        ),
    ),
    ("0003_signed_at", ("ALTER TABLE transactions ADD COLUMN signed_at BIGINT NOT NULL DEFAULT 0",)),
    ("0004_lease_length", ("ALTER TABLE leases ADD COLUMN seconds DOUBLE PRECISION NOT NULL DEFAULT 30",)),
)


class Driver(Protocol):
    """A database, reduced to what the store needs. Statements use `?` for values."""

    @property
    def clock(self) -> str:
        """The moment in seconds as the database tells it, in SQL: the one clock that all holders of leases share."""
        ...

    async def fetch(self, sql: str, values: Sequence[SqlValue] = ()) -> list[Row]: ...
    async def many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """An `INSERT … VALUES (?, …)` for each of these rows, all or none; no two rows have the same key."""
        ...

    def exclusive(self) -> AbstractAsyncContextManager[Driver]:
        """One transaction that no other writer of the ledger can interleave with."""
        ...

    async def close(self) -> None: ...


async def migrate(driver: Driver, *, serial: str, migrations: Migrations = MIGRATIONS) -> None:
    """Bring the tables up to date; safe when several processes start at once."""
    async with driver.exclusive() as tx:
        await tx.fetch("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
        applied = {row[0] for row in await tx.fetch("SELECT name FROM migrations")}
        for name, statements in migrations:
            if name in applied:
                continue
            for statement in statements:
                await tx.fetch(statement.replace("{serial}", serial))
            await tx.fetch("INSERT INTO migrations (name) VALUES (?)", (name,))


@dataclass(frozen=True, slots=True)
class SqlStore:
    """Fulfils `trace.store.Store` on any driver."""

    driver: Driver
    now: Callable[[], float] | None = None
    """For tests. Otherwise money is counted by this machine's clock, and leases by the database's."""
    answer_listeners: list[Callable[[PaidAnswer], None]] = field(default_factory=list)
    """Told once about every newly paid answer, for the metrics."""
    _arrivals: WriteBatcher = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_arrivals", WriteBatcher(self._write_answers))

    async def close(self) -> None:
        await self.driver.close()

    def _wall_now(self) -> float:
        return time.time() if self.now is None else self.now()

    # journal

    async def entry(self, run: str, key: str) -> str | None:
        rows = await self.driver.fetch("SELECT value FROM entries WHERE run = ? AND key = ?", (run, key))
        return rows[0][0] if rows else None

    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]:
        rows = await self.driver.fetch(
            "SELECT key, value FROM entries WHERE run = ? AND key >= ? AND key < ?",
            (run, prefix, prefix + "\U0010ffff"),
        )
        return sorted((row[0], row[1]) for row in rows)

    async def add_entry(self, run: str, key: str, value: str) -> str:
        rows = await self.driver.fetch(
            "INSERT INTO entries (run, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING value",
            (run, key, value),
        )
        if rows:
            return value
        return await self.entry(run, key) or value

    async def forget_run(self, run: str) -> None:
        await self.driver.fetch("DELETE FROM entries WHERE run = ?", (run,))

    async def forget_entry(self, run: str, key: str) -> None:
        await self.driver.fetch("DELETE FROM entries WHERE run = ? AND key = ?", (run, key))

    # paid answers

    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]:
        found: dict[str, PaidAnswer] = {}
        for start in range(0, len(requests), _BULK):
            part = list(requests[start : start + _BULK])
            marks = ",".join("?" * len(part))
            rows = await self.driver.fetch(
                f"SELECT request, run, llm, purpose, answer, cost_micro_usd FROM answers WHERE request IN ({marks})",  # noqa: S608 - only placeholders are put in
                part,
            )
            found.update((row[0], _paid(row)) for row in rows)
        return found

    async def answered(self, requests: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(requests), _BULK):
            part = list(requests[start : start + _BULK])
            marks = ",".join("?" * len(part))
            rows = await self.driver.fetch(f"SELECT request FROM answers WHERE request IN ({marks})", part)  # noqa: S608 - only placeholders are put in
            found.update(row[0] for row in rows)
        return found

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        if not await self._arrivals.is_first(paid):
            # Two workers may have asked the same at once: both go on with the answer that was first.
            return (await self.answers((paid.request,))).get(paid.request, paid)
        for listen in self.answer_listeners:
            listen(paid)
        return paid

    async def _write_answers(self, arrived: Sequence[PaidAnswer]) -> set[str]:
        """The requests among these that had no answer before; all or none are written."""
        rows = await self.driver.fetch(
            _insert_answers(len(arrived)), [value for paid in arrived for value in _row(paid)]
        )
        return {row[0] for row in rows}

    async def answers_of(self, run: str) -> AsyncIterator[PaidAnswer]:
        last = ""
        while True:
            rows = await self.driver.fetch(
                "SELECT request, run, llm, purpose, answer, cost_micro_usd FROM answers "
                "WHERE run = ? AND request > ? ORDER BY request LIMIT 1000",
                (run, last),
            )
            for row in rows:
                yield _paid(row)
            if len(rows) < 1000:
                return
            last = rows[-1][0]

    # public keys

    async def get(self, chain_id: int, key: str) -> str | None:
        rows = await self.driver.fetch("SELECT value FROM public_keys WHERE chain_id = ? AND key = ?", (chain_id, key))
        return rows[0][0] if rows else None

    async def get_many(self, chain_id: int, keys: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(keys), _BULK):
            part = list(keys[start : start + _BULK])
            marks = ",".join("?" * len(part))
            rows = await self.driver.fetch(
                f"SELECT key, value FROM public_keys WHERE chain_id = ? AND key IN ({marks})",  # noqa: S608 - only placeholders are put in
                (chain_id, *part),
            )
            found.update((row[0], row[1]) for row in rows)
        return found

    async def put(self, chain_id: int, key: str, value: str) -> None:
        await self.put_many(chain_id, [(key, value)])

    async def put_many(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        await self.driver.many(
            "INSERT INTO public_keys (chain_id, key, value) VALUES (?, ?, ?) "
            "ON CONFLICT (chain_id, key) DO UPDATE SET value = excluded.value",
            [(chain_id, key, value) for key, value in dict(pairs).items()],
        )

    async def keys(self, chain_id: int, prefix: str) -> list[str]:
        rows = await self.driver.fetch(
            "SELECT key FROM public_keys WHERE chain_id = ? AND key >= ? AND key < ?",
            (chain_id, prefix, prefix + "\U0010ffff"),
        )
        return sorted(row[0] for row in rows)

    async def items(self, chain_id: int, prefix: str) -> list[tuple[str, str]]:
        rows = await self.driver.fetch(
            "SELECT key, value FROM public_keys WHERE chain_id = ? AND key >= ? AND key < ?",
            (chain_id, prefix, prefix + "\U0010ffff"),
        )
        return sorted((row[0], row[1]) for row in rows)

    async def copy_keys(self, chain_id: int, prefix: str, *, cut: int = 0, add: str = "", but: str = "") -> None:
        await self.driver.fetch(
            "INSERT INTO public_keys (chain_id, key, value) "
            "SELECT chain_id, CAST(? AS TEXT) || substr(key, CAST(? AS INTEGER)), value FROM public_keys "
            "WHERE chain_id = ? AND key >= ? AND key < ? AND key <> ? "
            "ON CONFLICT (chain_id, key) DO UPDATE SET value = excluded.value",
            (add, cut + 1, chain_id, prefix, prefix + "\U0010ffff", but),
        )

    # signed transactions

    async def transactions(self, run: str, intention: str) -> list[StoredTransaction]:
        rows = await self.driver.fetch(
            f"{_TRANSACTIONS} WHERE run = ? AND intention = ? ORDER BY attempt", (run, intention)
        )
        return [StoredTransaction(*row) for row in rows]

    async def pending_nonces(self, sender: str, from_nonce: int = 0) -> list[StoredTransaction]:
        rows = await self.driver.fetch(
            f"{_TRANSACTIONS} WHERE sender = ? AND nonce >= ? ORDER BY nonce DESC, attempt DESC", (sender, from_nonce)
        )
        return [StoredTransaction(*row) for row in rows]

    async def save_transaction(self, tx: StoredTransaction) -> None:
        await self.driver.fetch(
            "INSERT INTO transactions (run, intention, attempt, sender, nonce, tx_hash, raw, max_fee_per_gas, "
            "max_priority_fee_per_gas, signed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            astuple(tx),
        )

    # event reading

    async def checkpoint(self, name: str) -> Checkpoint | None:
        rows = await self.driver.fetch("SELECT block_number, block_hash FROM checkpoints WHERE name = ?", (name,))
        return Checkpoint(*rows[0]) if rows else None

    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None:
        await self.driver.fetch(
            "INSERT INTO checkpoints (name, block_number, block_hash) VALUES (?, ?, ?) ON CONFLICT (name) "
            "DO UPDATE SET block_number = excluded.block_number, block_hash = excluded.block_hash",
            (name, checkpoint.block_number, checkpoint.block_hash),
        )

    # leases

    async def take_lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew; another holder's lease counts until it runs out, or until that process is proven dead.

        A lease that lasts longer than it was taken for comes from a clock that was set back since: it is cut to its
        whole length, so that a living holder has the time to renew it.
        """
        clock, now = (self.driver.clock, ()) if self.now is None else (_GIVEN, (self.now(),))
        is_free = "(leases.holder = excluded.holder OR leases.until_at < (SELECT at FROM moment))"
        rows = await self.driver.fetch(
            f"WITH moment AS (SELECT {clock} AS at) INSERT INTO leases (name, holder, until_at, seconds) "  # noqa: S608 - the clock is a constant
            "SELECT CAST(? AS TEXT), CAST(? AS TEXT), at + CAST(? AS DOUBLE PRECISION), CAST(? AS DOUBLE PRECISION) "
            "FROM moment WHERE true ON CONFLICT (name) DO UPDATE SET "
            f"holder = CASE WHEN {is_free} THEN excluded.holder ELSE leases.holder END, "
            f"seconds = CASE WHEN {is_free} THEN excluded.seconds ELSE leases.seconds END, "
            f"until_at = CASE WHEN {is_free} THEN excluded.until_at "
            "WHEN leases.until_at > (SELECT at FROM moment) + leases.seconds "
            "THEN (SELECT at FROM moment) + leases.seconds ELSE leases.until_at END RETURNING holder",
            (*now, name, holder, seconds, seconds),
        )
        kept = str(rows[0][0])
        return kept == holder or (is_gone(kept) and await self._inherit_lease(name, kept, holder, seconds))

    async def _inherit_lease(self, name: str, dead: str, holder: str, seconds: float) -> bool:
        """From a process that is proven dead; there is one heir, because the dead one's name has to stand there."""
        clock, now = (self.driver.clock, ()) if self.now is None else (_GIVEN, (self.now(),))
        rows = await self.driver.fetch(
            f"UPDATE leases SET holder = ?, until_at = {clock} + CAST(? AS DOUBLE PRECISION), seconds = ? "  # noqa: S608 - the clock is a constant
            "WHERE name = ? AND holder = ? RETURNING holder",
            (holder, *now, seconds, seconds, name, dead),
        )
        return bool(rows)

    async def drop_lease(self, name: str, holder: str) -> None:
        await self.driver.fetch("DELETE FROM leases WHERE name = ? AND holder = ?", (name, holder))

    # spending

    async def reserve_spend(self, run: str, poster: str, purpose: str, micro_usd: int, caps: Caps) -> int:
        moment = datetime.fromtimestamp(self._wall_now(), UTC)
        async with self.driver.exclusive() as tx:
            await _check_caps(tx, run, poster, purpose, micro_usd, caps, moment)
            rows = await tx.fetch(
                "INSERT INTO spends (run, poster, purpose, reserved_micro_usd, at) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (run, purpose) DO UPDATE SET reserved_micro_usd = excluded.reserved_micro_usd, "
                "settled_micro_usd = NULL, at = excluded.at RETURNING id",
                (run, poster, purpose, micro_usd, int(moment.timestamp())),
            )
        return int(rows[0][0])

    async def settle_spend(self, spend_id: int, micro_usd: int) -> None:
        await self.driver.fetch("UPDATE spends SET settled_micro_usd = ? WHERE id = ?", (micro_usd, spend_id))

    async def add_unsure(self, run: str, micro_usd: int) -> None:
        await self.driver.fetch(
            "INSERT INTO spends (run, poster, purpose, reserved_micro_usd, settled_micro_usd, at) "
            "SELECT run, poster, CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT) FROM spends "
            "WHERE run = ? ORDER BY id LIMIT 1 ON CONFLICT (run, purpose) DO UPDATE SET "
            "reserved_micro_usd = spends.reserved_micro_usd + excluded.reserved_micro_usd, "
            "settled_micro_usd = spends.settled_micro_usd + excluded.settled_micro_usd, at = excluded.at",
            (_UNSURE, micro_usd, micro_usd, int(self._wall_now()), run),
        )

    async def unsure_of(self, run: str) -> int:
        rows = await self.driver.fetch(
            "SELECT settled_micro_usd FROM spends WHERE run = ? AND purpose = ?", (run, _UNSURE)
        )
        return int(rows[0][0]) if rows else 0

    async def spends(self, *, since: int = 0) -> list[Spend]:
        rows = await self.driver.fetch(
            "SELECT id, run, poster, purpose, reserved_micro_usd, settled_micro_usd, at FROM spends WHERE at >= ? "
            "ORDER BY id",
            (since,),
        )
        return [Spend(*row) for row in rows]


_GIVEN = "CAST(? AS DOUBLE PRECISION)"
_ANSWER_FIELDS = tuple(one.name for one in fields(Answer))
_UNSURE = "unsure"
"""The purpose of a run's line for calls that were sent and never answered."""

_TRANSACTIONS = (
    "SELECT run, intention, attempt, sender, nonce, tx_hash, raw, max_fee_per_gas, max_priority_fee_per_gas, "
    "signed_at FROM transactions"
)


@lru_cache(maxsize=128)
def _insert_answers(count: int) -> str:
    rows = ", ".join(["(?, ?, ?, ?, ?, ?)"] * count)
    return (
        "INSERT INTO answers (request, run, llm, purpose, answer, cost_micro_usd) "  # noqa: S608 - only placeholders are put in
        f"VALUES {rows} ON CONFLICT DO NOTHING RETURNING request"
    )


def _row(paid: PaidAnswer) -> tuple[SqlValue, ...]:
    answer = {name: getattr(paid.answer, name) for name in _ANSWER_FIELDS}
    if paid.answer.signed is not None:
        answer["signed"] = asdict(paid.answer.signed)
    return (paid.request, paid.run, paid.llm, paid.purpose, plain_json(answer), paid.cost_micro_usd)


def _paid(row: Row) -> PaidAnswer:
    request, run, llm, purpose, answer, cost = row
    told = json.loads(answer)
    signed = told.pop("signed", None)
    said = Answer(**told, signed=Signed(**signed) if signed else None)
    return PaidAnswer(request, run, llm, purpose, said, cost)


_NEW_POSTERS = "month for new posters"
_KNOWN = "SELECT poster FROM spends WHERE settled_micro_usd > 0 AND at <= ?"


async def _new_posters_cap(tx: Driver, poster: str, caps: Caps, known_at: int) -> int | None:
    """The cap that new posters share; none for whoever is known."""
    if caps.new_posters_month is None:
        return None
    known = await tx.fetch(f"{_KNOWN} AND poster = ? LIMIT 1", (known_at, poster))
    return None if known else caps.new_posters_month


async def _check_caps(
    tx: Driver, run: str, poster: str, purpose: str, micro_usd: int, caps: Caps, moment: datetime
) -> None:
    """Sum what is spent or reserved by everybody else; the line of this run and purpose is being replaced."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    next_month = (month + timedelta(days=32)).replace(day=1)
    known_at = int(moment.timestamp()) - KNOWN_AFTER_SECONDS
    scopes = (
        ("challenge", caps.per_challenge, "run = ?", (run,), None),
        ("poster and day", caps.per_poster_day, "poster = ? AND at >= ?", (poster, int(day.timestamp())),
         int((day + timedelta(days=1)).timestamp())),
        ("month", caps.per_month, "at >= ?", (int(month.timestamp()),), int(next_month.timestamp())),
        (_NEW_POSTERS, await _new_posters_cap(tx, poster, caps, known_at),
         f"at >= ? AND poster NOT IN ({_KNOWN})", (int(month.timestamp()), known_at), int(next_month.timestamp())),
    )  # fmt: skip
    for scope, cap, where, values, retry_at in scopes:
        if cap is None:
            continue
        rows = await tx.fetch(
            "SELECT COALESCE(SUM(COALESCE(settled_micro_usd, reserved_micro_usd)), 0), "  # noqa: S608 - `where` is one of these constants
            "COALESCE(SUM(CASE WHEN settled_micro_usd IS NULL THEN reserved_micro_usd ELSE 0 END), 0) FROM spends "
            f"WHERE {where} AND NOT (run = ? AND purpose = ?)",
            (*values, run, purpose),
        )
        spent, waiting = int(rows[0][0]), int(rows[0][1])
        if spent + micro_usd > cap:
            # Evaluations under way give back what they do not use: where only they are in the way, room comes soon.
            is_soon = spent - waiting + micro_usd <= cap
            raise Deferred(
                f"The budget per {scope} of ${cap / 1e6:.2f} does not allow another ${micro_usd / 1e6:.2f}: "
                f"${spent / 1e6:.2f} is spent or reserved.",
                remedy=f"Raise {'CLARA_NEW_POSTERS_SHARE' if scope == _NEW_POSTERS else 'the cap'}, or wait.",
                retry_at=int(moment.timestamp()) + ROOM_SECONDS if is_soon else retry_at,
            )
