"""Objections before the irreversible post: the announced draft, who disputes what in it, and what follows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from clara_eval.chain.model import Challenge
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.eip191 import normal_signature, signer_of
from clara_eval.core.errors import BadTrace
from clara_eval.documents.review import RuledStage
from clara_eval.evaluation.rulings import Ruling
from clara_eval.evaluation.scoring_window import LAST_SHARE, SPARE_SHARE
from clara_eval.store.ports import RunEntries

ABOUT = re.compile(r"rejected|copy|feature:[a-z][a-z0-9_]{0,39}|game:0x[0-9a-f]{40}")
ABOUT_WORDS = "rejected, copy, feature:NAME or game:ADDRESS"
MAX_REASON = 1_000
DISPUTED = "disputed"
_STAGES: dict[str, RuledStage] = {"feature": "reading", "game": "comparing"}


@dataclass(frozen=True, slots=True)
class Objection:
    submitter: Address
    about: str
    reason: str
    signature: str

    @property
    def stage(self) -> RuledStage | None:
        """What another judge would do again; None where only a person can tell."""
        return _STAGES.get(self.about.partition(":")[0])


@dataclass(frozen=True, slots=True)
class DraftPlace:
    address: Address
    rank: int
    score: int
    status: str


@dataclass(frozen=True, slots=True)
class AnnouncedDraft:
    """A result that is announced, and until when it may be objected to, by the chain's clock."""

    digest: str
    announced_at: int
    until: int
    places: tuple[DraftPlace, ...]
    margin: str
    """How sure the last paid place is, in words."""


@dataclass(frozen=True, slots=True)
class Disputed:
    """The draft as it was, who objected, and who does the disputed steps again."""

    of: str
    at: int
    places: tuple[DraftPlace, ...]
    raised: tuple[Objection, ...]
    judge: str | None = None
    """None: a person looks, or the draft stands because nobody did in time."""

    @property
    def needs_person(self) -> bool:
        return self.judge is None or any(one.stage is None for one in self.raised)


DRAFT_FORM = JsonCodec(AnnouncedDraft)
OBJECTION_FORM = JsonCodec(Objection)
DISPUTED_FORM = JsonCodec(Disputed)


def objection_message(chain_id: int, address: str, digest: str, about: str, reason: str) -> str:
    """What the submitter signs (EIP-191): of use for this draft and nothing else."""
    return (
        f"Clara Eval: object to a draft result\nchain: {chain_id}\nchallenge: {address}\ntraceDigest: {digest}\n"
        f"about: {about}\nreason: {reason}"
    )


def window_end(challenge: Challenge, announced_at: int, seconds: int) -> int:
    """The window as asked for, but never into the last quarter of the scoring window."""
    return min(announced_at + seconds, last_for(challenge, SPARE_SHARE))


def last_for(challenge: Challenge, share: float) -> int:
    return int(challenge.scoring_deadline - share * (challenge.scoring_deadline - challenge.deadline))


def must_post(challenge: Challenge, chain_now: int) -> bool:
    """From here on nobody is waited for because of an objection."""
    return chain_now >= last_for(challenge, LAST_SHARE)


def raised_key(digest: str, submitter: str = "") -> str:
    """Of an objection to this draft, in the journal: the first write counts."""
    return f"objection/{digest}/{submitter}"


async def raised(entries: RunEntries, run: str, digest: str) -> tuple[Objection, ...]:
    """Every objection to this draft, in order of submitter; those to a draft that was replaced are void."""
    return tuple(OBJECTION_FORM.read_text(text) for _, text in await entries.entries(run, raised_key(digest)))


async def read_disputed(entries: RunEntries, run: str) -> Disputed | None:
    saved = await entries.entry(run, DISPUTED)
    return DISPUTED_FORM.read_text(saved) if saved else None


def rulings_of(disputed: Disputed | None) -> tuple[Ruling, ...]:
    """Another judge for each stage that is disputed; the same from the journal and from a trace."""
    if disputed is None or disputed.judge is None:
        return ()
    stages = sorted({one.stage for one in disputed.raised if one.stage is not None})
    return tuple(
        Ruling("judge", disputed.of, disputed.at, None, disputed.judge, stage, "A submitter objected to the draft.")
        for stage in stages
    )


def checked(body: object, challenge: Challenge, rulings: Sequence[Ruling]) -> Disputed | None:
    """The objections of a trace, whose signatures and rulings have to be there; BadTrace where they are not."""
    if body is None:
        return None
    disputed = DISPUTED_FORM.read(body)
    submitters = {one.submitter for one in challenge.submissions}
    if not disputed.raised or any(a.submitter >= b.submitter for a, b in pairwise(disputed.raised)):
        raise BadTrace(
            "Nobody objected, or the objections are not in order of submitter, each once.", entry="objections"
        )
    for one in disputed.raised:
        said = objection_message(challenge.chain_id, challenge.address, disputed.of, one.about, one.reason)
        is_signed = one.signature == normal_signature(one.signature) and signer_of(said, one.signature) == one.submitter
        if one.submitter not in submitters or not is_signed:
            raise BadTrace(f"The objection of {one.submitter} is not signed by that submitter.", entry="objections")
    if not set(rulings_of(disputed)) <= set(rulings):
        raise BadTrace("What was objected to was not done again as the entry says.", entry="objections")
    return disputed
