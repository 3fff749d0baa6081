"""Refusals are decoded from whatever a contract returns, and hostile data is never believed."""

from __future__ import annotations

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.chain.contracts.abi import artifact, decode_refusal, known_errors
from clara_eval.core.hashing import keccak_hex


def _selector(signature: str) -> bytes:
    return bytes.fromhex(keccak_hex(signature.encode())[2:10])


def test_every_error_of_our_contracts_has_a_reason_and_a_remedy() -> None:
    """No custom error of Challenge or ChallengeFactory reaches a person as a bare name."""
    ours = {
        entry["name"]
        for name in ("Challenge", "ChallengeFactory")
        for entry in artifact(name).abi
        if entry["type"] == "error" and entry["name"] not in {"FailedDeployment", "InsufficientBalance"}
    }
    for selector, error in known_errors().items():
        name, types = error.name, error.types
        if name in ours:
            refusal = decode_refusal(
                selector + encode(types, [0 if kind != "address" else "0x" + "0" * 40 for kind in types])
            )
            assert refusal is not None
            assert refusal.remedy, name
            assert name not in refusal.reason, name


def test_a_wrong_status_names_both_statuses() -> None:
    """InvalidStatus is told in the words of the contract, with the next step."""
    refusal = decode_refusal(_selector("InvalidStatus(uint8,uint8)") + encode(["uint8", "uint8"], [0, 1]))
    assert refusal is not None
    assert refusal.values == (0, 1)
    assert str(refusal) == (
        "The challenge is Open, but this needs it to be Scoring. "
        "After the deadline, call advanceToScoring first. (InvalidStatus: 0, 1)"
    )


def test_a_status_beyond_the_known_ones_is_shown_as_a_number() -> None:
    """A contract with more statuses than ours gives a sentence, not an error."""
    refusal = decode_refusal(_selector("InvalidStatus(uint8,uint8)") + encode(["uint8", "uint8"], [9, 1]))
    assert refusal is not None
    assert "unknown status 9" in refusal.reason


def test_text_as_nodes_send_it_is_accepted() -> None:
    """Hex text with 0x is read like bytes."""
    refusal = decode_refusal("0x" + _selector("SubmissionCooldown()").hex())
    assert refusal is not None
    assert "one submission per hour" in refusal.reason.lower()


def test_soliditys_own_errors_are_read() -> None:
    """A reason string is quoted with its control characters escaped; a panic shows its code."""
    said = decode_refusal(_selector("Error(string)") + encode(["string"], ["no\x1b[31m"]))
    assert said is not None
    assert "'no\\x1b[31m'" in said.reason
    panic = decode_refusal(_selector("Panic(uint256)") + encode(["uint256"], [0x11]))
    assert panic is not None
    assert "0x11" in panic.reason


@pytest.mark.parametrize("data", [None, "", "0x", "0x08c3", "not hex", b"\x01\x02\x03\x04"])
def test_unknown_data_is_no_refusal(data: str | bytes | None) -> None:
    """What we do not know we do not explain."""
    assert decode_refusal(data) is None


@given(name=st.sampled_from(sorted(known_errors())), tail=st.binary(max_size=200))
def test_hostile_data_never_breaks_the_decoder(name: bytes, tail: bytes) -> None:
    """A known selector with arbitrary bytes behind it gives a printable refusal or none."""
    refusal = decode_refusal(name + tail)
    assert refusal is None or str(refusal).isprintable()
