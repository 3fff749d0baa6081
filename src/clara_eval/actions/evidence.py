"""Read from a posted trace what pages show: submissions, their runs, judges' prompts and answers."""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.actions.published import Bodies, ResultReader
from clara_eval.challenges.challenge_index import known_results, read_many, summaries
from clara_eval.challenges.review import DRAFT_FORM, read_review
from clara_eval.core.address import Address
from clara_eval.core.errors import BadSubmission
from clara_eval.documents.results import AgentTotals, Earned, EvaluatorRecord, Scores
from clara_eval.documents.store_keys import draft_key, scores_key
from clara_eval.judge.comparison import VectorPrompts, make_vector
from clara_eval.judge.reading import prompt_files
from clara_eval.store.sql_store import PublicKeys
from clara_eval.submissions.files import is_archive, read_archive

MAX_DIFF_LINES = 1_500  # lines per submission; difflib takes seconds for more
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")
_AFTER_SUBMISSIONS = ('"key":"features/', '"key":"answers"')


@dataclass(frozen=True, slots=True)
class SubmittedWork:
    text: str | None  # for an archive, what judges were shown; None if nothing was received or it is not text
    submitted_at: int
    version: int
    outcome: str = ""  # of the whole run; empty if nothing was run
    calls: tuple[Bodies, ...] = ()  # calls of harness functions, as in the trace; `used` is gas or fuel
    like: str = ""  # the earlier entry that it copies or resembles


@dataclass(frozen=True, slots=True)
class Exchange:
    """One judge's prompt about two entries and its answers; several if some were unusable."""

    judge: str
    first: str
    second: str
    system: str
    user: str
    answers: tuple[str, ...]


async def submitted_work(
    reader: ResultReader, address: Address, scores: Scores, accounts: Sequence[str]
) -> dict[str, SubmittedWork]:
    """Read what these accounts submitted; empty if the trace is private or not ours."""
    keys = ["challenge", "folder", "rejected", "similar"]
    keys += [f"{kind}/{account}" for kind in ("solution", "executed") for account in accounts]
    found = await reader.trace_bodies(address, scores, [f'"key":"{key}"' for key in keys], before=_AFTER_SUBMISSIONS)
    sent = {one["submitter"]: one for one in found.get("challenge", {}).get("submissions", ())}
    sent |= {one["account"]: {**one, "version": 1} for one in found.get("folder", {}).get("entries", ())}
    works = {}
    for account in (one for one in accounts if one in sent and f"solution/{one}" in found):
        solution = found[f"solution/{account}"]
        received = base64.b64decode(solution.get("linked", solution["received"])["content"] or "")
        try:
            text = read_archive(received).document if is_archive(received) else received.decode("utf-8-sig") or None
        except (UnicodeDecodeError, BadSubmission):
            text = None
        run = found.get(f"executed/{account}", {"outcome": "", "calls": ()})
        rejected = [row for row in found["rejected"] if row["account"] == account and row["code"] == "copy"]
        like = [match.group() for row in rejected if (match := _ADDRESS.search(row["reason"]))]
        like += [row["earlier"] for row in found["similar"] if row["later"] == account]
        details = sent[account]["submittedAt"], sent[account]["version"], run["outcome"], tuple(run["calls"])
        works[account] = SubmittedWork(text, *details, next(iter(like), ""))
    return works


def difference(old: str, new: str) -> list[str]:
    """Return the lines of `diff -u` without its header; empty if the texts are equal or too long."""
    lines = old.splitlines(), new.splitlines()
    return [] if max(map(len, lines)) > MAX_DIFF_LINES else list(difflib.unified_diff(*lines, lineterm="", n=3))[2:]


async def exchanges(reader: ResultReader, address: Address, scores: Scores, one: str, other: str) -> list[Exchange]:
    """Read models' prompts and answers on two entries; empty if there are none or they are private."""
    marks = ['"key":"prompts"', f'"second":"{one}"', f'"second":"{other}"']
    found = await reader.trace_bodies(address, scores, marks, before=['"key":"ranking"'])
    asked = [body for key, body in found.items() if key.startswith("comparison/") and body["first"] in {one, other}]
    asked = [body for body in asked if body["requests"]]
    judging = await reader.judging(address, scores) if asked else None
    if judging is None:
        return []
    wanted = [f'"key":"answer/{request}"' for body in asked for request in body["requests"]]
    answers = await reader.trace_bodies(address, scores, wanted, before=['"key":"unanswered"'])
    shown = {account for body in asked for account in body.get("group") or (one, other)}
    facts = await reader.features_of(address, scores, sorted(shown))
    # The trace holds no prompts. They are rebuilt from the facts, if the prompt files are those of the trace.
    is_known = found.get("prompts") == prompt_files() and len(facts) == len(shown)
    found_exchanges = []
    for body in asked:
        system = user = ""
        if is_known:
            prompts = VectorPrompts("order" if body.get("group") else "compare", judging.criteria, judging.schema)
            accounts = body.get("group") or (body["first"], body["second"])
            prompt = prompts.prompt([make_vector(judging.schema, facts[account].features) for account in accounts])
            system, user = prompt.system, prompt.user
        replies = [answers[f"answer/{one}"] for one in body["requests"] if f"answer/{one}" in answers]
        texts = tuple(answer["answer"]["text"] for answer in replies)
        found_exchanges.append(Exchange(body["judge"], body["first"], body["second"], system, user, texts))
    return found_exchanges


async def evaluator_record(store: PublicKeys, chain_id: int, evaluator: str) -> EvaluatorRecord:
    """Count how this evaluator's challenges ended, over all challenges known here."""
    own = [one for one in (await summaries(store, chain_id)).values() if one.evaluator == evaluator]
    posted = [one for one in own if one.postedBy == "evaluator"]
    drafts = await store.get_many(chain_id, [draft_key(one.address) for one in posted])
    announced = {one.address: text for one in posted if (text := drafts.get(draft_key(one.address)))}
    final = await read_many(store, chain_id, Scores, scores_key, announced)
    drafted = {address: [one.address for one in DRAFT_FORM.read_text(announced[address]).places] for address in final}
    return EvaluatorRecord(
        posted=len(posted),
        late=sum((one.scorePostedAt or 0) > one.scoringDeadline for one in posted),
        upheld=sum(drafted[address] != [row.address for row in scores.rankings] for address, scores in final.items()),
        overridden=sum(one.postedBy == "poster" for one in own),
        expired=sum(one.chainStatus == "expired" and one.submissionCount > 0 for one in own),
    )


async def approval_of(reader: ResultReader, address: Address) -> str:
    """Return a sentence on who approved the result and why; empty if no person did."""
    review = await read_review(reader.store, reader.chain_id, address)
    return f"Approved by {review.by or 'the operator'}: {review.note}" if review and review.state == "approved" else ""


async def agent_standings(reader: ResultReader) -> list[AgentTotals]:
    found: dict[int, AgentTotals] = {}
    rounds = await known_results(reader.store, reader.chain_id, await summaries(reader.store, reader.chain_id))
    for result in rounds.values():
        for one in result.entrants:
            agent = found.setdefault(one.agentId, AgentTotals(agentId=one.agentId, address=one.address))
            agent.entered, agent.name = agent.entered + 1, one.name or agent.name
        for winner in (one for one in result.winners if one.agentId in found):
            standing, token = found[winner.agentId], result.token
            sums = {one.token.address: one for one in standing.earned}
            before = sums.get(token.address, Earned(token=token, amount="0"))
            sums[token.address] = Earned(token=token, amount=str(int(before.amount) + int(winner.prizeAmount)))
            standing.earned, standing.won = list(sums.values()), standing.won + 1
    return list(found.values())


async def challenges_of(reader: ResultReader, account: str) -> set[str]:
    """Return the challenges with known results that this address entered; empty if not an address."""
    if not _ADDRESS.fullmatch(account):
        return set()
    found = await known_results(reader.store, reader.chain_id, await summaries(reader.store, reader.chain_id))
    return {one for one, result in found.items() if any(entrant.address == account for entrant in result.entrants)}
