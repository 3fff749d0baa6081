from __future__ import annotations

from collections.abc import Iterator

import pytest

from clara_eval.harness import Machine, MissingEngine


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine that runs JavaScript."""
    found = Machine()
    try:
        found.require("javascript")
    except MissingEngine as missing:
        pytest.skip(str(missing))
    yield found
    found.close()
