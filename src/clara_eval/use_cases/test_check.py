"""The checks before going live say what is wrong, one by one."""

from __future__ import annotations

from pathlib import Path

from clara_eval.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.use_cases.check import preflight


async def test_a_contract_that_is_no_factory_is_not_ready(local_chain: LocalChain, tmp_path: Path) -> None:
    """The right factory passes with its count; another contract at that setting does not."""
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    assert all(finding.ok for finding in await preflight(settings))
    wrong = settings.model_copy(update={"challenge_factory": local_chain.deployment.token})
    refused = [finding for finding in await preflight(wrong) if not finding.ok]
    assert [finding.name for finding in refused] == ["factory"]
    assert "not a challenge factory" in refused[0].detail
