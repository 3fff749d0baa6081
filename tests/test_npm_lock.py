"""The npm lock file installs from a clean clone: no host in it, and no platform left out.

`npm ci` refuses a lock that lacks an optional package of another platform, but only on a machine without
`node_modules`: a set-up that works for its author and for nobody else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def _packages() -> dict[str, dict[str, Any]]:
    packages: dict[str, dict[str, Any]] = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    return packages


def test_no_registry_stands_in_the_lock() -> None:
    """Packages are found through the reader's own registry."""
    assert [name for name, entry in _packages().items() if "resolved" in entry] == []


def test_every_optional_package_is_named() -> None:
    """What this platform does not install is in the lock all the same; `npm run lock` puts it there."""
    packages = _packages()
    wanted = {name for entry in packages.values() for name in entry.get("optionalDependencies", {})}
    assert [name for name in sorted(wanted) if not any(key.endswith(f"node_modules/{name}") for key in packages)] == []


def test_tools_are_pinned_to_one_version() -> None:
    """Compiler, node and inspector are exact versions: artifacts and tests depend on them."""
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    packages = _packages()
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
