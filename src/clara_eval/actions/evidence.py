"""Read from a posted trace what pages show: submissions, how they ran, what a judge was asked and answered."""

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

MOST_COMPARED_LINES = 1_500  # lines of each of two submissions that are compared: more take difflib seconds
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")
_REST = ('"key":"features/', '"key":"answers"')


@dataclass(frozen=True, slots=True)
class SubmittedWork:
    text: str | None  # of an archive what its readers were shown; None if nothing was received, or it is not text
    submitted_at: int
    version: int
    outcome: str = ""  # how it ran as a whole; empty if nothing was run
    calls: tuple[Bodies, ...] = ()  # the functions of the harness as the trace has them; `used` is gas or fuel
    like: str = ""  # the earlier entry that it copies or resembles


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one judge was asked about two entries, and its answers; several if some could not be used."""

    judge: str
    first: str
    second: str
    system: str
    user: str
    answers: tuple[str, ...]


async def submitted_work(
    reader: ResultReader, address: Address, scores: Scores, accounts: Sequence[str]
) -> dict[str, SubmittedWork]:
    """What these accounts submitted; empty if the trace is private, or somebody else posted."""
    keys = ["challenge", "folder", "rejected", "similar"]
    keys += [f"{kind}/{account}" for kind in ("solution", "executed") for account in accounts]
    found = await reader.trace_bodies(address, scores, [f'"key":"{key}"' for key in keys], before=_REST)
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
        about = sent[account]["submittedAt"], sent[account]["version"], run["outcome"], tuple(run["calls"])
        works[account] = SubmittedWork(text, *about, next(iter(like), ""))
    return works


def difference(old: str, new: str) -> list[str]:
    """Lines as in `diff -u`, without the names; empty if they are equal or too long to compare."""
    lines = old.splitlines(), new.splitlines()
    if max(map(len, lines)) > MOST_COMPARED_LINES:
        return []
    return list(difflib.unified_diff(*lines, lineterm="", n=3))[2:]


async def exchanges(reader: ResultReader, address: Address, scores: Scores, one: str, other: str) -> list[Exchange]:
    """Prompts and answers of the models that compared two entries; empty if none did, or that is private."""
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
    # A prompt is not in the trace: it follows from the facts, as long as the prompt files are those of the trace.
    is_known = found.get("prompts") == prompt_files() and len(facts) == len(shown)
    told = []
    for body in asked:
        system = user = ""
        if is_known:
            prompts = VectorPrompts("order" if body.get("group") else "compare", judging.criteria, judging.schema)
            accounts = body.get("group") or (body["first"], body["second"])
            vectors = [make_vector(judging.schema, facts[account].features) for account in accounts]
            prompt = prompts.prompt(vectors)
            system, user = prompt.system, prompt.user
        said = [answers[f"answer/{one}"] for one in body["requests"] if f"answer/{one}" in answers]
        texts = tuple(answer["answer"]["text"] for answer in said)
        told.append(Exchange(body["judge"], body["first"], body["second"], system, user, texts))
    return told


async def evaluator_record(store: PublicKeys, chain_id: int, evaluator: str) -> EvaluatorRecord:
    """What this evaluator did in every challenge known here."""
    found = await summaries(store, chain_id)
    own = [one for one in found.values() if one.evaluator == evaluator]
    posted = [one for one in own if one.postedBy == "evaluator"]
    drafts = await store.get_many(chain_id, [draft_key(one.address) for one in posted])
    announced = {one.address: text for one in posted if (text := drafts.get(draft_key(one.address)))}
    final = await read_many(store, chain_id, Scores, scores_key, announced)
    first = {address: [one.address for one in DRAFT_FORM.read_text(announced[address]).places] for address in final}
    return EvaluatorRecord(
        posted=len(posted),
        late=sum((one.scorePostedAt or 0) > one.scoringDeadline for one in posted),
        upheld=sum(first[address] != [row.address for row in scores.rankings] for address, scores in final.items()),
        overridden=sum(one.postedBy == "poster" for one in own),
        expired=sum(one.chainStatus == "expired" and one.submissionCount > 0 for one in own),
    )


async def approval_of(reader: ResultReader, address: Address) -> str:
    """Who approved the result and why, in a sentence; empty if no person did."""
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
            amount = str(int(before.amount) + int(winner.prizeAmount))
            sums[token.address] = Earned(token=token, amount=amount)
            standing.earned, standing.won = list(sums.values()), standing.won + 1
    return list(found.values())


async def challenges_of(reader: ResultReader, account: str) -> set[str]:
    """The challenges that this address entered, as far as their results are known here; empty for other text."""
    if not _ADDRESS.fullmatch(account):
        return set()
    found = await known_results(reader.store, reader.chain_id, await summaries(reader.store, reader.chain_id))
    return {one for one, result in found.items() if any(entrant.address == account for entrant in result.entrants)}
