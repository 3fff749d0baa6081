"""A decision of a person about one result, tied to the digest of its trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from clara_eval.core.codec import read_stored, to_camel_json
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import ReviewState
from clara_eval.documents.store_keys import REVIEWS, review_key
from clara_eval.evaluation.trace.document import Approval
from clara_eval.judge.reading import shown
from clara_eval.store.sql_store import PublicKeys

OPERATOR = "operator"
NOTE_CHARS = 500
NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class Review:
    address: str
    digest: str
    state: ReviewState
    reasons: tuple[str, ...]
    requested_at: int
    decided_at: int | None = None
    note: str = ""
    by: str = ""
    """Who decided, as they called themselves."""
    posts_at: int | None = None
    """When the default is posted, by the chain's clock; None where only a person can have it posted."""
    default: str = ""
    """What is posted then, in words."""
    scoring_deadline: int | None = None

    @property
    def unless_decided(self) -> str:
        if self.posts_at is None:
            return "Nothing is posted unless you approve it."
        return f"Unless you decide before {moment_words(self.posts_at)}, {self.default}."

    @property
    def approvals(self) -> list[Approval]:
        if self.state != "approved":
            return []
        return [Approval(self.digest, self.decided_at or self.requested_at, self.by or OPERATOR, self.note)]

    def to_json(self) -> dict[str, object]:
        told = to_camel_json(self)
        return {"traceDigest": told.pop("digest"), **told}


def moment_words(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


async def read_review(keys: PublicKeys, chain_id: int, address: str) -> Review | None:
    text = await keys.get(chain_id, review_key(address))
    found = read_stored(Review, text) if text is not None else None
    return replace(found, reasons=tuple(found.reasons)) if found else None


async def known_review(keys: PublicKeys, chain_id: int, address: str) -> Review:
    review = await read_review(keys, chain_id, address)
    if review is None:
        raise NotFound(f"No review is known for {address}.", remedy="`clara-eval review list` shows those there are.")
    return review


async def list_reviews(keys: PublicKeys, chain_id: int) -> list[Review]:
    addresses = [key.removeprefix(REVIEWS) for key in await keys.keys(chain_id, REVIEWS)]
    found = filter(None, [await read_review(keys, chain_id, address) for address in addresses])
    return sorted(found, key=lambda review: (review.state != "waiting", review.requested_at, review.address))


async def decide(
    keys: PublicKeys,
    chain_id: int,
    address: str,
    state: ReviewState,
    *,
    note: str,
    now: int,
    digest: str | None = None,
    by: str = "",
) -> Review:
    """Approve or reject what is waiting; with a digest only if that is the result that waits."""
    review = check_waiting(await known_review(keys, chain_id, address), digest)
    decided = replace(review, state=state, note=note[:NOTE_CHARS], by=signature(by), decided_at=now)
    return await save_review(keys, chain_id, decided)


def signature(name: str) -> str:
    """A name as it is kept and published: one line, nothing that hides or turns text, not long."""
    return shown(name, NAME_CHARS)


def check_waiting(review: Review, digest: str | None) -> Review:
    """The review, if it waits and this is the result that was looked at."""
    if review.state != "waiting":
        raise BadInput(f"The review of {review.address} is already {review.state}.")
    if digest is not None and digest.lower() != review.digest:
        raise BadInput(
            f"The result that waits is {review.digest}, not {digest[:80]}.",
            path="traceDigest",
            remedy="It changed since you looked: look at the trace again.",
        )
    return review


async def save_review(keys: PublicKeys, chain_id: int, review: Review) -> Review:
    pairs = [(review_key(review.address), plain_json(asdict(review))), (REVIEWS + review.address, review.state)]
    await keys.put_many(chain_id, pairs)
    return review
