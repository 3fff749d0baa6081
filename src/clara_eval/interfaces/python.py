"""Python functions with the names of the commands; they print nothing and raise `ClaraError`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, TypeVar

from clara_eval.config.eval_config import EvalConfig, parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address

if TYPE_CHECKING:
    from clara_eval.actions.evaluate import Evaluation
    from clara_eval.actions.judge import Judged, JudgeFunction
    from clara_eval.actions.perform import Action
    from clara_eval.actions.rank import Ranking
    from clara_eval.actions.submit import TryResult
    from clara_eval.actions.verify import Checked, CheckedFolder
    from clara_eval.app import Caller
    from clara_eval.documents.actions import ActResult, BrowseResult, ScoreResult
    from clara_eval.documents.results import ChainStatus

__all__ = ["EvalConfig", "Settings", "parse_eval_config"]
__all__ += ["challenge_claim", "challenge_list", "challenge_submit", "challenge_try"]
__all__ += ["evaluate", "judge", "rank", "score", "verify"]
T = TypeVar("T")
NAMES = {"claim": "challenge_claim", "trace": "`clara-eval trace {address}`"}


async def _call(settings: Settings | None, action: Callable[[Caller], Awaitable[T]]) -> T:
    from clara_eval.app import open_caller

    async with open_caller(settings or Settings.from_env()) as caller:
        return await action(caller)


async def _perform(settings: Settings | None, action: Action, *, send: bool) -> ActResult:
    from clara_eval.actions.perform import perform

    return await _call(settings, lambda caller: perform(caller, action, confirmed="yes" if send else "unasked"))


async def challenge_list(
    settings: Settings | None = None, *, status: ChainStatus | Literal["any"] = "open", skill: str = ""
) -> BrowseResult:
    """List challenges, newest first."""
    from clara_eval.actions.challenges import ChallengeFilter, browse

    return await _call(settings, lambda caller: browse(caller, ChallengeFilter(status=status, skill=skill)))


async def challenge_try(address: str, draft: str | Path, settings: Settings | None = None) -> TryResult:
    """Measure a draft (a text or a file's path) on this machine; nothing is sent."""
    from clara_eval.actions.submit import draft_text, try_draft

    content, file = ("", str(draft)) if isinstance(draft, Path) else (draft, "")
    return await _call(settings, lambda caller: try_draft(caller, address, draft_text(caller, content, file)))


async def challenge_submit(
    address: str,
    solution: str | Path,
    settings: Settings | None = None,
    *,
    sender: str = "",
    register: bool = False,
    send: bool = False,
) -> ActResult:
    """Submit a text, or a file or folder by its path; it is sent only with `send` and a wallet key."""
    from clara_eval.actions.submit import SubmissionInput, submit

    content, file = ("", str(solution)) if isinstance(solution, Path) else (solution, "")
    given = SubmissionInput(challenge=address, content=content, file=file, register=register)
    return await _perform(settings, submit(given, sender or None), send=send)


async def challenge_claim(
    address: str, settings: Settings | None = None, *, sender: str = "", send: bool = False
) -> ActResult:
    """Claim your prize, or your share of an expired challenge; without `send` return only the plan."""
    from clara_eval.actions.claim import claim

    return await _perform(settings, claim(address, sender or None), send=send)


async def score(address: str, submitter: str | None = None, settings: Settings | None = None) -> ScoreResult:
    """Explain the place of `submitter` (an address, its start or a place; by default your own wallet)."""
    from clara_eval.actions import results
    from clara_eval.interfaces import words

    return words.explain_score(await _call(settings, lambda caller: results.score(caller, address, submitter)), NAMES)


async def evaluate(address: str, settings: Settings | None = None, *, dry_run: bool = False) -> Evaluation:
    """Judge one challenge and post its winners; send nothing with `dry_run` or without an evaluator key.

    A second call continues the first and pays for nothing twice.
    """
    from clara_eval.actions.evaluate import EvaluationRequest
    from clara_eval.actions.evaluate import evaluate as evaluate_challenge
    from clara_eval.app import open_app

    target = to_address(address, what="challenge")
    async with open_app(settings or Settings.from_env()) as app:
        return await evaluate_challenge(app, target, EvaluationRequest(is_named=True, dry_run=dry_run))


async def judge(
    entries: Mapping[str, str | bytes] | str | Path,
    config: EvalConfig | str,
    *,
    judges: str | JudgeFunction | Sequence[str | JudgeFunction] = "",
    winners: int | None = None,
    max_usd: float | None = None,
    out: Path | None = None,
    settings: Settings | None = None,
) -> Judged:
    """Rank entries without a chain: contents by id, or the path of a folder, a JSON Lines or a CSV file.

    A judge is a name as in CLARA_JUDGES, or a function that answers a prompt with JSON. With `out` the results are
    written there, and a second call continues the first. A function's answers are cached by its name.
    """
    from clara_eval.actions.folder import entries_of, read_entries
    from clara_eval.actions.judge import JudgeRequest, judge_entries, named_judges

    found = entries_of(entries) if isinstance(entries, Mapping) else read_entries(str(entries))
    text = config.canonical if isinstance(config, EvalConfig) else config.encode()
    names, llms = named_judges([judges] if isinstance(judges, str) or callable(judges) else judges)
    request = JudgeRequest(found, text, names, winners, max_usd, llms=llms)
    with ExitStack() as stack:
        place = out or Path(stack.enter_context(TemporaryDirectory(prefix="clara-judge-")))
        return await judge_entries(request, settings or Settings.from_env(), place)


def rank(
    games: Iterable[tuple[str, str, str]], *, top: int | None = None, payout_bps: Sequence[int] | None = None
) -> Ranking:
    """Rank items from (left, right, winner) triples, with rating ranges and each item's chance of the top.

    The winner is left, right, tie or a name. `payout_bps` are shares of a prize in basis points, best first.
    """
    from clara_eval.actions.rank import rank_comparisons

    return rank_comparisons(games, top, payout_bps)


async def verify(trace: str | Path, settings: Settings | None = None) -> Checked | CheckedFolder:
    """Recompute a trace except for the models' answers; raise BadTrace, which names the wrong entry."""
    from clara_eval.actions.verify import verify_any

    return await verify_any(str(trace), settings or Settings.from_env())
