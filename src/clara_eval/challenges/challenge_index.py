"""The index: what is known about every challenge, kept in the store for the doors to read.

Comes in: a challenge as read from the chain. Goes out: one JSON summary a challenge under `challenge-index:{address}`,
beside the specification's keys. Doors read the index and never wait for a node. A title is a stranger's text: it is
cut, and whoever shows it escapes it.
"""

from __future__ import annotations

import json
from typing import Any

from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.core.address import Address
from clara_eval.core.errors import BadSubmission
from clara_eval.documents.results import ChainStatus, Summary, Token, Values
from clara_eval.documents.store_keys import INDEX, index_key
from clara_eval.store.ports import PublicKeys
from clara_eval.submissions.data_uri import is_data_uri, read_data_uri

_MOST_TITLE = 200
_MOST_STATEMENT = 4000
_MOST_SKILL = 40
MAX_SKILLS = 10
METADATA_BYTES = 1_048_576
STATUS: dict[ChallengeStatus, ChainStatus] = {
    ChallengeStatus.OPEN: "open",
    ChallengeStatus.SCORING: "scoring",
    ChallengeStatus.FINALIZED: "finalized",
    ChallengeStatus.CANCELLED: "cancelled",
    ChallengeStatus.EXPIRED: "expired",
}


def summary_of(challenge: Challenge, posted_by: str | None) -> Summary:
    """What the list and the pages show; amounts are strings, because they pass 2^53."""
    title, statement, skills = _words(challenge.challenge_uri)
    token = challenge.token
    return Summary(
        address=challenge.address,
        chainId=challenge.chain_id,
        title=title,
        problemStatement=statement,
        skills=skills,
        poster=challenge.poster,
        evaluator=challenge.evaluator,
        token=Token(address=token.address, symbol=token.symbol[:20], decimals=token.decimals, isKnown=token.is_known),
        prizePool=str(challenge.prize_pool),
        winnerCount=challenge.winner_count,
        payoutBps=list(challenge.payout_bps),
        deadline=challenge.deadline,
        scoringDeadline=challenge.scoring_deadline,
        submissionCount=challenge.submission_count,
        chainStatus=STATUS[challenge.status],
        scorePostedAt=challenge.score_posted_at or None,
        postedBy=posted_by,
        block=challenge.block.number,
    )


async def save_summary(keys: PublicKeys, challenge: Challenge, posted_by: str | None) -> None:
    text = summary_of(challenge, posted_by).model_dump_json()
    await keys.put(challenge.chain_id, index_key(challenge.address), text)


async def read_document(keys: Values, chain_id: int, key: str) -> dict[str, Any] | None:
    """The JSON object under a key, or None."""
    text = await keys.get(chain_id, key)
    if text is None:
        return None
    found: dict[str, object] = json.loads(text)
    return found


async def summaries(keys: PublicKeys, chain_id: int) -> dict[Address, Summary]:
    """Everything in the index, by address."""
    rows = await keys.items(chain_id, INDEX)
    return {Address(key.removeprefix(INDEX)): Summary.model_validate_json(value) for key, value in rows}


def _words(challenge_uri: str) -> tuple[str, str, list[str]]:
    """Title, problem and skills of metadata that stands in the URI itself; nothing is fetched for a list."""
    document = inline_metadata(challenge_uri)
    title, statement = document.get("title"), document.get("problemStatement")
    skills = [_text(skill, _MOST_SKILL) for skill in skills_in(document)]
    return _text(title, _MOST_TITLE), _text(statement, _MOST_STATEMENT), skills


def skills_in(words: dict[str, object]) -> list[str]:
    """The skills that a poster named, as far as they are words."""
    listed = words.get("skills")
    return [item for item in listed if isinstance(item, str)][:MAX_SKILLS] if isinstance(listed, list) else []


def inline_metadata(challenge_uri: str) -> dict[str, object]:
    """What a `data:` URI holds; empty for every other URI and for what is not a JSON object."""
    if not is_data_uri(challenge_uri):
        return {}
    try:
        return json_object(read_data_uri(challenge_uri, METADATA_BYTES).content)
    except BadSubmission:
        return {}


def json_object(content: bytes) -> dict[str, object]:
    """The JSON object that these bytes are; empty for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object, limit: int) -> str:
    """A text that any answer can carry: half of a surrogate pair, which JSON allows, cannot be encoded."""
    return value[:limit].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
