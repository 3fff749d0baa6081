"""The JavaScript engine: what it measures, that it repeats itself, and what hostile code comes to."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine
from clara_eval.harness.model import RunLimits
from clara_eval.harness.wasm import CLOCK_SECONDS

HARNESS = """
let limiter;
export function setUp(submission) { limiter = new submission.Limiter(2); }
function same(a, b) { if (a !== b) throw new Error(`${a} is not ${b}`); }
export function test_add(submission) { same(submission.add(1, 2), 3); }
export function test_object() { same([1, 2, 3].map((n) => limiter.allow({ n })).join(), "true,true,false"); }
export async function test_later(submission) { same(await submission.later([1, 2]), 2); }
export function test_fails(submission) {
  try { submission.refuse(); } catch (error) { return same(error.message, "no"); }
  throw new Error("it did not refuse");
}
export function metric_sum(submission) { let t = 0; for (let i = 0; i < 10; i++) t = submission.add(t, i); return t; }
"""
GOOD = """
export const add = (a, b) => a + b;
export class Limiter { constructor(n) { this.n = n; } allow(what) { return what.n > 0 && this.n-- > 0; } }
export async function later(list) { await null; return list.length; }
export function refuse() { throw new Error("no"); }
"""
ONE = "export function test_add(submission) { if (submission.add(1, 2) !== 3) throw new Error('add'); }"


def run(machine: Machine, source: str, harness: str = ONE, limits: RunLimits | None = None) -> Executed:
    return machine.run(Harness("javascript", harness), HarnessSubmission("javascript", source), limits)


def test_a_run_measures_tests_metrics_and_fuel(machine: Machine) -> None:
    """Functions, objects, promises and errors of a submission are there for the harness; fuel is counted."""
    found = run(machine, GOOD, HARNESS)
    assert found.outcome == "passed", found.logs
    assert found.features["tests_passed"] == 1.0
    assert found.features["metric_sum"] == 45
    assert found.features["loads"] is found.features["runs"] is True
    used = {call.name: call.used for call in found.calls}
    assert used["metric_sum"] > used["test_add"] > 0


def test_fuel_is_the_same_in_every_run(machine: Machine) -> None:
    """Runs in several processes at once use the same fuel to the last unit; the bench does so a hundred times."""
    first = run(machine, GOOD, HARNESS)
    with ThreadPoolExecutor(3) as pool:
        assert [one for one in pool.map(lambda _: run(machine, GOOD, HARNESS), range(6)) if one != first] == []


def test_more_work_uses_more_fuel(machine: Machine) -> None:
    """A slow function is measured as dearer than a quick one, and the harness's own work is not counted."""
    slow = "export function add(a, b) { let t = 0; for (let i = 0; i < 1000; i++) t += i; return a + b; }"
    busy = "for (let i = 0; i < 1e5; i++) {}" + ONE
    quick = run(machine, GOOD)
    assert run(machine, slow).used > 1.2 * quick.used
    assert run(machine, GOOD, busy).used == quick.used


def test_without_a_harness_only_loading_is_measured(machine: Machine) -> None:
    """`loads` is the one feature without a harness."""
    assert machine.run(None, HarnessSubmission("javascript", GOOD)).features == {"loads": True}
    assert machine.run(None, HarnessSubmission("javascript", "export {")).features == {"loads": False}


HOSTILE = {
    "endless loop": ("export function add() { for (;;) {} }", "out_of_fuel"),
    "endless when loaded": ("for (;;) {}", "out_of_fuel"),
    "slow expression": ("export const add = () => /^(a+)+$/.test('a'.repeat(40) + 'b');", "out_of_fuel"),
    "memory": ("export function add() { const a = []; for (;;) a.push(new ArrayBuffer(1 << 20)); }", "out_of_memory"),
    "answer that does not fit": (
        (
            "const kept = []; function fill() { let n = 1 << 20; while (n >= 64) "
            "{ try { kept.push(new Uint8Array(n)); } catch { n >>= 1; } } }\n"
            "const s = '\\u20ac'.repeat(200_000); export const add = () => "
            "{ let hole = new Uint8Array(1_000_000); fill(); hole = null; return s; };"
        ),
        "out_of_memory",
    ),
    "large string": ("export function add() { let s = 'x'; for (;;) s += s; }", "out_of_memory"),
    "recursion": ("export function add(a, b) { return 1 + add(a, b); }", "stack_overflow"),
    "endless output": ("export function add() { for (;;) console.log('x'.repeat(999)); }", "too_much_output"),
    "large answer": ("export const add = () => 'x'.repeat(1100000);", "too_much_output"),
    "imports": ("import fs from 'node:fs'; export const add = () => 3;", "forbidden_import"),
    "imports the harness": ("import * as h from './harness.js'; export const add = () => 3;", "forbidden_import"),
    "syntax": ("export function {", "does_not_load"),
    "throws when loaded": ("throw new Error('no');", "does_not_load"),
    "has nothing": ("export const x = 1;", "failed"),
    "brings tests along": ("export function test_add() {} export const add = () => 4;", "failed"),
    "breaks its own world": (
        "JSON.stringify = () => '3'; Object.prototype.then = 1; Array.from = () => []; export const add = () => 4;",
        "failed",
    ),
    "never settles": ("export const add = () => new Promise(() => {});", "failed"),
    "answers NaN": ("export const add = () => NaN;", "failed"),
    "answers a trap": ("export const add = () => new Proxy({}, { ownKeys() { throw 1; } });", "failed"),
    "empty lines": ("export function add() { for (;;) console.log(''); }", "too_much_output"),
    "huge number": ("export const add = () => String(7n ** 3000000n).length;", "out_of_fuel"),
    "wide string": ("export const add = () => 'x'.padEnd(2 ** 29).length;", "out_of_memory"),
    "sparse array": ("export const add = () => { const a = []; a[3e9] = 1; return a.sort().length; };", "out_of_fuel"),
    "endless promises": (
        "export const add = () => { const f = () => Promise.resolve().then(f); return f(); };",
        "out_of_fuel",
    ),
    "deep text": ("export const add = () => JSON.parse('['.repeat(1e6));", "stack_overflow"),
    "deep source": ("export const add = () => " + "(" * 30_000 + "3" + ")" * 30_000 + ";", "stack_overflow"),
    "waits": ("export const add = () => Atomics.wait(new Int32Array(9), 0, 0, 60000);", "failed"),
    "answers what looks like it": ("export const add = () => ({ valueOf: () => 3, toJSON: () => 3 });", "failed"),
    "endless name of an error": (
        "export const add = () => { throw { name: { toString() { for (;;) {} } } }; };",
        "out_of_fuel",
    ),
    "a name that only looks the same": ("export const \u0430dd = (a, b) => a + b;", "failed"),
    "is large": ("// " + "x" * 200_000, "too_large"),
    "is not text": ("\x00\x1b[2J\u202e", "does_not_load"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_ends_in_a_named_outcome(machine: Machine, name: str) -> None:
    """Each attack has its own measured outcome, the same twice, and passes no test."""
    source, outcome = HOSTILE[name]
    limits = RunLimits(fuel=300_000_000)
    found = run(machine, source, limits=limits)
    assert found.outcome == outcome, (found.outcome, found.detail, found.logs)
    assert found.features["tests_passed"] == 0.0
    assert run(machine, source, limits=limits) == found
    assert all(line.isascii() and line.isprintable() for line in (*found.logs, found.detail))


def test_attacks_change_nothing_for_others(machine: Machine) -> None:
    """After every attack an honest submission measures what it measured before."""
    before = run(machine, GOOD)
    for source, _ in HOSTILE.values():
        run(machine, source, limits=RunLimits(fuel=30_000_000))
    assert run(machine, GOOD) == before


STANDARD = """Object Function Array Number Boolean String Symbol BigInt Math JSON Reflect Proxy Promise Map Set WeakMap WeakSet
WeakRef FinalizationRegistry Date RegExp Error EvalError RangeError ReferenceError SyntaxError TypeError URIError
AggregateError SuppressedError InternalError ArrayBuffer SharedArrayBuffer DataView Atomics Int8Array Uint8Array Uint8ClampedArray
Int16Array Uint16Array Int32Array Uint32Array BigInt64Array BigUint64Array Float16Array Float32Array Float64Array Iterator
DisposableStack AsyncDisposableStack parseInt parseFloat isNaN isFinite decodeURI decodeURIComponent encodeURI encodeURIComponent
escape unescape eval globalThis Infinity NaN undefined console queueMicrotask performance DOMException atob btoa"""


def test_there_is_no_world_outside(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is the language and nothing else: no file, no variable, no port; time stands still, chance repeats itself."""
    canary = tmp_path / "canary.js"
    canary.write_text("export default 'canary-4711';", encoding="utf-8")
    monkeypatch.setenv("CLARA_CANARY", "canary-4711")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        source = f"""
        const from = ["{canary}", "file://{canary}", "http://127.0.0.1:{listening.getsockname()[1]}/", "std", "os", "qjs:std", "node:fs"];
        export const seen = () => Object.getOwnPropertyNames(globalThis);
        export const code = () => [Function("return typeof process")(), (0, eval)("typeof require"), typeof std];
        export const now = () => [Date.now(), new Date().getTimezoneOffset(), new Date(0).toString()];
        export const chance = () => Math.random();
        export const timer = () => globalThis.performance?.now() ?? 0;
        export const later = async () => {{
          let reached = 0;
          for (const one of from) try {{ await import(one); reached++; }} catch {{}}
          return reached;
        }};
        """
        harness = f"""
        const same = (a, b) => {{ if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(JSON.stringify(a)); }};
        const known = {STANDARD.split()!r};
        export const test_names = (s) => same(s.seen().filter((name) => !known.includes(name)), []);
        export const test_code = (s) => same(s.code(), ["undefined", "undefined", "undefined"]);
        export const test_clock = (s) => same(s.now(), [{CLOCK_SECONDS * 1000}, 0, "Thu Jan 01 1970 00:00:00 GMT+0000"]);
        export const test_reach = async (s) => same(await s.later(), 0);
        export const metric_chance = (s) => s.chance();
        export const metric_timer = (s) => s.timer();
        """
        first, second = run(machine, source, harness), run(machine, source, harness)
        with pytest.raises(TimeoutError):
            listening.accept()
    assert first.outcome == "passed", first.logs
    assert first == second
    chance = first.features["metric_chance"]
    assert isinstance(chance, float)
    assert 0 < chance < 1


def test_one_test_cannot_poison_the_next(machine: Machine) -> None:
    """Every function starts from a fresh pair: state that a submission keeps is gone."""
    source = "let n = 0; export const add = () => { n += 1; return n === 1 ? 3 : 4; };"
    two = ONE + "export function test_again(submission) { if (submission.add(1, 2) !== 3) throw new Error('again'); }"
    assert run(machine, source, two).outcome == "passed"


def test_many_endless_functions_end_soon(machine: Machine) -> None:
    """After three functions that ran out of fuel the others count as out of fuel without being run."""
    many = "".join(f"export const test_{n} = (s) => s.add(1, 2);" for n in range(30))
    found = run(machine, "export function add() { for (;;) {} }", many, RunLimits(fuel=20_000_000))
    assert [call.outcome for call in found.calls[1:]] == ["out_of_fuel"] * 30
    assert {call.used for call in found.calls[1:]} == {20_000_000}


def test_a_harness_that_does_not_load_says_so(machine: Machine) -> None:
    """The poster's mistake is told as such; the submission loads."""
    found = run(machine, GOOD, "export {")
    assert found.outcome == "does_not_fit"
    assert "harness does not load" in found.detail
    assert found.features["loads"] is True


def used(machine: Machine, source: str, harness: str = ONE) -> int:
    found = run(machine, source, harness)
    assert found.outcome == "passed", (found.detail, found.logs)
    return found.calls[-1].used


def test_work_at_load_and_in_set_up_counts_in_every_function(machine: Machine) -> None:
    """What a submission does when it is loaded, or when the harness sets up, is part of what every function costs."""
    work, add = "for (let i = 0; i < 5000; i++) {}", "export const add = (a, b) => a + b;"
    at_call = used(machine, f"export function add(a, b) {{ {work} return a + b; }}")
    assert used(machine, f"{work} {add}") > 0.9 * at_call
    set_up = "export const setUp = (s) => s.begin();" + ONE
    assert used(machine, f"export function begin() {{ {work} }} {add}", set_up) > 0.9 * at_call


OBJECTS = """
export class Box {
  constructor(items) { this.items = items; this.inner = new Inner(); }
  includes(item) { return this.items.includes(item); }
  add(item) { this.items.push(item); return this; }
  static of(...items) { return new Box(items); }
}
class Inner { value = 5; includes() { return true; } valueOf() { return 5; } toJSON() { return 5; } }
export const make = () => new Box([1]);
export const inner = () => new Inner();
export const literal = () => ({ includes: () => true, items: [1] });
export default { add: (a, b) => a + b };
"""
READ = {
    "an object that the harness built": "const box = new s.Box([1]); check(box.includes(1) && !box.includes(2));",
    "an object that gives itself back": "check(new s.Box([]).add(1).add(2).includes(2));",
    "a method of a class": "check(asObject(s.Box.of(1, 2)).includes(2));",
    "an object that is taken as one": "check(asObject(s.make()).includes(1));",
    "properties of what was given": "check(s.make().items[0] === 1 && s.make().inner.value === 5 && s.literal().items[0] === 1);",
    "functions of the default export": "check(s.default.add(1, 2) === 3);",
    "whether something is exported": "check('make' in s && !('other' in s));",
}
REFUSED = {
    "a method of what was given": "s.make().includes(1);",
    "a method of a property": "new s.Box([]).inner.includes(1);",
    "a function in what was given": "s.literal().includes(1);",
    "its number": "check(s.inner() > 1);",
    "its number, loosely": "check(s.inner() == 5);",
    "its text": "check(`${s.inner()}`);",
    "its JSON": "JSON.stringify([s.inner()]);",
    "its keys": "Object.keys(s.inner());",
    "whether it has a property": "'x' in s.inner();",
    "a copy of it": "({ ...s.inner() });",
    "its items": "[...s.make()];",
    "its class": "s.inner() instanceof Function;",
    "a function of the harness": "s.Box.of(() => 1);",
}


@pytest.mark.parametrize("name", READ)
def test_a_harness_reads_what_it_may(machine: Machine, name: str) -> None:
    """Objects that the harness built are used; what a call gave is read."""
    found = run(machine, OBJECTS, f"{CHECK} export const test_it = (s) => {{ {READ[name]} }};")
    assert found.outcome == "passed", found.logs


@pytest.mark.parametrize("name", REFUSED)
def test_an_object_that_was_given_judges_nothing(machine: Machine, name: str) -> None:
    """An object in the place of plain data is asked nothing that could pass a test."""
    found = run(machine, OBJECTS, f"{CHECK} export const test_it = (s) => {{ {REFUSED[name]} }};")
    assert found.outcome == "failed", found.logs
    assert "Error" in found.logs[0]


CHECK = "const check = (fine) => { if (!fine) throw new Error('wrong'); };"


def test_the_seed_reaches_the_harness_and_not_the_submission(machine: Machine) -> None:
    """Every function of a harness gets the seed as its second argument."""
    harness = "export const metric_drawn = (s, seed) => s.add(Number(BigInt(seed) % 97n), 0);"
    found = [
        machine.run(Harness("javascript", harness, seed), HarnessSubmission("javascript", GOOD)).features[
            "metric_drawn"
        ]
        for seed in ("0x61", "0x05")
    ]
    assert found == [0, 5]
