"""Judge entries without a chain, and rehearse a config; a second run pays only for what is new."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from clara_eval.actions.folder import Judged, JudgedEntry, build_result, write_atomically, write_results
from clara_eval.actions.quote import ScheduleQuote, Size, missing_model, quote_config
from clara_eval.app import open_fetch, open_machine, plan_of
from clara_eval.challenges.model_pool import ModelPool
from clara_eval.challenges.status import StatusWriter
from clara_eval.config.eval_config import TYPES_WITH, EvalConfig, FeatureSchema, compile_schema, parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput
from clara_eval.documents.results import EvalStatus
from clara_eval.evaluation.folder import FolderFetch, FolderVenue, NamedContent, account_of
from clara_eval.evaluation.run import evaluate_round
from clara_eval.judge.comparison import describe
from clara_eval.judge.port import ConnectedLlm
from clara_eval.judge.provider import models_of, parse_jury
from clara_eval.judge.providers.callable import CallableLlm, JudgeFunction
from clara_eval.ranking.results import checked_payout
from clara_eval.store.open import opened_store
from clara_eval.store.trace_archive import drafted

__all__ = ["JudgeFunction", "Judged", "JudgedEntry"]
DEFAULT_WINNERS = 3
MAX_MODEL_SECONDS = 12 * 3600.0  # for the models in one run: a night; answers are kept for the next run


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    contents: Sequence[NamedContent]
    config: bytes  # the eval config as it is written
    judges: str = ""  # as in CLARA_JUDGES; empty: those of the settings
    winners: int | None = None  # None: three, or all but one of fewer entries
    max_usd: float | None = None  # None: CLARA_BUDGET_PER_CHALLENGE_USD
    title: str = ""
    llms: Mapping[str, ConnectedLlm] | None = None  # the caller's own models, by their names in `judges`
    problem: str = ""  # the task, in the poster's words
    is_rehearsal: bool = False  # allows any number of entries, and no model if tools measure a feature


def named_judges(judges: Sequence[str | JudgeFunction]) -> tuple[str, dict[str, ConnectedLlm]]:
    """Return the judges as in CLARA_JUDGES, and the functions among them by name."""
    names = [
        judge if isinstance(judge, str) else f"callable:{getattr(judge, '__name__', 'judge').strip('<>')}"
        for judge in judges
    ]
    llms: dict[str, ConnectedLlm] = {
        name: CallableLlm(name, judge) for name, judge in zip(names, judges, strict=True) if not isinstance(judge, str)
    }
    return ",".join(name for name in names if name), llms


def quote_judging(request: JudgeRequest, settings: Settings) -> ScheduleQuote:
    """Estimate the cost of judging; no model is asked and nothing is written."""
    config, settings = _check_request(request, settings)
    usual = sum(len(one.content) for one in request.contents) // len(request.contents)
    size = Size(len(request.contents), 0, max(1, usual))
    return quote_config(config, settings, judges="", size=size, schedule="auto")


async def judge_entries(
    request: JudgeRequest, settings: Settings, out: Path, progress: Callable[[EvalStatus], None] | None = None
) -> Judged:
    """Judge all entries; write trace, scores and leaderboards to `out`. A second call resumes."""
    config, settings = _check_request(request, settings)
    count = len(request.contents)
    winners = min(DEFAULT_WINNERS, count - 1) if request.winners is None else request.winners
    if not 0 < winners <= count and not request.is_rehearsal:
        raise BadInput(
            f"{winners} winners of {count} entries cannot be.", path="winners", remedy=f"Choose 1 to {count}."
        )
    payout = checked_payout(max(1, winners), None)
    venue = FolderVenue.of(request.contents, request.config, payout, request.title, request.problem)
    with _lock_folder(out):
        async with opened_store(f"sqlite:///{out / 'judge.db'}") as store, AsyncExitStack() as stack:
            pool = ModelPool(settings, store, _llms=dict(request.llms or {}))
            stack.push_async_callback(pool.close)
            status = StatusWriter(store, 0, venue.given.name, listener=progress)
            plan = pool.affordable(venue, config, plan_of(settings))
            async with pool.open_run(venue, config, plan, MAX_MODEL_SECONDS) as models:
                status.meter = models.meter
                status.note(estimateUsd=models.estimate_usd)
                with closing(open_machine(settings)) as machine:
                    fetch = FolderFetch({one.uri: one for one in request.contents}, open_fetch(settings))
                    sources = venue.sources(fetch, store, models, machine)
                    result = await evaluate_round(venue.given, plan, sources, status)
                await status.say("complete", 100)
                cost = models.meter()[1]
            with drafted(venue.trace(plan, result)) as draft:
                write_atomically(out / "trace.json", draft.pieces())
                digest = draft.digest
    found = build_result(venue, result, digest, cost)
    write_results(found, out, request.title)
    return found


def _check_request(request: JudgeRequest, settings: Settings) -> tuple[EvalConfig, Settings]:
    """Return the config, and the settings with the overrides of the request."""
    config = parse_eval_config(request.config)
    changes: dict[str, object] = {"budget_per_poster_day_usd": None, "budget_per_month_usd": None}
    if request.judges:
        changes["judges_as_set"] = request.judges
    if request.max_usd is not None:
        changes["budget_per_challenge_usd"] = request.max_usd
    settings = settings.model_copy(update=changes)
    parse_jury(settings.judges)
    if config.harness is not None and config.harness.hidden:
        raise BadInput(
            "The config has a hidden harness, which only a challenge on chain commits to.",
            path="$.harness",
            remedy="Name its file with --harness.",
        )
    is_measured = request.is_rehearsal and any(one.source == "measured" for one in compile_schema(config)[0].judged)
    if missing_model(config, settings.judges) and request.contents and not is_measured:
        raise BadInput(
            "The config asks for what only a language model can tell, and no judge is one.",
            path="judges",
            value=settings.judges,
            remedy="Name a model with --judges, or use features with source measured and a direction.",
        )
    return config, settings


@contextmanager
def _lock_folder(out: Path) -> Iterator[None]:
    """Lock the folder, because two runs at once would pay twice; the lock ends with the process."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / "judge.lock").open("w")
    except OSError as bad:
        raise BadInput(
            f"The folder {str(out)!r} cannot be written: {bad.strerror or bad}.", remedy="Choose another with --out."
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(
                f"Another process judges into {str(out)!r} now.", remedy="Wait for it, or choose another --out."
            ) from None
        yield


@dataclass(frozen=True, slots=True)
class Rehearsal:
    judged: Judged
    document: dict[str, object]  # what `--json` prints
    descriptions: list[str]  # each feature as described to the judge
    typed_config: str  # the poster's document with every feature typed; it compiles to this schema


async def rehearse(config: EvalConfig, request: JudgeRequest, settings: Settings) -> Rehearsal:
    """Judge the samples of a request and keep nothing; its config may reveal what `config` hides."""
    judges = request.judges or settings.judges
    with TemporaryDirectory(prefix="clara-rehearsal-") as folder:
        found = await judge_entries(replace(request, is_rehearsal=True), settings, Path(folder))
    result, warnings = found.result, missing_model(config, judges)
    typed_by = {name: models_of(parse_jury(judges))[0].text for name in result.typed_by_model}
    is_ranked = len(request.contents) > 1 and not warnings
    runs, readings = result.execution.executed if result.execution else {}, []
    for file in (one.id for one in request.contents):
        facts, run = result.features.get(account_of(file)), runs.get(account_of(file))
        readings.append(
            {
                "file": file,
                "facts": facts.vector.as_dict() if facts else {},
                "texts": dict(facts.text) if facts else {},
                "flags": [flag.sentence for flag in facts.flags] if facts else [],
                "tests": [call.to_json() for call in run.calls if call.kind != "setUp"] if run else [],
                "said": [*([run.detail] if run.detail else []), *run.logs] if run else [],
            }
        )
    document = {
        **result.schema.to_json(),
        "typedBy": typed_by,
        "readings": readings,
        "ranking": [asdict(row) for row in found.ranking if is_ranked],
        "warnings": warnings,
    }
    described = {one.name: describe(one) for one in result.schema.features}
    lines = [text + (f"  (typed by {typed_by[name]})" if name in typed_by else "") for name, text in described.items()]
    return Rehearsal(found, document, lines, typed_config(config, result.schema))


def typed_config(config: EvalConfig, schema: FeatureSchema) -> str:
    document = json.loads(config.canonical)
    document["features"] = [
        {
            key: value
            for key, value in feature.to_json().items()
            if feature.type in TYPES_WITH.get(key, (feature.type,)) and value is not None and value != []
        }
        for feature in schema.features
    ]
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    compiled, untyped = compile_schema(parse_eval_config(text.encode()))
    if compiled != schema or untyped:
        raise BadInput("The typed config does not read back as the same schema.", remedy="Type the features by hand.")
    return text
