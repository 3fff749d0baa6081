"""The config behind a challenge is the committed one, or it is not used."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.configs import APPENDIX, config_text

from clara_eval.config.eval_config import (
    BadEvalConfig,
    build_metadata,
    config_hash,
    parse_eval_config,
    read_metadata,
)
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex


def test_canonical_form_forgets_order_and_space_only() -> None:
    """The canonical form is the same for the same document in another order, and differs for another document."""
    document = json.loads(APPENDIX)
    shuffled = json.dumps(dict(reversed(document.items())), indent=7)
    assert parse_eval_config(APPENDIX).canonical == parse_eval_config(shuffled).canonical
    other = json.dumps({**document, "language": "vyper"})
    assert parse_eval_config(APPENDIX).canonical != parse_eval_config(other).canonical
    assert config_hash(APPENDIX.encode()) == keccak_hex(APPENDIX.encode())
    # RFC 8785: sorted keys, no space, numbers as JavaScript writes them
    weighted = parse_eval_config(config_text(features=[{"name": "novelty", "weight": 10.0}]))
    assert b'"features":[{"name":"novelty","weight":10}]' in weighted.canonical


def metadata(config: Any, **more: Any) -> bytes:
    return json.dumps(
        {"title": "Fee curves", "problemStatement": "Do it.", "skills": ["amm", 1], "evalConfig": config, **more}
    ).encode()


def test_metadata_with_a_string_config_is_hashed_as_written() -> None:
    """The usual form: a JSON string, whose exact UTF-8 bytes are committed."""
    read = read_metadata(metadata(APPENDIX), keccak_hex(APPENDIX.encode()).upper().replace("0X", "0x"))
    assert (read.title, read.problem_statement, read.skills) == ("Fee curves", "Do it.", ("amm",))
    assert (read.hash_kind, read.config_bytes) == ("string", APPENDIX.encode())
    assert read.config == parse_eval_config(APPENDIX)


def test_metadata_with_an_object_config_is_hashed_in_canonical_form() -> None:
    """The other form: the object itself, committed in canonical form."""
    canonical = parse_eval_config(APPENDIX).canonical
    read = read_metadata(metadata(json.loads(APPENDIX)), keccak_hex(canonical))
    assert (read.hash_kind, read.config_bytes) == ("canonical", canonical)


@pytest.mark.specification("4", "The hash is committed on-chain at creation for verifiability")
def test_a_config_that_was_not_committed_is_never_read() -> None:
    """A mismatch names both hashes, for both forms, and also when only a space was added."""
    committed = keccak_hex(APPENDIX.encode())
    for config in (APPENDIX + " ", json.loads(APPENDIX)):
        with pytest.raises(BadInput) as caught:
            read_metadata(metadata(config), committed)
        assert committed in str(caught.value)
        assert str(caught.value.value) in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        metadata(None),
        metadata(5),
        b'{"evalConfig": "a", "evalConfig": "b"}',
        json.dumps({"title": "x" * 2_000_000}).encode(),
    ],
)
def test_metadata_without_a_readable_config_is_refused(document: bytes) -> None:
    """Missing, doubled or misplaced configs are errors, never a default."""
    with pytest.raises(BadInput):
        read_metadata(document, "0x" + "00" * 32)


def test_strange_titles_do_not_keep_work_from_being_judged() -> None:
    """A title or skill list of the wrong type is empty; the config still counts."""
    read = read_metadata(metadata(APPENDIX, title=7, problemStatement=None, skills="x"), keccak_hex(APPENDIX.encode()))
    assert (read.title, read.problem_statement, read.skills) == ("", "", ())


@given(title=st.text(max_size=40), problem=st.text(max_size=200), skills=st.lists(st.text(max_size=10), max_size=3))
def test_what_is_built_for_posting_is_read_back(title: str, problem: str, skills: list[str]) -> None:
    """build_metadata and read_metadata are inverse, for any words."""
    uri = build_metadata(title=title, problem_statement=problem, skills=skills, config_text=APPENDIX, timestamp=5)
    document = base64.b64decode(uri.removeprefix("data:application/json;base64,"), validate=True)
    read = read_metadata(document, config_hash(APPENDIX.encode()))
    assert (read.title, read.problem_statement, read.skills) == (title, problem, tuple(skills))


@pytest.mark.specification("10.5", "Should we validate the eval config at challenge creation?")
def test_a_bad_config_is_not_built_into_metadata() -> None:
    """A config that cannot be evaluated is refused before the prize is escrowed."""
    with pytest.raises(BadEvalConfig):
        build_metadata(title="", problem_statement="", skills=(), config_text='{"version": 1}')
    with pytest.raises(BadInput):
        build_metadata(title="", problem_statement="x" * 1_100_000, skills=(), config_text=APPENDIX)
