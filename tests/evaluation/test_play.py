"""A tournament asks what the schedule wants, and its result does not depend on the order of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from tests.support.scripted_llm import MemoryAsker, ScriptedLlm, noisy_judge

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.errors import Deferred, Temporary
from clara_eval.evaluation.play import Comparison, play_tournament
from clara_eval.judge.comparison import Decision, JudgeVector, ModelJudge, RulesJudge, Verdict, make_vector
from clara_eval.judge.structured_llm import AskOutcome, StructuredLlm
from clara_eval.ranking import Pairing
from clara_eval.ranking.results import Field
from clara_eval.ranking.schedule import Fixed

SCHEMA = FeatureSchema((Feature("level", "integer", min=0, max=9, better="higher"),))
ITEMS = tuple(f"item{number}" for number in range(6))
VECTORS = {item: make_vector(SCHEMA, {"level": number}) for number, item in enumerate(ITEMS)}


class Judge:
    """Decides by a function after a pause that depends on the comparison, and counts how many are asked at once."""

    def __init__(self, decide: Callable[[JudgeVector, JudgeVector], Decision], pause: Callable[[int], int]) -> None:
        self.name = "rules"
        self.asked = self.now = self.most = 0
        self._decide, self._pause = decide, pause

    async def prefetch(self, pairs: Sequence[tuple[JudgeVector, JudgeVector]]) -> None:
        """Its answers are all known."""

    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(self._pause(self.asked)):
            await asyncio.sleep(0)
        self.now -= 1
        return self._decide(first, second)


def by_rules(first: JudgeVector, second: JudgeVector) -> Decision:
    return AskOutcome(RulesJudge(SCHEMA).verdict(first, second), "", ())


def both() -> Fixed:
    return Fixed(Field(ITEMS, ("rules",)), is_both=True)


@pytest.mark.specification("3.2", "Compare every pair of submissions")
async def test_all_games_are_played_in_canonical_order() -> None:
    """Every pair in both orders, once, sorted."""
    played = await play_tournament(both(), {"rules": RulesJudge(SCHEMA)}, VECTORS)
    assert len(played) == len({comparison.pairing for comparison in played}) == 30
    assert list(played) == sorted(played, key=lambda c: (c.first, c.second, c.judge))
    assert all((c.winner == "first") == (c.first > c.second) for c in played)


async def test_arrival_does_not_matter() -> None:
    """Answers that arrive in different orders give the same comparisons, bit for bit."""
    fast_first = await play_tournament(both(), {"rules": Judge(by_rules, lambda n: n)}, VECTORS)
    slow_first = await play_tournament(both(), {"rules": Judge(by_rules, lambda n: 40 - n)}, VECTORS, at_once=7)
    assert fast_first == slow_first


async def test_no_more_than_allowed_are_asked_at_once() -> None:
    """The bound holds, and it is used."""
    judge = Judge(by_rules, lambda _: 3)
    await play_tournament(both(), {"rules": judge}, VECTORS, at_once=4)
    assert judge.most == 4


async def test_progress_is_told_for_every_game() -> None:
    """One call a comparison, and from the first on it says how many there will be."""
    told: list[tuple[int, int]] = []
    await play_tournament(
        both(), {"rules": RulesJudge(SCHEMA)}, VECTORS, on_comparison=lambda done, total: told.append((done, total))
    )
    assert [done for done, _ in told] == list(range(1, 31))
    assert {total for _, total in told} == {30}


async def test_a_game_without_verdict_is_undecided_and_not_asked_again() -> None:
    """It has no winner, it has a reason, and the others are not touched."""

    def sometimes(first: JudgeVector, second: JudgeVector) -> Decision:
        if first == VECTORS["item0"]:
            return AskOutcome(None, "The model refused to answer.", ("0x1",))
        return by_rules(first, second)

    judge = Judge(sometimes, lambda _: 0)
    played = await play_tournament(both(), {"rules": judge}, VECTORS)
    undecided = [comparison for comparison in played if comparison.winner is None]
    assert judge.asked == len(played) == 30
    assert len(undecided) == 5
    assert undecided[0] == Comparison("item0", "item1", "rules", None, None, "The model refused to answer.", ("0x1",))


def unanswered(first: JudgeVector, second: JudgeVector) -> Decision:
    return AskOutcome(None, "No answer: down.", (), Temporary("down."))


async def test_an_outage_stops_the_tournament_without_a_result() -> None:
    """A ranking from hardly any answers would be luck."""
    with pytest.raises(Temporary, match="15 of 15 comparisons got no answer"):
        await play_tournament(both(), {"rules": Judge(unanswered, lambda _: 0)}, VECTORS)


async def test_who_gives_up_waiting_ranks_what_was_answered() -> None:
    """At the end of the window one answer has to do, as none does not; the others are undecided."""

    def once(first: JudgeVector, second: JudgeVector) -> Decision:
        known = (VECTORS["item0"], VECTORS["item1"])
        return by_rules(first, second) if (first, second) == known else unanswered(first, second)

    with pytest.raises(Temporary, match="comparisons got no answer"):
        await play_tournament(both(), {"rules": Judge(once, lambda _: 0)}, VECTORS)
    played = await play_tournament(both(), {"rules": Judge(once, lambda _: 0)}, VECTORS, gives_up=True)
    assert [(one.first, one.second) for one in played if one.winner is not None] == [("item0", "item1")]
    with pytest.raises(Temporary, match="15 of 15 comparisons got no answer"):
        await play_tournament(both(), {"rules": Judge(unanswered, lambda _: 0)}, VECTORS, gives_up=True)


async def test_a_few_unanswered_games_do_not_stop_it() -> None:
    """They are undecided with their reason."""

    def flaky(first: JudgeVector, second: JudgeVector) -> Decision:
        return unanswered(first, second) if first == VECTORS["item0"] else by_rules(first, second)

    played = await play_tournament(both(), {"rules": Judge(flaky, lambda _: 0)}, VECTORS)
    assert sum(comparison.winner is None for comparison in played) == 5


async def test_an_exhausted_budget_keeps_its_error_class() -> None:
    """An error that ends the round arrives as its own class, not wrapped."""

    def capped(first: JudgeVector, second: JudgeVector) -> Decision:
        raise Deferred("The cap is reached.")

    with pytest.raises(Deferred):
        await play_tournament(both(), {"rules": Judge(capped, lambda _: 1)}, VECTORS)


async def test_every_judge_of_a_jury_sees_every_game() -> None:
    """The comparisons name their judge."""
    jury = {name: Judge(by_rules, lambda _: 0) for name in ("one", "two")}
    played = await play_tournament(Fixed(Field(ITEMS, ("one", "two"))), jury, VECTORS)
    assert {comparison.judge for comparison in played} == {"one", "two"}
    assert [judge.asked for judge in jury.values()] == [15, 15]


async def test_a_model_judge_plays_with_its_requests_recorded() -> None:
    """Each comparison names the requests behind it, and equal requests are made once."""
    book = MemoryAsker(ScriptedLlm(noisy_judge(SCHEMA, seed=1), name="rules"))
    asker = StructuredLlm(book)
    played = await play_tournament(both(), {"rules": ModelJudge(asker, "The higher level wins.", SCHEMA)}, VECTORS)
    assert {request for comparison in played for request in comparison.requests} == set(book.book)
    again = await play_tournament(both(), {"rules": ModelJudge(asker, "The higher level wins.", SCHEMA)}, VECTORS)
    assert again == played
    assert played[0].pairing == Pairing("item0", "item1", "rules")
    assert by_rules(VECTORS["item0"], VECTORS["item1"]).value == Verdict("B", 0.606, "level 1 against 0")
