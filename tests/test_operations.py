"""What operators are given fits together: rules over real metrics, a section for every alert, a unit that verifies."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from clara_eval.chain.sender import Intention
from clara_eval.service.engine import TICK_ALERTS
from clara_eval.service.metrics import STALLED_ALERTS, AlertName, Metrics

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
    return named | {*TICK_ALERTS.values(), *STALLED_ALERTS.values()}


def test_the_webhook_prometheus_and_the_manual_have_one_list_of_alerts() -> None:
    """Each alert is raised by the service, is a rule and has a section; a dead service and webhook cannot raise theirs."""
    without_webhook = {"ServiceSilent", "WebhookFailing"}
    assert raised_in_code() == set(get_args(AlertName))
    assert {rule["alert"] for rule in rules()} == raised_in_code() | without_webhook == SECTIONS


def test_rules_use_metrics_that_exist() -> None:
    """A renamed metric would make its alert silent for ever."""
    exposed = set(re.findall(r"^# TYPE (\w+)", Metrics("x").render().decode(), re.MULTILINE))
    exposed |= {f"{name}_bucket" for name in exposed}
    for rule in rules():
        used = set(re.findall(r"clara_\w+", rule["expr"]))
        assert used, rule
        assert used <= exposed, rule["alert"]


def fresh() -> dict[str, list[tuple[dict[str, str], float]]]:
    """What a process tells that has done nothing yet: by name, labels and value."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in Metrics("x").render().decode().splitlines():
        if sample := re.fullmatch(r"(clara_\w+)(?:\{(.*)\})? (\S+)", line):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', sample[2] or ""))
            found.setdefault(sample[1], []).append((labels, float(sample[3])))
    return found


def test_the_first_step_of_a_watched_counter_is_an_increase() -> None:
    """Prometheus sees no increase in a series that begins at 1: each one that an alert names is there from the start."""
    samples, watched = fresh(), 0
    for rule in rules():
        for name, label, values in re.findall(r'increase\((\w+)(?:\{(\w+)=~?"([^"]+)"\})?', rule["expr"]):
            for value in values.split("|"):
                found = [number for labels, number in samples.get(name, []) if labels.get(label, "") == value]
                assert found, (rule["alert"], name, value)
                assert set(found) == {0.0}
                watched += 1
    assert watched >= 9
    told = {labels["intention"] for labels, _ in samples["clara_transactions_total"]}
    assert told >= {intention.value for intention in Intention}


def test_a_process_that_has_done_nothing_raises_no_alarm_for_good() -> None:
    """What only an evaluation or a tick can tell is NaN until then; times and the node are there with the first tick."""
    by_tick = {"clara_last_good_tick_timestamp_seconds", "clara_loop_beat_timestamp_seconds", "clara_rpc_up"}
    for rule in rules():
        for name, sign, bound in re.findall(r"(clara_\w+) ([<>]|==) ([\d.]+)", rule["expr"]):
            if name not in by_tick:
                (value,) = {number for _, number in fresh().get(name, [({}, 0.0)])}
                compared = {"<": value < float(bound), ">": value > float(bound), "==": value == float(bound)}
                assert not compared[sign], rule["alert"]


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


def test_the_table_of_faults_is_the_run_that_is_kept() -> None:
    """docs/operations.md has what `make soak SMALL=1` came to: every round posted once, none wrong."""
    script = runpy.run_path(str(ROOT / "scripts" / "make_faults.py"))
    run = json.loads((ROOT / "docs" / "faults.json").read_text(encoding="utf-8"))
    assert script["page"](MANUAL, run) == MANUAL
    for name in script["WHAT"]:
        assert run[name]["done"] > 0
        assert not any(run[name][bad] for bad in ("double", "wrong", "stuck", "failures"))
