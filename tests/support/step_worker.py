"""Processes that do one piece of work each and may be killed on the way, without loading everything anew for each.

`StepWorkers` starts one process a session that has loaded the product; for every piece of work it forks a child that
really runs it, and really dies by SIGKILL at the step of `kill_points` that it was told. Work, each with settings:
`tick`, `evaluate ADDRESS`, `sync ADDRESS`, `post ADDRESS DIGEST`, or `object ADDRESS ABOUT REASON SIGNATURE`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

from tests.support.kill_points import die_with_parent, kill_at

from clara_eval.actions.evaluate import evaluate
from clara_eval.actions.objections import object_to_draft
from clara_eval.actions.publication import publish_missing
from clara_eval.app import open_app
from clara_eval.chain.model import Challenge, choose_winners
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.calls import publish
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.model import Placed
from clara_eval.core.version import code_version
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alerts, Metrics
from clara_eval.store.open import existing_store

PACE = SendTimeouts(poll_seconds=0.02, lease_seconds=5, give_up_after_seconds=30)
KILLED = -9
_PASSED = ("PATH", "PYTHONPATH")
_LATE_IMPORTS = (
    "clara_eval.core.accounts", "clara_eval.judge.providers.openai", "clara_eval.store.postgres",
    "clara_eval.store.sqlite", "concurrent.futures.thread", "numpy.ma", "tree_sitter_python",
)  # fmt: skip
"""What a child loads on its way, and need not when its parent has it."""
_KV_IMPORTS = ("cloudflare", "cloudflare.resources.kv", "cloudflare.types.shared")
"""The same for a child that writes to Cloudflare KV."""
_LOADED: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.subprocess.Process] = WeakKeyDictionary()


class StepWorkers:
    """Use as `async with StepWorkers(environ) as workers: code = await workers.run("tick", kill="after:put:1")`."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.told = ""
        """What the last one had to say."""
        self._process: asyncio.subprocess.Process | None = None
        self._is_waiting = False

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if loop not in _LOADED:
            _LOADED[loop] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.step_worker",
                env={"HOME": str(Path.home()), **{name: os.environ[name] for name in _PASSED if name in os.environ}},
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        self._process = _LOADED[loop]
        return self

    async def __aexit__(self, *_: object) -> None:
        """The process stays for the next test, and ends with ours; one that has not answered is killed."""
        if self._is_waiting:
            process = _LOADED.pop(asyncio.get_running_loop())
            process.kill()
            await process.wait()

    async def run(self, *words: str, kill: str = "") -> int:
        """The exit code of one piece of work; -9 where it was killed."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._is_waiting = True
        self._process.stdin.write(json.dumps([words, kill, self.environ]).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(self._process.stdout.readline(), 150))
        self._is_waiting = False
        self.told = answer["told"]
        if answer["code"] == KILLED:
            await expire_leases(self.environ["CLARA_DATABASE_URL"])
        return int(answer["code"])


async def expire_leases(database_url: str) -> None:
    """Let the time pass until the leases of a killed process have run out."""
    async with existing_store(database_url) as store:
        if store is not None:
            await store.driver.fetch("UPDATE leases SET until_at = 0")


async def _work(words: list[str], environ: dict[str, str]) -> list[str]:
    """What went wrong."""
    async with open_app(Settings.from_env(environ), pace=PACE) as app:
        if words[0] == "evaluate":
            await evaluate(app, Address(words[1]))
            return []
        if words[0] == "sync":
            return [told.problem async for told in publish_missing(app, only=[Address(words[1])]) if told.problem]
        if words[0] == "post":
            challenge = await look_at_challenge(app.chain, Address(words[1]))
            placed = [Placed(one.submitter, 9000 - number) for number, one in enumerate(challenge.submissions)]
            await publish(challenge, choose_winners(challenge, placed), words[2], sender=app.sender)
            return []
        if words[0] == "object":
            address, about, reason, signature = words[1:]
            await object_to_draft(app.store, app.chain, Address(address), about, reason, signature)
            return []

        async def nothing(_challenge: Challenge) -> None:
            """Evaluations are asked for by name here."""

        return (await run_tick(app, Alerts(Metrics()), Metrics(), nothing)).problems


def _child(words: list[str], kill: str, environ: dict[str, str], out: int) -> None:
    """Never returns."""
    code = 1
    os.dup2(2, 1)  # logs are not answers
    try:
        if kill:
            kill_at(kill)
        problems = asyncio.run(_work(words, environ))
        os.write(out, "\n".join(problems).encode()[-4000:])
        code = 1 if problems else 0
    except BaseException:  # noqa: BLE001 - told to whoever waits, and the child ends
        os.write(out, traceback.format_exc().encode()[-4000:])
    finally:
        os._exit(code)


def _serve() -> None:
    for name in _LATE_IMPORTS:
        import_module(name)
    code_version()  # it reads all of the code, once a process
    gc.collect()
    gc.freeze()  # the children share it all, and need not look through it
    for line in sys.stdin:
        words, kill, environ = json.loads(line)
        for name in _KV_IMPORTS if "CLARA_KV_TOKEN" in environ else ():
            import_module(name)
        end, out = os.pipe()
        child = os.fork()
        if child == 0:
            _child(words, kill, environ, out)
        os.close(out)
        _, status = os.waitpid(child, 0)
        answer: dict[str, Any] = {"code": os.waitstatus_to_exitcode(status), "told": os.read(end, 65_536).decode()}
        os.close(end)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent()
    _serve()
