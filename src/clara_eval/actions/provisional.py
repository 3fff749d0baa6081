"""Measure public entries of an open challenge with tools alone, a bounded number per call."""

from __future__ import annotations

import asyncio

from clara_eval.actions.harness import measure_public
from clara_eval.chain.model import Block, Challenge
from clara_eval.challenges.challenge_index import METADATA_BYTES
from clara_eval.challenges.context import Ports
from clara_eval.config.eval_config import EvalConfig, FeatureSchema, compile_schema, read_metadata
from clara_eval.core.errors import BadInput, BadSubmission
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import Submission
from clara_eval.documents.results import ProvisionalBoard, ProvisionalEntry, read
from clara_eval.documents.store_keys import provisional_key
from clara_eval.harness import Machine
from clara_eval.submissions.model import MAX_BYTES, Rejected, check_submission, is_data_uri, read_data_uri

MAX_ENTRIES = 100  # earliest entries on a provisional board, so that a flood of later ones costs nothing
NOT_ON_CHAIN = "Not on chain: it is fetched and measured after entries close."
TOO_SLOW = "Not measured: it takes too long while entries are open."


async def measure_open(ports: Ports, challenge: Challenge, head: Block, most: int) -> tuple[int, bool]:
    """Measure at most `most` new entries; return their number, and whether some are left."""
    try:
        content = read_data_uri(challenge.challenge_uri, METADATA_BYTES).content
        config = read_metadata(content, challenge.eval_config_hash).config
    except (BadInput, BadSubmission):
        return 0, False  # the rules are not public
    schema = compile_schema(config)[0]
    if not any(one.source == "measured" for one in schema.judged):
        return 0, False
    key = provisional_key(challenge.address)
    old = await read(ports.store, challenge.chain_id, ProvisionalBoard, key)
    known = {row.hash: row for row in old.entries} if old else {}
    current = await ports.chain.challenges.challenge_at(challenge.address, head)
    entries: list[Submission | None] = [None] if config.harness and config.harness.reference is not None else []
    entries += sorted(current.submissions, key=lambda one: one.submitted_at)[:MAX_ENTRIES]
    rows, done, left = list[ProvisionalEntry](), 0, False

    async def save() -> None:
        board = ProvisionalBoard(entries=sorted(rows, key=lambda row: _sort_key(row, schema)), at=head.timestamp)
        await ports.store.put(challenge.chain_id, key, board.model_dump_json())

    for one in entries:
        who = {"address": one.submitter, "agentId": one.agent_id} if one else {}
        place = keccak_hex(one.solution_uri.encode()) if one else "reference"
        row = ProvisionalEntry.model_validate({**who, "hash": place})
        if row.hash in known:
            rows.append(known[row.hash].model_copy(update=who))
        elif one and not is_data_uri(one.solution_uri):
            rows.append(row.model_copy(update={"problem": NOT_ON_CHAIN}))
        elif done < most:
            rows.append(row.model_copy(update={"problem": TOO_SLOW}))
            await save()  # an interrupted run is not tried again
            rows[-1] = row.model_copy(update=await _measure_entry(ports.machine, config, schema, one))
            done += 1
        else:
            left = True
    await save()
    return done, left


async def _measure_entry(
    machine: Machine, config: EvalConfig, schema: FeatureSchema, submission: Submission | None
) -> dict[str, object]:
    """Measure a submission, or the reference if None; the final run may draw other inputs."""
    text, source = (config.harness and config.harness.reference) or "", None
    if submission is not None:
        try:
            fetched = read_data_uri(submission.solution_uri, MAX_BYTES)
        except BadSubmission as bad:
            return {"problem": str(bad)}
        form = config.submission_format
        found = await asyncio.to_thread(check_submission, submission, fetched, language=config.language, form=form)
        if isinstance(found, Rejected):
            return {"problem": found.reason}
        text, source = found.code, found.program
    _, known = await measure_public(machine, config, schema, text, source)
    return {"facts": {one.name: known.get(one.name) for one in schema.judged if one.source == "measured"}}


def _sort_key(row: ProvisionalEntry, schema: FeatureSchema) -> list[tuple[bool, float]]:
    """Return a sort key: features by weight; a missing value is last."""
    found = []
    for one in sorted((one for one in schema.judged if one.better), key=lambda one: -one.weight):
        value = row.facts.get(one.name)
        value = one.values.index(value) if isinstance(value, str) and value in one.values else value
        number = float(value) if isinstance(value, int | float) else None
        found.append((number is None, (number or 0.0) * (-1 if one.better == "higher" else 1)))
    return found
