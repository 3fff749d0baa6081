"""`status`: how far the evaluation of a challenge has come."""

from __future__ import annotations

import asyncio

from rich.text import Text

from clara_eval.actions.status import evaluation_status
from clara_eval.actions.times import show_moment
from clara_eval.challenges.status import MEANINGS
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.documents.results import EvalStatus, Scores, read
from clara_eval.documents.store_keys import scores_key
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json, fail
from clara_eval.interfaces.cli.result import print_next, print_result, stage_words
from clara_eval.interfaces.cli.screen import console, print_labelled
from clara_eval.store.open import existing_store


def status(address: AddressArgument, *, json: JsonFlag = False) -> None:
    """Show how far the evaluation of a challenge has come."""
    target = to_address(address)
    document, scores = asyncio.run(_status(Settings.from_env(), target))
    if document is None:
        fail(
            f"No evaluation of {target} is known in this store. `clara-eval evaluate {target}` starts one.",
            code=1,
            as_json=json,
        )
    if json:
        emit_json({"challenge": target, **document.model_dump()})
    else:
        _tell(target, document, scores)


def _tell(target: Address, document: EvalStatus, scores: Scores | None) -> None:
    screen = console(stderr=False)
    screen.print(Text.assemble((target, "bold"), f"  {document.status}  {document.progress} %"))
    screen.print(Text(MEANINGS[document.status]))
    if document.warning:
        print_labelled("Warning", document.warning)
    if document.stage is not None:
        print_labelled("Stage", stage_words(document.stage))
    if document.retryAt:
        print_labelled("Again at", show_moment(document.retryAt))
    if document.reason and document.reason != MEANINGS[document.status]:
        print_labelled("Reason", document.reason[:1000])
    if scores is not None and scores.rankings:
        screen.print()
        print_result(scores)
    print_next(_NEXT.get(document.status, "challenge watch {}").format(target).split("|"))


_NEXT = {
    "complete": "verify {0}|leaderboard {0}",
    "review": "review show {0}",
    "failed": "evaluate {0}",
    "deferred": "spend",
    "unscorable": "challenge show {0}",
}


async def _status(settings: Settings, target: Address) -> tuple[EvalStatus | None, Scores | None]:
    async with existing_store(settings.database_url) as store:
        if store is None:
            return None, None
        chain_id = settings.network.chain_id
        found = await evaluation_status(store, chain_id, target)
        return found, await read(store, chain_id, Scores, scores_key(target))
