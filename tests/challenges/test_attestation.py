"""A round of signed answers: anybody checks offline that the enclave gave them, and a changed byte is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.attested_rounds import FORGERIES, QUALITY, signed_round
from tests.support.forged_trace import forged
from tests.support.model_rounds import CONFIG, model_round
from tests.support.rounds import opened
from tests.support.signing_endpoint import SigningEndpoint

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.challenges.replay import check_trace
from clara_eval.core.errors import BadTrace, Temporary
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.evaluation.plan import EvaluationPlan
from clara_eval.judge.attestation import Quotes


@pytest.mark.parametrize("how", ["near", "aci"])
async def test_a_round_of_signed_answers_verifies_offline(how: str, local_chain: LocalChain, tmp_path: Path) -> None:
    """With the endpoint gone, every answer is proven to come from the enclave; each forgery is named."""
    async with SigningEndpoint().running() as endpoint:
        done, lines = await signed_round(local_chain, tmp_path, endpoint, how)
    quotes = Quotes(root=endpoint.enclave.root)
    checked = await check_trace(lines, quotes=quotes)
    assert checked.digest == done.digest
    (judge,) = checked.judges
    assert judge.signed == judge.answers == len(done.result.answers) > 10
    (key,) = judge.keys
    assert key.enclave.measurements["mrTd"] == endpoint.enclave.measurement.hex()
    assert key.enclave.status == "UpToDate"
    assert not any("do not sign" in point for point in checked.not_proven)
    assert any("physical attacks" in point for point in checked.not_proven)
    with pytest.raises(BadTrace, match="does not hold") as caught:
        await check_trace(lines)
    assert caught.value.entry == "attestation"
    for name, change in FORGERIES.items():
        with pytest.raises(BadTrace) as caught:
            await check_trace(forged(lines, change), quotes=quotes)
        assert caught.value.entry.partition("/")[0] in ("answer", "attestation"), name


async def test_a_liar_gives_no_vote_and_stops_nobody_else(local_chain: LocalChain, tmp_path: Path) -> None:
    """A round whose only judge lies about its signatures stops as an outage, and goes on when it signs again."""
    async with SigningEndpoint(lie="other response hash").running() as endpoint:
        with pytest.raises(Temporary) as caught:
            await signed_round(local_chain, tmp_path / "lying", endpoint, "near")
        assert "signed hashes" in str(caught.value) or "down" in str(caught.value)
        endpoint.lie = ""
        done, _ = await signed_round(local_chain, tmp_path / "honest", endpoint, "near")
    assert done.result.ranking is not None


async def test_an_unsigned_round_says_so(local_chain: LocalChain, tmp_path: Path) -> None:
    """The same endpoint without attestation: the trace holds, and what is not proven names the judge."""
    async with SigningEndpoint().running() as endpoint:
        address = await model_round(local_chain, {**CONFIG, "features": ["max_complexity", QUALITY]})
        judge = f"openai:m@{endpoint.url}"
        async with opened(local_chain, tmp_path, judges_as_set=judge, prices=f"{judge}=0/0") as app:
            await evaluate(app, address, EvaluationRequest(plan=EvaluationPlan((judge,)), dry_run=True))
            lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)
    checked = await check_trace(lines)
    assert [(one.signed, one.keys) for one in checked.judges] == [(0, ())]
    assert any(judge in point for point in checked.not_proven)
    assert not any('"signed":{' in line or '"key":"attestation"' in line for line in lines)
