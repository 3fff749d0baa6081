"""Write the SBOM of the service (CycloneDX 1.6): every pinned package, its hashes and its licence.

Input: `requirements-server.lock`, and the licences of the installed packages. Output: JSON on standard output, equal
for equal locks. `make sbom` writes it to `dist/`.
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
    """Return version and hashes by name, in the order of the lock."""
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
    """Return the licence in the package's metadata; None if it has none or is not installed."""
    try:
        package = metadata(name)
    except PackageNotFoundError:
        return None
    classifiers = package.get_all("Classifier") or []
    classified = [item.rpartition(" :: ")[2] for item in classifiers if item.startswith("License")]
    found = package.get("License-Expression") or ", ".join(classified) or package.get("License") or ""
    return found.strip().splitlines()[0][:100] if found.strip() else None


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
    # A release has one file per platform; all are listed.
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
