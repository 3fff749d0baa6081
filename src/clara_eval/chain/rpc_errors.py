"""Name what a node means by an error: known wordings of nodes and providers, mapped once.

An unknown wording is OTHER, never a guess.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Meaning(StrEnum):
    REVERTED = "reverted"
    RANGE_TOO_LARGE = "range_too_large"
    BUSY = "busy"
    MISSING = "missing"
    UNSUPPORTED = "unsupported"
    BATCH_REFUSED = "batch_refused"
    ALREADY_KNOWN = "already_known"
    NONCE_TOO_LOW = "nonce_too_low"
    NONCE_TOO_HIGH = "nonce_too_high"
    POOL_FULL = "pool_full"
    REPLACEMENT_UNDERPRICED = "replacement_underpriced"
    FEE_TOO_LOW = "fee_too_low"
    INSUFFICIENT_FUNDS = "insufficient_funds"
    OTHER = "other"


_RANGE = re.compile(
    r"range|more than \d+ results|max results|too many (results|logs|blocks)|response size|response is too (big|large)"
    r"|query timeout|query exceeds|limit exceeded|limited to|exceeds? (the )?(limit|maximum)|up to a \d+|10,?000 logs",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"rate.?limit|too many requests|request (count|limit)|capacity|throughput|compute units|limit (exceeded|reached)"
    r"|quota|over rate|try again later|overloaded|timed? ?out|timeout|temporarily|busy|credits|forbidden|unauthorized"
    r"|api key|upstream|no available|internal error|server error|bad gateway",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"header not found|unknown block|block not found|missing trie node|pruned|state .*not available|not available"
    r"|hash .*is not currently canonical|not currently canonical|historical state|blockoutofrange|block.?out.?of.?range"
    r"|could not find block|resource not found|cannot find|no state|archive|not found",
    re.IGNORECASE,
)
_BATCH = re.compile(r"batch", re.IGNORECASE)
_FAULT = re.compile(
    r"out ?of ?gas|invalid (opcode|jump)|opcode ?not ?found|stack (under|over)flow|stack limit|evm error"
    r"|gas required exceeds",
    re.IGNORECASE,
)
"""What a contract's own code did: its answer, not a fault of the node."""

# The order matters: a replacement that is underpriced must not read as a plain low fee.
_SENDING: tuple[tuple[re.Pattern[str], Meaning], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in (
        ((r"already known|already imported|known transaction|alreadyknown|already exists|already in mempool"
         r"|transaction already"), Meaning.ALREADY_KNOWN),
        (r"nonce too low|oldnonce|invalid nonce.*too low|nonce.*already (been )?used|nonce has already",
         Meaning.NONCE_TOO_LOW),
        (r"nonce too high|nonce gap|noncegap|gapped.?nonce|nonce.*too (far|distant)", Meaning.NONCE_TOO_HIGH),
        ((r"pool is full|pool limit|account (limit|slots?) exceeded|max(imum)? account slots|exceeded capacity|spammer"
         r"|in-flight transaction limit|number of transactions in pool|future transaction tries to replace"),
         Meaning.POOL_FULL),
        (r"replacement|feetoolowtocompete|gas price too low to replace|could not replace",
         Meaning.REPLACEMENT_UNDERPRICED),
        ((r"underpriced|max fee per gas less than|fee cap less than|feetoolow|less than block base fee"
         r"|lower than the minimum|fee too low|priority fee.*(less|higher) than"), Meaning.FEE_TOO_LOW),
        (r"insufficient (funds|balance)|overshot|doesn't have enough funds|gas required exceeds allowance",
         Meaning.INSUFFICIENT_FUNDS),
    )
)  # fmt: skip


def meaning_of(method: str, code: int, message: str, data: object = None) -> Meaning:
    if code == 3 or "revert" in message.lower() or _has_revert_data(method, data):
        return Meaning.REVERTED
    if method == "batch" and _BATCH.search(message):
        return Meaning.BATCH_REFUSED
    if method in {"eth_sendRawTransaction", "eth_estimateGas", "eth_call"}:
        found = next((meaning for pattern, meaning in _SENDING if pattern.search(message)), None)
        if found is not None:
            return found
        if method != "eth_sendRawTransaction" and _FAULT.search(message):
            return Meaning.REVERTED
    if method == "eth_getLogs" and (_RANGE.search(message) or code in {-32614, -32062, 35}):
        return Meaning.RANGE_TOO_LARGE
    if _MISSING.search(message) and code != -32601:
        return Meaning.MISSING
    if _BUSY.search(message) or code in {429, -32005, -32016, -32097, -32603}:
        return Meaning.BUSY
    return Meaning.UNSUPPORTED if code in {-32600, -32601, -32602} else Meaning.OTHER


def _has_revert_data(method: str, data: object) -> bool:
    return (
        method in {"eth_call", "eth_estimateGas"}
        and isinstance(data, str)
        and re.match(r"0x[0-9a-f]{8}", data) is not None
    )
