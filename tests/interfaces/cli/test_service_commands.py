"""`spend` and `review` as an operator calls them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.large_round import large_challenge
from tests.support.statuses import request_review
from typer.testing import CliRunner

from clara_eval.chain.sender import Intention, Receipt, SendOutcome
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.core.errors import BadInput
from clara_eval.documents.store_keys import status_key
from clara_eval.interfaces.cli import app
from clara_eval.judge.costs.budgets import Caps
from clara_eval.store.sqlite import SqliteStore

ADDRESS = "0x" + "ab" * 20


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLARA_DATABASE_URL", "sqlite:///cli.db")
    return lambda *words: CliRunner().invoke(app, list(words), catch_exceptions=True)


def in_store(use: Any) -> Any:
    async def run() -> Any:
        store = await SqliteStore.open("cli.db")
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(run())


def test_spend_adds_up(call: Any) -> None:
    """The JSON document has the ledger's sum, and the table shows it to people."""

    async def spend(store: Any) -> None:
        line = await store.reserve_spend(
            f"31337:{ADDRESS}", "0xposter", "evaluation", 5_000_000, Caps(None, None, None)
        )
        await store.settle_spend(line, 1_234_567)

    in_store(spend)
    document = json.loads(call("spend", "--json").stdout)
    assert document["total"]["usd"] == "1.234567"
    assert document["byPoster"][0]["poster"] == "0xposter"
    assert "1.234567" in call("spend").stdout
    assert json.loads(call("spend", "--json", "--since", "2999-01-01").stdout)["total"]["usd"] == "0.000000"
    assert isinstance(call("spend", "--since", "soon").exception, BadInput)


def test_a_review_is_listed_and_decided_once(call: Any) -> None:
    """Waiting, then rejected with the reason in the status; a second word is refused."""
    in_store(lambda store: request_review(store, 31337, ADDRESS, "0xdigest", ["The prize [bold]is large[/bold]."], 5))
    listed = json.loads(call("review", "list", "--json").stdout)["reviews"]
    assert [(row["address"], row["state"], row["traceDigest"]) for row in listed] == [(ADDRESS, "waiting", "0xdigest")]
    assert "[bold]" in call("review", "list").stdout
    decided = json.loads(call("review", "reject", ADDRESS, "--note", "no", "--json").stdout)
    assert (decided["state"], decided["note"]) == ("rejected", "no")
    status = in_store(lambda store: read_document(store, 31337, status_key(ADDRESS)))
    assert (status["status"], "no" in status["reason"]) == ("failed", True)
    assert isinstance(call("review", "approve", ADDRESS, "--digest", "0xdigest").exception, BadInput)


def test_a_status_moves_no_terminal(call: Any) -> None:
    """The reason may quote a submission or a node: it is shown escaped, and its brackets are no markup."""
    words = {"status": "failed", "progress": 100, "reason": "\x1b[2J[bold]gone[/x]"}
    in_store(lambda store: store.put(31337, status_key(ADDRESS), json.dumps(words)))
    shown = call("status", ADDRESS)
    assert shown.exit_code == 0
    assert r"\x1b[2J[bold]gone[/x]" in shown.stdout
    assert "\x1b" not in shown.stdout


@pytest.mark.parametrize("outcome", list(SendOutcome))
def test_an_evaluation_that_did_not_post_is_no_success(outcome: SendOutcome) -> None:
    """A script learns from the exit code that a post was reverted, or that its fate is not known yet."""
    receipt = Receipt(outcome, Intention.FINALIZE, "0x")
    challenge = large_challenge(2)
    sent = Evaluation(challenge, None, None, receipt, None)
    assert sent.is_done == (outcome not in {SendOutcome.REVERTED, SendOutcome.UNKNOWN})
    assert not Evaluation(challenge, None, None, None, None).is_done


def test_an_approval_says_what_follows(call: Any) -> None:
    """The person is told who posts, and nothing else happens here."""
    in_store(lambda store: request_review(store, 31337, ADDRESS, "0xdigest", ["why"], 5))
    assert call("review", "approve", ADDRESS).exit_code == 2
    assert "posts it" in call("review", "approve", ADDRESS, "--digest", "0xdigest").stdout
    assert "Nothing is waiting" not in call("review", "list").stdout
