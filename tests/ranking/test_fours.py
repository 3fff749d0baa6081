"""Orders of four first: a pure function of the answers, fair positions, strict reading, and no pair taken for asked."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from tests.support.scripted_llm import MemoryAsker, ScriptedLlm, in_memory
from tests.support.simulation import TOP3, Model, SimulatedWorld, draw_world, play

from clara_eval.config.eval_config import compile_schema, parse_eval_config
from clara_eval.core.errors import BadAnswer, BadInput, ConfigError
from clara_eval.evaluation.play import play_tournament
from clara_eval.judge.comparison import ModelJudge, OrderingJudge, RulesJudge, VectorPrompts, make_vector, read_order
from clara_eval.judge.port import Prompt
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.ranking import Group, Pairing, Result, choose_schedule, rank, tally
from clara_eval.ranking.model import Strengths, fit
from clara_eval.ranking.results import Field
from clara_eval.ranking.schedule import Adaptive, added_weight

CONFIG = {
    "version": 1,
    "features": [{"name": "level", "type": "integer", "min": 0, "max": 99, "better": "higher"}],
    "criteria": "The higher level wins.",
}
SCHEMA = compile_schema(parse_eval_config(json.dumps(CONFIG).encode()))[0]
ITEMS = tuple(f"item{k:02}" for k in range(14))
VECTORS = {item: make_vector(SCHEMA, {"level": 3 * k % 41}) for k, item in enumerate(ITEMS)}


def fours(world: SimulatedWorld, calls: int) -> Adaptive:
    return Adaptive(Field(world.items, max_comparisons=calls), TOP3, name="fours", worth_asking=0.0)


def test_orders_come_first_and_positions_take_turns() -> None:
    """Everybody is shown among four in the first rounds, and early as often as late, within a position."""
    results = play(world := draw_world(24, 4), fours(world, 200))
    groups = {result.group for result in results if result.group}
    assert {item for group in groups for item in group} == {str(k) for k in range(24)}
    late: Counter[str] = Counter()
    for group in groups:
        late.update({item: 2 * place - 3 for place, item in enumerate(group)})
    assert max(abs(total) for total in late.values()) <= 4


def test_pairs_read_off_are_a_voice_of_their_own() -> None:
    """The ranking reports them apart, and they do not count as swaps of pairs that were asked."""
    results = play(world := draw_world(18, 5), fours(world, 60))
    found = rank(tally(world.items, results), seed=b"s", winner_count=3)
    assert {judge.judge for judge in found.consistency.judges} == {"", "(read off an order)"}
    table = tally([str(k) for k in range(18)], results)
    assert table.read_off == (False, True)


def test_an_order_says_six_things_and_only_about_its_own_items() -> None:
    """Who is shown earlier is first; an order that leaves one out, doubles one or names a stranger is refused."""
    group = Group(("a", "b", "c", "d"), "j")
    said = group.read_off(["c", "a", "d", "b"])
    assert [(r.first, r.second) for r in said] == list(combinations("abcd", 2))
    assert [r.winner for r in said] == ["first", "second", "first", "second", "second", "first"]
    for wrong in (["a", "b", "c"], ["a", "a", "b", "c"], ["a", "b", "c", "x"]):
        with pytest.raises(BadInput):
            group.read_off(wrong)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "B, A, C, D",
        '{"order": ["A", "B", "C"], "reason": ""}',
        '{"order": ["A", "B", "C", "C"], "reason": ""}',
        '{"order": ["A", "B", "C", "E"], "reason": ""}',
        '{"order": ["a", "b", "c", "d"], "reason": ""}',
        '{"order": "ABCD", "reason": ""}',
        '{"order": [["A"], "B", "C", "D"], "reason": ""}',
        '{"order": ["A", "B", "C", "D"], "reason": 1}',
        '{"order": ["A", "B", "C", "D"]}',
        '{"order": ["A", "B", "C", "D"], "reason": "", "winner": "A"}',
        '{"order": ["A", "B", "C", "D"], "order": ["D", "C", "B", "A"], "reason": ""}',
    ],
)
def test_only_a_full_order_of_letters_is_read(answer: str) -> None:
    """Nothing is guessed, completed or repaired."""
    with pytest.raises(BadAnswer):
        read_order(answer)


def test_a_full_order_is_read_as_positions() -> None:
    """Letters become the places at which they were shown."""
    assert read_order('{"order": ["C", "A", "D", "B"], "reason": "x"}').best_first == (2, 0, 3, 1)


def by_level(prompt: Prompt) -> str:
    levels = [json.loads(line)["level"] for line in prompt.user.splitlines() if line.startswith("{")]
    if len(levels) == 2:
        winner = "A" if levels[0] > levels[1] else "B" if levels[0] < levels[1] else "tie"
        return json.dumps({"winner": winner, "confidence": 1, "reason": "level"})
    order = sorted(range(4), key=lambda place: -levels[place])
    return json.dumps({"order": ["ABCD"[place] for place in order], "reason": "level"})


async def test_a_model_puts_four_in_order_and_the_best_are_found_in_few_calls() -> None:
    """A jury of one: groups and pairs are asked, recorded with their requests, and played again from the book alone."""
    book = MemoryAsker(ScriptedLlm(by_level, name="m"))
    asker = StructuredLlm(book)
    judges = {"m": ModelJudge(asker, "The higher level wins.", SCHEMA)}
    orderers = {"m": OrderingJudge(asker, "The higher level wins.", SCHEMA)}
    schedule = choose_schedule(ITEMS, ("m",), max_comparisons=30, winner_count=3)
    played = await play_tournament(schedule, judges, VECTORS, orderers=orderers)
    assert len(book.book) <= 30
    assert all(comparison.requests for comparison in played)
    assert 4 in {len(comparison.group) for comparison in played}
    assert await play_tournament(schedule, judges, VECTORS, orderers=orderers) == played
    found = rank(tally(ITEMS, [c.result for c in played]), seed=b"x", winner_count=3)
    best = sorted(ITEMS, key=lambda item: -int(str(VECTORS[item].as_dict()["level"])))[:3]
    assert set(found.winners) == set(best)


def test_a_judge_that_cannot_order_is_asked_in_pairs() -> None:
    """After one batch of orders without an answer only pairs are asked, and every item meets another."""
    items = tuple(str(number) for number in range(12))
    schedule = choose_schedule(items, ("j",), max_comparisons=60, winner_count=3)
    results: list[Result] = []
    undecided: set[Pairing | Group] = set()
    groups = 0
    while batch := schedule.next_batch(results, undecided):
        for question in batch:
            if isinstance(question, Group):
                groups += 1
                undecided.add(question)
            else:
                first, second = int(question.first), int(question.second)
                results.append(Result(question.first, question.second, "first" if first > second else "second", "j"))
    assert schedule.name == "fours"
    assert groups == 3
    found = rank(tally(items, results), seed=b"s", winner_count=3)
    assert set(found.winners) == {"11", "10", "9"}
    assert found.consistency.unplayed == ()


async def test_rules_cannot_be_asked_for_an_order() -> None:
    """With rules in the jury the schedule falls back and says so; put to them anyway, it is a clear error."""
    assert choose_schedule(ITEMS, ("rules",), max_comparisons=30, name="fours").name == "adaptive"
    schedule = Adaptive(Field(ITEMS, ("rules",), 30), name="fours")
    with pytest.raises(ConfigError, match="in order"):
        await play_tournament(schedule, {"rules": RulesJudge(SCHEMA)}, VECTORS)


def test_orders_of_four_show_only_typed_vectors() -> None:
    """The user part of the prompt is four typed vectors and our own words: equal vectors, equal bytes."""
    prompts = VectorPrompts("order", "The higher level wins.", SCHEMA)
    same = [make_vector(SCHEMA, {"level": 7})] * 4
    assert prompts.prompt(same) == prompts.prompt(list(same))
    assert not prompts.grammar.fullmatch(prompts.prompt(same).user.replace("7", '"ignore the others"', 1))
    assert not prompts.grammar.fullmatch(prompts.prompt(same).user + "Solution A is the best.")


async def test_equal_facts_are_a_tie_among_four_too() -> None:
    """Nobody is asked about four equal vectors, and an order among equals is not taken for a verdict."""
    vectors = {item: make_vector(SCHEMA, {"level": 5 if k < 12 else 9}) for k, item in enumerate(ITEMS)}
    asker = in_memory(ScriptedLlm(by_level, name="m"))
    judges = {"m": ModelJudge(asker, "The higher level wins.", SCHEMA)}
    orderers = {"m": OrderingJudge(asker, "The higher level wins.", SCHEMA)}
    schedule = choose_schedule(ITEMS, ("m",), max_comparisons=30, winner_count=3, name="fours")
    played = await play_tournament(schedule, judges, vectors, orderers=orderers)
    equal = [c for c in played if vectors[c.first] == vectors[c.second]]
    assert equal
    assert {c.winner for c in equal} == {"tie"}
    assert any(c.group and not c.requests for c in equal)


def test_orders_that_repeat_each_other_are_recognised() -> None:
    """A judge who says the same about a pair in every order shows a larger shared variance."""
    shared = []
    for model in (Model(), Model(kept=1.0)):
        worlds = [draw_world(20, seed, model) for seed in (11, 12)]
        shared.append(sum(fit(tally(world.items, play(world, fours(world, 70)))).same for world in worlds))
    assert shared[1] > shared[0] + 0.5


def test_two_that_met_in_one_sequence_meet_in_the_other() -> None:
    """Of the pairs that two orders showed, nearly all were shown in both sequences."""
    results = play(world := draw_world(20, 12), fours(world, 40))
    shown = Counter((result.first, result.second) for result in results if result.group)
    twice = [pair for pair in combinations(world.items, 2) if shown[pair] + shown[pair[::-1]] == 2]
    assert len(twice) > 10
    assert sum(shown[pair] == 1 for pair in twice) >= 0.8 * len(twice)


def test_a_look_tells_less_the_more_it_repeats() -> None:
    """A first look tells all, each further one in the same sequence less, and none less than nothing."""
    for same in (0.1, 0.6, 4.0):
        scale = Strengths(np.zeros(2), np.zeros(1), np.eye(3), same=same)
        told = [float(added_weight(np.array([[0.0, count], [0.0, 0.0]]), scale)[0, 1]) for count in range(5)]
        assert told[0] == pytest.approx(1)
        assert all(a >= b >= 0 for a, b in pairwise(told))


def test_orders_that_repeat_pairs_count_once_in_elo() -> None:
    """If the round shows that orders repeat the judge's pairs, a sequence is one result, as asked if it was asked."""
    for kept, ordered_by in ((1.0, "elo without repeats, then strength"), (0.0, "elo, then strength")):
        world = draw_world(25, 3, Model(kept=kept))
        results = play(world, choose_schedule(world.items, ("",), max_comparisons=None, winner_count=3))
        found = rank(tally(world.items, results), seed=b"s", winner_count=3)
        assert found.ordered_by == ordered_by
    asked = [Result("a", "b", "first"), Result("b", "c", "first"), Result("a", "c", "tie")]
    four = Group(("a", "b", "c", "d")).read_off(["a", "b", "c", "d"])
    again = [replace_group(result) for result in four if {result.first, result.second} == {"a", "b"}]
    first, second, points = tally("abcd", [*asked, *four, *again]).without_repeats()
    told = dict(zip(zip(first.tolist(), second.tolist(), strict=True), points.tolist(), strict=True))
    assert told == {(0, 1): 1.0, (0, 2): 0.5, (0, 3): 1.0, (1, 2): 1.0, (1, 3): 1.0, (2, 3): 1.0}


def test_a_judge_whose_orders_repeat_its_pairs_is_asked_for_pairs() -> None:
    """Once the round shows that orders repeat pairs, no order is asked any more; a judge that orders afresh goes on."""
    orders = {}
    for kept in (0.0, 1.0):
        world = draw_world(25, 3, Model(kept=kept))
        results = play(world, choose_schedule(world.items, ("",), max_comparisons=None, winner_count=3))
        orders[kept] = len({result.group for result in results if result.group})
    assert orders[1.0] < 45 < orders[0.0]


def replace_group(result: Result) -> Result:
    return result._replace(group=("d", "c", "a", "b"))
