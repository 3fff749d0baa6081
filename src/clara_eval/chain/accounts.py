"""The signing library, without what loading it does to the interpreter.

`eth_account` loads a package that raises Python's recursion limit to 100,000, for the whole process. The limit is what
turns a stranger's deeply nested JSON into a `RecursionError`; without it the stack overflows and the process dies.
So the library is loaded here and nowhere else, and the limit is put back at once.
"""

from __future__ import annotations

import sys

_LIMIT = min(sys.getrecursionlimit(), 1000)

from eth_account import Account  # noqa: E402 - the limit is read before and set after
from eth_account.hdaccount import key_from_seed, seed_from_mnemonic  # noqa: E402

sys.setrecursionlimit(_LIMIT)

__all__ = ["Account", "key_from_seed", "seed_from_mnemonic"]
