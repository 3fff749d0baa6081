"""What every test may use: a real node, a deployed local chain, real stores."""

from __future__ import annotations

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that share a fixture of their module to one worker: it is set up once."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        used = [found[-1] for found in item._fixtureinfo.name2fixturedefs.values() if found]  # noqa: SLF001
        if any(fixture.scope == "module" for fixture in used):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
