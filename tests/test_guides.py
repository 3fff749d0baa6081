"""The guides are true: the quick start runs as written, and the transcripts are what the commands print."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
from tests.support.api_service import ADMIN, QUIET, running_service
from tests.support.debian import program
from tests.support.scripts import load_script
from tests.support.shell import Shell

from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli import COMMANDS

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*GUIDES, *(page for page in OTHERS if page.name != "trace-format.md")]  # that one names strings of the format
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
MOST_WORDS = 700
CHAIN = "quickstart.md#1-a-chain-of-your-own"
FIRST_RESULTS = {
    "poster": "clara-eval config validate",
    "agent": "clara-eval challenge try",
    "operator": "clara-eval check",
    "auditor": "clara-eval verify",
    "judge-a-folder": "clara-eval judge entries --config config.json --winners 1 --out",
}
"""For each reader's page, the command whose answer is the first result."""


def text_of(page: str) -> str:
    return (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8")


def count(text: str) -> int:
    return len(re.findall(r"\w+", text))


def words_before(page: str) -> int:
    """Words from the top of a page to the end of the first result's line, with what the page sends one to before it."""
    text, start = text_of(page), text_of("quickstart")
    end = text.index("\n", text.index(FIRST_RESULTS[page]))
    read = text[:end]
    if CHAIN in read:
        return count(read) + count(start[: start.index("## 2.")])
    return count(read) + (count(start[: start.index("## 3.")]) if "(quickstart.md)" in read else 0)


def run_page(shell: Shell, page: str, place: Path, chain: Path | None = None, **environ: str) -> str:
    """Run every block of a page in an empty folder; with a chain, its settings are there as the page says."""
    place.mkdir()
    if chain is not None:
        shutil.copy(chain / "devnet.env", place)
    done = shell.run("\n".join(BLOCK.findall(text_of(page))), place, **environ)
    assert done.returncode == 0, f"{page}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.timeout(400)
@pytest.mark.xdist_group("processes")
def test_the_quick_start_and_the_paths_on_its_chain_run_as_written(shell: Shell, tmp_path: Path) -> None:
    """A challenge from post to paid prize; meanwhile a poster, an agent and an operator follow their own pages."""
    place = tmp_path / "start"
    place.mkdir()
    *steps, last = BLOCK.findall(text_of("quickstart"))
    keep = "\ndeclare -p ADDRESS DEVNET CLARA_DATABASE_URL CLARA_WALLET_LIMIT_USD > state.sh\ndisown\n"
    done = shell.run("\n".join(steps) + keep, place)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "100.00 USDC" in done.stdout
        assert "eval-config.json is usable." in (said := run_page(shell, "poster", tmp_path / "poster", place))
        assert re.search(r"parses +yes", said)
        assert "winners above this line" in said
        assert "Sent and in a block." in said
        said = run_page(shell, "agent", tmp_path / "agent", place)
        assert re.search(r"documented_share +1\.0", said)
        assert "Sent and in a block." in said
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        assert '"status":"ok"' in run_page(shell, "operator", tmp_path / "operator", place, CLARA_PORT=port)
    finally:
        done = shell.run(f". ./devnet.env; . ./state.sh; export CLARA_DATABASE_URL\n{last}", place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "and that this is what the evaluator posted" in " ".join(done.stdout.split())
    assert "Claim 100 USDC" in done.stdout


def test_an_auditors_path_runs_as_written(shell: Shell, tmp_path: Path) -> None:
    """A round, its trace verified, and the same trace with another prize refused, with the entry."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sed").symlink_to(shutil.which("sed") or "/bin/sed")
    path = f"{shell.programs}:{programs}"  # without node the demo compiles nothing, and takes a tenth of the time
    said = run_page(shell, "auditor", tmp_path / "auditor", PATH=path)
    assert "every entry holds" in said
    assert re.search(r"^refused #\d+ winners: .*\nexit code 1$", said, re.MULTILINE)


def test_a_data_scientists_path_runs_as_written(shell: Shell, tmp_path: Path) -> None:
    """Three entries, a quote, a result and its check, and a table of verdicts, without any setting."""
    said = run_page(shell, "judge-a-folder", tmp_path / "folder")
    assert "checked  3 submissions" in said
    assert "| 1 | **" in (tmp_path / "folder" / "results" / "leaderboard.md").read_text(encoding="utf-8")
    assert "P(top 1)" in said


def test_the_readme_asks_who_you_are_and_a_page_soon_has_a_result() -> None:
    """Five readers, five pages, each with at most 350 words before its first result."""
    rows = re.findall(r"^\| [a-z ]+ \| \[[^\]]+\]\(docs/guides/([a-z-]+)\.md\) \|$", README, re.MULTILINE)
    assert rows == list(FIRST_RESULTS)
    assert max(map(words_before, FIRST_RESULTS)) <= 350


@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_a_guide_has_at_most_700_words(page: Path) -> None:
    """Three minutes of reading."""
    assert count(page.read_text(encoding="utf-8")) <= MOST_WORDS


def test_no_sentence_is_on_two_pages() -> None:
    """Readers find each thing in one place: no sentence of twelve words or more is written twice."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *GUIDES]
    seen: dict[str, str] = {}
    for page in pages:
        text = re.sub(r"```.*?```|\]\([^)]*\)", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for sentence in re.split(r"(?<=[.:;])\s|\n\n|\|", text):
            words = " ".join(re.findall(r"\w+", sentence.lower()))
            if len(words.split()) >= 12:
                assert seen.setdefault(words, page.name) == page.name, (page.name, seen[words], sentence)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_pages_name_only_commands_and_settings_that_exist(page: Path) -> None:
    """Each `clara-eval …` is in the list of commands, and each setting is one."""
    text = page.read_text(encoding="utf-8")
    for words in re.findall(r"clara-eval ([a-z]+(?: [a-z]+)?)", text):
        assert words in COMMANDS or words.split()[0] in COMMANDS, words
    known = {field.alias for field in Settings.model_fields.values()}
    for name in re.findall(r"\bCLARA_[A-Z_]+[A-Z]\b", text):
        assert name.removesuffix("_FILE") in known or name.startswith("CLARA_DEVNET_"), name


@pytest.mark.timeout(300)
async def test_the_proxy_of_deploy_works(tmp_path: Path) -> None:
    """A real nginx with deploy/nginx.conf: pages over https, a cookie for https only, and events as they happen."""
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
    """deploy/nginx.conf with a port, a certificate and an address that are there."""
    block = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
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
    return load_script("make_shell_transcripts")


@pytest.mark.timeout(300)
def test_the_lives_in_a_shell_are_what_happens(script: ModuleType) -> None:
    """A poster's and an operator's life, lived again, print what the committed pages show, in a shell's own words."""
    for name, text in asyncio.run(script.transcripts()).items():
        page = (script.OUT / f"{name}.md").read_text(encoding="utf-8")
        assert script.shape(text) == script.shape(page)
        assert not re.search(r"\b(challenge|config)_[a-z_]+\b", text)
