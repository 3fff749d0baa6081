"""Stored index of challenges and records of agents, which are shown without a request to a node.

Invariant: titles and statements are untrusted text; they are cut here, and each interface escapes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.config.eval_config import compile_schema, read_metadata
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, BadSubmission
from clara_eval.core.strict_json import object_or_none
from clara_eval.core.untrusted import escaped
from clara_eval.documents import results
from clara_eval.documents.results import ChainStatus, D, RoundResult, Scores, Summary, Values, read
from clara_eval.documents.store_keys import INDEX, entry_key, index_key, public_harness_key, result_key, scores_key
from clara_eval.store.sql_store import PublicKeys
from clara_eval.submissions.model import MAX_BYTES, is_data_uri, read_data_uri

_TITLE_CHARS = 200
_STATEMENT_CHARS = 4000
_SKILL_CHARS = 40
_NAME_CHARS = 40
MAX_SKILLS = 10
METADATA_BYTES = 1_048_576
STATUS = {one: cast("ChainStatus", one.name.lower()) for one in ChallengeStatus}


def summary_of(challenge: Challenge, posted_by: str | None) -> Summary:
    document = inline_metadata(challenge.challenge_uri)
    facts = to_camel_json(replace(challenge, submissions=(), replaced=()))
    return Summary.model_validate(
        {
            **{name: value for name, value in facts.items() if name in Summary.model_fields},
            "title": _text(document.get("title"), _TITLE_CHARS),
            "problemStatement": _text(document.get("problemStatement"), _STATEMENT_CHARS),
            "skills": [_text(skill, _SKILL_CHARS) for skill in skills_in(document)],
            "rules": _rules(challenge) if document else None,
            "chainStatus": STATUS[challenge.status],
            "scorePostedAt": challenge.score_posted_at or None,
            "postedBy": posted_by,
            "block": challenge.block.number,
        }
    )


async def save_summary(keys: PublicKeys, challenge: Challenge, posted_by: str | None) -> None:
    summary = summary_of(challenge, posted_by)
    pairs = [(index_key(challenge.address), summary.model_dump_json(exclude={"rules": {"harnessSource"}}))]
    if summary.rules and summary.rules.harnessSource:
        pairs.append((public_harness_key(challenge.address), summary.rules.harnessSource))
    await keys.put_many(challenge.chain_id, pairs)


async def read_document(keys: Values, chain_id: int, key: str) -> dict[str, Any] | None:
    text = await keys.get(chain_id, key)
    return None if text is None else dict(json.loads(text))


async def read_many(
    keys: PublicKeys, chain_id: int, kind: type[D], key_of: Callable[[str], str], names: Iterable[str]
) -> dict[str, D]:
    """Return the existing documents by name, in few queries."""
    name_of = {key_of(name): name for name in names}
    found = await keys.get_many(chain_id, list(name_of))
    return {name_of[key]: kind.model_validate_json(text) for key, text in found.items() if text}


async def summaries(keys: PublicKeys, chain_id: int) -> dict[Address, Summary]:
    rows = await keys.items(chain_id, INDEX)
    return {Address(key.removeprefix(INDEX)): Summary.model_validate_json(value) for key, value in rows}


async def known_results(store: PublicKeys, chain_id: int, addresses: Iterable[str]) -> dict[str, RoundResult]:
    return await read_many(store, chain_id, RoundResult, result_key, addresses)


async def read_scores(values: Values, chain_id: int, address: str) -> Scores | None:
    """Read the scores, with the names that agents give themselves."""
    scores = await read(values, chain_id, Scores, scores_key(address))
    result = await read(values, chain_id, RoundResult, result_key(address)) if scores else None
    names = {one.address: one.name for one in result.entrants} if result else {}
    for row in scores.rankings if scores else []:
        row.name = names.get(row.address, "")
    return scores


async def agent_record(store: PublicKeys, chain_id: int, agent_id: int) -> results.AgentRecord:
    start = entry_key(agent_id, "")
    addresses = [key.removeprefix(start) for key in await store.keys(chain_id, start)]
    found = [await _entry(store, chain_id, agent_id, address) for address in addresses]
    entries = sorted(filter(None, found), key=lambda entry: (-(entry.deadline or 0), entry.challenge))
    places = [entry.place for entry in entries if entry.place is not None]
    paid = [entry for entry in entries if entry.prizeAmount is not None]
    tokens, earned = {entry.token.address: entry.token for entry in paid}, Counter[str]()
    for entry in paid:
        earned[entry.token.address] += int(entry.prizeAmount or 0)
    return results.AgentRecord(
        agentId=agent_id,
        address=next((entry.submitter for entry in entries if entry.submitter), None),
        name=next((entry.name for entry in entries if entry.name), ""),
        entered=len(entries),
        won=len(paid),
        earned=[results.Earned(token=tokens[one], amount=str(amount)) for one, amount in sorted(earned.items())],
        averagePlace=round(sum(places) / len(places), 2) if places else None,
        placed=len(places),
        challenges=entries,
    )


async def _entry(store: PublicKeys, chain_id: int, agent_id: int, address: str) -> results.AgentEntry | None:
    """Return the agent's entry in this challenge; None if there is no result yet."""
    result = await read(store, chain_id, RoundResult, result_key(address))
    if result is None:
        return None
    summary = await read(store, chain_id, Summary, index_key(address))
    own_addresses = {one.address for one in result.entrants if one.agentId == agent_id}
    paid = [(place, one) for place, one in enumerate(result.winners, start=1) if one.address in own_addresses]
    scores = await read(store, chain_id, Scores, scores_key(address))
    is_ours = scores is not None and scores.postedBy == "evaluator" and scores.traceDigest is not None
    rankings = scores.rankings if scores and is_ours and result.winners else []
    own = next((row for row in rankings if row.address in own_addresses), None)
    place, score = (own.rank, own.score) if own and own.is_ranked else (None, None)
    prize = sum(int(one.prizeAmount) for _, one in paid)
    return results.AgentEntry(
        challenge=address,
        submitter=min(own_addresses, default=None),
        name=next((one.name for one in result.entrants if one.agentId == agent_id), ""),
        title=summary.title if summary else "",
        deadline=summary.deadline if summary else None,
        chainStatus=result.chainStatus,
        place=paid[0][0] if paid else place,
        entrants=len(result.entrants),
        ranked=sum(row.is_ranked for row in rankings) or None,
        rejected=own is not None and not own.is_ranked,
        score=paid[0][1].score if paid else score,
        prizeAmount=str(prize) if prize else None,
        token=result.token,
    )


def _rules(challenge: Challenge) -> results.JudgingRules | None:
    """Return the rules in the config that the chain commits to; None if it is unusable."""
    try:
        content = read_data_uri(challenge.challenge_uri, METADATA_BYTES).content
        config = read_metadata(content, challenge.eval_config_hash).config
    except (BadInput, BadSubmission):
        return None
    judged, harness = compile_schema(config)[0].judged, config.harness
    total = sum(feature.weight for feature in judged) or 1.0
    is_hidden = harness is not None and harness.hidden
    return results.JudgingRules(
        criteria=_text(config.criteria, _STATEMENT_CHARS),
        features=[
            results.FeatureRule(name=one.name, weight=one.weight / total, better=one.better, source=one.source)
            for one in sorted(judged, key=lambda one: -one.weight)
        ],
        language=config.language,
        submissionFormat=config.submission_format,
        harness=harness.language if harness else None,
        hiddenHarness=is_hidden,
        harnessSource=harness.source if harness else None,
        harnessHash=challenge.private_set_hash if is_hidden else None,
        ifNotRevealed=harness.if_not_revealed if harness and is_hidden else None,
        maxBytes=MAX_BYTES,
    )


def skills_in(document: dict[str, object]) -> list[str]:
    listed = document.get("skills")
    return [item for item in listed if isinstance(item, str)][:MAX_SKILLS] if isinstance(listed, list) else []


def inline_metadata(uri: str) -> dict[str, object]:
    """Return the JSON object in a `data:` URI; empty for anything else."""
    try:
        return (object_or_none(read_data_uri(uri, METADATA_BYTES).content) or {}) if is_data_uri(uri) else {}
    except BadSubmission:
        return {}


def agent_name(agent_uri: str) -> str:
    """Return the name in an agent card inside a `data:` URI; empty for other URIs, which are not fetched."""
    return escaped(_text(inline_metadata(agent_uri).get("name"), _NAME_CHARS)).strip()


def _text(value: object, limit: int) -> str:
    """Cut a text to `limit` characters, and replace lone surrogates, which JSON allows."""
    return value[:limit].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
