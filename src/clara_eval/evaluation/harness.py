"""Which harness a round runs: the public one, the hidden one that was revealed, or none.

A hidden harness is committed by `privateSetHash` and handed in by the poster after the deadline. `pinned_reveal` takes
it out of the store once and journals it, or waits for it during a part of the scoring window; `choose_harness` is pure,
so that a verifier comes to the same choice. What is revealed must hash to the commitment: nothing else is ever run.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Literal

from clara_eval.chain.model import Challenge
from clara_eval.config.eval_config import EvalConfig, HarnessSpec
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadInput, CannotPublish, NotYet
from clara_eval.core.hashing import keccak_hex
from clara_eval.documents.store_keys import harness_key
from clara_eval.evaluation.trace.journal import Journal
from clara_eval.harness import Harness, HarnessDocument, read_harness_document
from clara_eval.store.ports import PublicKeys

REVEAL_SHARE = 0.25
"""Of the scoring window: how long a round waits for a hidden harness."""


WITHHELD = "The poster committed to a hidden harness and did not reveal it in time."


@dataclass(frozen=True, slots=True)
class Reveal:
    """What the poster handed in, as base64 of the exact bytes; None where nothing came in time."""

    content: str | None

    @property
    def is_withheld(self) -> bool:
        return self.content is None


@dataclass(frozen=True, slots=True)
class ChosenHarness:
    kind: Literal["public", "revealed", "none"]
    harness: Harness | None
    reason: str
    reveal: Reveal | None = None


REVEAL = JsonCodec(Reveal)


def reveal_until(challenge: Challenge) -> int:
    """The moment after which a round goes on without the hidden harness."""
    return challenge.deadline + int((challenge.scoring_deadline - challenge.deadline) * REVEAL_SHARE)


def revealed_document(content: bytes, challenge: Challenge, spec: HarnessSpec) -> HarnessDocument:
    """The document in these bytes, if it is the committed one; raises BadInput with the reason."""
    document = read_harness_document(content)
    if document.private_set_hash != challenge.private_set_hash.lower():
        raise BadInput(
            f"This harness hashes to {document.private_set_hash}; the challenge committed to "
            f"{challenge.private_set_hash.lower()}.",
            remedy="Reveal exactly the document that was hashed, with its salt.",
        )
    if document.harness.language != spec.language:
        raise BadInput(f"The harness is in {document.harness.language}, the config says {spec.language}.")
    return document


def seed_of(challenge: Challenge) -> str:
    """What the inputs of a harness may be drawn from: no submitter knows it before the deadline, everybody after it."""
    return keccak_hex(f"clara-eval harness seed {challenge.address.lower()} {challenge.block.hash.lower()}".encode())


async def pinned_reveal(
    journal: Journal, keys: PublicKeys, challenge: Challenge, config: EvalConfig, now: int
) -> Reveal | None:
    """What was revealed, decided once; None where nothing is hidden. Raises NotYet while there is time to wait."""
    spec = config.harness
    if spec is None or not spec.hidden:
        return None

    async def decide() -> Reveal:
        text = await keys.get(challenge.chain_id, harness_key(challenge.address))
        if text is not None:
            revealed_document(text.encode(), challenge, spec)
            return Reveal(base64.b64encode(text.encode()).decode())
        until = reveal_until(challenge)
        if now < until:
            raise NotYet(
                f"The hidden harness of {challenge.address} is not revealed yet; the round waits for it until {until}.",
                remedy="The poster reveals it with `clara-eval harness reveal`.",
            )
        return Reveal(None)

    return await journal.once("reveal", REVEAL, decide)


def choose_harness(challenge: Challenge, config: EvalConfig, reveal: Reveal | None) -> ChosenHarness | None:
    """The harness of this round; None where the config has none. Raises CannotPublish where the config says so."""
    spec = config.harness
    if spec is None:
        return None
    seed = seed_of(challenge)
    public = Harness(spec.language, spec.source, seed) if spec.source is not None else None
    if not spec.hidden:
        return ChosenHarness("public", public, "The config holds the harness.")
    if reveal is not None and reveal.content is not None:
        document = revealed_document(base64.b64decode(reveal.content), challenge, spec)
        harness = replace(document.harness, seed=seed)
        return ChosenHarness("revealed", harness, "The poster revealed the hidden harness.", reveal)
    if spec.if_not_revealed == "fail":
        raise CannotPublish(
            f"The hidden harness of {challenge.address} was not revealed in time, and the config says: fail.",
            remedy="The poster may post scores; after scoringDeadline anybody may call expire().",
        )
    reason = "The hidden harness was not revealed in time."
    return ChosenHarness("public" if public else "none", public, reason, reveal or Reveal(None))
