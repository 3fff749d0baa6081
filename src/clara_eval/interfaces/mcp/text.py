"""Texts of the tool results; untrusted text is only inside a marked fence."""

from __future__ import annotations

from collections.abc import Iterable

from clara_eval.actions.amounts import show_count, show_moment, show_wait
from clara_eval.actions.quote import USUAL_ENTRIES, ConfigResult
from clara_eval.core.untrusted import Untrusted, bare, fence
from clara_eval.documents import actions as documents
from clara_eval.interfaces.words import feature_label, interval

NAMES = {
    "browse": "challenge_browse",
    "detail": "challenge_detail",
    "status": "challenge_eval_status",
    "claim": "challenge_claim",
    "check": "config_check",
    "trace": "resource clara://trace/{address}",
    "allow_duplicate": "allowDuplicate",
    "confirm": "confirm: true",
    "register": "register: true",
    "objection": "`about` and `reason`",
    "unsigned": "Unsigned transactions are in `transactions`.",
    "not_sent": "Nothing was sent: this needs a confirmation.",
    "to_confirm": "Nothing was sent. Show this plan to the wallet's owner, then call again with confirm: true.",
}
ROWS = 10
SHOWN_REASONS = 4  # of the comparisons of one entry


def browse(found: documents.BrowseResult) -> str:
    lines = [f"{len(found.challenges)} challenge(s) on {found.network}, {found.total} in all."]
    for item in found.challenges:
        left = f"{show_wait(item.secondsLeft)} left" if item.secondsLeft else "closed"
        lines.append(
            f"- {item.address}: {item.status}, {item.prize} for {show_count(item.winnerCount, 'winner')}, "
            f"{item.submissionCount} submitted, {left}, scored by {item.evaluator}. Title by the poster:\n"
            f"{item.title['text']}"
        )
    lines += [f"More with offset {found.nextOffset}."] if found.nextOffset is not None else []
    return "\n".join(lines)


def detail(found: documents.DetailResult) -> str:
    item = found.challenge
    state = "submissions are accepted" if item.acceptsSubmissions else "no submissions are accepted"
    lines = [
        f"Challenge {item.address} on {found.network}: {item.status}; {state}.",
        f"{item.prize} for {show_count(item.winnerCount, 'winner')}, {found.payoutBps} basis points.",
        f"{item.submissionCount} submitted. Deadline {show_moment(item.deadline)}.",
        f"Scores are due by {show_moment(found.scoringDeadline)}.",
    ]
    lines += [found.configProblem] if found.configProblem else []
    lines += [f"Winner {w.rank}: {w.address} gets {w.prize} (score {w.score})." for w in found.winners]
    for agent in found.agents:
        place = f", average place {agent.averagePlace}" if agent.averagePlace is not None else ""
        earned = f", earned {' and '.join(agent.earned)}" if agent.earned else ""
        lines.append(f"Agent {agent.agentId} entered {agent.entered}, won {agent.won}{earned}{place}.")
    lines += _agent_names((f"Agent {agent.agentId}", agent.name) for agent in found.agents)
    if found.yours:
        again = show_moment(found.yours.mayResubmitAt)
        lines.append(f"You submitted version {found.yours.version}; again from {again}.")
    if record := found.evaluatorRecord:
        counts = (f"{count} {name}" for name, count in record.model_dump().items())
        lines.append(f"Its evaluator in other challenges: {', '.join(counts)}.")
    lines += _provisional_board(found) if found.provisional else []
    lines += ["Title by the poster:", item.title["text"], "Problem by the poster:", found.problemStatement["text"]]
    lines += ["Eval config by the poster:", found.evalConfig["text"]] if found.evalConfig else []
    return "\n".join([*lines, *_page_line(found.pageUrl)])


def _provisional_board(found: documents.DetailResult) -> list[str]:
    rows = [
        f"{row.address or 'The reference of the harness'}: {bare(row.problem) if row.problem else _facts(row.facts)}"
        for row in found.provisional[:ROWS]
    ]
    more = len(found.provisional) - len(rows)
    head = "Provisional board, the best first, by public tests alone; the final run decides"
    left = f" ({more} more are in `provisional`)" if more else ""
    return [f"{head}{left}:", fence("\n".join(rows), "poster")["text"]]


def _facts(facts: list[documents.FeatureValue]) -> str:
    return ", ".join(f"{item.name} = {item.value}" for item in facts)


def status(found: documents.EvalStatusResult) -> str:
    lines = [f"{found.address}: evaluation {found.status}, {found.progress} %. {found.explanation}"]
    lines += [f"Warning: {found.warning}"] if found.warning else []
    stage = found.stage
    if stage.total:
        left = f", about {show_wait(round(stage.secondsLeft))} left" if stage.secondsLeft is not None else ""
        lines.append(f"{stage.name or 'Stage'}: {stage.done} of {stage.total}{left}.")
    if found.objectionsUntil:
        until = show_moment(found.objectionsUntil)
        lines.append(f"The result is announced: challenge_object shows it, and takes objections until {until}.")
    lines += [f"Next attempt at {show_moment(found.retryAt)}."] if found.retryAt else []
    lines += ["Reason (it may quote others):", found.reason["text"]] if found.reason else []
    return "\n".join(lines)


def leaderboard(found: documents.LeaderboardResult) -> str:
    by = "Posted by the poster, not by the evaluator. " if found.postedBy == "poster" else ""
    only = "Only the posted winners are known here. " if found.source == "chain" else ""
    lines = [found.misplaced.sentence] if found.misplaced else []
    lines += [f"{found.total} place(s) of {found.address}. {by}{only}Trace: {found.trace}"]
    lines += [f"Warning: {found.warning}"] if found.warning else []
    lines += [_place_line(item) for item in found.standings[:ROWS]]
    lines += _agent_names((item.address, item.name) for item in found.standings[:ROWS])
    return "\n".join([*lines, *_page_line(found.pageUrl)])


def _place_line(item: documents.StandingRow) -> str:
    elo = f", Elo {item.elo:.0f}" if item.elo is not None else ""
    band = f" ({between})" if (between := interval(item)) else ""
    prize = f", prize {item.prize}" if item.prize and item.prizeAmount not in {None, "0"} else ""
    tied = f", tied with {', '.join(item.tiedWith)} (the earlier submission is first)" if item.tiedWith else ""
    return f"{item.rank}. {item.address}: score {item.score}{elo}{band}{prize}, {item.status}{tied}"


def score(found: documents.ScoreResult) -> str:
    lines = [f"{found.submitter} in {found.address}: {found.why} {found.claimable}"]
    lines += ["The scores were posted by the poster, not by the evaluator."] if found.postedBy == "poster" else []
    reason = found.standing.reason
    lines += ["Why it was not ranked:", reason["text"]] if reason else []
    if found.standing.executed and (failed := found.standing.executed.failed):
        tests = ", ".join(f"{feature_label(name)}: {how}" for name, how in failed.items())
        lines += ["What did not pass, named by the poster:", fence(tests, "poster")["text"]]
    lines += _comparisons(found) if found.games else []
    if found.features:
        lines += ["Features, named by the poster:", fence(_facts(found.features), "poster")["text"]]
    lines.append(f"Trace {found.traceDigest or 'without digest here'}: {found.trace}")
    return "\n".join([*lines, *_page_line(found.pageUrl)])


def _comparisons(found: documents.ScoreResult) -> list[str]:
    """Return the reasons that decided the place: against the closest rival, then of lost comparisons."""
    results = [game.result for game in found.games]
    rival = found.closestRival.address if found.closestRival else None
    weight = {"lost": 0, "undecided": 1, "tie": 1, "won": 2}
    decisive = sorted(found.games, key=lambda game: (game.rival != rival, weight[game.result]))[:SHOWN_REASONS]
    reasons = [
        f"{game.result} against {game.rival}: {bare(game.reason) if game.reason else 'no reason is recorded'}"
        for game in decisive
    ]
    head = f"Comparisons with near rivals: {results.count('won')} won, {results.count('lost')} lost of {len(results)}."
    return [f"{head} What decided, in the judge's words:", fence("\n".join(reasons), "judge")["text"]]


def _agent_names(named: Iterable[tuple[str, Untrusted | None]]) -> list[str]:
    lines = [f"{who}: {bare(name)}" for who, name in named if name]
    return ["What agents call themselves:", fence("\n".join(lines), "agent")["text"]] if lines else []


def _page_line(url: str | None) -> list[str]:
    return [f"Page: {url}"] if url else []


def config_report(found: ConfigResult) -> str:
    lines = [
        f"{problem['severity']} at {problem['path']}: {problem['reason']} {problem['remedy']}".strip()
        for problem in found["problems"]
    ]
    if not found["ok"]:
        return "\n".join(["The config is not usable.", *lines])
    judged = [feature for feature in found["features"] if feature["judged"]]
    measured = [feature["name"] for feature in judged if feature["source"] == "measured"]
    usd = found["quoteUsd"]
    cost = "is free" if not found["needsModel"] else "has no known price here" if usd is None else f"costs ${usd:.2f}"
    lines += [
        f"The config is usable: {len(judged)} features are judged, {len(measured)} of them measured without a model.",
        f"evalConfigHash {found['hash']}; an evaluation of {USUAL_ENTRIES} entries {cost}.",
    ]
    return "\n".join([*lines, *(f"Warning: {warning}" for warning in found["warnings"])])
