"""The actions' answers in a few lines, for a model or a person to read.

Our words and our numbers; a stranger's words only inside the fence they already stand in.
"""

from __future__ import annotations

from clara_eval.actions.times import show_moment, show_wait
from clara_eval.core.untrusted import bare, fence
from clara_eval.documents.actions import (
    BrowseResult,
    ComparisonRow,
    DetailResult,
    EvalStatusResult,
    LeaderboardResult,
    ScoreResult,
    StandingRow,
    Written,
)

ROWS = 10
DECISIVE = 4
"""How many games' reasons are told."""


def browse(found: BrowseResult) -> str:
    lines = [f"{len(found.challenges)} challenge(s) on {found.network}, {found.total} in all."]
    for item in found.challenges:
        left = f"{show_wait(item.secondsLeft)} left" if item.secondsLeft else "closed"
        lines.append(
            f"- {item.address}: {item.status}, {item.prize} for {item.winnerCount} winner(s), "
            f"{item.submissionCount} submitted, {left}, scored by {item.evaluator}. Title by the poster:\n"
            f"{item.title['text']}"
        )
    if found.nextOffset is not None:
        lines.append(f"More with offset {found.nextOffset}.")
    return "\n".join(lines)


def detail(found: DetailResult) -> str:
    item = found.challenge
    state = "submissions are accepted" if item.acceptsSubmissions else "no submissions are accepted"
    lines = [
        f"Challenge {item.address} on {found.network}: {item.status}; {state}.",
        f"{item.prize} for {item.winnerCount} winner(s), {found.payoutBps} basis points.",
        f"{item.submissionCount} submitted. Deadline {show_moment(item.deadline)}.",
        f"Scores are due by {show_moment(found.scoringDeadline)}.",
    ]
    if found.configProblem:
        lines.append(found.configProblem)
    lines += [f"Winner {w.rank}: {w.address} gets {w.prize} (score {w.score})." for w in found.winners]
    for agent in found.agents:
        place = f", average place {agent.averagePlace}" if agent.averagePlace is not None else ""
        earned = f", earned {' and '.join(agent.earned)}" if agent.earned else ""
        lines.append(f"Agent {agent.agentId} entered {agent.entered}, won {agent.won}{earned}{place}.")
    if found.yours:
        again = show_moment(found.yours.mayResubmitAt)
        lines.append(f"You submitted version {found.yours.version}; again from {again}.")
    lines += [
        "Title by the poster:",
        item.title["text"],
        "Problem by the poster:",
        found.problemStatement["text"],
    ]
    if found.evalConfig:
        lines += ["Eval config by the poster:", found.evalConfig["text"]]
    return "\n".join([*lines, *_page(found.pageUrl)])


def status(found: EvalStatusResult) -> str:
    lines = [f"{found.address}: evaluation {found.status}, {found.progress} %. {found.explanation}"]
    if found.warning:
        lines.append(f"Warning: {found.warning}")
    stage = found.stage
    if stage.total:
        left = f", about {show_wait(round(stage.secondsLeft))} left" if stage.secondsLeft is not None else ""
        lines.append(f"{stage.name or 'Stage'}: {stage.done} of {stage.total}{left}.")
    if found.objectionsUntil:
        until = show_moment(found.objectionsUntil)
        lines.append(f"The result is announced: challenge_object shows it, and takes objections until {until}.")
    if found.retryAt:
        lines.append(f"Looked at again at {show_moment(found.retryAt)}.")
    if found.reason:
        lines += ["Reason (it may quote others):", found.reason["text"]]
    return "\n".join(lines)


def leaderboard(found: LeaderboardResult) -> str:
    by = {"poster": "Posted by the poster, not by the evaluator. "}.get(found.postedBy or "", "")
    only = "Only the posted winners are known here. " if found.source == "chain" else ""
    lines = [f"{found.total} place(s) of {found.address}. {by}{only}Trace: {found.trace}"]
    lines += [f"Warning: {found.warning}"] if found.warning else []
    lines += [_place(item) for item in found.standings[:ROWS]]
    return "\n".join([*lines, *_page(found.pageUrl)])


def _place(item: StandingRow) -> str:
    elo = f", Elo {item.elo:.0f}" if item.elo is not None else ""
    band = f" ({item.low:.0f} to {item.high:.0f})" if item.low is not None and item.high is not None else ""
    prize = f", prize {item.prize}" if item.prize and item.prizeAmount not in {None, "0"} else ""
    tied = f", tied with {', '.join(item.tiedWith)} (the earlier submission is first)" if item.tiedWith else ""
    return f"{item.rank}. {item.address}: score {item.score}{elo}{band}{prize}, {item.status}{tied}"


def score(found: ScoreResult) -> str:
    lines = [f"{found.submitter} in {found.address}: {found.why} {found.claimable}"]
    if found.postedBy == "poster":
        lines.append("The scores were posted by the poster, not by the evaluator.")
    if found.standing.reason:
        lines += ["Why it was not ranked:", found.standing.reason["text"]]
    if found.games:
        lines += _comparisons(found)
    if found.features:
        values = ", ".join(f"{item.name} = {item.value}" for item in found.features)
        lines += ["Features, named by the poster:", fence(values, "poster")["text"]]
    lines.append(f"Trace {found.traceDigest or 'without digest here'}: {found.trace}")
    return "\n".join([*lines, *_page(found.pageUrl)])


def _comparisons(found: ScoreResult) -> list[str]:
    """The games that decided the place, with the judge's reasons: those against the closest rival, then the lost."""
    results = [game.result for game in found.games]
    rival = found.closestRival.address if found.closestRival else None
    weight = {"lost": 0, "undecided": 1, "tie": 1, "won": 2}
    decisive = sorted(found.games, key=lambda game: (game.rival != rival, weight[game.result]))[:DECISIVE]
    told = [f"{game.result} against {game.rival}: {_reason(game)}" for game in decisive]
    head = f"Comparisons with near rivals: {results.count('won')} won, {results.count('lost')} lost of {len(results)}."
    return [f"{head} What decided, in the judge's words:", fence("\n".join(told), "judge")["text"]]


def _reason(game: ComparisonRow) -> str:
    return bare(game.reason) if game.reason else "no reason is recorded"


def _page(url: str | None) -> list[str]:
    return [f"Page: {url}"] if url else []


def written(found: Written) -> str:
    heads = {
        "unsigned": "Nothing was sent. Unsigned transactions are in `transactions`.",
        "needs_confirmation": "Nothing was sent: this needs a confirmation.",
        "declined": "Nothing was sent: it was declined.",
        "sent": "Sent and in a block.",
    }
    lines = [f"{heads[found.outcome]} {found.summary}"]
    lines += [f"- {item.description} (to {item.to}, gas {item.gas or '?'})" for item in found.transactions]
    lines += [f"- {item.description}: {item.explorerUrl or item.hash}" for item in found.sent]
    if found.challenge:
        lines.append(f"Challenge: {found.challenge}")
    lines += _page(found.pageUrl)
    lines += [f"Warning: {text}" for text in found.warnings]
    lines.append(found.next)
    return "\n".join(line for line in lines if line)
