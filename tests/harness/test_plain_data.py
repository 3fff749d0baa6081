"""Plain values between a Python submission and a harness."""

from __future__ import annotations

import json
import marshal

import pytest

from clara_eval.harness.cpython import MAX_DEPTH, NotPlain, decode_response, encode_request


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, None),
        (True, True),
        (-7, -7),
        (2**90, 2**90),
        (-(2**90), -(2**90)),
        (1.5, 1.5),
        (float("inf"), {"$": "number", "v": "inf"}),
        ("é\ud800", "é\ud800"),
        (b"\x00\xff", {"$": "bytes", "v": "00ff"}),
        ([1, (2,)], {"$": "list", "v": [1, {"$": "tuple", "v": [2]}]}),
        ({"$": "ref", "v": 3}, {"$": "map", "v": [["$", "ref"], ["v", 3]]}),
        ({5}, {"$": "set", "v": [5]}),
        ((..., 4), {"$": "ref", "v": 4}),
    ],
)
def test_a_plain_answer_is_read(value: object, told: object) -> None:
    """Each kind of plain value is told in its tagged form, and what looks like a tag is a value like any other."""
    assert decode_response(marshal.dumps((True, value), 2)) == [True, told]  # type: ignore[arg-type] # any of them


@pytest.mark.parametrize("value", [(lambda: 0).__code__, StopIteration, 1j, ..., (..., -1), (..., "x"), [10**6000]])
def test_what_is_not_plain_is_refused(value: object) -> None:
    """Code, classes, markers, references out of place and huge numbers are no answers."""
    with pytest.raises(NotPlain):
        decode_response(marshal.dumps((True, value), 2))  # type: ignore[arg-type] # any of them


def test_depth_is_bounded() -> None:
    """A value as deep as allowed is read, one that is deeper is not, and neither ends our own interpreter."""
    value: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode_response(marshal.dumps((True, value), 2))[0] is True
    for _ in range(1_000):
        value = [value]
    with pytest.raises(NotPlain, match="deeply"):
        decode_response(marshal.dumps((True, value), 2))


def test_broken_bytes_are_refused() -> None:
    """Bytes that end early, have a rest, claim a length they do not have, or are no tuple: refused, never an error of ours."""
    good = marshal.dumps((True, [1, "x", {"k": 2.5}]), 2)
    for raw in (
        b"",
        good + b"N",
        b"N",
        b"(\xff\xff\xff\x7f",
        b"u\xff\xff\xff\x7fx",
        b"l\xff\xff\xff\x7f",
        b"{",
        b"\xff",
    ):
        with pytest.raises(NotPlain):
            decode_response(raw)
    for length in range(len(good)):
        with pytest.raises(NotPlain):
            decode_response(good[:length])


def test_a_message_says_whether_it_holds_references() -> None:
    """Arguments arrive as values; only a message with a reference makes the guest look for one."""
    plain = json.loads('[{"$": "list", "v": [1, {"$": "bytes", "v": "00"}]}]')
    assert marshal.loads(encode_request(2, 0, plain)) == (2, 0, ([1, b"\x00"],), {}, False)
    assert marshal.loads(encode_request(2, 0, [], {"on": {"$": "ref", "v": 3}})) == (2, 0, (), {"on": (..., 3)}, True)
