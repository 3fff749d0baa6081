"""JSON of strangers has one meaning or none."""

from __future__ import annotations

import json
import time

import pytest
from tests.support.configs import APPENDIX, errors

from clara_eval.config.eval_config import BadEvalConfig, parse_eval_config
from clara_eval.core.errors import BadInput
from clara_eval.core.strict_json import JsonLimits, read_strict_json


def test_a_string_without_an_end_is_read_once() -> None:
    """A quarter of a megabyte of escaped quotes that ends in a lone backslash is refused within a second of work."""
    before = time.process_time()
    with pytest.raises(BadInput):
        read_strict_json('"[[[[[[[[[[' + '\\"' * 130_000 + "\\", JsonLimits(bytes=300_000))
    assert time.process_time() - before < 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        "{} {}",
        b"\xff\xfe{}",
        "\ufeff" + APPENDIX,
        '{"version": 1, "version": 1}',
        '{"version": 1, "features": [{"name": "a", "name": "b"}]}',
        '{"version": NaN}',
        '{"version": Infinity}',
        '{"version": -Infinity}',
        '{"version": 1e999}',
        '{"version": 123456789012345678901234567890}',
        '{"version": 9007199254740993}',
        '{"criteria": "\\ud800"}',
        '{"version": 1, // comment\n"features": []}',
        "[" * 100_000,
        '{"a":' * 9 + "1" + "}" * 9,
        json.dumps({"criteria": "x" * 70_000}),
        "\ud800",
    ],
)
def test_what_is_not_strict_json_is_refused(text: str | bytes) -> None:
    """Duplicates, NaN, overflow, half characters, depth, size and noise each give one clear error."""
    found = errors(text)
    assert found
    assert found[0].path.startswith("$")
    with pytest.raises(BadEvalConfig):
        parse_eval_config(text)
