"""What operators are given fits together: rules over real metrics, a section for every alert, a unit that verifies."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from clara_eval.observe.metrics import Metrics

ROOT = Path(__file__).parent.parent
RULES = ROOT / "deploy" / "prometheus-rules.yml"
UNIT = ROOT / "deploy" / "clara-eval.service"
MANUAL = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SECTIONS = set(re.findall(r"^### (\w+)$", MANUAL, re.MULTILINE))


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def raised_in_code() -> set[str]:
    sources = [path for path in (ROOT / "src" / "clara_eval").rglob("*.py") if not path.name.startswith("test_")]
    named = {name for path in sources for name in re.findall(r'Alert\(\s*"(\w+)"', path.read_text(encoding="utf-8"))}
    return named | {"ChainUnreachable"}


def test_every_alert_has_a_section() -> None:
    """Whatever calls a person at night, from Prometheus or the webhook, is explained in the manual."""
    assert {rule["alert"] for rule in rules()} | raised_in_code() == SECTIONS


def test_rules_use_metrics_that_exist() -> None:
    """A renamed metric would make its alert silent for ever."""
    exposed = set(re.findall(r"^# TYPE (\w+)", Metrics("x").render().decode(), re.MULTILINE))
    exposed |= {f"{name}_bucket" for name in exposed}
    for rule in rules():
        used = set(re.findall(r"clara_\w+", rule["expr"]))
        assert used, rule
        assert used <= exposed, rule["alert"]


def test_every_rule_is_complete() -> None:
    """A severity to route by and a sentence to read."""
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"].endswith(".")


def test_the_unit_is_hardened() -> None:
    """The hot wallet's process gets the network and its own folder, nothing else."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    for wanted in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "CapabilityBoundingSet=",
        "PrivateTmp=yes",
        "ProtectHome=yes",
    ):
        assert wanted in lines
    assert not any("KEY=" in line for line in lines)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
def test_the_unit_verifies(tmp_path: Path) -> None:
    """Systemd itself finds nothing to complain about, with the program where this checkout has it."""
    text = UNIT.read_text(encoding="utf-8")
    changed = tmp_path / UNIT.name
    changed.write_text(text.replace("/opt/clara-eval/.venv/bin/clara-eval", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(changed)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
