"""Show the result of judging a folder: its trace is checked, and becomes the documents that the pages read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from clara_eval.actions.published import ResultReader
from clara_eval.challenges.public_documents import leaderboard_rows, public_keys, result_document
from clara_eval.core.address import ZERO_ADDRESS
from clara_eval.core.errors import NotFound
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import EvalStatus, Summary, Token
from clara_eval.documents.store_keys import index_key, scores_key, status_key
from clara_eval.evaluation.folder import CheckedFolder, check_folder
from clara_eval.evaluation.trace.document import TraceFile
from clara_eval.store.open import opened_store
from clara_eval.store.trace_archive import save_trace

NO_CHAIN = 0
"""The chain's id in documents about a folder."""


@asynccontextmanager
async def viewed_folder(folder: Path) -> AsyncIterator[tuple[ResultReader, CheckedFolder]]:
    """Check the trace in a folder of results, and read it as the pages do; nothing is written into the folder."""
    try:
        lines = TraceFile.at(folder / "trace.json")
    except OSError as bad:
        raise NotFound(
            f"{str(folder)!r} holds no trace.json: {bad.strerror}.",
            remedy="Name the --out folder of `clara-eval judge`.",
        ) from None
    with lines, TemporaryDirectory(prefix="clara-view-") as place:
        checked = await check_folder(lines)
        async with opened_store(f"sqlite:///{place}/view.db") as store:
            name = checked.venue.given.name
            await save_trace(store, NO_CHAIN, name, lines, checked.digest)
            await store.put_many(NO_CHAIN, _documents(checked))
            yield ResultReader(store, NO_CHAIN, "after_post"), checked


def _documents(checked: CheckedFolder) -> list[tuple[str, str]]:
    venue, result = checked.venue, checked.result
    name, count = venue.given.name, venue.folder.winner_count
    winners = {one.account: "1" for one in result.placed[:count]}
    summary = Summary(
        address=name,
        chainId=NO_CHAIN,
        title=venue.given.metadata.title,
        problemStatement="",
        poster=ZERO_ADDRESS,
        evaluator=ZERO_ADDRESS,
        token=Token(address=ZERO_ADDRESS, symbol="", decimals=0, isKnown=True),
        prizePool=str(count),
        winnerCount=count,
        payoutBps=list(venue.folder.payout_bps),
        deadline=0,
        scoringDeadline=0,
        submissionCount=venue.submission_count,
        chainStatus="finalized",
        postedBy=None,
        block=0,
    )
    scores = result_document(result, checked.digest, leaderboard_rows(result, winners, {})) | {"postedBy": "evaluator"}
    status = EvalStatus(status="complete", progress=100)
    return [
        (index_key(name), summary.model_dump_json()),
        (scores_key(name), plain_json(scores)),
        (status_key(name), status.model_dump_json()),
        *public_keys(name, 0, result),
    ]
