"""Writes what the service is made of as a CycloneDX 1.6 document: every pinned package, its hashes and its licence.

Comes in: `requirements-server.lock` and the licences of the packages that are installed here. Goes out: JSON on
standard output, the same for the same lock. `make sbom` writes it to `dist/`.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from clara_eval.core.version import __version__

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-server.lock"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(text: str) -> dict[str, tuple[str, list[str]]]:
    """Name to version and hashes, in the order of the lock."""
    found: dict[str, tuple[str, list[str]]] = {}
    name = ""
    for line in text.splitlines():
        if start := _PINNED.match(line):
            name = start.group(1)
            found[name] = (start.group(2), [])
        if name and (digest := _HASH.search(line)):
            found[name][1].append(digest.group(1))
    return found


def licence(name: str) -> str | None:
    """As the package itself says, in one line; None where it is not installed here or says nothing."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return None
    classified = [item.rpartition(" :: ")[2] for item in told.get_all("Classifier") or [] if item.startswith("License")]
    said = told.get("License-Expression") or ", ".join(classified) or told.get("License") or ""
    return said.strip().splitlines()[0][:100] if said.strip() else None


def component(name: str, version: str, hashes: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }
    if said := licence(name):
        made["licenses"] = [{"license": {"name": said}}]
    # A release has one file for each platform; all of them are listed.
    made["externalReferences"] = [
        {
            "type": "distribution",
            "url": f"pkg:pypi/{name}@{version}",
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes],
        }
    ]
    return made


def sbom(lock: str) -> dict[str, Any]:
    components = [component(name, version, hashes) for name, (version, hashes) in pinned(lock).items()]
    mine = {"type": "application", "bom-ref": "clara-eval", "name": "clara-eval", "version": __version__}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, lock)}",
        "version": 1,
        "metadata": {"component": {**mine, "licenses": [{"license": {"id": "MIT"}}]}},
        "components": components,
        "dependencies": [{"ref": "clara-eval", "dependsOn": [item["bom-ref"] for item in components]}],
    }


if __name__ == "__main__":
    json.dump(sbom(LOCK.read_text(encoding="utf-8")), sys.stdout, indent=1)
    print()
