"""Sentences about actions and their results; each interface gives its own names for the actions."""

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

Names = Mapping[str, str]  # how an interface names an action or argument; `{address}` is the challenge
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


def write(template: str, names: Names, address: str | None = None, **values: str) -> str:
    named = {name: text.format(address=address or "ADDRESS") for name, text in names.items()}
    return template.format(**named, **values)


def remedy_of(error: ClaraError, names: Names) -> str:
    see = write(SEE[error.see], names, error.about) if error.see else ""
    return f"{error.remedy} {see}".strip()


def error_text(error: ClaraError, names: Names) -> str:
    return f"{error.message} {remedy_of(error, names)}".strip()


def acted(found: documents.ActResult, names: Names) -> documents.ActResult:
    """Add what to do next."""
    kind, deadline = found.action, found.details.get("deadline")
    if kind == "challenge_submit" and found.details["agentId"] is None:
        kind = "register"
    moment = show_moment(deadline) if isinstance(deadline, int) else ""
    step = write(NEXT_STEPS[kind], names, found.challenge, moment=moment)
    following = {
        "needs_confirmation": write(names["to_confirm"], names),
        "declined": HEADS["declined"],
        "unsigned": f"Sign and send the transactions in this order with your own wallet. {step}".strip(),
        "sent": step,
    }
    return found.model_copy(update={"next": following[found.outcome]})


def acted_text(found: documents.ActResult, names: Names) -> str:
    lines = [f"{write(HEADS[found.outcome], names)} {found.summary}"]
    lines += [f"- {item.description} (to {item.to}, gas {item.gas or '?'})" for item in found.transactions]
    lines += [f"- {item.description}: {item.explorerUrl or item.hash}" for item in found.sent]
    lines += [f"Challenge: {found.challenge}"] if found.challenge else []
    lines += [f"Page: {found.pageUrl}"] if found.pageUrl else []
    lines += [f"Warning: {text}" for text in found.warnings]
    return "\n".join(line for line in (*lines, found.next) if line)


def objected(found: ObjectionResult, names: Names) -> ObjectionResult:
    return found.model_copy(update={"next": write(OBJECTIONS[found.outcome], names, found.address)})


def objected_text(found: ObjectionResult) -> str:
    until = show_moment(found.objectionsUntil)
    lines = [f"The result of {found.address} is announced: {found.traceDigest}. Submitters may object until {until}."]
    if found.outcome == "announced":
        lines += [f"{row.rank}. {row.address}: score {row.score}, {row.status}" for row in found.places]
        lines += [found.margin] if found.margin else []
    lines += [f"Objection received, about {found.about}."] if found.outcome == "objected" else []
    return "\n".join([*lines, found.next])


def detail(found: documents.DetailResult, names: Names) -> documents.DetailResult:
    problem = found.configProblem
    return found.model_copy(update={"configProblem": write(CONFIG_PROBLEMS[problem], names) if problem else None})


def meaning(found: documents.EvalStatusResult | EvalStatus) -> str:
    """What the state means; an announced result is not being posted yet."""
    if found.objectionsUntil is not None:
        return f"The result is announced. Objections are taken until {show_moment(found.objectionsUntil)}."
    return STATUS_MEANINGS[found.status]


def status(found: documents.EvalStatusResult, names: Names) -> documents.EvalStatusResult:
    told = {"moment": show_moment(found.moment), "wait": show_wait(found.moment), "meaning": meaning(found)}
    explanation = write(PHASES[found.phase], names, found.address, **told)
    return found.model_copy(update={"explanation": explanation})


def leaderboard(found: documents.LeaderboardResult, names: Names) -> documents.LeaderboardResult:
    return found.model_copy(update={"trace": found.trace or write("{trace}", names, found.address)})


def score(found: documents.ScoreResult, names: Names) -> documents.ScoreResult:
    trace = found.trace or write("{trace}", names, found.address)
    at, claimable = found.claimableAt, "No prize to claim."
    if at is not None:
        when = "now with {claim}, unless it was already" if at == 0 else f"from {show_moment(at)} with {{claim}}"
        claimable = write(f"The prize can be claimed {when}.", names, found.address)
    return found.model_copy(update={"why": _why(found), "trace": trace, "claimable": claimable})


def readable(name: str) -> str:
    """The name of a feature or test for people: `metric_batch_gas` is "Batch gas"."""
    told = name.removeprefix("metric_").replace("_", " ")
    return told[:1].upper() + told[1:]


def plain(text: str) -> str:
    """A judge's reason or a flag for people: names of features as words, long numbers with their thousands apart."""
    told = _NAME.sub(lambda found: found.group().removeprefix("metric_").replace("_", " "), text)
    return _LONG_NUMBER.sub(lambda found: f"{int(found.group()):,}", told)


def fact(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _why(found: documents.ScoreResult) -> str:
    standing, rival, run = found.standing, found.closestRival, found.standing.executed
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
        against = [game.result for game in found.games if game.rival == rival.address]
        met = f", {against.count('won')} of {len(against)} comparisons won against it" if against else ""
        parts.append(f"closest rival {rival.address} at rank {rival.rank}{met}")
    return "; ".join(parts) + "."


def interval(row: RankedEntry) -> str:
    """`1470 to 1530`, with the rating in it; nothing for an exact rating, as by rules."""
    if row.elo is None or row.low is None or row.high is None or row.low == row.high:
        return ""
    return f"{min(row.low, row.elo):.0f} to {max(row.high, row.elo):.0f}"


def tried_text(found: TryResult) -> str:
    lines = [f"Measured here for {found.challengeAddress}, harness: {found.harness}."]
    tests = [call for call in found.calls if call["kind"] == "test"]
    failed = [str(call["name"]) for call in tests if call["outcome"] != "passed"]
    if failed and found.outcome:
        lines.append(f"{len(failed)} of {len(tests)} tests failed: {', '.join(failed)}. {found.detail}".rstrip())
    elif found.outcome == "passed":
        lines.append(f"All {len(tests)} tests passed." if tests else "It ran.")
    elif found.outcome:
        lines.append(f"It {found.outcome.replace('_', ' ')}: {found.detail}")
    lines += [f"  {name:28} {fact(value)}" for name, value in found.features.items()]
    lines += [f"Read by a model, not measured: {', '.join(found.readByModel)}."] if found.readByModel else []
    if found.harness == "hidden":
        lines.append("The hidden harness is run after the deadline; this says nothing about it.")
    return "\n".join([*lines, *([found.logs["text"]] if found.logs else [])])


def stage_text(stage: StageProgress) -> str:
    parts = [f"{stage.name or 'working'} {stage.done or 0} of {stage.total or 0}"]
    parts += [f"{stage.calls} calls, ${stage.costUsd or 0:.4f}"] if stage.calls else []
    parts += [f"about {show_wait(round(stage.secondsLeft))} left"] if stage.secondsLeft else []
    return ", ".join(parts)
