"""Copies are refused, disguised ones are shown as similar, and honest work is left alone."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.code.similarity import (
    MIN_COPY_WINDOWS,
    Coded,
    FeatureSet,
    SimilarKind,
    common_features,
    shared_by,
    token_stream,
)
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex, sha256_hex
from clara_eval.core.model import Submission, Version
from clara_eval.redteam.copying import honest_round
from clara_eval.redteam.mutations import Program, disguise
from clara_eval.submissions.copies import CONTESTED_SECONDS, Cluster, CopyKind, find_likeness
from clara_eval.submissions.model import Solution

PYTHON = '''
"""A fee that grows with volatility."""
import math


def fee(volume, volatility, base=30):
    """The fee in basis points."""
    # more volatile markets cost more
    if volume <= 0:
        raise ValueError("volume must be positive")
    scale = math.sqrt(volatility) / 2
    discount = math.log10(volume) // 3
    return max(1, min(1000, int(base * (1 + scale) - discount)))


def quote(pool_x, pool_y, amount, fee_bps):
    if pool_x <= 0 or pool_y <= 0:
        raise ValueError("empty pool")
    paid = amount * (10_000 - fee_bps) // 10_000
    out = pool_y * paid // (pool_x + paid)
    return {"out": out, "price": out / amount, "left": pool_y - out}


class Pool:
    def __init__(self, x, y):
        self.x, self.y, self.history = x, y, []

    def swap(self, amount, volatility):
        taken = quote(self.x, self.y, amount, fee(amount, volatility))
        self.x += amount
        self.y -= taken["out"]
        self.history.append(taken["price"])
        return taken["out"]
'''
OTHER = '''
from dataclasses import dataclass


@dataclass
class Market:
    reserves: tuple
    window: list

    def update(self, price):
        self.window = [*self.window[-99:], price]

    def spread(self):
        mean = sum(self.window) / len(self.window)
        return sum((p - mean) ** 2 for p in self.window) / len(self.window)


def dynamic_fee(market, trade):
    """Piecewise linear in the spread, capped."""
    for bound, bps in ((0.001, 5), (0.01, 30), (0.1, 100)):
        if market.spread() < bound:
            return bps
    return 300 if trade < market.reserves[0] / 10 else 500


def execute(market, trade):
    bps = dynamic_fee(market, trade)
    net = trade - trade * bps / 10_000
    x, y = market.reserves
    received = y - x * y / (x + net)
    market.reserves = (x + net, y - received)
    market.update(received / trade)
    return received
'''
SOLIDITY = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/* A fee that follows volatility. */
contract FeeCurve {
    uint256 public constant BASE = 30;
    uint256 public lastPrice;
    mapping(address => uint256) public paid;

    error TooSmall(uint256 amount);

    function fee(uint256 volume, uint256 price) public view returns (uint256) {
        if (volume == 0) revert TooSmall(volume); // nothing to price
        uint256 moved = price > lastPrice ? price - lastPrice : lastPrice - price;
        uint256 scaled = (moved * 10_000) / (lastPrice + 1);
        uint256 result = BASE + scaled / 4;
        return result > 1000 ? 1000 : result;
    }

    function settle(uint256 volume, uint256 price) external returns (uint256 due) {
        due = (volume * fee(volume, price)) / 10_000;
        paid[msg.sender] += due;
        lastPrice = price;
    }
}
"""
HONEST = Path(__file__).parents[2] / "bench" / "honest"
ESSAY = (
    "Fees should follow risk. When prices move quickly the pool loses to those who trade against stale quotes, and the "
    "only defence that costs honest traders little is a fee that rises with volatility and falls again when markets are "
    "calm. A fixed fee must choose between being too low in storms and too high in calm weather, and in both cases "
    "somebody who did nothing wrong pays for it. The curve proposed here has three parts: a floor that covers gas, a slope "
    "that is estimated from the last hundred trades, and a ceiling that keeps the pool usable when the estimate is wrong."
)


def solution(text: str, at: int, *, who: int | None = None, version: int = 1, agent: int | None = None) -> Solution:
    content = text.encode()
    submission = Submission(Address(f"0x{who or at:040x}"), agent or at, "data:,", keccak_hex(content), at, version)
    return Solution(
        submission=submission,
        content=content,
        text=text,
        media_type="text/plain",
        content_keccak=keccak_hex(content),
        content_sha256=sha256_hex(content),
        hash_kind="content",
        pinned=True,
        language=None,
    )


def find_copies(solutions: Sequence[Solution], *, template: str = "") -> tuple[Cluster, ...]:
    return find_likeness(solutions, template=template).clusters


def rename(text: str, **names: str) -> str:
    return re.sub(r"\b\w+\b", lambda found: names.get(found.group(), found.group()), text)


def only(clusters: tuple[Cluster, ...]) -> tuple[int, list[tuple[int, CopyKind]]]:
    (cluster,) = clusters
    copies = [(copy.solution.submission.submitted_at, copy.kind) for copy in cluster.copies]
    return cluster.original.submission.submitted_at, copies


def similar(solutions: Sequence[Solution], *, template: str = "") -> list[tuple[int, int, SimilarKind]]:
    """Who resembles whom, by number of their accounts; nobody may be refused."""
    found = find_likeness(solutions, template=template)
    assert found.clusters == ()
    return [(int(one.earlier, 16), int(one.later, 16), one.kind) for one in found.similar]


def test_exact_copies_lose_to_the_earliest() -> None:
    """Of equal bytes the earliest submission is ranked, whatever the order they come in; the others name it."""
    clusters = find_copies([solution(PYTHON, 30), solution(OTHER, 5), solution(PYTHON, 10), solution(PYTHON, 20)])
    assert only(clusters) == (10, [(20, "exact"), (30, "exact")])
    rejected = clusters[0].rejected()
    assert [one.code for one in rejected] == ["copy", "copy"]
    assert all(clusters[0].original.submission.submitter in one.reason for one in rejected)


def test_equal_times_are_settled_by_address() -> None:
    """Two submissions in one block: the smaller address is the original, on every machine."""
    clusters = find_copies([solution(PYTHON, 10, who=9), solution(PYTHON, 10, who=3)])
    assert clusters[0].original.submission.submitter == Address(f"0x{3:040x}")


def test_reformatting_and_comments_are_seen_through() -> None:
    """Indentation, blank lines, comments, docstrings and quotes do not make a new work, in Python and Solidity."""
    python = re.sub(r"#.*", "", PYTHON).replace("    ", "  ").replace('"out"', "'out'") + "\n# mine\n"
    python = re.sub(r'^ *"""[^"]*"""\n', "", python, flags=re.MULTILINE)
    assert only(find_copies([solution(PYTHON, 1), solution(python, 2)])) == (1, [(2, "normalised")])
    solidity = re.sub(r"\s*//.*|/\*.*\*/", "", SOLIDITY).replace("{\n", "\n{\n").replace("    ", "\t")
    assert similar([solution(SOLIDITY, 1), solution(solidity, 2)]) == [(1, 2, "tokens")], "short: it may be chance"


def test_short_equal_tokens_may_be_chance() -> None:
    """Equal tokens of a few lines are similar, never refused; equal bytes are refused at any length."""
    short = [solution("def f(x): return x+1", 1), solution("def f(x):\n  return x + 1 # mine", 2)]
    assert similar(short) == [(1, 2, "tokens")]
    assert only(find_copies([short[0], solution(short[0].text, 2)])) == (1, [(2, "exact")])


def test_equal_tokens_are_refused_from_a_stated_length_on() -> None:
    """The length is counted without what the poster gave and without what unrelated entries of the round have, too."""
    entries = [solution(PYTHON, 1), solution(PYTHON.replace("    ", "\t"), 2)]
    assert only(find_copies(entries)) == (1, [(2, "normalised")])
    assert similar(entries, template=PYTHON) == [(1, 2, "tokens")]
    words = [f"w{n}" for n in range(MIN_COPY_WINDOWS + 3)]
    assert similar([solution(" ".join(words), 1), solution(" ".join(words) + ".", 2)]) == [(1, 2, "tokens")]
    words += ["one", "more"]
    assert only(find_copies([solution(" ".join(words), 1), solution(" ".join(words) + ".", 2)]))


def test_lightly_renamed_copies_are_found() -> None:
    """Other names for variables and functions, a changed constant and an added line do not make a new work."""
    renamed = rename(PYTHON, fee="charge", volume="size", volatility="sigma", quote="price_for", amount="qty", out="o")
    renamed = renamed.replace("1000", "900") + "\n\nVERSION = 2\n"
    assert similar([solution(PYTHON, 1), solution(renamed, 2)]) == [(1, 2, "renamed")]
    renamed = rename(SOLIDITY, FeeCurve="MyCurve", moved="delta", scaled="ratio", result="res", due="owed")
    assert similar([solution(SOLIDITY, 1), solution(renamed, 2)]) == [(1, 2, "renamed")]


def test_a_lightly_edited_essay_is_similar() -> None:
    """A few changed words, other case and other punctuation leave prose similar."""
    edited = ESSAY.replace("three parts", "three pieces").replace("calm weather", "quiet weather")
    for text in (edited, ESSAY.upper() + "!"):
        assert similar([solution(ESSAY, 1), solution(text, 2)]) == [(1, 2, "tokens")]


def test_different_works_are_left_alone() -> None:
    """Other solutions of the same task, other languages and other prose are no copies of each other."""
    other_essay = " ".join(sorted(ESSAY.split()))
    works = [PYTHON, OTHER, SOLIDITY, ESSAY, other_essay]
    assert similar([solution(text, at) for at, text in enumerate(works, start=1)]) == []


def test_tiny_programs_are_not_accused() -> None:
    """Short programs that look alike but differ in what they compute stay apart, also after Python's //."""
    tiny = [f"def solve(n):\n    return n // {k}\n" for k in range(2, 8)]
    tiny += [f"function solve(n) {{ return n + {k}; }}\nconsole.log(solve(1));" for k in range(5)]
    assert similar([solution(text, at) for at, text in enumerate(tiny, start=1)]) == []


def _repeating(names: Sequence[str]) -> str:
    """A small program of a few statements that repeat each other."""
    parts = [
        f"class {name.title()}(Shape):\n    def draw(self, map, len):\n        return core.{name}(map, len)\n"
        for name in names
    ]
    return "from . import core\n\n\n" + "\n\n".join(parts)


def test_a_renamed_copy_of_a_few_statements_that_repeat_is_found() -> None:
    """Where hardly any statement differs from the next, their number counts; another number is another work."""
    original = _repeating(["circle", "square", "line", "arc", "text", "curve", "point", "spline"])
    renamed = re.sub(r"\b(?!def|class|return|self|from|import)([a-zA-Z]{3,})\b", r"q_\1x", original)
    longer = _repeating([f"part{n}" for n in range(80)])
    works = [solution(text, at) for at, text in enumerate((original, renamed, longer), start=1)]
    assert similar(works) == [(1, 2, "statements")]


def test_each_language_has_its_own_fixed_words() -> None:
    """A name that is a keyword elsewhere is forgotten like any other: `map` in Python, `len` in JavaScript."""
    for language, text, renamed in (
        ("python", "map = from_pool(string, match)\nstring = map + match\n", "a = b(c, d)\nc = a + d\n"),
        ("javascript", "let len = print(str, int); str = len + int;", "let a = b(c, d); c = a + d;"),
    ):
        first, second = (Coded.of(*token_stream(one, language), b"").abstract_windows(6) for one in (text, renamed))
        assert len(first) > 0
        assert first.tolist() == second.tolist()


def test_what_the_poster_gave_is_not_copied() -> None:
    """Submissions that share only the poster's skeleton are apart when the skeleton is named, and alike when it is not."""
    bodies = ["    return base + volatility * 2\n", "    return max(base, len(str(volume)))\n"]
    entries = [
        solution(PYTHON + "\n\ndef answer(volume, volatility, base):\n" + body, i) for i, body in enumerate(bodies, 1)
    ]
    assert len(similar(entries)) == 1
    assert similar(entries, template=PYTHON) == []
    statement = f"Complete this program so that the fee follows volatility.\n```python\n{PYTHON}\n```\nGood luck!"
    assert similar(entries, template=statement) == []


def test_a_resubmitted_copy_is_contested() -> None:
    """Resubmission moves the time, and a minute is no order: the copy may be the older one, so a person looks."""
    renamed = rename(PYTHON, fee="charge", volume="size", volatility="sigma", quote="price_for", amount="qty", out="o")
    for at, version, contested in (
        (1, 1, True),
        (1 + CONTESTED_SECONDS, 1, True),
        (2 + CONTESTED_SECONDS, 1, False),
        (2 + CONTESTED_SECONDS, 2, True),
    ):
        entries = [solution(PYTHON, 1, who=7), solution(PYTHON, at, who=8, version=version)]
        assert find_copies(entries)[0].contested == contested
        disguised = [entries[0], solution(renamed, at, who=8, version=version)]
        assert [one.contested for one in find_likeness(disguised).similar] == [contested]


def test_likeness_by_steps_is_one_family() -> None:
    """What resembles a disguised copy is of the family of the first work, each beside the earliest that it resembles."""
    words = [f"w{n}" for n in range(500)]
    texts = [" ".join(words[shift : shift + 300]) for shift in (0, 60, 120)]
    found = find_likeness([solution(text, at) for at, text in enumerate(texts, start=1)])
    assert [(int(one.earlier, 16), int(one.later, 16)) for one in found.similar] == [(1, 2), (2, 3)]
    assert set(found.families.values()) == {Address(f"0x{1:040x}")}
    assert len(found.families) == 3


def test_texts_without_tokens_are_compared_by_bytes() -> None:
    """Two different texts of comments only are not the same work."""
    texts = ["# def f(x): one\n#def g(): a\n", "# def f(x): two\n"]
    assert find_copies([solution(text, at) for at, text in enumerate(texts, start=1)]) == ()


def test_many_entries_with_clones_are_clustered() -> None:
    """Of four hundred entries half are edited clones of the first: a flood does not make a work everybody's."""
    rng = random.Random(7)
    vocabulary = [f"word{n}" for n in range(3_000)]
    honest = [" ".join(rng.choices(vocabulary, k=300)) for _ in range(200)]
    clones = [honest[0] + " " + " ".join(f"own{n}x{m}" for m in range(60)) for n in range(200)]
    found = similar([solution(text, at) for at, text in enumerate([*honest, *clones], start=1)])
    assert found == [(1, later, "tokens") for later in range(201, 401)]


def test_works_that_share_half_are_left_alone() -> None:
    """Half in common proves nothing; two entries that were sent for one agent are a family all the same."""
    words = [f"w{n}" for n in range(400)]
    variations = [" ".join([*words[:200], *(f"own{at}x{n}" for n in range(120))]) for at in range(3)]
    texts = [*variations, PYTHON, SOLIDITY, ESSAY]
    entries = [solution(text, at, agent=5 if at in (4, 5) else None) for at, text in enumerate(texts, start=1)]
    assert similar(entries) == []
    account = {at: Address(f"0x{at:040x}") for at in range(1, 7)}
    assert find_likeness(entries).families == {account[n]: account[4] for n in (4, 5)}


def test_what_several_unrelated_entries_have_proves_nothing() -> None:
    """Two entries with the task's own shape are similar alone, and not beside two others that have it."""
    common = [f"w{n}" for n in range(150)]
    texts = [" ".join([*common, *(f"own{at}x{n}" for n in range(own))]) for at, own in ((1, 10), (2, 20))]
    others = [" ".join([*(f"own{at}x{n}" for n in range(860)), *common]) for at in (3, 4)]
    entries = [solution(text, at) for at, text in enumerate([*texts, *others], start=1)]
    assert similar(entries[:2]) == [(1, 2, "tokens")]
    assert similar(entries) == []


MINIFIED_RING = (
    "class e{constructor(e){this.capacity=e,this.buffer=Array(e),this.head=0,this.tail=0,this.size=0}get length(){return "
    "this.size}push(e){this.buffer[this.tail]=e,this.tail=(this.tail+1)%this.capacity,this.size<this.capacity?this.size++:"
    "this.head=(this.head+1)%this.capacity}shift(){if(this.size===0)return;let e=this.buffer[this.head];return this.buffer["
    "this.head]=void 0,this.head=(this.head+1)%this.capacity,this.size--,e}toArray(){let e=[];for(let t=0;t<this.size;t++)"
    "e.push(this.buffer[(this.head+t)%this.capacity]);return e}}module.exports={RingBuffer:e};"
)
"""The first entry of `bench/honest/ring_buffer.javascript.txt`, by the minifier of rolldown."""


def test_a_minified_twin_is_similar() -> None:
    """What a minifier keeps tells the twin, in a round with the honest entries of the task, which stay apart."""
    statement, honest = honest_round(HONEST / "ring_buffer.javascript.txt")
    twin = replace(solution(MINIFIED_RING, 10**6, who=99), language="javascript")
    found = find_likeness([*honest, twin], template=statement)
    first = honest[0].submission.submitter
    assert [(one.earlier, one.later, one.kind, one.contested) for one in found.similar] == [
        (first, twin.submission.submitter, "minified", False)
    ]
    assert found.families == dict.fromkeys((first, twin.submission.submitter), first)


@pytest.mark.parametrize("way", ["rename_reorder", "rename_reorder_noops", "rename_extracted_dead_branches"])
def test_a_small_work_is_found_under_statements_that_do_nothing(way: str) -> None:
    """Too short for its statements to prove anything, but its code without idle statements is the earlier one."""
    _, honest = honest_round(HONEST / "lru_cache.python.txt")
    text = honest[7].text
    disguised = disguise(Program(text, "python", ""), way)
    assert disguised is not None
    found = similar([solution(text, 1), solution(disguised, 2)])
    assert [pair[:2] for pair in found] == [(1, 2)]


def test_a_statement_proves_as_much_as_it_holds() -> None:
    """Seven long statements in another order, turned round and beside others, are no chance; seven short ones may be."""
    long = [f"x{n} = a * {n} + b * {n + 9} + c * {n + 30} + d * {n + 50}\n" for n in range(7)]
    short = [f"x{n} = a * {n}\n" for n in range(7)]
    for statements, expected in ((long, [(1, 2, "statements")]), (short, [])):
        disguised = [re.sub(r"(\w) \* (\d+)", r"\2 * \1", one) for one in reversed(statements)]
        bodies = statements, [f"{one}    y = input() or {{}}\n" for one in disguised]
        works = [f"import math\ndef run(a, b, c, d):\n    {'    '.join(body)}" for body in bodies]
        assert similar([solution(text, at) for at, text in enumerate(works, 1)]) == expected


@pytest.mark.parametrize("path", sorted(HONEST.glob("*.txt")), ids=lambda path: path.name)
def test_honest_entries_of_small_tasks_are_neither_refused_nor_wait(path: Path) -> None:
    """Independent solutions of one small task are left alone; a renamed copy of the longest is not, if it is no one-liner."""
    statement, honest = honest_round(path)
    assert similar(honest, template=statement) == []
    longest = max(honest, key=lambda one: len(one.text))
    last = replace(solution(_renamed(longest.text, longest.language), 10**6, who=99), language=longest.language)
    found = find_likeness([*honest, last], template=statement)
    told = {one.later for one in found.similar} | {
        c.solution.submission.submitter for k in found.clusters for c in k.copies
    }
    assert told == (set() if path.name.startswith("fizzbuzz") else {last.submission.submitter})


def _renamed(text: str, language: str | None) -> str:
    """The text under other names; of prose with a few other words."""
    renamed = disguise(Program(text, language, ""), "rename") if language else text.replace(" a ", " some ")
    assert renamed is not None
    return renamed


def test_a_trap_takes_nobody_out() -> None:
    """A short early entry, and an early heap of everything, make no later work similar to them."""
    words = [f"w{n}" for n in range(1_500)]
    trap, honest = words[:150], words[:1_200]
    assert similar([solution(" ".join(trap), 1), solution(" ".join(honest), 2)]) == []
    assert (
        similar([solution(" ".join([*words, *(f"x{n}" for n in range(1500))]), 1), solution(" ".join(honest), 2)]) == []
    )


def test_copies_are_in_no_family() -> None:
    """A copy is out of the ranking, so its original is not made a family by it."""
    assert find_likeness([solution(PYTHON, 1), solution(PYTHON, 2), solution(ESSAY, 3)]).families == {}


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([PYTHON, OTHER, ESSAY, "def f(): return 1", "def f():  return 1"]), max_size=6),
    st.randoms(),
)
def test_the_order_of_arrival_in_memory_does_not_matter(texts: list[str], rng: random.Random) -> None:
    """Shuffling the input changes nothing, and every solution is in at most one cluster."""
    entries = [solution(text, at) for at, text in enumerate(texts, start=1)]
    clusters = find_copies(entries)
    shuffled = entries.copy()
    rng.shuffle(shuffled)
    assert find_likeness(shuffled) == find_likeness(entries)
    members = [one.original for one in clusters] + [copy.solution for one in clusters for copy in one.copies]
    assert len({one.submission.submitter for one in members}) == len(members)


@given(st.lists(st.frozensets(st.integers(0, 12)), max_size=8))
def test_what_sets_share_is_what_counting_pair_by_pair_gives(sets: list[frozenset[int]]) -> None:
    """Counting through numbered features equals comparing every pair of sets."""
    hashed = [FeatureSet.of(np.array(sorted(one), dtype=np.uint64)) for one in sets]
    shared = list(shared_by(hashed))
    for later, mine in enumerate(sets):
        common = [len(mine & other) for other in sets[:later]]
        assert shared[later].amount.tolist() == common
        assert shared[later].of_later.tolist() == [count / max(1, len(mine)) for count in common]


@given(st.lists(st.tuples(st.frozensets(st.integers(0, 6)), st.integers(0, 3)), max_size=8))
def test_common_features_are_those_of_several_other_groups(sets: list[tuple[frozenset[int], int]]) -> None:
    """A feature is common for a set if two groups other than its own hold it, however many sets they have."""
    hashed = [FeatureSet.of(np.array(sorted(one), dtype=np.uint64)) for one, _ in sets]
    found = common_features(hashed, np.array([group for _, group in sets], dtype=np.int64), 2)
    for (mine, group), common in zip(sets, found, strict=True):
        holders = [{other for held, other in sets if feature in held} - {group} for feature in sorted(mine)]
        assert common.tolist() == [len(one) >= 2 for one in holders]


@given(st.lists(st.integers(0, 5)))
def test_repeated_features_are_counted_as_often_as_they_occur(numbers: list[int]) -> None:
    """What two texts share of a repeated feature is how often both have it."""
    parts = numbers, numbers[: len(numbers) // 2]
    first, second = (FeatureSet.of(np.array(part, dtype=np.uint64)).hashes for part in parts)
    assert len(first) == len(numbers)
    assert len(np.intersect1d(first, second)) == len(numbers) // 2


@given(st.text(max_size=300))
def test_any_text_has_a_token_stream(text: str) -> None:
    """Tokens come from the text in order; noise never fails."""
    tokens, _ = token_stream("def f():\n" + text)
    assert all(isinstance(token, str) and token for token in tokens)


def test_hostile_texts_are_read_in_linear_time() -> None:
    """Texts made to defeat a tokenizer (open quotes, open comments, backslashes) end before the suite's time limit."""
    for unit in (
        '"\\',
        "'",
        '"',
        "/*",
        "`\\",
        "'''",
        '"""',
        '\\"',
        "def f(",
        "a:",
        "( ",
        "\n",
        " ",
        "let a ",
        "function ",
        "class a",
        "import a",
        "fn a<",
        "contract a",
        "const a:",
    ):
        assert token_stream("def f():\n pragma solidity\n" + unit * (200_000 // len(unit)))[1]


def test_a_program_hidden_behind_a_long_comment_is_found() -> None:
    """Forty kilobytes of remarks in front, even in another language, with or without the poster's hint: still a copy."""
    front = "".join(f"// def price(x{n}): return x{n}\n" for n in range(1500))
    assert len(front) > 40_000
    for language in (None, "solidity"):
        entries = [
            replace(solution(text, at), language=language) for at, text in ((1, SOLIDITY), (2, front + SOLIDITY))
        ]
        assert similar(entries) == [(1, 2, "tokens")]


def test_padding_and_leaving_out_make_no_new_work() -> None:
    """A work that holds an earlier one is similar, also when more than half of it is padding; so is a part of one."""
    part = PYTHON.partition("    def swap")[0]
    renamed = rename(PYTHON, fee="charge", volume="size", volatility="sigma", quote="price_for", amount="qty", out="o")
    for text in (OTHER + PYTHON, OTHER + renamed, part):
        assert [pair[:2] for pair in similar([solution(PYTHON, 1), solution(text, 2)])] == [(1, 2)]


def test_mutable_content_is_never_the_original() -> None:
    """Bytes put at a mutable address lose to the pinned work, however early the address was handed in; a person looks."""
    thief = replace(solution(PYTHON, 1), pinned=False, hash_kind="uri")
    for stolen in (thief, replace(thief, text=PYTHON + "\n# mine\n", content=b"", content_sha256="0x1")):
        (cluster,) = find_copies([stolen, solution(PYTHON, 5)])
        assert cluster.original.submission.submitted_at == 5
        assert cluster.contested


def test_the_author_of_the_earliest_version_keeps_the_work() -> None:
    """Who committed to some bytes first is their author, after resubmitting them, a variation of them, or another work."""
    author, thief = Address(f"0x{7:040x}"), Address(f"0x{8:040x}")
    first = [Version(author, keccak_hex(PYTHON.encode()), 10), Version(thief, keccak_hex(PYTHON.encode()), 200)]
    stolen = solution(PYTHON, 200, who=8)
    again = [stolen, solution(PYTHON, 300, who=7, version=2)]
    (cluster,) = find_likeness(again, versions=first).clusters
    assert (cluster.original.submission.submitter, cluster.contested) == (author, False)
    (cluster,) = find_likeness(again).clusters
    assert (cluster.original.submission.submitter, cluster.contested) == (thief, True)
    varied = [stolen, solution(PYTHON.replace("1000", "900") + "\n\nVERSION = 2\n", 300, who=7, version=2)]
    (pair,) = find_likeness(varied, versions=first).similar
    assert (pair.earlier, pair.later, pair.contested) == (author, thief, False)
    (pair,) = find_likeness(varied).similar
    assert (pair.earlier, pair.later, pair.contested) == (thief, author, True)
    found = find_likeness([stolen, solution(ESSAY, 300, who=7, version=2)], versions=first)
    assert (found.clusters, found.similar) == ((), ())
    assert found.taken == ((thief, author),)


def test_a_hash_that_was_committed_first_shows_the_author() -> None:
    """Who sent only the hash first, and the content an hour later, is the author of what was copied in between."""
    author, thief = Address(f"0x{7:040x}"), Address(f"0x{8:040x}")
    committed = [Version(author, keccak_hex(PYTHON.encode()), 10)]
    renamed = rename(PYTHON, fee="charge", volume="size", volatility="sigma", quote="price_for", amount="qty", out="o")
    entries = [solution(PYTHON, 4_000, who=7, version=2), solution(renamed, 3_990, who=8)]
    (pair,) = find_likeness(entries, versions=committed).similar
    assert (pair.earlier, pair.later, pair.contested) == (author, thief, False)


def test_unrelated_first_versions_change_nothing() -> None:
    """An early version with other content does not make its submitter the author, but leaves a doubt for a person."""
    early = [Version(Address(f"0x{8:040x}"), keccak_hex(b"something else"), 5)]
    entries = [solution(PYTHON, 10, who=7), solution(PYTHON, 200, who=8, version=2)]
    (cluster,) = find_likeness(entries, versions=early).clusters
    assert cluster.original.submission.submitter == Address(f"0x{7:040x}")
    assert cluster.contested
    late = [Version(Address(f"0x{8:040x}"), keccak_hex(b"something else"), 150)]
    assert not find_likeness(entries, versions=late).clusters[0].contested


def test_large_entries_are_compared_by_a_sample_that_nobody_can_foresee() -> None:
    """A quarter of a megabyte of other words, a padded copy of it and a cut one: found under every key."""
    rng = random.Random(3)
    words = [f"word{n}" for n in range(40_000)]
    rng.shuffle(words)
    texts = [
        " ".join(words[:20_000]),
        " ".join(words[:27_000]),
        " ".join(words[2_000:18_000]),
        " ".join(words[28_000:]),
    ]
    for key in (b"", b"one", b"another"):
        found = find_likeness([solution(text, at) for at, text in enumerate(texts, start=1)], key=key)
        assert [(int(one.earlier, 16), int(one.later, 16)) for one in found.similar] == [(1, 2), (1, 3)]


def test_letters_that_look_alike_are_no_new_text() -> None:
    """Cyrillic letters, gaps of no width and hidden remarks leave an essay what it was."""
    disguised = "<!-- mine -->" + ESSAY.replace("o", "о").replace("volatility", "vola\u200btility")
    assert similar([solution(ESSAY, 1), solution(disguised, 2)]) == [(1, 2, "tokens")]
