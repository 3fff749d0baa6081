"""The checks before going live say what is wrong, one by one."""

from __future__ import annotations

from pathlib import Path

from clara_eval.app import open_app
from clara_eval.challenge.read import look_at_challenge
from clara_eval.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import LocalChain, Terms
from clara_eval.publish.transaction import StoredTransaction
from clara_eval.records.challenge_index import save_summary
from clara_eval.use_cases.check import preflight


async def test_a_contract_that_is_no_factory_is_not_ready(local_chain: LocalChain, tmp_path: Path) -> None:
    """The right factory passes with its count; another contract at that setting does not."""
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    assert all(finding.ok for finding in await preflight(settings))
    wrong = settings.model_copy(update={"challenge_factory": local_chain.deployment.token})
    refused = [finding for finding in await preflight(wrong) if not finding.ok]
    assert [finding.name for finding in refused] == ["factory"]
    assert "not a challenge factory" in refused[0].detail


async def test_what_still_needs_an_earlier_key_is_told(local_chain: LocalChain, tmp_path: Path) -> None:
    """After a change of address: two open challenges of a key that signed here are counted, a stranger's is not."""
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    earlier, stranger = local_chain.agents[0].address, local_chain.agents[1].address
    async with open_app(settings) as app:
        for evaluator in (earlier, earlier, stranger):
            address = await local_chain.post_challenge(Terms(evaluator=evaluator))
            await save_summary(app.store, await look_at_challenge(app.chain, address), None)
        signed = StoredTransaction(f"{app.chain_id}:0x1", "postScores", 1, earlier, 0, "0x" + "1" * 64, "0x", 1, 1)
        before = {finding.name: finding.detail for finding in await preflight(settings)}
        await app.store.save_transaction(signed)
    after = {finding.name: finding.detail for finding in await preflight(settings)}
    assert "earlier key" not in str(before)
    assert [after[name] for name in after if after[name] != before[name]] == [
        f"{before['wallet']}; still to be scored with an earlier key: 2 of {earlier}"
    ]
