"""Reviews and objections before a post: what a reviewer decides and submitters object to."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from clara_eval.chain.model import Challenge
from clara_eval.core.address import Address, normal_signature, signer_of
from clara_eval.core.codec import JsonCodec, read_stored, to_camel_json
from clara_eval.core.errors import BadInput, BadTrace, NotFound
from clara_eval.core.hashing import plain_json
from clara_eval.documents.rest import DraftPlaceRecord
from clara_eval.documents.results import MEANINGS, ReviewState, RuledStage
from clara_eval.documents.store_keys import REVIEWS, draft_key, review_key
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.round import SPARE_SHARE, Ruling, Window
from clara_eval.evaluation.trace import Approval, Journal
from clara_eval.judge.reading import shown
from clara_eval.store.sql_store import PublicKeys

OPERATOR = "operator"
NOTE_CHARS = 500
NAME_CHARS = 80
ABOUT = re.compile(r"rejected|copy|feature:[a-z][a-z0-9_]{0,39}|game:0x[0-9a-f]{40}")
ABOUT_WORDS = "rejected, copy, feature:NAME or game:ADDRESS"
MAX_REASON = 1_000
DISPUTED = "disputed"
_STAGES: dict[str, RuledStage] = {"feature": "reading", "game": "comparing"}


@dataclass(frozen=True, slots=True)
class Review:
    address: str
    digest: str
    state: ReviewState
    reasons: tuple[str, ...]
    requested_at: int
    decided_at: int | None = None
    note: str = ""
    by: str = ""  # The name that the reviewer gave
    posts_at: int | None = None  # When the default is posted, in chain time; None if it needs a person
    default: str = ""  # What is posted then, as text
    scoring_deadline: int | None = None

    @property
    def unless_decided(self) -> str:
        if self.posts_at is None:
            return "Nothing is posted unless you approve it."
        return f"Unless you decide before {format_utc(self.posts_at)}, {self.default}."

    @property
    def waits_for(self) -> str:
        if self.posts_at is None:
            return MEANINGS["review"]
        return f"A person may look at the result until {format_utc(self.posts_at)}; then it is posted by itself."

    @property
    def approvals(self) -> list[Approval]:
        if self.state != "approved":
            return []
        return [Approval(self.digest, self.decided_at or self.requested_at, self.by or OPERATOR, self.note)]

    def to_json(self) -> dict[str, object]:
        fields = to_camel_json(self)
        return {"traceDigest": fields.pop("digest"), **fields}


def format_utc(at: int) -> str:
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
    keys: PublicKeys, chain_id: int, address: str, state: ReviewState, *, note: str, digest: str | None, by: str
) -> Review:
    """Approve or reject the waiting result; with a digest, only if it is that result's."""
    review = check_waiting(await known_review(keys, chain_id, address), digest)
    decided = replace(review, state=state, note=note[:NOTE_CHARS], by=published_name(by), decided_at=int(time.time()))
    return await save_review(keys, chain_id, decided)


def published_name(name: str) -> str:
    """Return a name as it is published: one short line without characters that hide or reverse text."""
    return shown(name, NAME_CHARS)


def check_waiting(review: Review, digest: str | None) -> Review:
    """Return the review; BadInput if it is decided, or if `digest` is not that of its result."""
    if review.state != "waiting":
        raise BadInput(f"The review of {review.address} is already {review.state}.")
    if digest is not None and digest.lower() != review.digest:
        text = f"The result that waits is {review.digest}, not {digest[:80]}."
        raise BadInput(text, path="traceDigest", remedy="It changed since you looked: look at the trace again.")
    return review


async def save_review(keys: PublicKeys, chain_id: int, review: Review) -> Review:
    pairs = [(review_key(review.address), plain_json(asdict(review))), (REVIEWS + review.address, review.state)]
    await keys.put_many(chain_id, pairs)
    return review


@dataclass(frozen=True, slots=True)
class Objection:
    submitter: Address
    about: str
    reason: str
    signature: str

    @property
    def stage(self) -> RuledStage | None:
        """The stage that another judge would repeat; None if only a person can decide."""
        return _STAGES.get(self.about.partition(":")[0])


@dataclass(frozen=True, slots=True)
class AnnouncedDraft:
    """An announced result, and until when submitters may object, in chain time."""

    digest: str
    announced_at: int
    until: int
    places: tuple[DraftPlaceRecord, ...]
    margin: str  # How certain the last paid place is, as text


@dataclass(frozen=True, slots=True)
class Disputed:
    """The draft, the objections to it, and the judge that repeats the disputed steps."""

    of: str
    at: int
    places: tuple[DraftPlaceRecord, ...]
    raised: tuple[Objection, ...]
    judge: str | None = None  # None if a person decides, or the draft stays because the judge was late

    @property
    def needs_person(self) -> bool:
        return self.judge is None or any(one.stage is None for one in self.raised)

    def changes_nothing(self, result: EvaluationResult) -> bool:
        return self.places == places_of(result)


DRAFT_FORM = JsonCodec(AnnouncedDraft)
OBJECTION_FORM = JsonCodec(Objection)
DISPUTED_FORM = JsonCodec(Disputed)


def objection_message(chain_id: int, address: str, digest: str, about: str, reason: str) -> str:
    """Return the text that a submitter signs (EIP-191), valid for this draft only."""
    return (
        f"Clara Eval: object to a draft result\nchain: {chain_id}\nchallenge: {address}\ntraceDigest: {digest}\n"
        f"about: {about}\nreason: {reason}"
    )


async def announced(keys: PublicKeys, chain_id: int, address: str, digest: str) -> AnnouncedDraft | None:
    if (text := await keys.get(chain_id, draft_key(address))) is None:
        return None
    draft = DRAFT_FORM.read_text(text)
    return draft if draft.digest == digest else None


async def announce(
    keys: PublicKeys, window: Window, challenge: Challenge, digest: str, result: EvaluationResult | None, seconds: int
) -> AnnouncedDraft:
    """Announce this result at `window.chain_now`, unless it is announced already."""
    draft = await announced(keys, challenge.chain_id, challenge.address, digest)
    if draft is None:
        assert result is not None, "a result from the archive was announced before"
        now, margin = window.chain_now, result.ranking.margin.sentence if result.ranking else ""
        until = min(now + seconds, window.moment_left(SPARE_SHARE))
        draft = AnnouncedDraft(digest, now, until, places_of(result), margin)
        await keys.put(challenge.chain_id, draft_key(challenge.address), DRAFT_FORM.text(draft))
    return draft


def places_of(result: EvaluationResult) -> tuple[DraftPlaceRecord, ...]:
    ranked = {row.item for row in result.ranking.standings} if result.ranking else set()
    return tuple(
        DraftPlaceRecord(one.account, rank, one.score, "ranked" if one.account in ranked else "rejected")
        for rank, one in enumerate(result.placed, start=1)
    )


def raised_key(digest: str, submitter: str = "") -> str:
    return f"objection/{digest}/{submitter}"


async def read_objections(journal: Journal, digest: str) -> tuple[Objection, ...]:
    return await journal.all(raised_key(digest), OBJECTION_FORM)


async def read_disputed(journal: Journal) -> Disputed | None:
    return await journal.saved(DISPUTED, DISPUTED_FORM)


async def reopen(disputed: Disputed, journal: Journal) -> None:
    """Drop what ended the run and record the dispute, so that the round is run again."""
    await journal.drop("digest", "unanswered", DISPUTED)
    await journal.keep(DISPUTED, DISPUTED_FORM, disputed)


def rulings_of(disputed: Disputed | None) -> tuple[Ruling, ...]:
    if disputed is None or disputed.judge is None:
        return ()
    return tuple(
        Ruling("judge", disputed.of, disputed.at, None, disputed.judge, stage, "A submitter objected to the draft.")
        for stage in sorted({one.stage for one in disputed.raised if one.stage is not None})
    )


def check_recorded(body: object, challenge: Challenge, rulings: Sequence[Ruling]) -> Disputed | None:
    """Read the objections in a trace; BadTrace if one is not signed or its ruling is missing."""
    if body is None:
        return None
    disputed = DISPUTED_FORM.read(body)
    submitters = {one.submitter for one in challenge.submissions}
    if not disputed.raised or any(a.submitter >= b.submitter for a, b in pairwise(disputed.raised)):
        text = "Nobody objected, or the objections are not in order of submitter, each once."
        raise BadTrace(text, entry="objections")
    for one in disputed.raised:
        text = objection_message(challenge.chain_id, challenge.address, disputed.of, one.about, one.reason)
        is_signed = one.signature == normal_signature(one.signature) and signer_of(text, one.signature) == one.submitter
        if one.submitter not in submitters or not is_signed:
            raise BadTrace(f"The objection of {one.submitter} is not signed by that submitter.", entry="objections")
    if not set(rulings_of(disputed)) <= set(rulings):
        raise BadTrace("The disputed steps were not repeated as recorded.", entry="objections")
    return disputed
