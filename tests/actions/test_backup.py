"""`clara-eval backup`: a copy that holds everything committed, taken while others write, and a service that goes on."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from tests.support.rounds import closed_round
from tests.support.service import settings_of, turning

from clara_eval.actions.operator import back_up
from clara_eval.core.errors import BadInput, ConfigError, NotFound
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.store.open import opened_store


async def test_a_backup_during_writes_holds_all_that_was_committed(tmp_path: Path) -> None:
    """Of rows written all the time, the copy holds every one from before it began, and it is for its owner alone."""
    url, written = f"sqlite:///{tmp_path}/live.db", 0

    async with opened_store(url) as store:

        async def write() -> None:
            nonlocal written
            while True:
                await store.put(1, f"row:{written:06}", "x" * 500)
                written += 1
                await asyncio.sleep(0)

        writing = asyncio.create_task(write())
        for number in range(5):
            await asyncio.sleep(0.05)
            before, target = written, tmp_path / f"copy{number}.db"
            assert await asyncio.to_thread(back_up, url, target) == target.stat().st_size
            assert stat.S_IMODE(target.stat().st_mode) == 0o600
            async with opened_store(f"sqlite:///{target}") as copy:
                assert len(await copy.keys(1, "row:")) >= before > 0
        writing.cancel()
    assert not (tmp_path / "copy0.db.part").exists()


def test_a_backup_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """Postgres has its own tool; a file that exists is kept; without a database there is nothing to copy."""
    with pytest.raises(ConfigError, match="pg_dump"):
        back_up("postgresql://somebody@host/db", tmp_path / "a")
    with pytest.raises(NotFound, match="no database"):
        back_up(f"sqlite:///{tmp_path}/none.db", tmp_path / "a")
    (tmp_path / "live.db").touch()
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="exists already"):
        back_up(f"sqlite:///{tmp_path}/live.db", tmp_path / "taken")
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "mine"


def restore(folder: Path) -> None:
    for file in folder.glob("engine*"):
        file.unlink()
    (folder / "backup").rename(folder / "engine.db")


async def test_a_restored_service_goes_on_and_posts_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """From a backup taken while a round ran, the posted round is recognised and the next one is evaluated."""
    first, settings = await closed_round(local_chain), settings_of(local_chain, tmp_path)
    async with turning(settings) as world:
        await world.engine.requests.request(first)
        back_up(settings.database_url, tmp_path / "backup")
        posted = await world.until(first, "complete")
    restore(tmp_path)
    second = await closed_round(local_chain)
    async with turning(settings) as world:
        assert (await world.until(first, "complete"))["postedBy"] == posted["postedBy"] == "evaluator"
        assert (await world.until(second, "complete"))["postedBy"] == "evaluator"
        assert len(await world.app.store.transactions(f"{world.app.chain_id}:{first}", "post_scores")) <= 1
