"""What the service writes is for its owner alone, with the most open umask there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from clara_eval.chain.wallet import new_keystore
from clara_eval.interfaces.cli.config import hash_harness as hash_
from clara_eval.service.due import EngineOptions
from clara_eval.service.engine import only_process
from clara_eval.service.queue import run_dbos
from clara_eval.store.sqlite import SqliteStore


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process whose new files everybody may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def _write_everything(folder: Path) -> dict[str, int]:
    """The store, its lock and the engine's queues with all journals, while they are open."""
    store = await SqliteStore.open(folder / "s.db")
    await store.put(1, "key", "value")
    with only_process(folder / "s.db"):
        async with run_dbos(f"sqlite:///{folder}/s.db", "w", {}, EngineOptions(), listens=False):
            found = modes(folder)
    await store.close()
    return found


@pytest.mark.usefixtures("open_umask")
async def test_databases_journals_and_locks_are_for_their_owner_alone(tmp_path: Path) -> None:
    """The store, the engine's queues, their journals and the lock have mode 600, their new folder 700."""
    found = await _write_everything(tmp_path / "new")
    names = {f"{name}.db{ending}" for name in ("s", "s-engine") for ending in ("", "-wal", "-shm")} | {"s.db.lock"}
    assert found == dict.fromkeys(names, 0o600)
    assert modes(tmp_path)["new"] == 0o700


@pytest.mark.usefixtures("open_umask")
async def test_files_that_an_earlier_version_left_open_are_closed(tmp_path: Path) -> None:
    """Files that exist with rights for others lose them at the next start."""
    await _write_everything(tmp_path / "old")
    for name in ("s.db", "s-engine.db", "s.db.lock", "s-engine.db-wal"):
        (tmp_path / "old" / name).touch()
        (tmp_path / "old" / name).chmod(0o666)
    assert set((await _write_everything(tmp_path / "old")).values()) == {0o600}


@pytest.mark.usefixtures("open_umask")
def test_keys_and_hidden_harnesses_are_for_their_owner_alone(tmp_path: Path) -> None:
    """A keystore, and a hidden harness with its salt, have mode 600."""
    harness = tmp_path / "h.js"
    harness.write_text("function test_it() {}", encoding="utf-8")
    hash_(harness, out=tmp_path / "hidden.json")
    new_keystore(tmp_path / "key.json", SecretStr("correct horse"), work=1024)
    assert {name: mode for name, mode in modes(tmp_path).items() if name != "h.js"} == {
        "hidden.json": 0o600,
        "key.json": 0o600,
    }
