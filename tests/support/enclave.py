"""A trusted enclave for tests: quotes in Intel's TDX format, with certificates and collateral under a root of our own.

In: the 64 bytes that a quote shall carry. Out: the quote, and the collateral that a certificate service would serve for
it. Everything is signed as Intel's tools sign it, so `dcap-qvl` accepts it under `root`, and under no other root.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

FMSPC = bytes.fromhex("00906ed50000")
SGX_EXTENSION = "1.2.840.113741.1.13.1"
MEASUREMENT = bytes(range(48))
"""What this enclave's software measures as (MRTD)."""
_START = datetime(2020, 1, 1, tzinfo=UTC)
_END = datetime(2120, 1, 1, tzinfo=UTC)
_MR_SIGNER = bytes([7]) * 32


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def _oid(text: str) -> bytes:
    first, second, *others = (int(part) for part in text.split("."))
    encoded = bytearray([first * 40 + second])
    for number in others:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        encoded += bytes(reversed(digits))
    return _der(0x06, bytes(encoded))


def _member(oid: str, value: bytes) -> bytes:
    return _der(0x30, _oid(oid) + value)


def _small(number: int) -> bytes:
    return _der(0x02, bytes([number]))


def _sgx_extension() -> bytes:
    levels = [_member(f"{SGX_EXTENSION}.2.{n}", _small(1)) for n in range(1, 17)]
    levels.append(_member(f"{SGX_EXTENSION}.2.17", _small(1)))
    levels.append(_member(f"{SGX_EXTENSION}.2.18", _der(0x04, bytes([1]) * 16)))
    return _der(
        0x30,
        _member(f"{SGX_EXTENSION}.1", _der(0x04, bytes(16)))
        + _member(f"{SGX_EXTENSION}.2", _der(0x30, b"".join(levels)))
        + _member(f"{SGX_EXTENSION}.3", _der(0x04, bytes(2)))
        + _member(f"{SGX_EXTENSION}.4", _der(0x04, FMSPC))
        + _member(f"{SGX_EXTENSION}.5", _der(0x0A, b"\x00")),
    )


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]


@dataclass(frozen=True)
class _Signer:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _issue(name: str, by: _Signer | None, *, is_ca: bool, extension: bytes | None = None) -> _Signer:
    key, subject = _key(), _named(name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.name if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(_END)
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not is_ca,
                content_commitment=not is_ca,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_ca,
                crl_sign=is_ca,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if extension is not None:
        sgx = x509.UnrecognizedExtension(x509.ObjectIdentifier(SGX_EXTENSION), extension)
        builder = builder.add_extension(sgx, critical=False)
    return _Signer(subject, key, builder.sign(by.key if by else key, hashes.SHA256()))


def _crl(by: _Signer) -> bytes:
    builder = x509.CertificateRevocationListBuilder().issuer_name(by.name).last_update(_START).next_update(_END)
    builder = builder.add_extension(x509.CRLNumber(1), critical=False)
    return builder.sign(by.key, hashes.SHA256()).public_bytes(Encoding.DER)


def _pem(*signers: _Signer) -> str:
    return "".join(s.certificate.public_bytes(Encoding.PEM).decode() for s in signers)


@dataclass
class Enclave:
    """One machine with its root, as Intel would have made them."""

    svn: int = 1
    status: str = "UpToDate"
    measurement: bytes = MEASUREMENT
    _root: _Signer = field(default_factory=lambda: _issue("Test SGX Root CA", None, is_ca=True))

    def __post_init__(self) -> None:
        self._platform = _issue("Intel SGX PCK Platform CA", self._root, is_ca=True)
        self._pck = _issue("Intel SGX PCK Certificate", self._platform, is_ca=False, extension=_sgx_extension())
        self._signing = _issue("Intel SGX TCB Signing", self._root, is_ca=False)
        self._attesting = _key()

    @property
    def root(self) -> bytes:
        """The root certificate to trust, in DER."""
        return self._root.certificate.public_bytes(Encoding.DER)

    def quote(self, report_data: bytes) -> bytes:
        header = struct.pack("<HHIHH", 4, 2, 0x81, 0, 0) + bytes.fromhex("939a7233f79c4ca9940a0db3957f0607") + bytes(20)
        report = bytes([self.svn]) * 16 + bytes(96) + bytes(8) + bytes.fromhex("0000001000000000") + bytes(8)
        report += self.measurement + bytes(48 * 3) + bytes(48 * 4) + report_data.ljust(64, b"\0")
        auth = bytes(32)
        hashed = hashlib.sha256(_point(self._attesting) + auth).digest()
        qe_report = bytes([1]) * 16 + bytes(4 + 28) + bytes([0x11]) + bytes(7) + bytes(8) + bytes(32) + bytes(32)
        qe_report += _MR_SIGNER + bytes(96) + struct.pack("<HH", 2, 5) + bytes(60) + hashed + bytes(32)
        chain = _pem(self._pck, self._platform, self._root).encode()
        inner = qe_report + _sign(self._pck.key, qe_report) + struct.pack("<H", len(auth)) + auth
        inner += struct.pack("<HI", 5, len(chain)) + chain
        signed = header + report
        outer = _sign(self._attesting, signed) + _point(self._attesting) + struct.pack("<HI", 6, len(inner)) + inner
        return signed + struct.pack("<I", len(outer)) + outer

    def collateral(self) -> str:
        """As `dcap_qvl.get_collateral(…).to_json()` gives it."""
        tcb, identity = (json.dumps(part, separators=(",", ":")) for part in (self._tcb_info(), self._qe_identity()))
        chain = _pem(self._signing, self._root)
        return json.dumps(
            {
                "pck_crl_issuer_chain": _pem(self._platform, self._root),
                "root_ca_crl": _crl(self._root).hex(),
                "pck_crl": _crl(self._platform).hex(),
                "tcb_info_issuer_chain": chain,
                "tcb_info": tcb,
                "tcb_info_signature": _sign(self._signing.key, tcb.encode()).hex(),
                "qe_identity_issuer_chain": chain,
                "qe_identity": identity,
                "qe_identity_signature": _sign(self._signing.key, identity.encode()).hex(),
            }
        )

    def _dates(self) -> dict[str, str]:
        """As Intel dates them: issued lately, valid for a month."""
        now = datetime.now(UTC)
        moments = (now - timedelta(days=1), now + timedelta(days=30))
        return dict(zip(("issueDate", "nextUpdate"), (m.strftime("%Y-%m-%dT%H:%M:%SZ") for m in moments), strict=True))

    def _tcb_info(self) -> dict[str, Any]:
        parts = [{"svn": 1} for _ in range(16)]
        level = {"sgxtcbcomponents": parts, "pcesvn": 1, "tdxtcbcomponents": parts}
        module = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
        dated = {"tcbDate": "2024-01-01T00:00:00Z", "tcbStatus": self.status}
        return {
            "id": "TDX",
            "version": 3,
            **self._dates(),
            "fmspc": FMSPC.hex().upper(),
            "pceId": "0000",
            "tcbType": 0,
            "tcbEvaluationDataNumber": 17,
            "tdxModule": module,
            "tdxModuleIdentities": [
                {"id": "TDX_01", **module, "tcbLevels": [{"tcb": {"isvsvn": 1}, **dated}]},
            ],
            "tcbLevels": [{"tcb": level, **dated}],
        }

    def _qe_identity(self) -> dict[str, Any]:
        return {
            "id": "TD_QE",
            "version": 2,
            **self._dates(),
            "tcbEvaluationDataNumber": 17,
            "miscselect": "00000000",
            "miscselectMask": "FFFFFFFF",
            "attributes": "11" + "00" * 15,
            "attributesMask": "FB" + "FF" * 7 + "00" * 8,
            "mrsigner": _MR_SIGNER.hex().upper(),
            "isvprodid": 2,
            "tcbLevels": [{"tcb": {"isvsvn": 4}, "tcbDate": "2024-01-01T00:00:00Z", "tcbStatus": "UpToDate"}],
        }
