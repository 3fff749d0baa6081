"""Each wording of nodes and providers has one meaning."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.chain.blocks import RANGES_AT_ONCE, split_range
from clara_eval.chain.rpc import Meaning, meaning_of

SEND = "eth_sendRawTransaction"


@pytest.mark.parametrize(
    ("method", "code", "message", "expected"),
    [
        (SEND, -32000, "already known", Meaning.ALREADY_KNOWN),
        (SEND, -32003, "transaction already imported", Meaning.ALREADY_KNOWN),
        (SEND, -32010, "AlreadyKnown", Meaning.ALREADY_KNOWN),
        (SEND, -32000, "known transaction: abc", Meaning.ALREADY_KNOWN),
        (SEND, -32000, "nonce too low: next nonce 5, tx nonce 4", Meaning.NONCE_TOO_LOW),
        (SEND, -32003, "nonce too low", Meaning.NONCE_TOO_LOW),
        (SEND, -32000, "OldNonce", Meaning.NONCE_TOO_LOW),
        (SEND, -32000, "nonce too high", Meaning.NONCE_TOO_HIGH),
        (SEND, -32000, "Transaction nonce is too distant from current sender nonce", Meaning.NONCE_TOO_HIGH),
        (SEND, -32000, "gapped-nonce tx from delegated accounts", Meaning.NONCE_TOO_HIGH),
        (SEND, -32000, "txpool is full", Meaning.POOL_FULL),
        (SEND, -32000, "account limit exceeded: pooled 16 txs", Meaning.POOL_FULL),
        (SEND, -32000, "in-flight transaction limit reached for delegated accounts", Meaning.POOL_FULL),
        (SEND, -32005, "daily request limit exceeded", Meaning.BUSY),
        (SEND, -32000, "replacement transaction underpriced", Meaning.REPLACEMENT_UNDERPRICED),
        (SEND, -32000, "FeeTooLowToCompete", Meaning.REPLACEMENT_UNDERPRICED),
        (SEND, -32000, "transaction underpriced", Meaning.FEE_TOO_LOW),
        (SEND, -32000, "max fee per gas less than block base fee: address 0x1", Meaning.FEE_TOO_LOW),
        (SEND, -32000, "insufficient funds for gas * price + value: balance 0", Meaning.INSUFFICIENT_FUNDS),
        (SEND, -32003, "Insufficient funds for gas * price + value", Meaning.INSUFFICIENT_FUNDS),
        ("eth_call", 3, "execution reverted", Meaning.REVERTED),
        ("eth_call", -32000, "execution reverted: custom error", Meaning.REVERTED),
        ("eth_call", -32000, "header not found", Meaning.MISSING),
        ("eth_call", -32000, "missing trie node abc", Meaning.MISSING),
        ("eth_call", -32000, "hash 0x12 is not currently canonical", Meaning.MISSING),
        ("eth_call", -32602, "invalid argument 1: json: cannot unmarshal object", Meaning.UNSUPPORTED),
        ("eth_getBlockByNumber", -39001, "Unknown block", Meaning.MISSING),
        ("eth_foo", -32601, "the method eth_foo does not exist/is not available", Meaning.UNSUPPORTED),
        ("eth_call", -32005, "daily request count exceeded, request rate limited", Meaning.BUSY),
        ("eth_getLogs", -32005, "query returned more than 10000 results", Meaning.RANGE_TOO_LARGE),
        ("eth_getLogs", -32016, "over rate limit", Meaning.BUSY),
        ("eth_getLogs", 429, "Your app has exceeded its compute units per second capacity", Meaning.BUSY),
        ("batch", -32600, "batch size too large", Meaning.BATCH_REFUSED),
        ("batch", -32014, "maximum 10 calls in 1 batch", Meaning.BATCH_REFUSED),
        ("batch", -32005, "batch limit exceeded", Meaning.BATCH_REFUSED),
        ("batch", -32016, "over rate limit", Meaning.BUSY),
        ("eth_call", -32000, "something new", Meaning.OTHER),
    ],
)
def test_one_meaning_each(method: str, code: int, message: str, expected: Meaning) -> None:
    """The meaning of a wording is the expected one."""
    assert meaning_of(method, code, message) is expected


def test_revert_data_without_words_is_a_revert() -> None:
    """A node that says only data has refused by the contract."""
    assert meaning_of("eth_call", -32015, "VM execution error.", "0xd39b1f48") is Meaning.REVERTED


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**5), st.booleans())
def test_ranges_are_neighbours_and_not_too_long(first: int, length: int, span: int, backwards: bool) -> None:
    """Ranges cover the start of the walk without gap or overlap, none longer than the span."""
    last = first + length
    ranges = sorted(split_range(first, last, span, backwards=backwards))
    assert 1 <= len(ranges) <= RANGES_AT_ONCE
    assert all(high - low + 1 <= span for low, high in ranges)
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(ranges))
    assert ranges[-1][1] == last if backwards else ranges[0][0] == first
    if len(ranges) < RANGES_AT_ONCE:
        assert (ranges[0][0], ranges[-1][1]) == (first, last)
