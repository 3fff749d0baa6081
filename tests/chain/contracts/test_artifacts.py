"""The shipped ABI and bytecode are what the sources compile to, and speak the deployed contracts' language."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from clara_eval.chain.contracts.abi import CONTRACT_NAMES, ContractName, artifact

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path("scripts") / "compile_contracts.mjs"


def _check(root: Path) -> subprocess.CompletedProcess[str]:
    command = ["node", str(root / SCRIPT), "--check"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=150)


def test_the_artifacts_are_what_the_sources_compile_to() -> None:
    """Compiling again gives the shipped files, byte for byte."""
    result = _check(ROOT)
    assert (result.returncode, result.stderr) == (0, "")


def test_an_edited_artifact_is_found(tmp_path: Path) -> None:
    """The check names a file that its source does not compile to, and how to mend it."""
    for folder in ("solidity", "scripts", "src/clara_eval/chain/contracts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "tests/support").mkdir(parents=True)
    shutil.copy(ROOT / "tests/support/ReentrantToken.json", tmp_path / "tests/support")
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    edited = tmp_path / "src/clara_eval/chain/contracts/Challenge.json"
    edited.write_text(edited.read_text().replace('"bytecode": "0x60', '"bytecode": "0x61'))
    result = _check(tmp_path)
    assert result.returncode == 1
    assert "src/clara_eval/chain/contracts/Challenge.json" in result.stderr
    assert "ChallengeFactory.json" not in result.stderr
    assert "npm run contracts" in result.stderr


@pytest.mark.parametrize("name", CONTRACT_NAMES)
def test_every_artifact_can_be_deployed(name: ContractName) -> None:
    """Each has bytecode within the limit of the chain (EIP-170, with room for the constructor)."""
    found = artifact(name)
    assert found.bytecode.startswith("0x")
    assert 500 < len(bytes.fromhex(found.bytecode[2:])) < 24_576
    assert found.solc.startswith("0.8.")


def test_structs_have_the_deployed_field_order() -> None:
    """Submission, Winner and CreateParams are ABI: their fields stand in the order of the deployed contracts."""
    challenge = {entry["name"]: entry for entry in artifact("Challenge").abi if entry["type"] == "function"}
    submission = [item["name"] for item in challenge["getSubmission"]["outputs"][0]["components"]]
    winner = [(item["name"], item["type"]) for item in challenge["getWinner"]["outputs"][0]["components"]]
    assert submission == ["agentId", "solutionURI", "solutionHash", "submittedAt", "version"]
    assert winner == [("account", "address"), ("agentId", "uint256"), ("score", "uint256"), ("prizeAmount", "uint256")]
    create = next(entry for entry in artifact("ChallengeFactory").abi if entry.get("name") == "createChallenge")
    assert [item["name"] for item in create["inputs"][0]["components"]] == [
        "token",
        "evaluator",
        "prizePool",
        "deadline",
        "scoringDeadline",
        "challengeURI",
        "evalConfigHash",
        "privateSetHash",
        "winnerCount",
        "payoutBps",
        "maxParticipants",
        "skillTags",
    ]
