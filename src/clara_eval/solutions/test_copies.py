"""One work, one place: copies are found in every disguise named here, and honest work is left alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.challenge.model import Address, Submission, Version
from clara_eval.hashing import keccak_hex, sha256_hex
from clara_eval.solutions import Cluster, Solution, copies, find_likeness
from clara_eval.solutions.copies import CopyKind, FeatureSet, overlaps
from clara_eval.solutions.tokens import abstract_shingles, token_stream

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
    assert only(find_copies([solution(SOLIDITY, 1), solution(solidity, 2)])) == (1, [(2, "normalised")])


def test_short_reformatted_copies_are_found_too() -> None:
    """Equal tokens are equal work at any length."""
    assert only(find_copies([solution("def f(x): return x+1", 1), solution("def f(x):\n  return x + 1 # mine", 2)]))


def test_lightly_renamed_copies_are_found() -> None:
    """Other names for variables and functions, a changed constant and an added line do not make a new work."""
    renamed = rename(PYTHON, fee="charge", volume="size", volatility="sigma", quote="price_for", amount="qty", out="o")
    renamed = renamed.replace("1000", "900") + "\n\nVERSION = 2\n"
    assert only(find_copies([solution(PYTHON, 1), solution(renamed, 2)])) == (1, [(2, "near")])
    renamed = rename(SOLIDITY, FeeCurve="MyCurve", moved="delta", scaled="ratio", result="res", due="owed")
    assert only(find_copies([solution(SOLIDITY, 1), solution(renamed, 2)])) == (1, [(2, "near")])


def test_a_lightly_edited_essay_is_a_copy() -> None:
    """A few changed words in prose are a near copy; case and punctuation are no change at all."""
    edited = ESSAY.replace("three parts", "three pieces").replace("calm weather", "quiet weather")
    assert only(find_copies([solution(ESSAY, 1), solution(edited, 2)])) == (1, [(2, "near")])
    assert only(find_copies([solution(ESSAY, 1), solution(ESSAY.upper() + "!", 2)])) == (1, [(2, "normalised")])


def test_different_works_are_left_alone() -> None:
    """Other solutions of the same task, other languages and other prose are no copies of each other."""
    other_essay = " ".join(sorted(ESSAY.split()))
    works = [PYTHON, OTHER, SOLIDITY, ESSAY, other_essay]
    assert find_copies([solution(text, at) for at, text in enumerate(works, start=1)]) == ()


def test_tiny_programs_are_not_accused() -> None:
    """Short programs that look alike but differ in what they compute stay apart, also after Python's //."""
    tiny = [f"def solve(n):\n    return n // {k}\n" for k in range(2, 8)]
    tiny += [f"function solve(n) {{ return n + {k}; }}\nconsole.log(solve(1));" for k in range(5)]
    assert find_copies([solution(text, at) for at, text in enumerate(tiny, start=1)]) == ()


def _repeating(names: Sequence[str]) -> str:
    """A small program of a few statements that repeat each other."""
    parts = [
        f"class {name.title()}(Shape):\n    def draw(self, map, len):\n        return core.{name}(map, len)\n"
        for name in names
    ]
    return "from . import core\n\n\n" + "\n\n".join(parts)


def test_a_renamed_copy_of_a_few_statements_that_repeat_is_found() -> None:
    """Where hardly any statement differs from the next, their number counts; another number is another work."""
    original = _repeating(["circle", "square", "line", "arc", "text"])
    renamed = re.sub(r"\b(?!def|class|return|self|from|import)([a-zA-Z]{3,})\b", r"q_\1x", original)
    longer = _repeating(["name", "place", "owner", "date", "size", "colour", "weight", "height", "depth"])
    works = [solution(text, at) for at, text in enumerate((original, renamed, longer), start=1)]
    assert only(find_copies(works)) == (1, [(2, "near")])


def test_each_language_has_its_own_fixed_words() -> None:
    """A name that is a keyword elsewhere is forgotten like any other: `map` in Python, `len` in JavaScript."""
    for language, text, renamed in (
        ("python", "map = from_pool(string, match)\nstring = map + match\n", "a = b(c, d)\nc = a + d\n"),
        ("javascript", "let len = print(str, int); str = len + int;", "let a = b(c, d); c = a + d;"),
    ):
        first, second = (abstract_shingles(token_stream(one, language), 6) for one in (text, renamed))
        assert len(first) > 0
        assert first.tolist() == second.tolist()


def test_what_the_poster_gave_is_not_copied() -> None:
    """Submissions that share only the poster's skeleton are apart when the skeleton is named, and alike when it is not."""
    bodies = ["    return base + volatility * 2\n", "    return max(base, len(str(volume)))\n"]
    entries = [
        solution(PYTHON + "\n\ndef answer(volume, volatility, base):\n" + body, i) for i, body in enumerate(bodies, 1)
    ]
    assert len(find_copies(entries)) == 1
    assert find_copies(entries, template=PYTHON) == ()
    statement = f"Complete this program so that the fee follows volatility.\n```python\n{PYTHON}\n```\nGood luck!"
    assert find_copies(entries, template=statement) == ()


def test_a_resubmitted_copy_is_contested() -> None:
    """Resubmission moves the time, and a second is no order: whoever counts as the copy may be first, so a person looks."""
    assert not find_copies([solution(PYTHON, 1), solution(PYTHON, 2)])[0].contested
    assert find_copies([solution(PYTHON, 1, who=7), solution(PYTHON, 1, who=8)])[0].contested
    assert find_copies([solution(PYTHON, 1), solution(PYTHON, 2, version=2)])[0].contested


def test_likeness_by_steps_is_one_cluster() -> None:
    """A copy of a copy belongs to the first work, and its reason names the step."""
    words = [f"w{n}" for n in range(400)]
    texts = [" ".join(words[shift : shift + 300]) for shift in (0, 30, 60)]
    (cluster,) = find_copies([solution(text, at) for at, text in enumerate(texts, start=1)])
    assert [copy.like.submission.submitted_at for copy in cluster.copies] == [1, 2]
    assert "through" in cluster.rejected()[1].reason


def test_texts_without_tokens_are_compared_by_bytes() -> None:
    """Two different texts of comments only are not the same work."""
    texts = ["# def f(x): one\n#def g(): a\n", "# def f(x): two\n"]
    assert find_copies([solution(text, at) for at, text in enumerate(texts, start=1)]) == ()


def test_many_entries_with_clones_are_clustered() -> None:
    """Four hundred entries, half of them edited clones, are clustered completely, one original."""
    rng = random.Random(7)
    vocabulary = [f"word{n}" for n in range(3_000)]
    honest = [" ".join(rng.choices(vocabulary, k=300)) for _ in range(200)]
    clones = [honest[0] + f" extra{n} tail{n}" for n in range(200)]
    (cluster,) = find_copies([solution(text, at) for at, text in enumerate([*honest, *clones], start=1)])
    assert len(cluster.copies) == 200
    assert cluster.original.submission.submitted_at == 1


def test_works_that_share_half_are_one_family_and_all_stay_ranked() -> None:
    """Three variations on one text and two entries of one agent are families; nobody is called a copy, others are alone."""
    words = [f"w{n}" for n in range(400)]
    variations = [" ".join([*words[:300], *(f"own{at}x{n}" for n in range(100))]) for at in range(3)]
    texts = [*variations, PYTHON, SOLIDITY, ESSAY]
    found = find_likeness(
        [solution(text, at, agent=5 if at in (4, 5) else None) for at, text in enumerate(texts, start=1)]
    )
    assert found.clusters == ()
    account = {at: Address(f"0x{at:040x}") for at in range(1, 7)}
    assert found.families == {account[n]: account[1] for n in (1, 2, 3)} | {account[n]: account[4] for n in (4, 5)}


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
    assert len(entries) - sum(len(one.copies) for one in clusters) == len({token_stream(text).tokens for text in texts})


@pytest.mark.parametrize("at_once", [3, 10**6])
@given(st.lists(st.frozensets(st.integers(0, 12)), max_size=8), st.sets(st.integers(0, 7)))
def test_likeness_is_the_jaccard_index_of_every_pair(at_once: int, sets: list[frozenset[int]], known: set[int]) -> None:
    """However it is cut into pieces, counting through the index equals comparing every pair of sets."""
    hashed = [copies.FeatureSet.of(np.array(sorted(one), dtype=np.uint64)) for one in sets]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "_AT_ONCE", at_once)
        overlaps = list(copies.overlaps(hashed, 2, known))
    counted = [one if len(one) >= 2 and n not in known else frozenset[int]() for n, one in enumerate(sets)]
    whole = [one.of(np.arange(later)) for later, one in enumerate(overlaps)]
    assert all(
        not (rest & ~one.likely).any() for one, rest in zip(overlaps, (w.most >= 0.5 for w in whole), strict=True)
    )
    assert {later: whole[later].jaccard.tolist() for later, mine in enumerate(counted) if mine} == {
        later: [len(mine & other) / len(mine | other) for other in counted[:later]]
        for later, mine in enumerate(counted)
        if mine
    }


@given(st.randoms(use_true_random=False))
@settings(max_examples=6, deadline=None)
def test_families_are_those_of_a_comparison_of_the_ranked_alone(rng: random.Random) -> None:
    """What was counted among all is, for some of them, what counting among those alone gives."""
    works = [
        PYTHON,
        OTHER,
        PYTHON + OTHER,
        PYTHON[: len(PYTHON) * 2 // 3],
        OTHER.replace("market", "venue"),
        OTHER + "\n",
    ]
    texts = [rng.choice(works) for _ in range(7)]
    prints = [copies._Print.of(solution(text, n + 1), copies._Given("", b"key")) for n, text in enumerate(texts)]
    ranked = sorted(rng.sample(range(7), 4))

    def told(pairs: Iterable[tuple[int, copies._Alike]]) -> set[tuple[int, int, bool, float]]:
        return {
            (later, int(earlier), bool(family), round(float(held), 9))
            for later, alike in pairs
            for earlier, family, held in zip(alike.earlier, alike.family, alike.held, strict=True)
        }

    assert told(copies._Compared(prints).among(ranked)) == told(copies._alike([prints[n] for n in ranked]))


@given(st.text(max_size=300))
def test_any_text_has_a_token_stream(text: str) -> None:
    """Tokens come from the text in order; noise never fails."""
    stream = token_stream("def f():\n" + text)
    assert all(isinstance(token, str) and token for token in stream.tokens)


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
        assert token_stream("def f():\n pragma solidity\n" + unit * (200_000 // len(unit))).language


def test_a_program_hidden_behind_a_long_comment_is_found() -> None:
    """Forty kilobytes of remarks in front, even in another language, with or without the poster's hint: still a copy."""
    front = "".join(f"// def price(x{n}): return x{n}\n" for n in range(1500))
    assert len(front) > 40_000
    for language in (None, "solidity"):
        entries = [
            replace(solution(text, at), language=language) for at, text in ((1, SOLIDITY), (2, front + SOLIDITY))
        ]
        assert only(find_copies(entries)) == (1, [(2, "normalised")])


def test_padding_and_leaving_out_make_no_new_work() -> None:
    """A work that holds an earlier one is its copy, also when more than half of it is padding; so is a part of one."""
    part = PYTHON.partition("    def swap")[0]
    assert only(find_copies([solution(PYTHON, 1), solution(OTHER + PYTHON, 2)])) == (1, [(2, "contained")])
    renamed = rename(PYTHON, fee="charge", volume="size", volatility="sigma", quote="price_for", amount="qty", out="o")
    assert only(find_copies([solution(PYTHON, 1), solution(OTHER + renamed, 2)])) == (1, [(2, "contained")])
    assert only(find_copies([solution(PYTHON, 1), solution(part, 2)])) == (1, [(2, "contained")])


def test_an_earlier_work_deep_in_a_later_one_is_a_doubt() -> None:
    """What is mostly something else is nobody's plain copy: it is ranked, in one family, with the share that it holds."""
    words = [f"w{n}" for n in range(200)]
    own = [f"own{n}" for n in range(2_000)]
    found = find_likeness([solution(" ".join(words), 1), solution(" ".join([*own, *words]), 2)])
    assert found.clusters == ()
    first, second = (Address(f"0x{at:040x}") for at in (1, 2))
    assert found.families == {first: first, second: first}
    assert [(one.account, one.other) for one in found.doubts] == [(second, first)]
    assert found.doubts[0].share == 1.0


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
    first = [Version(author, keccak_hex(PYTHON.encode()), 10), Version(thief, keccak_hex(PYTHON.encode()), 20)]
    stolen = solution(PYTHON, 20, who=8)
    for again in (PYTHON, PYTHON.replace("1000", "900") + "\n\nVERSION = 2\n"):
        entries = [stolen, solution(again, 30, who=7, version=2)]
        (cluster,) = find_likeness(entries, versions=first).clusters
        assert cluster.original.submission.submitter == author
        assert not cluster.contested
        (cluster,) = find_likeness(entries).clusters
        assert cluster.original.submission.submitter == thief
        assert cluster.contested
    found = find_likeness([stolen, solution(ESSAY, 30, who=7, version=2)], versions=first)
    assert found.clusters == ()
    assert [(one.account, one.other, one.share) for one in found.doubts] == [(thief, author, None)]


def test_unrelated_first_versions_change_nothing() -> None:
    """An early version with other content does not make its submitter the author, but leaves a doubt for a person."""
    early = [Version(Address(f"0x{8:040x}"), keccak_hex(b"something else"), 5)]
    entries = [solution(PYTHON, 10, who=7), solution(PYTHON, 20, who=8, version=2)]
    (cluster,) = find_likeness(entries, versions=early).clusters
    assert cluster.original.submission.submitter == Address(f"0x{7:040x}")
    assert cluster.contested
    late = [Version(Address(f"0x{8:040x}"), keccak_hex(b"something else"), 15)]
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
        assert only(found.clusters)[0] == 1
        assert [copy.solution.submission.submitted_at for copy in found.clusters[0].copies] == [2, 3]


def test_letters_that_look_alike_are_no_new_text() -> None:
    """Cyrillic letters, gaps of no width and hidden remarks leave an essay what it was."""
    disguised = "<!-- mine -->" + ESSAY.replace("o", "о").replace("volatility", "vola\u200btility")
    assert only(find_copies([solution(ESSAY, 1), solution(disguised, 2)])) == (1, [(2, "normalised")])


def test_what_sets_share_is_what_counting_pair_by_pair_gives() -> None:
    """Random sets with weights, small and known ones among them: every earlier one's share, to the last bit."""
    rng = np.random.default_rng(5)
    sets = []
    for _ in range(40):
        hashes = np.unique(rng.integers(0, 300, rng.integers(0, 90)).astype(np.uint64))
        sets.append(FeatureSet.of(hashes, (1.0 + hashes % 7).astype(np.float64) if rng.random() < 0.5 else None))
    for later, found in enumerate(overlaps(sets, 20, {3, 11})):
        mine = sets[later]
        counts = [len(one.hashes) >= 20 and place not in {3, 11} for place, one in enumerate(sets)]
        expected = [
            mine.weights[np.isin(mine.hashes, sets[earlier].hashes)].sum() if counts[later] and counts[earlier] else 0.0
            for earlier in range(later)
        ]
        assert found.shared.tolist() == expected
