"""What every test may use: a real node, a deployed local chain, real stores."""

from __future__ import annotations

import gc
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.fixtures", "tests.support.databases", "tests.support.engines"]

# A shared machine has slow moments; a property is about values, never about time.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

# The program is started hundreds of times: compiling it anew each time would be most of the work.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Each worker has a core at most: threads of a matrix library that wait for another one burn a hundred times the work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that share a fixture of their module, and those marked, to one worker: it is set up once.

    They start first, because a long group that starts last keeps one worker busy while the others have nothing to do.
    pytest-xdist 3.8 reads the group at the end of the id, and cannot write it there under pytest 9.2 (its issue 1386).
    """
    for item in items if config.getoption("loadgroup", default=False) else ():
        group = _group(item)
        if group and not item.nodeid.endswith(f"@{group}"):
            item._id = type(item.id).parse(f"{item.nodeid}@{group}")  # noqa: SLF001
    if config.getoption("loadgroup", default=False):
        items.sort(key=lambda item: _group(item) is None)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking all imported modules again and again: a fifth of the suite's CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _group(item: pytest.Item) -> str | None:
    if marked := item.get_closest_marker("xdist_group"):
        return str(marked.args[0])
    if not isinstance(item, pytest.Function):
        return None
    used = [found[-1] for found in item._fixtureinfo.name2fixturedefs.values() if found]  # noqa: SLF001
    return item.id.path if any(fixture.scope == "module" for fixture in used) else None
