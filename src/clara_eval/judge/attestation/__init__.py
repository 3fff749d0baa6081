"""Checks of answers that were signed inside an enclave, equal for live answers and for traces."""

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
