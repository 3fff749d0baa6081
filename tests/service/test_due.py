"""What is due, what an error leads to, and how many games fit: the engine's decisions, without an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.chain.model import Block, Challenge, ChallengeStatus, PrizeToken
from clara_eval.challenges.challenge_index import summary_of
from clara_eval.challenges.status import gravest
from clara_eval.core.address import Address
from clara_eval.core.errors import (
    BadInput,
    CannotPublish,
    ConfigError,
    Deferred,
    Disagrees,
    NeedsReview,
    NotYet,
    Stalled,
    Temporary,
    Unscorable,
)
from clara_eval.evaluation.round import (
    Window,
    all_comparisons,
    expected_speed,
    how_degraded,
    needed_seconds,
)
from clara_eval.service.attempt_runner import ending_of
from clara_eval.service.due import ALARM_SHARE, DueAction, EngineOptions, Memory, due
from clara_eval.service.metrics import ServiceHealth

OURS = Address("0x" + "22" * 20)
HOUR = 3600
DEADLINE, SCORING_DEADLINE = 100_000, 200_000


def challenge(**changes: Any) -> Challenge:
    made = Challenge(
        chain_id=31337,
        address=Address("0x" + "aa" * 20),
        block=Block(1, "0x01", DEADLINE + 10),
        poster=Address("0x" + "11" * 20),
        evaluator=OURS,
        token=PrizeToken(Address("0x" + "33" * 20), "USDC", 6),
        prize_pool=1_000_000,
        poster_bond=0,
        deadline=DEADLINE,
        scoring_deadline=SCORING_DEADLINE,
        challenge_uri="data:application/json,%7B%22title%22%3A%22T%22%7D",
        eval_config_hash="0x" + "00" * 32,
        private_set_hash="0x" + "00" * 32,
        winner_count=1,
        payout_bps=(10000,),
        identity_registry=Address("0x" + "44" * 20),
        max_participants=0,
        status=ChallengeStatus.SCORING,
        submission_count=3,
        score_posted_at=0,
        submissions=(),
    )
    return replace(made, **changes)


def decided(
    found: Challenge, memory: Memory | None = None, *, now: int = DEADLINE + 10, wall: float = 0, can_sign: bool = True
) -> DueAction:
    memory = memory or Memory()
    return due(found, memory, evaluator=OURS, chain_now=now, wall_now=wall, can_sign=can_sign).action


@pytest.mark.specification("7", "Scoring status, evaluator is ours, nothing posted, deadline passed")
def test_the_specified_conditions_start_an_evaluation() -> None:
    """Scoring, ours, nothing posted, deadline passed: each condition alone keeps it from starting."""
    assert decided(challenge()) is DueAction.EVALUATE
    assert decided(challenge(evaluator=Address("0x" + "55" * 20))) is DueAction.NONE
    assert decided(challenge(), now=DEADLINE) is DueAction.NONE
    assert decided(challenge(score_posted_at=DEADLINE + 5), Memory("complete")) is DueAction.NONE


def test_an_open_challenge_past_its_deadline_is_taken_on() -> None:
    """Nobody is paid to call advanceToScoring, so the attempt does; without a key it cannot."""
    assert decided(challenge(status=ChallengeStatus.OPEN)) is DueAction.EVALUATE
    assert decided(challenge(status=ChallengeStatus.OPEN), can_sign=False) is DueAction.NONE
    assert decided(challenge(status=ChallengeStatus.OPEN), now=DEADLINE - 1) is DueAction.NONE


def test_the_chain_is_the_truth() -> None:
    """With an empty store a post is recognised; with a store that believes in a post that is gone, it is made again."""
    assert decided(challenge(score_posted_at=DEADLINE + 5)) is DueAction.RECORD
    assert decided(challenge(score_posted_at=DEADLINE + 5), Memory("comparing")) is DueAction.RECORD
    assert decided(challenge(), Memory("complete")) is DueAction.EVALUATE
    assert decided(challenge(), Memory("complete"), can_sign=False) is DueAction.NONE


def test_what_an_earlier_key_has_signed_is_seen_through() -> None:
    """After a change of key its recorded post is sent again, recorded and finalized; it is never evaluated anew."""
    theirs = challenge(evaluator=Address("0x" + "0e" * 20), status=ChallengeStatus.SCORING)
    signed = Memory("publishing", is_signed=True)
    assert decided(theirs, Memory("publishing")) is DueAction.NONE
    assert decided(theirs, signed) is DueAction.RESEND
    assert decided(theirs, signed, can_sign=False) is DueAction.NONE
    posted = replace(theirs, score_posted_at=DEADLINE + 20)
    assert decided(posted, signed) is DueAction.RECORD
    late = DEADLINE + 20 + 12 * 3600
    assert decided(posted, Memory("complete", is_signed=True), now=late) is DueAction.FINALIZE
    assert decided(posted, Memory("complete"), now=late) is DueAction.NONE
    expired = replace(theirs, status=ChallengeStatus.EXPIRED)
    assert decided(expired, signed) is DueAction.CLOSE


@pytest.mark.specification("1", "12h finalization delay, then winners claim")
def test_finalize_comes_twelve_hours_after_the_post() -> None:
    """Finalizing is due exactly twelve hours after the post, and only with a key."""
    posted = challenge(score_posted_at=DEADLINE + 5)
    over = DEADLINE + 5 + 12 * HOUR
    assert decided(posted, Memory("complete"), now=over - 1) is DueAction.NONE
    assert decided(posted, Memory("complete"), now=over) is DueAction.FINALIZE
    assert decided(posted, Memory("complete"), now=over, can_sign=False) is DueAction.NONE
    assert decided(replace(posted, status=ChallengeStatus.FINALIZED), Memory("complete"), now=over) is DueAction.NONE


@pytest.mark.parametrize("status", [ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED])
def test_an_ended_contract_is_told_once(status: ChallengeStatus) -> None:
    """The store learns of it, and then nothing is due any more."""
    assert decided(challenge(status=status)) is DueAction.CLOSE
    assert decided(challenge(status=status), Memory("failed")) is DueAction.NONE


@pytest.mark.parametrize(
    ("memory", "wall", "action"),
    [
        (Memory("failed"), 0, DueAction.NONE),
        (Memory("unscorable"), 0, DueAction.NONE),
        (Memory("review"), 0, DueAction.NONE),
        (Memory("review", is_approved=True), 0, DueAction.EVALUATE),
        (Memory("deferred", retry_at=50), 49, DueAction.NONE),
        (Memory("deferred", retry_at=50), 50, DueAction.EVALUATE),
        (Memory("comparing"), 0, DueAction.EVALUATE),
    ],
)
def test_memory_holds_back(memory: Memory, wall: float, action: DueAction) -> None:
    """What ended stays ended, what waits waits for its person or its time, what was interrupted goes on."""
    assert decided(challenge(), memory, wall=wall) is action


def test_the_alarm_rings_at_half_of_the_window() -> None:
    """Also while a person or a budget is waited for, and still after the scoring deadline."""
    half = (DEADLINE + SCORING_DEADLINE) // 2
    for memory in (Memory(), Memory("review"), Memory("failed")):
        early = due(challenge(), memory, evaluator=OURS, chain_now=half - 1, wall_now=0, can_sign=True)
        late = due(challenge(), memory, evaluator=OURS, chain_now=half, wall_now=0, can_sign=True)
        assert early.window_used < ALARM_SHARE <= late.window_used
    assert decided(challenge(), now=SCORING_DEADLINE + HOUR) is DueAction.EVALUATE


@pytest.mark.specification("10.2", "What happens if the AI eval fails?")
@pytest.mark.parametrize(
    ("error", "status", "is_retried", "alert"),
    [
        (NotYet("x"), "pending", True, None),
        (Temporary("x"), "pending", True, None),
        (Deferred("x", retry_at=77), "deferred", True, "BudgetReached"),
        (ConfigError("x"), "pending", True, "SettingsWrong"),
        (NeedsReview("x"), "failed", False, "EvaluationFailed"),
        (Unscorable("x"), "unscorable", False, "Unscorable"),
        (CannotPublish("x"), "failed", False, "EvaluationFailed"),
        (Disagrees("x"), "failed", False, "EvaluationFailed"),
        (BadInput("x"), "failed", False, "EvaluationFailed"),
        (ZeroDivisionError("secret"), "failed", False, "EvaluationFailed"),
    ],
)
def test_every_error_has_one_ending(error: Exception, status: str, is_retried: bool, alert: str | None) -> None:
    """Outages are tried again, refusals and bugs stop the challenge and call a person; a bug's text is not shown."""
    ending = ending_of(error, "0xa", failures=0, now=10.0, options=EngineOptions())
    assert (ending.status, ending.retry_at is not None) == (status, is_retried)
    assert (ending.alert.name if ending.alert else None) == alert
    assert "secret" not in (ending.reason or "")


def test_pauses_grow_and_end() -> None:
    """Each failure doubles the pause up to the longest one; what the server asks for is respected; then a person hears."""
    options = EngineOptions(retry_seconds=10, retry_seconds_max=100)
    waits = [ending_of(Temporary("x"), "0xa", failures=n, now=0, options=options).retry_at for n in range(6)]
    assert waits == [10, 20, 40, 80, 100, 100]
    asked = ending_of(Temporary("x", retry_after_seconds=500), "0xa", failures=0, now=0, options=options)
    assert asked.retry_at == 500
    late = ending_of(Temporary("x"), "0xa", failures=3, now=0, options=options)
    assert late.alert is not None


def test_of_several_errors_the_gravest_counts() -> None:
    """A bug is not hidden by outages beside it, and an outage does not become a refusal."""
    bug, outage = ZeroDivisionError(), Temporary("x")
    assert gravest(ExceptionGroup("g", [outage, ExceptionGroup("h", [bug, outage])])) is bug
    assert gravest(ExceptionGroup("g", [outage, NotYet("y")])) is outage
    unscorable = Unscorable("z")
    assert gravest(ExceptionGroup("g", [outage, unscorable])) is unscorable


def test_everything_fits_into_a_day() -> None:
    """25 submissions, one judge, a day's window: nothing is left out."""
    window = Window(0, 86_400, 60)
    assert window.most_comparisons(25, 1, expected_speed(64)) is None


def test_rules_need_no_time() -> None:
    """Without models there is nothing to plan for."""
    assert Window(0, 60, 59).most_comparisons(1000, 0, 0.001) is None


@given(
    n=st.integers(2, 300),
    judges=st.integers(1, 3),
    rate=st.floats(0.01, 100),
    used=st.floats(0, 1.2),
    size=st.integers(600, 10**6),
)
def test_planned_games_fit_or_are_the_least_that_rank(n: int, judges: int, rate: float, used: float, size: int) -> None:
    """What is planned ends in time by the speed seen, unless it is already the thinnest possible round."""
    window, speed = Window(0, size, int(size * used)), rate
    games = window.most_comparisons(n, judges, speed)
    if games is None:
        assert needed_seconds(n, judges, speed) <= window.seconds_left
        return
    least = (n - 1) * judges
    assert least <= games <= max(least, all_comparisons(n, judges))
    assert games == least or 2 * games / rate <= window.seconds_left + 1


def test_degrading_is_named() -> None:
    """One order first, then fewer pairs."""
    assert how_degraded(None, 10, 1) is None
    assert how_degraded(60, 10, 1) == "one_order"
    assert how_degraded(20, 10, 1) == "fewer_pairs"


def test_the_budget_of_time_ends_before_the_deadline() -> None:
    """An attempt ends while a tenth of the window is left; past that it still gets a minute."""
    assert Window(0, 1000, 100).budget_seconds == 800
    assert Window(0, 1000, 990).budget_seconds == 60


@pytest.mark.parametrize(
    "uri",
    [
        "data:application/json;base64,!!!",
        "data:application/json,[]",
        "data:,{",
        "ipfs://x",
        "",
        "data:;base64,eyJ0aXRsZSI6IDV9",
    ],
)
def test_a_summary_survives_any_metadata(uri: str) -> None:
    """A challenge with broken metadata is listed without a title."""
    assert summary_of(challenge(challenge_uri=uri), None).title == ""


def test_a_summary_can_always_be_sent() -> None:
    """Half of a surrogate pair in a title, which JSON allows, would break the list for everybody."""
    uri = "data:application/json," + quote('{"title": "a\\ud800b"}')
    assert summary_of(challenge(challenge_uri=uri), None).title.encode() == b"a?b"


def test_a_summary_shows_inline_titles() -> None:
    """Both forms of data URIs are read."""
    assert summary_of(challenge(), None).title == "T"
    assert summary_of(challenge(challenge_uri="data:application/json;base64,eyJ0aXRsZSI6ICJCIn0="), None).title == "B"


def test_health_by_beat_and_ticks() -> None:
    """A stuck loop and missing ticks are stale; an API without ticks is not."""
    now = [0.0]
    pulse, api = ServiceHealth("all", 10, lambda: now[0]), ServiceHealth("api-only", 10, lambda: now[0])
    assert not pulse.stale_reason
    now[0] = 31
    for one in (pulse, api):
        one.beating()
    assert (bool(pulse.stale_reason), api.stale_reason) == (True, None)
    pulse.ticked("No node answers.")
    assert (pulse.stale_reason, pulse.report("1")["status"]) == (None, "degraded")
    now[0] = 62
    assert api.stale_reason


@pytest.mark.parametrize(
    ("cause", "alert"),
    [("balance", "BalanceLow"), ("gas_cap", "GasCapReached"), ("nonces", "NoncesLost"), ("gap", "NonceGap")],
)
def test_what_passes_by_itself_waits_and_calls_a_person(
    cause: Literal["balance", "gas_cap", "nonces", "gap"], alert: str
) -> None:
    """No money for gas, the day's cap, lost nonces: pending with the next attempt's moment, never failed."""
    ending = ending_of(Stalled("x", cause=cause), "0xa", failures=9, now=1000, options=EngineOptions())
    assert (ending.outcome, ending.status, ending.retry_at) == ("stalled", "pending", 1060)
    assert ending.alert is not None
    assert (ending.alert.name, ending.alert.severity) == (alert, "critical")


def test_a_long_wait_is_told_at_once() -> None:
    """A provider that asks for an hour is an alert with the first failure, and no wait passes the window's bound."""
    asked = Temporary("x", retry_after_seconds=3599)
    first = ending_of(asked, "0xa", failures=0, now=0, options=EngineOptions())
    assert (first.retry_at, first.alert and first.alert.name) == (3599, "EvaluationStuck")
    window = Window(deadline=0, scoring_deadline=7200, chain_now=7200 - 3542)
    asked.longest_pause_seconds = window.longest_pause_seconds
    assert (ending_of(asked, "0xa", failures=0, now=0, options=EngineOptions()).retry_at or 0) < 3542
    assert Window(0, 7200, 7200 - 10).longest_pause_seconds <= 5
    assert Window(0, 7200, 7201).is_over


@pytest.mark.parametrize(
    ("chain_now", "action"), [(DEADLINE + 99, DueAction.NONE), (DEADLINE + 100, DueAction.EVALUATE)]
)
def test_a_review_that_nobody_decides_is_due_by_the_chains_clock(chain_now: int, action: DueAction) -> None:
    """At the moment that was told the default is posted, whatever this machine's clock says."""
    memory = Memory("review", retry_at=10**12, posts_at=DEADLINE + 100)
    found = due(challenge(), memory, evaluator=OURS, chain_now=chain_now, wall_now=0, can_sign=True)
    assert found.action is action


@pytest.mark.parametrize(
    ("chain_now", "action"), [(DEADLINE + 99, DueAction.NONE), (DEADLINE + 100, DueAction.EVALUATE)]
)
def test_an_announced_result_is_due_by_the_chains_clock(chain_now: int, action: DueAction) -> None:
    """When the chain says that the time for objections is over, it is posted, whatever this machine's clock says."""
    memory = Memory("publishing", retry_at=10**12, objections_until=DEADLINE + 100)
    found = due(challenge(), memory, evaluator=OURS, chain_now=chain_now, wall_now=0, can_sign=True)
    assert found.action is action
