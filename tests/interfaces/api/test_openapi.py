"""The OpenAPI document and the service agree: generated requests meet no 5xx and no undocumented answer."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.support.api_service import ADMIN, Service, running_service

from clara_eval.interfaces.api.limits import Rate, Rates

SPECIFIED = (
    "/api/v1/challenges/evaluate",
    "/api/v1/challenges/{address}/eval-status",
    "/api/v1/challenges/{address}/eval-trace",
)
ADDED = (
    "/api/v1/agents",
    "/api/v1/agents/{agent_id}",
    "/api/v1/challenges",
    "/api/v1/challenges/{address}",
    "/api/v1/challenges/{address}/leaderboard",
    "/api/v1/challenges/{address}/events",
    "/api/v1/challenges/{address}/harness",
    "/api/v1/challenges/{address}/draft",
    "/api/v1/challenges/{address}/objections",
    "/api/v1/challenges/{address}/review",
    "/healthz",
    "/metrics",
)


async def test_every_operation_is_documented(tmp_path: Path) -> None:
    """All specified and added endpoints, each with a summary, and problem documents for its errors."""
    async with running_service(tmp_path) as service:
        document = json.loads((await service.get("/openapi.json"))[2])
    assert set(SPECIFIED + ADDED) == set(document["paths"])
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["summary"]
            for status, answer in operation["responses"].items():
                assert "example" in json.dumps(answer) or "$ref" in json.dumps(answer) or answer["description"]
                if int(status) >= 400 and status != "503":
                    assert set(answer["content"]) == {"application/problem+json"}


async def test_generated_requests_find_nothing_undocumented(tmp_path: Path) -> None:
    """Schemathesis, with and without the key, with all of its checks, finds nothing."""
    # It tries many wrong keys on purpose; that trying is limited has its own tests.
    rates = Rates(wrong_key=Rate(per_second=1000, burst=1000))
    async with running_service(tmp_path, rates=rates) as service:
        for arguments in (
            ["--header", f"X-API-Key: {ADMIN}", "--phases", "examples,coverage,fuzzing"],
            ["--phases", "coverage"],
        ):
            code, output = await _schemathesis(service, arguments)
            assert code == 0, output[-4000:]


async def test_what_is_not_declared_is_refused_and_what_is_optional_is_declared_so(tmp_path: Path) -> None:
    """A method that a path does not declare is 405, and the reads that a key only extends say that it may be absent."""
    async with running_service(tmp_path) as service:
        assert (await service.get("/api/v1/challenges/evaluate"))[0] == 405
        document = json.loads((await service.get("/openapi.json"))[2])
    keyed = [one for path in document["paths"].values() for one in path.values() if one.get("security")]
    assert {({} in one["security"], "401" in one["responses"]) for one in keyed} == {(True, False), (False, True)}


async def _schemathesis(service: Service, arguments: list[str]) -> tuple[int, str]:
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{service.url}/openapi.json",
        "--checks", "all", "--max-examples", "5", "--seed", "7", "--request-timeout", "2", "--no-color",
        *arguments,
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
