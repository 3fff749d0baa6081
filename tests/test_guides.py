"""The guides are true: the quick start runs as written, and the transcripts are what the commands print."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
from tests.support.api_service import ADMIN, QUIET, running_service
from tests.support.debian import program

from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli.commands import COMMANDS

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PROGRAM = str(Path(sys.executable).parent)


def blocks(page: str) -> list[str]:
    return re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL
    )


def shell(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=place,
        env={"PATH": f"{PROGRAM}:{os.environ['PATH']}", "HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_the_quick_start_runs_as_it_is_written(tmp_path: Path) -> None:
    """All its commands in one shell: a chain, a challenge, two agents, an evaluation, a check, and a paid prize."""
    done = shell("trap 'kill ${DEVNET:-0} 2>/dev/null || true' EXIT\n" + "\n".join(blocks("quickstart")), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100.00 USDC" in done.stdout
    assert "and that this is what the evaluator posted" in done.stdout
    assert "Claim 100 USDC" in done.stdout


def test_a_folder_is_judged_as_the_guide_says(tmp_path: Path) -> None:
    """Three entries, a quote, a result and its check, in an empty folder without any setting."""
    done = shell("\n".join(blocks("judge-a-folder")), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checked  3 submissions" in done.stdout
    assert "| 1 | **" in (tmp_path / "results" / "leaderboard.md").read_text(encoding="utf-8")


def test_the_posters_commands_run(tmp_path: Path) -> None:
    """Features, a starter, its check, its price and a rehearsal, in an empty folder without any setting."""
    done = shell("\n".join(blocks("poster")), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "eval-config.json is usable." in done.stdout
    assert re.search(r"parses +True", done.stdout)


@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_guides_name_only_commands_and_settings_that_exist(page: Path) -> None:
    """Each `clara-eval …` is in the list of commands, and each setting is one."""
    text = page.read_text(encoding="utf-8")
    for words in re.findall(r"clara-eval ([a-z]+(?: [a-z]+)?)", text):
        assert words in COMMANDS or words.split()[0] in COMMANDS, words
    known = {field.alias for field in Settings.model_fields.values()}
    for name in re.findall(r"\bCLARA_[A-Z_]+[A-Z]\b", text):
        assert name.removesuffix("_FILE") in known or name.startswith("CLARA_DEVNET_"), name


@pytest.mark.timeout(300)
async def test_the_proxy_of_the_operators_guide_works(tmp_path: Path) -> None:
    """A real nginx with that very block: pages over https, a cookie for https only, and events as they happen."""
    nginx = program(["nginx"], "nginx-light")
    if nginx is None:
        pytest.skip("There is no nginx here, and apt could not install it: as root, apt-get install nginx-light")
    async with running_service(tmp_path, CLARA_TRUSTED_PROXIES="127.0.0.1") as service:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        proxy = await asyncio.create_subprocess_exec(
            nginx, "-c", str(proxy_config(tmp_path, port, service.url)), "-p", str(tmp_path)
        )
        try:
            await check_proxy(f"https://127.0.0.1:{port}")
        finally:
            proxy.terminate()
            await proxy.wait()


def proxy_config(folder: Path, port: int, upstream: str) -> Path:
    """The guide's block with a port, a certificate and an address that are there."""
    page = (ROOT / "docs" / "guides" / "operator.md").read_text(encoding="utf-8")
    block = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)[0]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=clara.example.org",
             "-keyout", "site.key", "-out", "site.pem"]  # fmt: skip
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    for there, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/clara.example.org", f"{folder}/site"),
        ("http://127.0.0.1:8080", upstream),
    ):
        assert there in block
        block = block.replace(there, here)
    own = f"daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
    paths = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(f"{own}http {{\naccess_log off;\n{paths}{block}}}\n", encoding="utf-8")
    return config


async def check_proxy(url: str) -> None:
    told = {"host": "clara.example.org"}
    async with aiohttp.ClientSession(headers=told, connector=aiohttp.TCPConnector(ssl=False)) as http:
        for _ in range(100):
            try:
                async with http.get(f"{url}/") as answer:
                    page = await answer.text()
                    break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)
        assert (answer.status, "Challenges" in page) == (200, True)
        async with http.post(f"{url}/operator/sign-in", data={"key": ADMIN}, allow_redirects=False) as answer:
            assert (answer.status, "Secure" in answer.headers["set-cookie"]) == (303, True)
        async with asyncio.timeout(10), http.get(f"{url}/challenges/{QUIET}/live") as stream:
            assert (await stream.content.readline()).startswith(b"event: progress")


def test_the_container_of_the_operators_guide_is_the_one_of_deploy() -> None:
    """Its commands name the file that is there, its port, its folder and commands of the program."""
    page = (ROOT / "docs" / "guides" / "operator.md").read_text(encoding="utf-8")
    lines = [shlex.split(line) for line in page.splitlines() if line.startswith("podman ")]
    recipe = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
    build, *runs = lines
    assert (ROOT / build[build.index("-f") + 1]).is_file()
    assert runs
    for words in runs:
        port, place = words[words.index("-p") + 1], words[words.index("-v") + 1]
        assert (port.startswith("127.0.0.1:"), f"EXPOSE {port.rsplit(':', 1)[1]}" in recipe) == (True, True)
        assert f"WORKDIR {place.split(':')[1]}" in recipe
        given = words[words.index("clara-eval") + 1 :]
        assert not given or " ".join(given) in COMMANDS


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shell_transcripts", ROOT / "scripts" / "make_shell_transcripts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(300)
def test_the_lives_in_a_shell_are_what_happens(script: ModuleType) -> None:
    """A poster's and an operator's life, lived again, print what the committed pages show, in a shell's own words."""
    for name, text in asyncio.run(script.transcripts()).items():
        page = (script.OUT / f"{name}.md").read_text(encoding="utf-8")
        assert script.shape(text) == script.shape(page)
        assert not re.search(r"\b(challenge|config)_[a-z_]+\b", text)
