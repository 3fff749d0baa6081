"""Rounds in a store as an evaluation of any size leaves them, for tests and benches of the pages.

Comes in: a store, an address and a number of entries. Goes out: the documents of a posted round in that store: summary,
status, scores, facts, games, and a trace whose beginning says by what it was judged. Nothing is random.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.support.api_service import CHAIN, status, summary

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.config.eval_config.model import Feature
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import Flag
from clara_eval.documents.results import Entrant, PaidWinner, RoundResult, Token
from clara_eval.documents.store_keys import (
    features_key,
    index_key,
    pairwise_key,
    scores_key,
    status_key,
)
from clara_eval.evaluation.trace import TraceWriter, render
from clara_eval.judge.reading import prompt_files
from clara_eval.service.record import result_pairs
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import save_trace

SCHEMA = FeatureSchema(
    (
        Feature("tests_passed", "number", 0, 1, better="higher", weight=5, source="measured"),
        Feature("gas_send", "integer", 0, 1_000_000, better="lower", weight=3, source="measured"),
        Feature("readability", "integer", 1, 10, better="higher", weight=2, source="llm"),
        Feature("documented", "boolean", better="higher", weight=1, source="measured"),
    )
)
CRITERIA = "The cheapest contract that passes every test wins; among equals the more readable one."
NEIGHBOURS = 12
"""How many of those below it each entry met."""


def account(number: int) -> Address:
    return Address("0x" + keccak_hex(number.to_bytes(4))[-40:])


async def put_round(
    store: SqlStore, address: Address, entries: int, *, title: str, winners: int = 3, posted: bool = True,
    strange: str = "", chain_status: str = "scoring",
) -> str:  # fmt: skip
    """A whole round; the digest of its trace. `strange` is put wherever a stranger's words can stand."""
    accounts = [account(number) for number in range(entries)]
    digest = await _trace(store, address, accounts, strange)
    found = summary(address, title, 1_794_800_000)
    found |= {"submissionCount": entries + 2, "winnerCount": winners, "skills": ["solidity", strange or "gas"],
              "problemStatement": strange or "Pay twenty addresses in one call, for the least gas.",
              "postedBy": "evaluator" if posted else None, "scorePostedAt": 1_794_810_000 if posted else None,
              "payoutBps": [10_000 // winners] * winners, "chainStatus": chain_status}  # fmt: skip
    pairs = [
        (index_key(address), found),
        (status_key(address), status("complete", 100) if posted else status("review", 90)),
        (scores_key(address), _scores(accounts, digest, winners, posted=posted, strange=strange)),
        *((features_key(address, one), _features(number, strange)) for number, one in enumerate(accounts)),
        *_games(address, accounts, strange),
    ]
    await store.put_many(CHAIN, [(key, json.dumps(value)) for key, value in pairs])
    await store.put_many(CHAIN, result_pairs(address, _result(accounts, winners)))
    return digest


def _result(accounts: list[Address], winners: int) -> RoundResult:
    """As the engine reads it from the chain."""
    prize = str(1_000_000_000 // winners)
    entrants = [Entrant(agentId=number, address=one) for number, one in enumerate(accounts)]
    entrants.append(Entrant(agentId=5000, address=account(1_000_000)))
    paid = [
        PaidWinner(agentId=n, address=one, score=9000, prizeAmount=prize) for n, one in enumerate(accounts[:winners])
    ]
    token = Token.model_validate(summary(account(0), "", 0)["token"])
    return RoundResult(chainStatus="scoring", token=token, entrants=entrants, winners=paid, isOver=True)


async def _trace(store: SqlStore, address: Address, accounts: list[Address], strange: str) -> str:
    """Head, submissions, runs and the comparisons of the first two by a model, as an evaluation writes them."""
    writer, copy = TraceWriter(), account(1_000_000)
    sent = [*accounts, copy]
    texts = {one: f"// {strange or 'send'} {min(n, 7)}\nfunction send() {{ return {min(n, 7)} }}\n"
             for n, one in enumerate(accounts)}  # fmt: skip
    texts[copy] = texts[accounts[0]]
    received = {one: base64.b64encode(text.encode()).decode() for one, text in texts.items()}
    compared = [(accounts[0], accounts[1], "0x" + "aa" * 32), (accounts[1], accounts[0], "0x" + "bb" * 32)]
    bodies: list[tuple[str, Any]] = [
        ("challenge", {"submissions": [{"submitter": a, "submittedAt": 1_794_700_000, "version": 2} for a in sent]}),
        ("plan", {"judges": ["rules", "openai:model"]}),
        ("metadata", {"evalConfig": json.dumps({"criteria": strange or CRITERIA})}),
        ("schema", SCHEMA.to_json()),
        ("prompts", prompt_files()),
        *((f"solution/{one}", {"received": {"content": received[one]}}) for one in sent),
        ("rejected", [{"account": copy, "code": "copy", "reason": f"Identical to the submission of {accounts[0]}."}]),
        ("similar", []),
        *((f"executed/{one}", _run(n)) for n, one in enumerate(accounts)),
        *((f"answer/{request}", {"answer": {"text": f"{strange} the first answer {request[:4]}"}})
          for _, _, request in compared),
        ("unanswered", {}),
        *((f"comparison/{n:07}", {"first": first, "second": second, "judge": "openai:model@http://10.0.0.7/v1",
                                  "requests": [request]}) for n, (first, second, request) in enumerate(compared)),
        ("ranking", None),
    ]  # fmt: skip
    lines = [writer.line(key, body) for key, body in bodies]
    await save_trace(store, CHAIN, address, render(lines, writer.digest), writer.digest)
    return writer.digest


def _run(number: int) -> dict[str, Any]:
    calls = [
        {"name": "test_sends_all", "kind": "test", "outcome": "passed" if number < 4 else "failed", "used": 21_137},
        {"name": "metric_batch_gas", "kind": "metric", "outcome": "passed", "used": 5, "value": 40_000 + number},
    ]
    return {"outcome": "passed" if number < 4 else "failed", "calls": calls}


def _scores(accounts: list[Address], digest: str, winners: int, *, posted: bool, strange: str) -> dict[str, Any]:
    rows = [_row(number, one, len(accounts), winners) for number, one in enumerate(accounts)]
    rows += [
        {"address": account(1_000_000 + code), "rank": len(accounts) + 1 + code, "status": "rejected", "score": 0,
         "code": ("copy", "wrong_hash")[code], "reason": strange or "It is the entry of somebody else.",
         "agentId": 5000 + code}
        for code in range(2)
    ]  # fmt: skip
    flag = Flag("outlier", "warn", strange or f"{accounts[-1]}: gas is far from the others.", accounts[-1])
    return {
        "rankings": rows,
        "winners": [{"account": row["address"], "prizeAmount": row["prizeAmount"]} for row in rows[:winners]],
        "margin": {"place": winners, "probability": 0.9, "setChance": 0.83, "word": "uncertain",
                   "item": accounts[winners - 1],
                   "nextItem": accounts[winners], "sentence": strange or "The pay line is uncertain."},
        "consistency": {"swapConsistency": 0.96, "swaps": 120, "cycles": 2, "decidedTriples": 400, "coverage": 0.6,
                        "judges": [{"judge": strange or "rules", "firstShare": 0.52, "games": 240, "agreement": 0.9,
                                    "compared": 100}], "pivotalItems": []},
        "schedule": {"name": "adaptive", "games": 240, "reason": strange or "Fits the budget."},
        "flags": [to_camel_json(flag)],
        "token": summary(account(0), "", 0)["token"],
        "prizePool": "1000000000",
        "traceDigest": digest,
        "txHash": "0x" + "cd" * 32 if posted else None,
        "postedBy": "evaluator" if posted else None,
        "publishedAt": 1_794_810_000 if posted else None,
    }  # fmt: skip


def _row(number: int, one: Address, entries: int, winners: int) -> dict[str, Any]:
    elo = 1700 - 400 * number / max(1, entries - 1)
    tests = max(0, 12 - number // 4)
    return {
        "address": one, "agentId": number, "rank": number + 1, "status": "ranked", "score": 9000 - number % 9000,
        "elo": elo, "low": elo - 60, "high": elo + 60, "pTop": max(0.0, 1 - number / (2 * winners)),
        "rankLow": max(1, number - 1), "rankHigh": number + 3, "wins": entries - number, "losses": number, "ties": 0,
        "prizeAmount": str(1_000_000_000 // winners) if number < winners else None,
        "executed": {"outcome": "passed" if tests == 12 else "failed", "testsPassed": tests, "tests": 12,
                     "gas": 40_000 + 137 * number},
    }  # fmt: skip


def _features(number: int, strange: str) -> dict[str, Any]:
    measured = {"tests_passed": max(0, 12 - number // 4) / 12, "gas_send": 40_000 + 137 * number, "documented": True}
    claimed = {"readability": 1 + number % 10, "documented": number % 3 != 0}
    return {"features": {**claimed, **measured}, "measured": measured, "claimed": claimed,
            "text": {"summary": strange or "A short loop in assembly."}}  # fmt: skip


def _games(address: Address, accounts: list[Address], strange: str) -> list[tuple[str, Any]]:
    """Each met those below it, in both orders; the better one won."""
    found = []
    for number, one in enumerate(accounts):
        for other in accounts[number + 1 : number + 1 + NEIGHBOURS]:
            game = {"confidence": 0.8, "reason": strange or "gas_send 40,000 against 41,000"}
            for first, second, side in ((one, other, "A"), (other, one, "B")):
                judge = "openai:model@http://10.0.0.7/v1" if number == 0 else "rules"
                votes = [{"judge": judge, "winner": side, "confidence": 0.8, "reason": game["reason"]}]
                found.append((pairwise_key(address, first, second), {"winner": side, **game, "votes": votes}))
    return found
