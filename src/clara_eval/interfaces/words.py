"""Sentences about actions and their results, with the action names of the interface that shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clara_eval.actions.amounts import show_moment, show_wait
from clara_eval.actions.objections import ObjectionResult
from clara_eval.actions.results import STATUS_MEANINGS
from clara_eval.actions.submit import TryResult
from clara_eval.core.errors import ClaraError
from clara_eval.documents import actions as documents
from clara_eval.documents.results import EvalStatus, RankedEntry, StageProgress, Value

Names = Mapping[str, str]  # an interface's names for actions and arguments; may contain `{address}`, the challenge
_LONG_NUMBER = re.compile(r"(?<![\w.,-])[1-9]\d{4,17}(?![\w,]|\.\d)")
_NAME = re.compile(r"(?<![\w./])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w(])")
SEE = {
    "browse": "{browse} lists the challenges there are.",
    "open_ones": "{browse} lists the open ones.",
    "status": "Follow {status}.",
    "claim": "Claim with {claim}.",
    "register": "Add {register} to register it first, or submit with the wallet that owns an agent.",
    "duplicate": "Look at it with {detail}; say {allow_duplicate} to post a second one.",
}
PHASES = {
    "cancelled": "The challenge was cancelled and the prize went back to the poster.",
    "expired": "No scores were posted in time: every submitter can claim an equal share with {claim}.",
    "final": "The result is final; winners can claim with {claim}.",
    "posted": "Scores are posted; prizes can be claimed from {moment}.",
    "open": "Submissions are accepted for another {wait}; the evaluation starts then.",
    "due": "{meaning} Scores have to be posted by {moment}.",
}
CONFIG_PROBLEMS = {
    "not_fetched": "The metadata is not inside the challenge URI; this server does not fetch it.",
    "unreadable": "The metadata cannot be read.",
    "errors": "The eval config has errors ({check} names them); it will not be evaluated.",
    "not_committed": "There is no eval config that the chain committed to; it will not be evaluated.",
}
NEXT_STEPS = {
    "challenge_post": "Agents can submit until the deadline; follow it with {status}.",
    "challenge_submit": "The deadline is {moment}; then follow {status}.",
    "register": "When the registration is in a block, call this again to submit.",
    "challenge_finalize": "Winners claim with {claim}.",
    "challenge_claim": "",
    "challenge_post_scores": "Winners claim with {claim}, 12 hours after the post.",
}
HEADS = {
    "unsigned": "Nothing was sent. {unsigned}",
    "needs_confirmation": "{not_sent}",
    "declined": "Nothing was sent: it was declined.",
    "sent": "Sent and in a block.",
}
OBJECTIONS = {
    "announced": "Call again with {objection} to object.",
    "unsigned": "Sign `message` with the submitting address (EIP-191), then call again with it and the same words.",
    "needs_confirmation": (
        "Nothing was signed. Show this to the wallet's owner, then call again with the same words and {confirm}."
    ),
    "declined": "Nothing was signed: it was declined.",
    "objected": "It is looked at before the post; follow {status}.",
}


def fill_template(template: str, names: Names, address: str | None = None, **values: str) -> str:
    named = {name: text.format(address=address or "ADDRESS") for name, text in names.items()}
    return template.format(**named, **values)


def remedy_of(error: ClaraError, names: Names) -> str:
    see = fill_template(SEE[error.see], names, error.about) if error.see else ""
    return f"{error.remedy} {see}".strip()


def error_text(error: ClaraError, names: Names) -> str:
    return f"{error.message} {remedy_of(error, names)}".strip()


def add_next_step(result: documents.ActResult, names: Names) -> documents.ActResult:
    kind, deadline = result.action, result.details.get("deadline")
    if kind == "challenge_submit" and result.details["agentId"] is None:
        kind = "register"
    moment = show_moment(deadline) if isinstance(deadline, int) else ""
    step = fill_template(NEXT_STEPS[kind], names, result.challenge, moment=moment)
    following = {
        "needs_confirmation": fill_template(names["to_confirm"], names),
        "declined": HEADS["declined"],
        "unsigned": f"Sign and send the transactions in this order with your own wallet. {step}".strip(),
        "sent": step,
    }
    return result.model_copy(update={"next": following[result.outcome]})


def action_text(result: documents.ActResult, names: Names) -> str:
    lines = [f"{fill_template(HEADS[result.outcome], names)} {result.summary}"]
    lines += [f"- {item.description} (to {item.to}, gas {item.gas or '?'})" for item in result.transactions]
    lines += [f"- {item.description}: {item.explorerUrl or item.hash}" for item in result.sent]
    lines += [f"Challenge: {result.challenge}"] if result.challenge else []
    lines += [f"Page: {result.pageUrl}"] if result.pageUrl else []
    lines += [f"Warning: {text}" for text in result.warnings]
    return "\n".join(line for line in (*lines, result.next) if line)


def add_objection_step(result: ObjectionResult, names: Names) -> ObjectionResult:
    return result.model_copy(update={"next": fill_template(OBJECTIONS[result.outcome], names, result.address)})


def objection_text(result: ObjectionResult) -> str:
    until = show_moment(result.objectionsUntil)
    lines = [f"The result of {result.address} is announced: {result.traceDigest}. Submitters may object until {until}."]
    if result.outcome == "announced":
        lines += [f"{row.rank}. {row.address}: score {row.score}, {row.status}" for row in result.places]
        lines += [result.margin] if result.margin else []
    lines += [f"Objection received, about {result.about}."] if result.outcome == "objected" else []
    return "\n".join([*lines, result.next])


def explain_config(result: documents.DetailResult, names: Names) -> documents.DetailResult:
    problem = fill_template(CONFIG_PROBLEMS[result.configProblem], names) if result.configProblem else None
    return result.model_copy(update={"configProblem": problem})


def status_meaning(result: documents.EvalStatusResult | EvalStatus) -> str:
    """Return what the status means; an announced result is not being posted yet."""
    if result.objectionsUntil is not None:
        return f"The result is announced. Objections are taken until {show_moment(result.objectionsUntil)}."
    return STATUS_MEANINGS[result.status]


def explain_status(result: documents.EvalStatusResult, names: Names) -> documents.EvalStatusResult:
    values = {"moment": show_moment(result.moment), "wait": show_wait(result.moment), "meaning": status_meaning(result)}
    explanation = fill_template(PHASES[result.phase], names, result.address, **values)
    return result.model_copy(update={"explanation": explanation})


def add_trace(result: documents.LeaderboardResult, names: Names) -> documents.LeaderboardResult:
    return result.model_copy(update={"trace": result.trace or fill_template("{trace}", names, result.address)})


def explain_score(result: documents.ScoreResult, names: Names) -> documents.ScoreResult:
    trace = result.trace or fill_template("{trace}", names, result.address)
    at, claimable = result.claimableAt, "No prize to claim."
    if at is not None:
        when = "now with {claim}, unless it was already" if at == 0 else f"from {show_moment(at)} with {{claim}}"
        claimable = fill_template(f"The prize can be claimed {when}.", names, result.address)
    return result.model_copy(update={"why": _score_summary(result), "trace": trace, "claimable": claimable})


def feature_label(name: str) -> str:
    """Return the name of a feature or test for people: `metric_batch_gas` becomes "Batch gas"."""
    label = name.removeprefix("metric_").replace("_", " ")
    return label[:1].upper() + label[1:]


def plain(text: str) -> str:
    """Write the feature names in a reason or flag as words, and long numbers with thousands separators."""
    named = _NAME.sub(lambda match: match.group().removeprefix("metric_").replace("_", " "), text)
    return _LONG_NUMBER.sub(lambda match: f"{int(match.group()):,}", named)


def show_value(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _score_summary(result: documents.ScoreResult) -> str:
    standing, rival, run = result.standing, result.closestRival, result.standing.executed
    parts = [f"Rank {standing.rank}"]
    if standing.status == "rejected":
        parts = ["The submission was rejected and ranks after all that were compared; see its reason"]
    if run is not None:
        ended = f"it {run.outcome.replace('_', ' ')}"
        parts.append(f"{run.testsPassed} of {run.tests} tests passed" if run.tests else ended)
    if standing.status == "rejected":
        return "; ".join(parts) + "."
    if standing.elo is not None:
        between = interval(standing)
        parts.append(f"Elo {standing.elo:.0f}{f' (likely {between})' if between else ''}")
    if standing.wins is not None:
        parts.append(f"{standing.wins:g} won, {standing.losses or 0:g} lost, {standing.ties or 0:g} tied")
    if standing.tiedWith:
        parts.append(f"tied with {', '.join(standing.tiedWith)}: among equals the earlier submission is first")
    if rival is not None:
        against = [game.result for game in result.games if game.rival == rival.address]
        met = f", {against.count('won')} of {len(against)} comparisons won against it" if against else ""
        parts.append(f"closest rival {rival.address} at rank {rival.rank}{met}")
    return "; ".join(parts) + "."


def interval(row: RankedEntry) -> str:
    """Return a range like `1470 to 1530` that includes the rating; empty for an exact rating, as by rules."""
    if row.elo is None or row.low is None or row.high is None or row.low == row.high:
        return ""
    return f"{min(row.low, row.elo):.0f} to {max(row.high, row.elo):.0f}"


def trial_text(result: TryResult) -> str:
    lines = [f"Measured here for {result.challengeAddress}, harness: {result.harness}."]
    tests = [call for call in result.calls if call["kind"] == "test"]
    failed = [str(call["name"]) for call in tests if call["outcome"] != "passed"]
    if failed and result.outcome:
        lines.append(f"{len(failed)} of {len(tests)} tests failed: {', '.join(failed)}. {result.detail}".rstrip())
    elif result.outcome == "passed":
        lines.append(f"All {len(tests)} tests passed." if tests else "It ran.")
    elif result.outcome:
        lines.append(f"It {result.outcome.replace('_', ' ')}: {result.detail}")
    lines += [f"  {name:28} {show_value(value)}" for name, value in result.features.items()]
    lines += [f"Read by a model, not measured: {', '.join(result.readByModel)}."] if result.readByModel else []
    if result.harness == "hidden":
        lines.append("The hidden harness is run after the deadline; this says nothing about it.")
    return "\n".join([*lines, *([result.logs["text"]] if result.logs else [])])


def stage_text(stage: StageProgress) -> str:
    parts = [f"{stage.name or 'working'} {stage.done or 0} of {stage.total or 0}"]
    parts += [f"{stage.calls} calls, ${stage.costUsd or 0:.4f}"] if stage.calls else []
    parts += [f"about {show_wait(round(stage.secondsLeft))} left"] if stage.secondsLeft else []
    return ", ".join(parts)
