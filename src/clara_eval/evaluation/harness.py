"""Which harness a round runs: the public one, the hidden one that was revealed, or none."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Literal

from clara_eval.config.eval_config import HarnessSpec
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadInput, CannotPublish
from clara_eval.core.hashing import keccak_hex
from clara_eval.evaluation.round import Round
from clara_eval.harness import Harness, HarnessDocument, read_harness_document

WITHHELD = "The poster committed to a hidden harness and did not reveal it in time."


@dataclass(frozen=True, slots=True)
class Reveal:
    """What the poster handed in, as base64 of the exact bytes; None if nothing came in time."""

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


def revealed_document(content: bytes, private_set_hash: str, spec: HarnessSpec) -> HarnessDocument:
    """Read the document in these bytes; BadInput if it is not the committed one."""
    document = read_harness_document(content)
    if document.private_set_hash != private_set_hash.lower():
        raise BadInput(
            f"This harness hashes to {document.private_set_hash}; the challenge committed to "
            f"{private_set_hash.lower()}.",
            remedy="Reveal exactly the document that was hashed, with its salt.",
        )
    if document.harness.language != spec.language:
        raise BadInput(f"The harness is in {document.harness.language}, the config says {spec.language}.")
    return document


def seed_of(given: Round) -> str:
    """What the inputs of a harness may be drawn from: unknown before the deadline, public after it."""
    return keccak_hex(f"clara-eval harness seed {given.name.lower()} {given.beacon.lower()}".encode())


def choose_harness(given: Round, reveal: Reveal | None) -> ChosenHarness | None:
    """Choose the harness of this round; None if the config has none. Raises CannotPublish if the config says so."""
    spec = given.config.harness
    if spec is None:
        return None
    seed = seed_of(given)
    public = Harness(spec.language, spec.source, seed) if spec.source is not None else None
    if not spec.hidden:
        return ChosenHarness("public", public, "The config holds the harness.")
    if reveal is not None and reveal.content is not None:
        document = revealed_document(base64.b64decode(reveal.content), given.private_set_hash, spec)
        harness = replace(document.harness, seed=seed)
        return ChosenHarness("revealed", harness, "The poster revealed the hidden harness.", reveal)
    if spec.if_not_revealed == "fail":
        raise CannotPublish(
            f"The hidden harness of {given.name} was not revealed in time, and the config says: fail.",
            remedy="The poster may post scores; after scoringDeadline anybody may call expire().",
        )
    reason = "The hidden harness was not revealed in time."
    return ChosenHarness("public" if public else "none", public, reason, reveal or Reveal(None))
