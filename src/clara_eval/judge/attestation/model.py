"""The evidence kept for a signed answer, and what checking it gives."""

from __future__ import annotations

from dataclasses import dataclass


class NotAttested(ValueError):
    """The evidence does not show what it should; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Signed:
    """One answer as it was sent. `request` and `response` are base64, `proof` is the document as received."""

    interface: str
    key: str
    """near: the signing address; aci: `KEY_ID@KEYSET_DIGEST`."""
    request: str
    response: str
    proof: str


@dataclass(frozen=True, slots=True)
class KeyReport:
    """The attestation of one signing key as received, with what is needed to check its quote later."""

    run: str
    """For which run it was made: the nonce follows from it."""
    judge: str
    key: str
    report: str
    collateral: str
    fetched_at: int
    """Unix seconds: the collateral is checked as of this moment, because it expires."""


@dataclass(frozen=True, slots=True)
class Enclave:
    """What a quote says about the machine and its software."""

    measurements: dict[str, str]
    """MRTD and the four RTMRs, in hex."""
    status: str
    """Intel's word for the platform's updates; empty if the quote's signature was not checked."""
    advisories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key whose private half is inside an enclave. `public` is an address, or 32 bytes of ed25519 in hex."""

    interface: str
    name: str
    public: str
    enclave: Enclave
