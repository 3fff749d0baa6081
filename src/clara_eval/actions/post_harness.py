"""Check the harness of a posting: committed if hidden, and passed by its reference."""

from __future__ import annotations

import asyncio
from contextlib import closing

from clara_eval.actions.check_harness import check_harness
from clara_eval.actions.terms import NO_HASH, Posting
from clara_eval.app import Caller, open_machine
from clara_eval.config.eval_config import EvalConfig
from clara_eval.core.errors import BadInput
from clara_eval.harness import Harness, MissingEngine

REFERENCE = "$.harness.reference"
FREE_OPTION = (
    "A hidden harness is the poster's free option: you can withhold it after you have seen the submissions, and then "
    "{instead}. Agents know that, and may stay away; a harness that is withheld is a flag that everybody sees."
)
_INSTEAD = {
    "public": "the public harness counts, or none where the config has none",
    "fail": "nobody is ranked and expire() splits the prize",
}


async def checked_harness(caller: Caller, posting: Posting, config: EvalConfig | None) -> tuple[str, ...]:
    spec = config.harness if config else None
    is_committed = posting.private_set_hash.lower() != NO_HASH
    if spec is None:
        return ()
    if spec.hidden and not is_committed:
        raise BadInput(
            "The harness is hidden, but nothing commits to it.",
            path="privateSetHash",
            remedy="Give what `clara-eval harness hash` prints, and keep the document that it makes.",
        )
    if is_committed and not spec.hidden:
        raise BadInput(
            "A private set hash is given, but the config has no hidden harness.",
            path="privateSetHash",
            remedy='Say "hidden": true in the harness of the config, or leave the hash out.',
        )
    option = (FREE_OPTION.format(instead=_INSTEAD[spec.if_not_revealed]),) if spec.hidden else ()
    if spec.source is None or spec.reference is None:
        return option
    return (*option, *await _with_reference(caller, Harness(spec.language, spec.source), spec.reference))


async def _with_reference(caller: Caller, harness: Harness, reference: str) -> tuple[str, ...]:
    if not caller.is_local:
        return (
            "The harness was not run on its reference: only your own machine does that (clara-eval harness check).",
        )
    try:
        with closing(open_machine(caller.settings)) as machine:
            found = await asyncio.to_thread(check_harness, machine, harness, reference)
    except MissingEngine as missing:
        return (f"The harness was not run on its reference. {missing}",)
    if found.problems:
        raise BadInput(" ".join(found.problems), path=REFERENCE, remedy="Mend the harness or the reference, then post.")
    return found.warnings
