"""Parse TDX quotes, and check them with `dcap-qvl` if the extra `attestation` is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from dataclasses import dataclass

from clara_eval.core.extras import install
from clara_eval.judge.attestation.model import Enclave, NotAttested

INSTALL = install("attestation")
PCCS = "https://api.trustedservices.intel.com"
"""Intel's own certificate service."""
REFUSED = ("Revoked", "Unknown")
_HEADER, _REPORT = 48, 584
_PLACES = {"mrTd": 136, "rtMr0": 328, "rtMr1": 376, "rtMr2": 424, "rtMr3": 472}
"""Offsets of the measurements in the report of a TD."""
_TDX = 0x81


@dataclass(frozen=True, slots=True)
class Quotes:
    pccs_url: str = PCCS
    root: bytes | None = None
    """Another root certificate than Intel's, in DER: for machines of one's own."""

    @staticmethod
    def can_check() -> bool:
        return importlib.util.find_spec("dcap_qvl") is not None

    async def collateral(self, quote: bytes) -> str:
        """Fetch what is needed to check this quote, as JSON. Raises NotAttested for an unknown platform."""
        import dcap_qvl

        try:
            async with asyncio.timeout(30):
                found = await dcap_qvl.get_collateral(self.pccs_url, quote)
        except (ValueError, TimeoutError) as bad:
            raise NotAttested(f"the quote's collateral cannot be fetched: {str(bad)[:200]}") from None
        text: str = found.to_json()
        return text

    def read(self, quote: bytes, collateral: str, at: int) -> tuple[bytes, Enclave]:
        """Return the carried bytes and the enclave; without the extra the status is empty."""
        report_data, measurements = _parsed(quote)
        if not self.can_check():
            return report_data, Enclave(measurements, "")
        status, advisories = self._verified(quote, collateral, at)
        if status in REFUSED:
            raise NotAttested(f"the platform's state is {status}")
        return report_data, Enclave(measurements, status, advisories)

    def _verified(self, quote: bytes, collateral: str, at: int) -> tuple[str, tuple[str, ...]]:
        import dcap_qvl

        try:
            parts = dcap_qvl.QuoteCollateralV3.from_json(collateral)
            if self.root is None:
                report = dcap_qvl.verify(quote, parts, at)
            else:
                report = dcap_qvl.verify_with_root_ca(quote, parts, self.root, at)
            found = json.loads(report.to_json())
        except (ValueError, OverflowError) as bad:
            raise NotAttested(f"the quote does not hold: {' '.join(str(bad).split())[:200]}") from None
        return found["status"], tuple(found["advisory_ids"])


def _parsed(quote: bytes) -> tuple[bytes, dict[str, str]]:
    """Read Intel's fixed layout of versions 4 and 5."""
    version = int.from_bytes(quote[:2], "little")
    start = _HEADER + (6 if version == 5 else 0)
    report = quote[start : start + _REPORT]
    if version not in (4, 5) or len(report) < _REPORT or int.from_bytes(quote[4:8], "little") != _TDX:
        raise NotAttested("it is not a TDX quote of version 4 or 5")
    return report[-64:], {name: report[place : place + 48].hex() for name, place in _PLACES.items()}
