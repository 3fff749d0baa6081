"""The container, compose and monitoring files fit together and to the program; nothing here needs a container engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import yaml
from tests.support.scripts import load_script

from clara_eval.config.settings import FROM_FILES, Settings
from clara_eval.core.version import __version__
from clara_eval.service.metrics import Metrics

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
COMMAND = Path(sys.executable).with_name("clara-eval")
MADE_BY_OPERATOR = {"clara-eval.env", "secrets"}


def instructions() -> list[tuple[str, str]]:
    """The container file as (instruction, arguments), continued lines joined."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def last_stage() -> dict[str, str]:
    found = instructions()
    start = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return dict(found[start:])


def test_the_container_runs_without_rights() -> None:
    """The last stage is a number that is not root, with the program's own folder and nothing of the build."""
    final = last_stage()
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", final["USER"])
    assert "--from=build" in final["COPY"]
    assert final["STOPSIGNAL"] == "SIGTERM"


def test_the_container_copies_what_there_is() -> None:
    """Every file that the build takes from the project exists, and packages come pinned with their hashes."""
    for name, words in instructions():
        if name == "COPY" and not words.startswith("--from"):
            assert [one for one in words.split()[:-1] if not (ROOT / one).exists()] == []
    installs = [words for name, words in instructions() if name == "RUN" and "requirements-server.lock" in words]
    assert len(installs) == 1
    assert "--require-hashes" in installs[0]


def test_the_container_builds_the_wheel_from_what_it_copies(tmp_path: Path) -> None:
    """The files that the build stage takes, and no others, are enough for its own build command."""
    for name, words in instructions():
        if name == "COPY" and not words.startswith("--from"):
            *sources, place = words.split()
            for source in sources:
                into = tmp_path / place / (Path(source).name if place == "./" else "")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, into, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copyfile(ROOT / source, into)
    build = next(words for name, words in instructions() if name == "RUN" and "hatchling build" in words)
    command = build.partition(" && ")[2].replace("/wheels", str(tmp_path / "wheels")).split()
    made = subprocess.run([COMMAND.with_name(command[0]), *command[1:]], cwd=tmp_path, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr.decode()[-500:]
    assert len(list((tmp_path / "wheels").glob("clara_eval-*.whl"))) == 1


def test_every_image_has_a_version() -> None:
    """Nothing that is pulled is whatever is newest."""
    pulled = [words.split()[0] for name, words in instructions() if name == "FROM"]
    pulled += [service["image"] for service in COMPOSE["services"].values() if "build" not in service]
    assert len(pulled) >= 6
    assert [image for image in pulled if not re.fullmatch(r"docker\.io/[a-z/]+:v?\d+[\w.-]*", image)] == []


def test_the_container_has_what_the_service_may_need() -> None:
    """The pinned packages hold every declared dependency of the extras that the lock is made for.

    Those are all that a setting of the service can ask for: what is missing in an image cannot be added to it.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    made_for = re.findall(
        r"--extra (\w+)", (ROOT / "Makefile").read_text(encoding="utf-8").split("requirements-dev.lock \\")[1]
    )
    other = {"all", "dev", "mcp", "languages", "local"}  # in `server`, or not for the service
    assert set(made_for) == set(project["optional-dependencies"]) - other
    wanted = [
        *project["dependencies"],
        *(need for extra in made_for for need in project["optional-dependencies"][extra]),
    ]
    names = {re.split(r"[\[<>=! ]", need)[0].lower() for need in wanted} - {"clara-eval"}
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements-server.lock").read_text(), re.MULTILINE))
    assert names <= locked


def test_the_entry_point_serves_and_is_healthy(tmp_path: Path) -> None:
    """The container's command, run here: its health check passes while it serves, and SIGTERM ends it with 0."""
    final = last_stage()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    entry, command = json.loads(final["ENTRYPOINT"]), json.loads(final["CMD"])
    assert entry == ["clara-eval"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLARA_CHALLENGE_FACTORY": "0x" + "22" * 20}
    environ |= {"CLARA_PORT": port, "CLARA_EVALUATOR_ADDRESS": "0x" + "33" * 20, "CLARA_RPC_URL": "http://127.0.0.1:9"}
    check = [sys.executable, *json.loads(final["HEALTHCHECK"].split("CMD ")[1])[1:]]
    with subprocess.Popen([COMMAND, *command], cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as serving:
        until = time.monotonic() + 60
        while subprocess.run(check, env=environ, capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < until, "it never became healthy"
            assert serving.poll() is None
            time.sleep(0.5)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60) == 0


def test_compose_names_only_what_there_is() -> None:
    """Mounted files are in this folder, secrets and volumes are declared, and commands are options of `serve`."""
    served = subprocess.run([COMMAND, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    for name, service in COMPOSE["services"].items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            known = (DEPLOY / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"]
            assert known, (name, mount)
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
        if service.get("image") == "clara-eval":
            assert all(word in served for word in service["command"][1:])
    assert {Path(one["file"]).parts[0] for one in COMPOSE["secrets"].values()} <= MADE_BY_OPERATOR


def test_compose_sets_settings_that_exist() -> None:
    """Every CLARA_ name is a setting, and NAME_FILE one that may come from a file; the API never gets the key."""
    aliases = {field.alias for field in Settings.model_fields.values()}
    for service in COMPOSE["services"].values():
        for name in service.get("environment", {}):
            if name.startswith("CLARA_"):
                assert name in aliases or name.removesuffix("_FILE") in FROM_FILES, name
    for name in (
        "api",
        "worker",
    ):  # what the settings file says of these would leave the published port without a listener
        told = COMPOSE["services"][name]["environment"]
        assert (told["CLARA_HOST"], told["CLARA_PORT"]) == ("0.0.0.0", "8080")
    assert "evaluator-key" not in COMPOSE["services"]["api"]["secrets"]
    assert not any("EVALUATOR" in name for name in COMPOSE["services"]["api"]["environment"])


def test_compose_is_closed_in() -> None:
    """Only this machine reaches a port; the service has no capabilities and a read-only root."""
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    for name in ("api", "worker"):
        service = COMPOSE["services"][name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_prometheus_scrapes_and_calls_the_services_of_compose() -> None:
    """Targets are names of services, and the rules are where they are mounted."""
    told = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    scraped = [target for job in told["scrape_configs"] for one in job["static_configs"] for target in one["targets"]]
    called = told["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert {target.split(":")[0] for target in (*scraped, *called)} <= set(COMPOSE["services"])
    mounts = [mount.split(":")[1] for mount in COMPOSE["services"]["prometheus"]["volumes"]]
    assert set(told["rule_files"]) <= set(mounts)
    routes = yaml.safe_load((DEPLOY / "alertmanager.yml").read_text(encoding="utf-8"))
    receivers = {one["name"] for one in routes["receivers"]}
    assert {routes["route"]["receiver"], *(one["receiver"] for one in routes["route"]["routes"])} <= receivers


def test_the_dashboard_shows_metrics_that_exist() -> None:
    """A renamed metric would leave a panel empty; panels do not overlap, and their source is the provisioned one."""
    board = json.loads((DEPLOY / "grafana" / "clara-eval.json").read_text(encoding="utf-8"))
    exposed = set(re.findall(r"^# TYPE (\w+)", Metrics("x").render().decode(), re.MULTILINE))
    exposed |= {f"{name}_bucket" for name in exposed}
    taken: set[tuple[int, int]] = set()
    source = yaml.safe_load((DEPLOY / "grafana" / "datasource.yml").read_text(encoding="utf-8"))["datasources"][0][
        "uid"
    ]
    for panel in board["panels"]:
        used = {name for target in panel["targets"] for name in re.findall(r"clara_\w+", target["expr"])}
        assert used, panel["title"]
        assert used <= exposed, panel["title"]
        assert panel["datasource"]["uid"] == source
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_commands_in_the_comments_are_shell() -> None:
    """What an operator copies out of the comments parses as shell."""
    text = (DEPLOY / "compose.yml").read_text(encoding="utf-8")
    lines = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    assert len(lines) >= 3
    for line in lines:
        assert shlex.split(line)
    checked = subprocess.run(
        ["bash", "-n"], input="\n".join(lines).replace("(or podman compose)", ""), text=True, check=False
    )
    assert checked.returncode == 0


def test_the_bill_of_materials_names_every_pinned_package() -> None:
    """CycloneDX with version, package URL, hashes and, where the package says one, a licence; the same each time."""
    made = load_script("make_sbom")
    lock = (ROOT / "requirements-server.lock").read_text(encoding="utf-8")
    told = made.sbom(lock)
    assert told == made.sbom(lock)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["version"] == __version__
    named = {item["name"]: item for item in told["components"]}
    assert set(named) == set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9._-]+@\S+", item["purl"]) for item in named.values())
    assert all(item["externalReferences"][0]["hashes"] for item in named.values())
    licensed = [item for item in named.values() if item.get("licenses")]
    assert len(licensed) >= 0.9 * len(named)
