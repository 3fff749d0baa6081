"""Import `eth_account` without letting it raise the recursion limit of the process.

Invariant: the limit stays, so that deeply nested hostile JSON raises `RecursionError` and does not crash the process.
"""

from __future__ import annotations

import sys

_LIMIT = min(sys.getrecursionlimit(), 1000)

from eth_account import Account  # noqa: E402 - the limit is read before this import and restored after it
from eth_account.hdaccount import key_from_seed, seed_from_mnemonic  # noqa: E402
from eth_account.messages import encode_defunct  # noqa: E402
from eth_keys.exceptions import BadSignature  # noqa: E402

sys.setrecursionlimit(_LIMIT)

__all__ = ["Account", "BadSignature", "encode_defunct", "key_from_seed", "seed_from_mnemonic"]
