"""What every test may use: a real node, a deployed local chain, real stores."""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.fixtures", "tests.support.databases"]

# A shared machine has slow moments; a property is about values, never about time.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

# The program is started hundreds of times: compiling it anew each time would be most of the work.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
