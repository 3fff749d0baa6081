"""Measure the entries of an open challenge as far as everything is public: by tools alone, in bounded work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from clara_eval.actions.harness import run_public
from clara_eval.chain.model import Block, Challenge
from clara_eval.challenges.challenge_index import METADATA_BYTES
from clara_eval.challenges.context import Ports
from clara_eval.code import guess_language
from clara_eval.config.eval_config import EvalConfig, FeatureSchema, compile_schema, read_metadata
from clara_eval.core.errors import BadInput, BadSubmission
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.submission import Submission
from clara_eval.documents.results import ProvisionalBoard, ProvisionalEntry, Value, read
from clara_eval.documents.store_keys import provisional_key
from clara_eval.evaluation.execution import ProgramSource
from clara_eval.evaluation.features.extract import executed_values
from clara_eval.evaluation.features.measured import measure
from clara_eval.submissions.model import MAX_BYTES, Rejected, check_submission, is_data_uri, read_data_uri

MOST_ENTRIES = 100
"""Entries on a provisional board, the earliest: a flood of later ones costs nothing."""
NOT_ON_CHAIN = "Not on chain: it is fetched and measured after entries close."
TOO_SLOW = "Not measured: it takes too long while entries are open."


@dataclass(frozen=True, slots=True)
class _Tools:
    ports: Ports
    config: EvalConfig
    schema: FeatureSchema

    async def facts(self, text: str, source: ProgramSource) -> dict[str, Value]:
        """What tools say about a submission; inputs that the final run draws by its seed are others here."""
        executed = await run_public(self.ports.machine, self.config, self.schema, text, source)
        static = await asyncio.to_thread(measure, text, self.config.language or guess_language(text))
        known = {**static, **executed_values(self.schema, executed)}
        return {one.name: known.get(one.name) for one in self.schema.judged if one.source == "measured"}

    async def measured(self, row: ProvisionalEntry, submission: Submission | None) -> ProvisionalEntry:
        """The row with its facts; without a submission it is the harness's reference."""
        if submission is None:
            reference = (self.config.harness and self.config.harness.reference) or ""
            return row.model_copy(update={"facts": await self.facts(reference, lambda _: reference)})
        try:
            fetched = read_data_uri(submission.solution_uri, MAX_BYTES)
        except BadSubmission as bad:
            return row.model_copy(update={"problem": str(bad)})
        config = self.config
        found = check_submission(submission, fetched, language=config.language, form=config.submission_format)
        if isinstance(found, Rejected):
            return row.model_copy(update={"problem": found.reason})
        return row.model_copy(update={"facts": await self.facts(found.code, found.program)})


async def measure_open(ports: Ports, challenge: Challenge, head: Block, most: int) -> tuple[int, bool]:
    """Measure at most `most` new entries of an open challenge; return how many, and whether some are left."""
    tools = _tools(ports, challenge)
    if tools is None:
        return 0, False
    key = provisional_key(challenge.address)
    old = await read(ports.store, challenge.chain_id, ProvisionalBoard, key)
    known = {row.hash: row for row in old.entries} if old else {}
    current = await ports.chain.challenges.challenge_at(challenge.address, head)
    rows, done, left = list[ProvisionalEntry](), 0, False

    async def save() -> None:
        ordered = sorted(rows, key=lambda row: _order(row, tools.schema))
        board = ProvisionalBoard(entries=ordered, at=head.timestamp)
        await ports.store.put(challenge.chain_id, key, board.model_dump_json())

    for row, submission in _listed(current, tools.config):
        if row.hash in known:
            rows.append(known[row.hash].model_copy(update={"address": row.address, "agentId": row.agentId}))
        elif submission is not None and not is_data_uri(submission.solution_uri):
            rows.append(row.model_copy(update={"problem": NOT_ON_CHAIN}))
        elif done < most:
            rows.append(row.model_copy(update={"problem": TOO_SLOW}))
            await save()  # a run that is cut off is not tried again
            rows[-1] = await tools.measured(row, submission)
            done += 1
        else:
            left = True
    await save()
    return done, left


def _tools(ports: Ports, challenge: Challenge) -> _Tools | None:
    """None if the rules are not public, or nothing that counts can be measured."""
    try:
        content = read_data_uri(challenge.challenge_uri, METADATA_BYTES).content
        config = read_metadata(content, challenge.eval_config_hash).config
    except (BadInput, BadSubmission):
        return None
    schema = compile_schema(config)[0]
    return _Tools(ports, config, schema) if any(one.source == "measured" for one in schema.judged) else None


def _listed(current: Challenge, config: EvalConfig) -> Iterator[tuple[ProvisionalEntry, Submission | None]]:
    if config.harness and config.harness.reference is not None:
        yield ProvisionalEntry(hash="reference"), None
    for one in sorted(current.submissions, key=lambda one: one.submitted_at)[:MOST_ENTRIES]:
        place = keccak_hex(one.solution_uri.encode())
        yield ProvisionalEntry(address=one.submitter, agentId=one.agent_id, hash=place), one


def _order(row: ProvisionalEntry, schema: FeatureSchema) -> list[tuple[bool, float]]:
    """The heaviest fact that differs decides; a missing one is last."""
    found = []
    for one in sorted((one for one in schema.judged if one.better), key=lambda one: -one.weight):
        value = row.facts.get(one.name)
        value = one.values.index(value) if isinstance(value, str) and value in one.values else value
        number = float(value) if isinstance(value, int | float) else None
        found.append((number is None, (number or 0.0) * (-1 if one.better == "higher" else 1)))
    return found
