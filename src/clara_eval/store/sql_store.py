"""The store in SQL that runs on SQLite and on Postgres, with one class for each kind of data.

Invariant: spending caps are checked and reservations written under one exclusive lock, so they hold for all workers.
Migrations are only added. A statement waits at most `statement_seconds`, a write that must not be lost at most
`longest_seconds`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, Protocol

import structlog

from clara_eval.chain.model import Checkpoint
from clara_eval.chain.transaction import StoredTransaction
from clara_eval.core.errors import ConfigError, Deferred, Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.judge.costs.budgets import KNOWN_AFTER_SECONDS, Caps, Spend
from clara_eval.judge.port import Answer, PaidAnswer, Signed

_log = structlog.get_logger(__name__)

Row = tuple[Any, ...]
SqlValue = str | int | float | None
BULK = 500  # Placeholders in one statement; old versions of SQLite allow 999
STORE_CONNECTIONS = 4  # To Postgres, per process
QUEUE_CONNECTIONS = 3  # To Postgres, per process; the queue has one more that listens


class Driver(Protocol):
    clock: str  # SQL for the current time in seconds, by the clock that all holders of leases share

    async def fetch(self, sql: str, values: Sequence[SqlValue] = ()) -> list[Row]: ...
    async def many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """Run an `INSERT … VALUES (?, …)` for each row, all or none."""

    def exclusive(self) -> AbstractAsyncContextManager[Driver]:
        """Open a transaction that excludes other exclusive ones and survives a power cut."""

    async def close(self) -> None: ...


def migrations(database: str) -> Iterator[tuple[str, str]]:
    """Yield name and SQL of every migration, oldest first; `NAME.postgres.sql` is only for Postgres."""
    files = resources.files("clara_eval.store").joinpath("migrations").iterdir()
    for file in sorted(files, key=lambda file: file.name):
        name, _, kind = file.name.removesuffix(".sql").partition(".")
        if kind in ("", database):
            yield name, file.read_text(encoding="utf-8")


async def migrate(driver: Driver, database: str, *, serial: str) -> None:
    """Apply missing migrations, or close the driver; ConfigError if a newer version wrote the tables."""
    known = dict(migrations(database))
    async with AsyncExitStack() as on_failure:
        on_failure.push_async_callback(driver.close)
        async with driver.exclusive() as tx:
            await tx.fetch("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
            applied = {row[0] for row in await tx.fetch("SELECT name FROM migrations")}
            if newer := sorted(applied - known.keys()):
                raise ConfigError(
                    f"The database of CLARA_DATABASE_URL was written by a newer version (its tables have {newer[-1]}).",
                    remedy="Start that version, or name another database: this one is left as it is.",
                )
            for name in sorted(known.keys() - applied):
                for statement in known[name].split(";")[:-1]:
                    await tx.fetch(statement.replace("{serial}", serial))
                await tx.fetch("INSERT INTO migrations (name) VALUES (?)", (name,))
        on_failure.pop_all()


async def fetch_in(driver: Driver, sql: str, keys: Sequence[str], *values: SqlValue) -> list[Row]:
    """Run `sql`, which ends in IN, for `values` and then all keys, in statements of at most BULK keys."""
    found: list[Row] = []
    for start in range(0, len(keys), BULK):
        part = keys[start : start + BULK]
        found += await driver.fetch(f"{sql} ({','.join('?' * len(part))})", (*values, *part))
    return found


def prefix_range(prefix: str) -> tuple[str, str]:
    return prefix, prefix + "\U0010ffff"


@dataclass(frozen=True, slots=True)
class DatabaseRetries:
    open_seconds: float = 15.0  # For a Postgres server to answer at start-up
    statement_seconds: float = 20.0  # For a locked SQLite file, or a free connection of the pool
    write_seconds: float = 60.0  # Of retries of a write that must not be lost: a database restarts within a minute
    pause_seconds: float = 1.0  # Between two of these retries

    @property
    def longest_seconds(self) -> float:
        return self.write_seconds + self.pause_seconds + self.statement_seconds

    async def until_written(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write, and retry while the database does not answer; Temporary after `write_seconds`."""
        until = time.monotonic() + self.write_seconds
        while True:
            try:
                await write()
            except Temporary as bad:
                if time.monotonic() >= until:
                    raise
                _log.warning("store_not_answering", problem=str(bad))
                await asyncio.sleep(self.pause_seconds)
            else:
                return


DATABASE = DatabaseRetries()

_ANSWER_COLUMNS = "request, run, llm, purpose, answer, cost_micro_usd"


class _Tables:
    driver: Driver
    now: Callable[[], float] | None


def _to_row(paid: PaidAnswer) -> tuple[SqlValue, ...]:
    fields = {name: getattr(paid.answer, name) for name in Answer.__slots__}  # `asdict` would copy each of them
    fields["signed"] = paid.answer.signed and asdict(paid.answer.signed)
    return paid.request, paid.run, paid.llm, paid.purpose, plain_json(fields), paid.cost_micro_usd


def _from_row(row: Row) -> PaidAnswer:
    request, run, llm, purpose, answer, cost = row
    fields = json.loads(answer)
    signed = fields.pop("signed", None)
    return PaidAnswer(request, run, llm, purpose, Answer(**fields, signed=Signed(**signed) if signed else None), cost)


RECHECK_SECONDS = 60  # Before a retry at a cap that only running evaluations fill
_UNSURE = "unsure"  # Purpose of a run's ledger line for calls that were sent and never answered
_NEW_POSTERS = "month for new posters"
_KNOWN = "SELECT poster FROM spends WHERE settled_micro_usd > 0 AND at <= ?"  # Posters with an earlier paid run


async def _check_caps(
    tx: Driver, run: str, poster: str, purpose: str, micro_usd: int, caps: Caps, moment: datetime
) -> None:
    """Raise Deferred if all other lines, spent or reserved, leave too little under a cap."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    next_month = (month + timedelta(days=32)).replace(day=1)
    known_at = int(moment.timestamp()) - KNOWN_AFTER_SECONDS
    is_known = bool(await tx.fetch(f"{_KNOWN} AND poster = ? LIMIT 1", (known_at, poster)))
    scopes = (
        ("challenge", caps.per_challenge, "run = ?", (run,), None),
        ("poster and day", caps.per_poster_day, "poster = ? AND at >= ?", (poster, int(day.timestamp())),
         int((day + timedelta(days=1)).timestamp())),
        ("month", caps.per_month, "at >= ?", (int(month.timestamp()),), int(next_month.timestamp())),
        (_NEW_POSTERS, None if is_known else caps.new_posters_month,
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
            # Running evaluations release what they do not use: if only they fill the cap, retry soon.
            is_soon = spent - waiting + micro_usd <= cap
            raise Deferred(
                f"The budget per {scope} of ${cap / 1e6:.2f} does not allow another ${micro_usd / 1e6:.2f}: "
                f"${spent / 1e6:.2f} is spent or reserved.",
                remedy=f"Raise {'CLARA_NEW_POSTERS_SHARE' if scope == _NEW_POSTERS else 'the cap'}, or wait.",
                retry_at=int(moment.timestamp()) + RECHECK_SECONDS if is_soon else retry_at,
            )


_UPSERT = "ON CONFLICT (chain_id, key) DO UPDATE SET value = excluded.value"


class PublicKeys(_Tables):
    async def get(self, chain_id: int, key: str) -> str | None:
        return (await self.get_many(chain_id, [key])).get(key)

    async def get_many(self, chain_id: int, keys: Sequence[str]) -> dict[str, str]:
        query = "SELECT key, value FROM public_keys WHERE chain_id = ? AND key IN"
        return {row[0]: row[1] for row in await fetch_in(self.driver, query, keys, chain_id)}

    async def put(self, chain_id: int, key: str, value: str) -> None:
        await self.put_many(chain_id, [(key, value)])

    async def put_many(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        query = f"INSERT INTO public_keys (chain_id, key, value) VALUES (?, ?, ?) {_UPSERT}"  # noqa: S608 - a constant
        await self.driver.many(query, [(chain_id, key, value) for key, value in dict(pairs).items()])

    async def keys(self, chain_id: int, prefix: str) -> list[str]:
        query = "SELECT key FROM public_keys WHERE chain_id = ? AND key >= ? AND key < ?"
        return sorted(row[0] for row in await self.driver.fetch(query, (chain_id, *prefix_range(prefix))))

    async def items(self, chain_id: int, prefix: str) -> list[tuple[str, str]]:
        query = "SELECT key, value FROM public_keys WHERE chain_id = ? AND key >= ? AND key < ?"
        return sorted((row[0], row[1]) for row in await self.driver.fetch(query, (chain_id, *prefix_range(prefix))))

    async def copy_keys(self, chain_id: int, prefix: str, *, cut: int = 0, add: str = "", but: str = "") -> None:
        """Copy the keys with `prefix`, except `but`, to `add` + the key without its first `cut` characters."""
        await self.driver.fetch(
            "INSERT INTO public_keys (chain_id, key, value) "  # noqa: S608 - a constant is put in
            "SELECT chain_id, CAST(? AS TEXT) || substr(key, CAST(? AS INTEGER)), value FROM public_keys "
            f"WHERE chain_id = ? AND key >= ? AND key < ? AND key <> ? {_UPSERT}",
            (add, cut + 1, chain_id, *prefix_range(prefix), but),
        )


_COLUMNS = "run, intention, attempt, sender, nonce, tx_hash, raw, max_fee_per_gas, max_priority_fee_per_gas, signed_at"
_SELECT = f"SELECT {_COLUMNS} FROM transactions"  # noqa: S608 - a constant


class SignedTransactions(_Tables):
    async def transactions(self, run: str, intention: str) -> list[StoredTransaction]:
        rows = await self.driver.fetch(f"{_SELECT} WHERE run = ? AND intention = ? ORDER BY attempt", (run, intention))
        return [StoredTransaction(*row) for row in rows]

    async def pending_nonces(self, sender: str, from_nonce: int = 0) -> list[StoredTransaction]:
        query = f"{_SELECT} WHERE sender = ? AND nonce >= ? ORDER BY nonce DESC, attempt DESC"
        return [StoredTransaction(*row) for row in await self.driver.fetch(query, (sender, from_nonce))]

    async def save_transaction(self, tx: StoredTransaction) -> None:
        query = f"INSERT INTO transactions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 - a constant
        async with self.driver.exclusive() as durable:
            await durable.fetch(query, astuple(tx))

    async def checkpoint(self, name: str) -> Checkpoint | None:
        rows = await self.driver.fetch("SELECT block_number, block_hash FROM checkpoints WHERE name = ?", (name,))
        return Checkpoint(*rows[0]) if rows else None

    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None:
        await self.driver.fetch(
            "INSERT INTO checkpoints (name, block_number, block_hash) VALUES (?, ?, ?) ON CONFLICT (name) "
            "DO UPDATE SET block_number = excluded.block_number, block_hash = excluded.block_hash",
            (name, checkpoint.number, checkpoint.hash),
        )


_IS_FREE = "(leases.holder = excluded.holder OR leases.until_at < (SELECT at FROM moment))"


class Leases(_Tables):
    async def take_lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease; another holder's lease counts until it runs out.

        If the clock was set back, a lease may seem to last longer than its length: it is then cut to its length,
        which leaves its holder time to renew it.
        """
        clock, now = (self.driver.clock, ()) if self.now is None else ("CAST(? AS DOUBLE PRECISION)", (self.now(),))
        rows = await self.driver.fetch(
            f"WITH moment AS (SELECT {clock} AS at) INSERT INTO leases (name, holder, until_at, seconds) "  # noqa: S608 - constants
            "SELECT CAST(? AS TEXT), CAST(? AS TEXT), at + CAST(? AS DOUBLE PRECISION), CAST(? AS DOUBLE PRECISION) "
            "FROM moment WHERE true ON CONFLICT (name) DO UPDATE SET "
            f"holder = CASE WHEN {_IS_FREE} THEN excluded.holder ELSE leases.holder END, "
            f"seconds = CASE WHEN {_IS_FREE} THEN excluded.seconds ELSE leases.seconds END, "
            f"until_at = CASE WHEN {_IS_FREE} THEN excluded.until_at "
            "WHEN leases.until_at > (SELECT at FROM moment) + leases.seconds "
            "THEN (SELECT at FROM moment) + leases.seconds ELSE leases.until_at END RETURNING holder",
            (*now, name, holder, seconds, seconds),
        )
        return str(rows[0][0]) == holder

    async def drop_lease(self, name: str, holder: str) -> None:
        await self.driver.fetch("DELETE FROM leases WHERE name = ? AND holder = ?", (name, holder))


class Runs(_Tables):
    """Journal entries, paid answers and costs of runs."""

    async def entry(self, run: str, key: str) -> str | None:
        rows = await self.driver.fetch("SELECT value FROM entries WHERE run = ? AND key = ?", (run, key))
        return rows[0][0] if rows else None

    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]:
        query = "SELECT key, value FROM entries WHERE run = ? AND key >= ? AND key < ?"
        return sorted((row[0], row[1]) for row in await self.driver.fetch(query, (run, *prefix_range(prefix))))

    async def add_entry(self, run: str, key: str, value: str) -> str:
        """Write the entry unless it exists, and return the stored one."""
        query = "INSERT INTO entries (run, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING value"
        rows = await self.driver.fetch(query, (run, key, value))
        return value if rows else await self.entry(run, key) or value

    async def forget_run(self, run: str) -> None:
        await self.driver.fetch("DELETE FROM entries WHERE run = ?", (run,))

    async def forget_entry(self, run: str, key: str) -> None:
        await self.driver.fetch("DELETE FROM entries WHERE run = ? AND key = ?", (run, key))

    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]:
        query = f"SELECT {_ANSWER_COLUMNS} FROM answers WHERE request IN"  # noqa: S608 - a constant
        return {row[0]: _from_row(row) for row in await fetch_in(self.driver, query, requests)}

    async def forget_answers(self, requests: Sequence[str]) -> int:
        """Delete useless answers, so that their requests are sent again; return their cost in micro-USD."""
        found = await self.answers(requests)
        for request in found:
            await self.driver.fetch("DELETE FROM answers WHERE request = ?", (request,))
        return sum(paid.cost_micro_usd or 0 for paid in found.values())

    async def calls_of(self, run: str) -> list[tuple[str, str, int | None]]:
        """Return request, purpose and cost of every answer of the run, in order of request."""
        query = "SELECT request, purpose, cost_micro_usd FROM answers WHERE run = ? ORDER BY request"
        return [(row[0], row[1], row[2]) for row in await self.driver.fetch(query, (run,))]

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
        query = "SELECT settled_micro_usd FROM spends WHERE run = ? AND purpose = ?"
        rows = await self.driver.fetch(query, (run, _UNSURE))
        return int(rows[0][0]) if rows else 0

    async def spends(self, *, since: int = 0) -> list[Spend]:
        columns = "id, run, poster, purpose, reserved_micro_usd, settled_micro_usd, at"
        query = f"SELECT {columns} FROM spends WHERE at >= ? ORDER BY id"  # noqa: S608 - a constant
        return [Spend(*row) for row in await self.driver.fetch(query, (since,))]

    def _wall_now(self) -> float:
        return time.time() if self.now is None else self.now()


@dataclass(frozen=True)
class SqlStore(Runs, PublicKeys, SignedTransactions, Leases):
    driver: Driver
    now: Callable[[], float] | None = None
    """The clock in tests. By default costs use this machine's clock, and leases the database's."""
    answer_listeners: list[Callable[[PaidAnswer], None]] = field(default_factory=list)  # Called once per new answer
    arrived: list[PaidAnswer] = field(default_factory=list)  # Answers that are not written yet
    writing: list[asyncio.Task[set[str]]] = field(default_factory=list)  # The task that writes them

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        """Save the answer unless its request has one, and return the stored one."""
        if not self.arrived:
            self.writing[:] = [asyncio.create_task(self._write_arrived())]
        self.arrived.append(paid)
        new = await asyncio.shield(self.writing[0])
        if paid.request not in new:
            # Two workers may have sent equal requests at once: both use the answer that was first.
            return (await self.answers((paid.request,))).get(paid.request, paid)
        new.remove(paid.request)
        for listen in self.answer_listeners:
            listen(paid)
        return paid

    async def _write_arrived(self) -> set[str]:
        """Write the answers of one turn of the event loop; return the requests that had none before."""
        arrived = self.arrived.copy()
        self.arrived.clear()
        places = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(arrived))
        query = f"INSERT INTO answers ({_ANSWER_COLUMNS}) VALUES {places} ON CONFLICT DO NOTHING RETURNING request"  # noqa: S608 - a constant
        values = [value for paid in arrived for value in _to_row(paid)]
        return {row[0] for row in await self.driver.fetch(query, values)}

    async def close(self) -> None:
        await self.driver.close()
