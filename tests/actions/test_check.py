"""The checks before going live say what is wrong, one by one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from eth_account import Account
from eth_typing import HexStr
from tests.support.signers import LocalKms, LocalWeb3Signer

from clara_eval.actions.operator import preflight
from clara_eval.app import open_app
from clara_eval.chain.transaction import StoredTransaction
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.config.settings import Settings
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import LocalChain, PostedTerms


async def test_a_contract_that_is_no_factory_is_not_ready(local_chain: LocalChain, tmp_path: Path) -> None:
    """The right factory passes with its count; another contract at that setting does not."""
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    assert all(finding.ok for finding in await preflight(settings))
    wrong = settings.model_copy(update={"challenge_factory": local_chain.deployment.token})
    refused = [finding for finding in await preflight(wrong) if not finding.ok]
    assert [finding.name for finding in refused] == ["factory"]
    assert "not a challenge factory" in refused[0].detail


@asynccontextmanager
async def evaluators_key(kind: str, chain: LocalChain, folder: Path) -> AsyncIterator[tuple[dict[str, str], str]]:
    """The settings of one way to the evaluator's key, and what the check calls it."""
    key, address = chain.evaluator.key, {"CLARA_EVALUATOR_ADDRESS": chain.evaluator.address}
    match kind:
        case "key":
            yield {"CLARA_EVALUATOR_KEY": key}, "key of CLARA_EVALUATOR_KEY"
        case "file":
            (folder / "key").write_text(f"  {key[2:]} \n")
            yield {"CLARA_EVALUATOR_KEY_FILE": str(folder / "key")}, "key of CLARA_EVALUATOR_KEY"
        case "keystore":
            path = folder / "evaluator.json"
            path.write_text(json.dumps(Account.encrypt(HexStr(key), "hunter2", iterations=1024)))
            path.chmod(0o600)
            environ = {"CLARA_EVALUATOR_KEYSTORE": str(path), "CLARA_EVALUATOR_PASSWORD": "hunter2"}
            yield environ, f"keystore {path}"
        case "signer":
            async with LocalWeb3Signer(key) as running:
                place = running.url.removeprefix("http://")
                yield {"CLARA_SIGNER_URL": f"http://me:hunter2@{place}", **address}, f"remote signer {place}"
        case _:
            async with LocalKms(key) as running:
                aws = {"DEFAULT_REGION": "eu-west-1", "ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "hunter2"}
                with pytest.MonkeyPatch.context() as patch:
                    for name, value in {**aws, "ENDPOINT_URL_KMS": running.url}.items():
                        patch.setenv(f"AWS_{name}", value)
                    yield {"CLARA_SIGNER_URL": "aws-kms:alias/clara", **address}, "AWS KMS key alias/clara"


@pytest.mark.parametrize("kind", ["key", "file", "keystore", "signer", "kms"])
async def test_every_kind_of_key_is_named_and_none_is_shown(kind: str, local_chain: LocalChain, tmp_path: Path) -> None:
    """Where the key is, its address, its balance and the posts it pays for; no key and no password."""
    async with evaluators_key(kind, local_chain, tmp_path) as (environ, place):
        chain = {
            "CLARA_RPC_URL": local_chain.rpc_url,
            "CLARA_CHALLENGE_FACTORY": local_chain.deployment.factory,
            "CLARA_DATABASE_URL": f"sqlite:///{tmp_path}/store.db",
        }
        findings = await preflight(Settings.from_env(chain | environ))
    assert all(finding.ok for finding in findings)
    (wallet,) = [finding.detail for finding in findings if finding.name == "wallet"]
    said = rf"{local_chain.evaluator.address} \({re.escape(place)}\), \d+\.\d+ ETH: enough for [\d,]+ posts at .*"
    assert re.fullmatch(said, wallet)
    assert "hunter2" not in str(findings)
    assert local_chain.evaluator.key[2:] not in str(findings)


async def test_what_still_needs_an_earlier_key_is_told(local_chain: LocalChain, tmp_path: Path) -> None:
    """After a change of address: two open challenges of a key that signed here are counted, a stranger's is not."""
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    earlier, stranger = local_chain.agents[0].address, local_chain.agents[1].address
    async with open_app(settings) as app:
        for evaluator in (earlier, earlier, stranger):
            address = await local_chain.post_challenge(PostedTerms(evaluator=evaluator))
            await save_summary(app.store, await look_at_challenge(app.chain, address), None)
        signed = StoredTransaction(f"{app.chain_id}:0x1", "postScores", 1, earlier, 0, "0x" + "1" * 64, "0x", 1, 1)
        before = {finding.name: finding.detail for finding in await preflight(settings)}
        await app.store.save_transaction(signed)
    after = {finding.name: finding.detail for finding in await preflight(settings)}
    assert "earlier key" not in str(before)
    assert [after[name] for name in after if after[name] != before[name]] == [
        f"{before['wallet']}; still to be scored with an earlier key: 2 of {earlier}"
    ]
