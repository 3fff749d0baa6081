"""The prize arithmetic is the contract's."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.winners import account, challenge

from clara_eval.chain.model import check_scorable, choose_winners, prizes
from clara_eval.core.errors import CannotPublish, Unscorable
from clara_eval.core.model import Placed


@st.composite
def splits(draw: st.DrawFn) -> tuple[int, ...]:
    cuts = sorted(draw(st.lists(st.integers(0, 10_000), max_size=24)))
    edges = [0, *cuts, 10_000]
    return tuple(b - a for a, b in itertools.pairwise(edges))


@pytest.mark.specification("3.4", "`prizePool * payoutBps[i] / 10000`, the last winner absorbs dust")
@given(pool=st.integers(1, 10**30), bps=splits())
def test_prizes_sum_to_the_pool_and_only_the_last_takes_dust(pool: int, bps: tuple[int, ...]) -> None:
    """Prizes sum to the pool, and every place but the last has exactly pool * bps // 10000."""
    amounts = prizes(pool, bps)
    assert sum(amounts) == pool
    assert amounts[:-1] == [pool * share // 10_000 for share in bps[:-1]]
    assert amounts[-1] >= pool * bps[-1] // 10_000


@pytest.mark.specification("3.4", "Top `winnerCount` submissions become winners")
def test_winners_are_the_first_placed_with_their_agents() -> None:
    """The best placed accounts win, each with the agent it submitted with."""
    chosen = choose_winners(challenge(4, (6000, 4000)), [Placed(account(n), 9000 - n) for n in (2, 0, 1, 3)])
    assert [(w.account, w.agent_id, w.score) for w in chosen.entries] == [
        (account(2), 3, 9000 - 2),
        (account(0), 1, 9000),
    ]


def test_too_few_submitters_is_said_early() -> None:
    """A challenge with fewer submitters than winners is unscorable before anything is read."""
    with pytest.raises(Unscorable, match="2 submitters for 3 winners"):
        check_scorable(challenge(2, (5000, 3000, 2000)))


def test_a_stranger_or_a_repeated_account_is_never_paid() -> None:
    """Somebody who did not submit, or stands twice, stops the payment."""
    two = challenge(3, (6000, 4000))
    with pytest.raises(CannotPublish, match="did not submit"):
        choose_winners(two, [Placed(account(0), 1), Placed(account(77), 1)])
    with pytest.raises(CannotPublish, match="two paid places"):
        choose_winners(two, [Placed(account(0), 1), Placed(account(0), 1)])
    with pytest.raises(Unscorable):
        choose_winners(replace(two, submissions=two.submissions[:1]), [Placed(account(0), 1)])


def test_a_single_submission_is_unscorable() -> None:
    """The contract cancels a challenge with one submission, even if one winner would do."""
    with pytest.raises(Unscorable, match="cancels"):
        check_scorable(challenge(1, (10_000,)))
