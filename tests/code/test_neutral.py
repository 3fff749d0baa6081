"""Code in neutral words: no word of its writer is left, what the task asks for stays, what nothing calls is gone."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.code.neutral import neutral_code, wanted_names
from clara_eval.core.syntax import parse
from clara_eval.redteam.lies import LIE, STATEMENT, carried

LIMITER = wanted_names(STATEMENT)
WORK = '''from collections import deque

class Limiter:
    """The best limiter."""

    def __init__(self, limit):
        self.limit = limit
        self.seen = deque()

    def allow(self, value):
        # drop the old ones
        self._forget(value)
        self.seen.append("kept")
        return len(self.seen) < self.limit

    def _forget(self, value):
        while self.seen and value > 3:
            self.seen.popleft()


def test_it_allows():
    limiter = Limiter(2)
    assert limiter.allow(1)
'''


def _neutral(text: str, language: str = "python", wanted: frozenset[str] = LIMITER) -> str:
    found = neutral_code(text.encode(), language, wanted)
    assert found is not None
    return found


def test_names_are_replaced_alike_everywhere_and_the_program_stays() -> None:
    """What the task asks for and library words stay, helpers that are called stay, a test that tests stays."""
    assert _neutral(WORK) == (
        "from collections import deque\n"
        "class Limiter:\n"
        "    def __init__(self, v1):\n"
        "        self.v1 = v1\n"
        "        self.v2 = deque()\n"
        "    def allow(self, value):\n"
        "        self.f1(value)\n"
        '        self.v2.append("s1")\n'
        "        return len(self.v2) < self.v1\n"
        "    def f1(self, value):\n"
        "        while self.v2 and value > 3:\n"
        "            self.v2.popleft()\n"
        "def test_1():\n"
        "    v3 = Limiter(2)\n"
        "    assert v3.allow(1)\n"
    )


@pytest.mark.parametrize(("language", "carrier", "program"), [pytest.param(*c, id=f"{c[0]} {c[1]}") for c in carried()])
def test_no_word_of_the_writer_is_left(language: str, carrier: str, program: object) -> None:
    """In every carrier the payload is gone, no library word of it makes a sentence, and the work is still there."""
    assert callable(program)
    text = program(70_001, LIE)
    view = _neutral(text, language)
    assert LIE not in view
    assert not re.search("report|correctness|verified|proof", view, re.IGNORECASE), view
    assert "70001" in view
    assert parse(view.encode(), language) is not None


def test_a_library_word_that_is_defined_anew_is_no_library_word() -> None:
    """Who defines `sorted` or `verify` himself gets no credit for the name."""
    view = _neutral(
        "def sorted(x):\n    return x\n\n\ndef solve(x):\n    return sorted(x)\n", wanted=frozenset({"solve"})
    )
    assert view == "def f1(v1):\n    return v1\ndef solve(v1):\n    return f1(v1)\n"


def test_without_a_named_interface_small_parts_that_nothing_calls_go() -> None:
    """Two functions of one size may both be the work; a small class beside them that nothing calls is not."""
    body = "".join(f"    value = value * {n} + 1\n" for n in range(8))
    two = f"def encode(value):\n{body}    return value\n\n\ndef decode(value):\n{body}    return value\n"
    view = _neutral(two + "\n\nclass Proof:\n    def holds(self):\n        return True\n", wanted=frozenset())
    assert view.count("def ") == 2
    assert "class" not in view


def test_code_that_runs_at_the_top_is_kept_where_it_makes_something_that_is_used() -> None:
    """A table that is filled outside functions belongs to the work; a call of something else does not."""
    text = "TABLE = {}\nfor n in range(9):\n    TABLE[n] = n * n\nboast()\n\n\ndef solve(n):\n    return TABLE[n]\n"
    view = _neutral(text, wanted=frozenset({"solve"}))
    assert view == "v1 = {}\nfor v2 in range(9):\n    v1[v2] = v2 * v2\ndef solve(v2):\n    return v1[v2]\n"


def test_what_a_program_needs_is_not_taken_from_it() -> None:
    """Scripts without functions, methods that a library calls, and functions used through `using` stay."""
    script = "n = int(input())\nfor k in range(n):\n    print(k * 7)\n"
    assert _neutral(script, wanted=frozenset({"n"})).count("\n") == 3
    thread = "from threading import Thread\n\n\nclass Solve(Thread):\n    def run(self):\n        print(77)\n"
    assert "77" in _neutral(thread, wanted=frozenset({"Solve"}))
    assert "77" in _neutral(thread + "\n\ndef solve():\n    Solve().start()\n", wanted=frozenset({"solve"}))
    library = (
        "library L { function twice(uint a) internal pure returns (uint) { return a * 77; } }\nusing L for uint;\n"
    )
    work = "contract Work { function solve(uint a) external pure returns (uint) { return a.twice(); } }\n"
    assert "77" in _neutral(library + work, "solidity", frozenset({"solve"}))
    classic = (
        "function Limiter(n) { this.n = n; }\nLimiter.prototype.allow = function (v) { return v < 77 * this.n; };\n"
    )
    assert "77" in _neutral(classic + "module.exports = { Limiter };\n", "javascript")


@pytest.mark.parametrize(
    ("condition", "is_kept"),
    [("False", False), ("0", False), ("not True", False), ("1 > 2", False), ("None", False), ("x or True", True),
     ("x", True), ("False and x", False), ("OFF", False), ("x == x", True), ("x != x", False), ("inf < 3", True)],
)  # fmt: skip
def test_branches_behind_constants_are_dropped(condition: str, is_kept: bool) -> None:
    """A condition that is false by its text alone takes its branch with it; one that is open or true does not."""
    text = f"OFF = False\n\n\ndef solve(x):\n    if {condition}:\n        x = x + 12345\n    return x\n"
    assert ("12345" in _neutral(text, wanted=frozenset({"solve"}))) == is_kept


def test_names_in_a_task_and_a_harness_are_found() -> None:
    """What is written as code counts, plain words of a sentence do not; a harness tells names, not comments."""
    found = wanted_names(
        "Report the best value. Write a class Meter with `read(now)`, and call_back for each; see maxGas.",
        "# report best\nimport submission\nassert submission.solve(3) == 'best'\n",
        "python",
    )
    assert {"Meter", "read", "now", "call_back", "maxGas", "solve", "submission"} <= found
    assert not {"Report", "best", "value", "report"} & found


PIECES = st.sampled_from(
    ["if", "(", ")", "{", "}", "def f():\n", " ", "\n", "'", '"', "`", "/*", "#", "boast", "&&", "=>", "class ", "contract ",
     "function ", "x = 1\n", ";", ":", "return\n", "assert ", "é", "1e5", "0xg"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(PIECES, max_size=60),
    language=st.sampled_from(["python", "javascript", "typescript", "solidity", "rust", "go"]),
)
def test_broken_code_gives_no_words_away(pieces: list[str], language: str) -> None:
    """Whatever the parser makes of a text, a word that is on no list does not come through."""
    view = neutral_code("".join(pieces).encode(), language)
    assert view is None or not re.search("boast|é", view)


def _nested(before: str, opened: str, inner: str, closed: str, size: int = 200_000) -> str:
    depth = size // len(opened + closed)
    return before + opened * depth + inner + closed * depth


HOSTILE = {
    "chained calls": ("python", "a" + ".b()" * 50_000),
    "chained assignments": ("python", "def f(): return 1\ndef test_a():\n " + "x=" * 7_000 + "f()\n assert x\n"),
    "nested calls": ("javascript", _nested("function f(){}it('a',()=>{", "x(expect(a),", "1", ")", 14_000) + "});"),
    "nested checks": (
        "python",
        "def f(): return 1\ndef test_a():\n x(" + _nested("", "expect(", "1", ")", 9_000) + ")",
    ),
    "tests in tests": ("javascript", _nested("function f(){}", "it('a',()=>{", "expect(f())", "});")),
    "many tests": ("python", "".join(f"def f{n}():1\ndef test_{n}():0\n" for n in range(7_000))),
    "classes of one name": ("python", "class A(A):0\n" * 15_000),
    "a type in a type": ("rust", _nested("", "impl A<{", "1", "}>{}")),
    "a class in a field": ("javascript", _nested("", "class A{[function(){", "1", "}]=1}")),
    "a class in a heritage": ("javascript", _nested("", "class A extends function(){", "1", "}{}")),
    "functions in blocks": ("rust", _nested("fn f(){", "{", "fn a(){}" * 12_000, "}", 100_000) + "}"),
    "targets in targets": ("javascript", _nested("", "[][", "a", "]=1")),
    "values in values": ("javascript", (_nested("", "let a=()=>{", "1", "}", 3_900) + ";\n") * 50),
    "members in members": ("javascript", (_nested("", "a[", "1", "].b=1", 3_900) + ";\n") * 50),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_programs_cost_linear_time(name: str) -> None:
    """However definitions, tests and assignments are nested or repeated, dead code is found in seconds."""
    language, text = HOSTILE[name]
    began = time.process_time()
    assert neutral_code(text.encode(), language) is not None
    assert time.process_time() - began < 10
