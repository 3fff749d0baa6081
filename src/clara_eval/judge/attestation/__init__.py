"""What an enclave signed: the exact bytes of a question and its answer, the signature, and the key's own quote.

Pure checks on bytes, the same when an answer arrives and when a stranger verifies a trace. Two interfaces are known:
`near` (an Ethereum signature over two hashes) and `aci` (a receipt signed with ed25519).
"""

from clara_eval.judge.attestation.checks import check_answer, check_key, key_name, nonce_for
from clara_eval.judge.attestation.model import (
    Enclave,
    KeyReport,
    NotAttested,
    Signed,
    SigningKey,
)
from clara_eval.judge.attestation.quotes import Quotes

__all__ = [
    "Enclave",
    "KeyReport",
    "NotAttested",
    "Quotes",
    "Signed",
    "SigningKey",
    "check_answer",
    "check_key",
    "key_name",
    "nonce_for",
]
