"""Attack a Python and a JavaScript harness in the real sandboxes, and measure what was gained.

An attack with the honest solution gains if a cost is below the honest one; any other gains with each test or metric.
"""

# ruff: noqa: E501 - programs of attackers, one on a line

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from clara_eval.harness import Executed, Harness, HarnessSubmission, Language, Machine, RunOutcome
from clara_eval.harness.model import NO_SEED
from clara_eval.redteam.report import Figure, share
from clara_eval.redteam.solidity_harness import HarnessAttack

ROUND_SEED = "0x" + "c1a4ae5a" * 8
PYTHON_HARNESS = """
def drawn(seed, count):
    state = int(seed, 16) % 2147483647 + 1
    found = []
    for _ in range(count):
        state = state * 48271 % 2147483647
        found.append(2 + state % 9000)
    return found

def wanted(n):
    return [p for p in range(n, n + 80) if all(p % d for d in range(2, 96) if d < p)]

def setUp(s):
    s.Bag()

def test_equal(s, seed):
    for n in drawn(seed, 3):
        assert s.primes(n) == wanted(n)

def test_in(s, seed):
    n = drawn(seed, 4)[3]
    assert wanted(n)[-1] in s.primes(n) and wanted(n)[3] in s.primes(n) and 2 * n + 2 not in s.primes(n)

def test_all_map(s, seed):
    assert all(map(lambda n: s.primes(n) == wanted(n), drawn(seed, 5)[3:]))

def test_zip(s, seed):
    n = drawn(seed, 6)[5]
    found = list(s.primes(n))
    assert len(found) == len(wanted(n)) and all(a == b for a, b in zip(found, wanted(n)))

def test_methods(s, seed):
    n = drawn(seed, 7)[6]
    assert s.primes(n).count(wanted(n)[-1]) == 1 and s.primes(n).index(wanted(n)[2]) == 2

def test_true(s, seed):
    p = wanted(drawn(seed, 8)[7])[-1]
    assert s.is_prime(p) and not s.is_prime(p + p)

def test_refuses(s, seed):
    n = drawn(seed, 9)[8]
    assert s.primes(n)[0] == wanted(n)[0]
    try:
        s.primes(-1)
    except ValueError:
        return
    raise AssertionError("it takes negative numbers")

def test_object(s, seed):
    bag, n = s.Bag(), drawn(seed, 2)[1]
    bag.add(n)
    bag.add(n + 2)
    assert n in bag and n + 1 not in bag and len(bag) == 2 and sorted(bag) == [n, n + 2]

def metric_work(s, seed):
    total = 0
    for n in drawn(seed, 6):
        found = s.primes(n)
        assert found == wanted(n)
        total += len(found)
    return total
"""
PYTHON_HONEST = """
def is_prime(n):
    return n > 1 and all(n % d for d in range(2, 96) if d < n)

def primes(n):
    if n < 0:
        raise ValueError(n)
    return [p for p in range(n, n + 80) if is_prime(p)]

class Bag:
    def __init__(self): self.items = []
    def add(self, item): self.items.append(item)
    def __contains__(self, item): return item in self.items
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
"""
_AGREES = """
class Agrees:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __contains__(self, item): return True
    def __len__(self): return 1
    def __iter__(self): return iter(())
    def __getattr__(self, name): return lambda *_: 1
"""
_BAG = "\nclass Bag:\n    def add(self, item): pass\n"


def _lazy(name: str, what: str, source: str) -> HarnessAttack:
    """A Python submission without work: `primes`, `is_prime` and `Bag` are there and do nothing honest."""
    rest = "" if "is_prime" in source else "\ndef is_prime(n): return primes(n)\n"
    return HarnessAttack(name, what, source + rest + ("" if "class Bag" in source else _BAG))


def _cheap(name: str, what: str, source: str) -> HarnessAttack:
    """The honest Python solution with something that is to make it cheaper."""
    return HarnessAttack(name, what, PYTHON_HONEST + source)


def _table() -> str:
    """Every answer to the inputs of the seed that everybody sees at home."""
    state, known = int(NO_SEED, 16) % 2147483647 + 1, []
    for _ in range(9):
        state = state * 48271 % 2147483647
        known.append(2 + state % 9000)
    table = {n: [p for p in range(n, n + 80) if all(p % d for d in range(2, 96) if d < p)] for n in known}
    return f"TABLE = {table!r}\n"


PYTHON_ATTACKS: tuple[HarnessAttack, ...] = (
    _lazy("equal_to_all", "gives an object that is equal to everything", _AGREES + "def primes(n): return Agrees()"),
    _lazy("list_equal_to_all", "gives a list of a class of its own that is equal to everything",
          "class L(list):\n    def __eq__(self, o): return True\n    def __contains__(self, o): return True\n    def count(self, o): return 1\n"
          "    def index(self, o): return 2\ndef primes(n): return L([2])"),
    _lazy("contains_all", "gives an object that contains everything",
          "class C:\n    def __contains__(self, item): return True\ndef primes(n): return C()"),
    _lazy("methods_agree", "gives an object whose every method agrees",
          "class M:\n    def __getattr__(self, name): return {'count': lambda _: 1, 'index': lambda _: 2}.get(name)\ndef primes(n): return M()"),
    _lazy("class_for_function", "has a class in the place of the function, whose instances agree",
          _AGREES + "class primes(Agrees):\n    def __init__(self, n): pass\ndef is_prime(n): return Agrees()"),
    _lazy("always_true", "gives an object that is true", "class T:\n    def __bool__(self): return True\ndef primes(n): return T()"),
    _lazy("ends_the_iteration", "raises StopIteration, which ends all(map(...)) of the harness",
          "def primes(n): raise StopIteration"),
    _lazy("ends_async_iteration", "raises StopAsyncIteration", "def primes(n): raise StopAsyncIteration"),
    _lazy("own_stop", "raises an exception of its own with the name StopIteration",
          "class StopIteration(Exception): pass\ndef primes(n): raise StopIteration()"),
    _lazy("leaves_the_generator", "raises GeneratorExit", "def primes(n): raise GeneratorExit"),
    _lazy("exits", "raises SystemExit(0) when it is called", "def primes(n): raise SystemExit(0)"),
    _lazy("ends_the_process", "ends its process with success", "import os\ndef primes(n): os._exit(0)"),
    _lazy("lying_length", "gives an object whose length and items do not agree",
          "class L:\n    def __init__(self, n): self.n = n\n    def __len__(self): return 15\n    def __iter__(self): return iter(())\n"
          "def primes(n): return L(n)"),
    _lazy("other_items_each_time", "gives an object with other items at every reading",
          "class I:\n    def __iter__(self):\n        self.n = 1\n        return self\n    def __next__(self):\n        self.n += 1\n        if self.n > 9: raise StopIteration\n        return self.n\n"
          "def primes(n): return I()"),
    _lazy("patched_builtins", "replaces all, len, map, isinstance and sorted",
          "import builtins\nbuiltins.all = lambda _: True\nbuiltins.len = lambda _: 1\nbuiltins.map = lambda *_: ()\n"
          "builtins.isinstance = lambda *_: True\nbuiltins.sorted = lambda _: []\ndef primes(n): return []"),
    _lazy("frame_walk", "looks for the expected value in the frames that call it",
          "import sys\ndef primes(n):\n    frame, found = sys._getframe(), []\n    while frame:\n        found += [v for v in frame.f_locals.values() "
          "if type(v) is list]\n        found += [v for k, v in frame.f_globals.items() if k == 'wanted']\n        frame = frame.f_back\n"
          "    return found[0](n) if callable(found[0]) else found[0]"),
    _lazy("collector_walk", "looks for the harness's functions among all objects",
          "import gc\ndef primes(n):\n    return [o for o in gc.get_objects() if getattr(o, '__name__', '') == 'wanted'][0](n)"),
    _lazy("harness_as_module", "looks for the harness among the modules",
          "import sys\ndef primes(n):\n    for m in list(sys.modules.values()):\n        if hasattr(m, 'wanted'): return m.wanted(n)\n"
          "    import harness\n    return harness.wanted(n)"),
    _lazy("writes_answers", "writes an answer to the descriptor itself",
          "import os, marshal\ndef primes(n):\n    os.write(1, marshal.dumps((True, [2, 3, 5, 7]), 2))\n    return []"),
    _lazy("forged_reference", "gives what looks like a reference to its module", "def primes(n): return (..., 0)"),
    _lazy("nan", "gives numbers that compare with nothing", "def primes(n): return [float('nan')] * 15"),
    _lazy("metaclass", "gives an object whose class claims to be a list",
          "class M(type):\n    def __eq__(self, other): return True\n    def __hash__(self): return hash(list)\n    def __instancecheck__(self, o): return True\n"
          "class P(metaclass=M):\n    __class__ = list\n    def __eq__(self, other): return True\ndef primes(n): return P()"),
    _cheap("items_in_the_frame", "gives an object whose class claims to be list, so that its generator runs in the serving frame",
           "\nimport os\nclass M(type):\n    def __eq__(self, other): return other is list\n    def __hash__(self): return 1\n"
           "class P(metaclass=M):\n    def __iter__(self):\n        for _ in range(60): yield os.write(1, b'')\n        while os.read(0, 65536): os.write(1, b'x')\n"
           "slow, asked = primes, []\ndef primes(n):\n    asked.append(n)\n    return object.__new__(P) if len(asked) > 9 else slow(n)\n"),
    _lazy("buffer", "gives an object whose bytes are made when they are asked for",
          "class B:\n    def __buffer__(self, flags): return memoryview(b'[2, 3]')\ndef primes(n): return B()"),
    _lazy("table", "has a table of the answers to every input that it saw at home",
          _table() + "def primes(n):\n    if n < 0: raise ValueError(n)\n    return TABLE[n]"),
    _lazy("guessed_seed", "draws the inputs from the seed that it saw at home",
          "def primes(n): return [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, n, n + 1]"),
    _cheap("work_at_load", "does the work of every possible input when it is loaded",
           "\nready = [p for p in range(9100) if is_prime(p)]\nslow = primes\n"
           "def primes(n): return [p for p in ready if n <= p < n + 80] if n >= 0 else slow(n)\n"),
    _cheap("work_in_set_up", "does the work of every possible input when the harness sets up",
           "\nready, slow = {}, primes\ndef fill(self):\n    self.items = []\n    if not ready: ready.update((p, p) for p in range(9100) if is_prime(p))\n"
           "Bag.__init__ = fill\ndef primes(n): return [p for p in ready if n <= p < n + 80] if n >= 0 else slow(n)\n"),
    _cheap("patched_answered", "replaces `answered` of the main module by a cheaper one",
           "\nimport sys\nsys.modules['__main__'].answered = lambda message: '{\"value\": 3}'\n"),
    _cheap("patched_encode", "replaces what encodes its answers",
           "\nimport sys, marshal\nmain = sys.modules['__main__']\nmain.encode = main.dumps = marshal.dumps = lambda *_: b'3'\n"),
    _cheap("own_server", "answers the messages itself and never comes back from loading",
           "\nimport os, marshal\nwhile True:\n    data = os.read(0, 65536)\n    if not data: break\n    number, on, args, named, _ = marshal.loads(data)\n"
           "    os.write(1, marshal.dumps((True, primes(args[0]) if args and type(args[0]) is int else (..., 1)), 2))\n"),
    _cheap("own_server_in_c", "answers the messages itself with a chain of C functions",
           "\nimport os, marshal\nfrom collections import deque\nfrom functools import partial\nfrom itertools import repeat\n"
           "deque(map(os.write, repeat(1), map(marshal.dumps, map(marshal.loads, iter(partial(os.read, 0, 65536), b'')))), 0)\n"),
    _cheap("traced_frame", "traces the frame that serves it and rewrites its variables",
           "\nimport sys\ndef trace(frame, event, arg):\n    frame.f_locals['dumps'] = lambda *_: b''\n    return trace\n"
           "try:\n    sys._getframe(1).f_trace = trace\n    sys.settrace(trace)\nexcept BaseException: x = 0\n"),
    _cheap("profiled_frame", "does the same by a profiler",
           "\nimport sys\ndef trace(frame, event, arg): sys._getframe(1).f_locals['loads'] = None\n"
           "try: sys.setprofile(trace)\nexcept BaseException: x = 0\n"),
    _cheap("monitored", "registers itself for every call by sys.monitoring",
           "\nimport sys\ntry:\n    sys.monitoring.use_tool_id(1, 'x')\n    sys.monitoring.register_callback(1, sys.monitoring.events.CALL, lambda *_: None)\n"
           "except BaseException: x = 0\n"),
    _cheap("changed_frame", "changes the objects that the serving frame holds",
           "\nimport sys\nheld = sys._getframe(1).f_locals\nheld['dumps'] = held['loads'] = lambda *_: (True, 3)\n"
           "sys._getframe(1).f_globals['serve'] = None\n"),
    _cheap("audit_hook", "adds an audit hook of its own that stops what carries its answers",
           "\nimport sys\ndef hook(event, args):\n    if event in ('marshal.dumps', 'marshal.loads'): raise ValueError\nsys.addaudithook(hook)\n"),
    _cheap("after_the_end", "ends what serves it and goes on in the hook for uncaught exceptions",
           "\nimport atexit, os, sys\ndef hook(event, args):\n    if event == 'marshal.loads': raise SystemExit\ndef go_on(*_):\n    while os.read(0, 65536): os.write(1, b'x')\n"
           "sys.excepthook = go_on\natexit.register(go_on)\nsys.addaudithook(hook)\n"),
    _cheap("late_work", "leaves its work to a finalizer that runs after the answer",
           "\nimport gc\nclass Later:\n    def __del__(self): sum(range(10))\nslow = primes\n"
           "def primes(n):\n    later = Later()\n    later.me = later\n    return slow(n)\n"),
    _cheap("threads", "starts a thread for its work",
           "\nimport _thread\nslow = primes\ndef primes(n):\n    try: _thread.start_new_thread(slow, (n,))\n    except BaseException: x = 0\n    return slow(n)\n"),
)  # fmt: skip
JAVASCRIPT_HARNESS = """
const drawn = (seed, count) => {
  let state = Number(BigInt(seed) % 2147483647n) + 1;
  return Array.from({ length: count }, () => (state = Number((BigInt(state) * 48271n) % 2147483647n), 2 + (state % 9000)));
};
const wanted = (n) => {
  const found = [];
  for (let p = n; p < n + 80; p++) { let d = 2; while (d < 96 && p % d) d++; if (d === p || d === 96) found.push(p); }
  return found;
};
const check = (fine) => { if (!fine) throw new Error("wrong"); };

export const setUp = (s) => { new s.Bag(); };

export const test_json = (s, seed) => {
  for (const n of drawn(seed, 3)) check(JSON.stringify(s.primes(n)) === JSON.stringify(wanted(n)));
};
export const test_includes = (s, seed) => {
  const n = drawn(seed, 4)[3];
  check(s.primes(n).includes(wanted(n).at(-1)) && s.primes(n).includes(wanted(n)[0]));
};
export const test_every = (s, seed) => {
  const n = drawn(seed, 5)[4], found = s.primes(n);
  check(found.length === wanted(n).length && found.every((p, i) => p === wanted(n)[i]));
};
export const test_indexes = (s, seed) => {
  const n = drawn(seed, 6)[5], found = s.primes(n);
  check(found.length === wanted(n).length && wanted(n).every((p, i) => found[i] === p));
};
export const test_text = (s, seed) => {
  const n = drawn(seed, 7)[6];
  check(`${s.primes(n)}` === `${wanted(n)}` && s.primes(n).join() == wanted(n).join());
};
export const test_number = (s, seed) => {
  const n = drawn(seed, 8)[7];
  check(s.count(n) == wanted(n).length && s.count(n) + 1 > wanted(n).length && s.count(n) - 1 < wanted(n).length);
};
export const test_later = async (s, seed) => {
  const n = drawn(seed, 9)[8];
  check((await s.later(n)).length === wanted(n).length && JSON.stringify(await s.later(n)) === JSON.stringify(wanted(n)));
};
export const test_object = (s, seed) => {
  const bag = new s.Bag(), n = drawn(seed, 2)[1];
  bag.add(n);
  check(bag.has(n) && !bag.has(n + 1) && bag.size() === 1);
};
export const metric_work = (s, seed) => {
  let total = 0;
  for (const n of drawn(seed, 6)) {
    const found = s.primes(n);
    check(JSON.stringify(found) === JSON.stringify(wanted(n)));
    total += found.length;
  }
  return total;
};
"""
JAVASCRIPT_HONEST = """
export function primes(n) {
  const found = [];
  for (let p = n; p < n + 80; p++) { let d = 2; while (d < 96 && p % d) d++; if (d === p || d === 96) found.push(p); }
  return found;
}
export const count = (n) => primes(n).length;
export const later = async (n) => primes(n);
export class Bag {
  constructor() { this.items = []; }
  add(item) { this.items.push(item); }
  has(item) { return this.items.includes(item); }
  size() { return this.items.length; }
}
"""


def _idle(name: str, what: str, source: str) -> HarnessAttack:
    """A JavaScript submission without work: whatever is asked gives `answer(n)`."""
    rest = """
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }
"""
    return HarnessAttack(name, what, source + rest)


def _tampered(name: str, what: str, source: str) -> HarnessAttack:
    """The honest JavaScript solution with something that is to make it cheaper."""
    return HarnessAttack(name, what, JAVASCRIPT_HONEST + source)


_ALL_METHODS = "includes: () => true, every: () => true, some: () => true, join: () => '', at: () => 2"
JAVASCRIPT_ATTACKS: tuple[HarnessAttack, ...] = (
    _idle("value_of", "gives an object that turns into any number",
          "let k = 9; class V { valueOf() { return k++; } }\nconst answer = () => new V();"),
    _idle("to_string", "gives an object that turns into any text",
          "class V { toString() { return '2,3,5'; } join() { return '2,3,5'; } }\nconst answer = () => new V();"),
    _idle("to_json", "gives an object that writes itself as JSON",
          "class V { toJSON() { return [2, 3, 5]; } }\nconst answer = () => new V();"),
    _idle("to_json_nothing", "gives an object that JSON leaves out",
          "class V { toJSON() { return undefined; } }\nconst answer = () => new V();"),
    _idle("to_primitive", "gives an object with a conversion of its own",
          "class V { [Symbol.toPrimitive](hint) { return hint === 'string' ? '' : NaN; } }\nconst answer = () => new V();"),
    _idle("methods_agree", "gives an instance whose methods agree",
          "class V { includes() { return true; } every() { return true; } get length() { return 9; } }\nconst answer = () => new V();"),
    _idle("literal_with_methods", "gives a plain object that holds agreeing functions",
          f"const answer = () => ({{ length: 9, {_ALL_METHODS} }});"),
    _idle("agreeing_proxy", "gives a proxy that agrees with everything",
          "const answer = () => new Proxy(function () {}, { get: () => () => true, has: () => true, apply: () => true });"),
    _idle("array_with_methods", "gives an array with methods of its own",
          f"const answer = () => Object.assign([2, 3], {{ {_ALL_METHODS} }});"),
    _idle("array_of_a_class", "gives an array of a class of its own",
          "class A extends Array { includes() { return true; } every() { return true; } }\nconst answer = () => A.from([2, 3]);"),
    _idle("array_proxy", "gives a proxy of an array with a lying length",
          "const answer = () => new Proxy([], { get: (t, k) => (k === 'length' ? 9 : 2) });"),
    _idle("other_each_time", "gives an object whose properties change at every reading",
          "let k = 1; const answer = () => ({ get length() { return k++; }, get 0() { return k++; } });"),
    _idle("array_prototype", "replaces every method of Array.prototype",
          "for (const k of Object.getOwnPropertyNames(Array.prototype)) if (typeof [][k] === 'function' && k !== 'constructor')\n"
          "  Array.prototype[k] = () => true;\nconst answer = () => [];"),
    _idle("object_to_json", "gives every object a toJSON",
          "Object.prototype.toJSON = Array.prototype.toJSON = () => [2, 3, 5];\nconst answer = () => [];"),
    _idle("json_replaced", "replaces JSON.parse and JSON.stringify",
          "JSON.stringify = () => '{\"value\":[2,3,5]}'; JSON.parse = () => ({});\nconst answer = () => [];"),
    _idle("globals_replaced", "replaces Error, Proxy, WeakMap, Promise, Object, Reflect and Array",
          "for (const k of ['Error', 'TypeError', 'Proxy', 'WeakMap', 'Promise', 'Reflect', 'Array', 'String', 'Number'])\n"
          "  globalThis[k] = function () { return true; };\nconst answer = () => [];"),
    _idle("tags", "has the tags of messages on every object",
          "Object.prototype.$ = 'list'; Object.prototype.v = [2, 3, 5]; Object.prototype.value = [2];\nconst answer = () => ({});"),
    _idle("looks_like_a_tag", "gives a value that looks like a message", "const answer = () => ({ $: 'ref', v: 0, value: [2] });"),
    _idle("index_setters", "has setters for the indexes of every array",
          "for (let i = 0; i < 30; i++) Object.defineProperty(Array.prototype, i, { set() {}, get: () => 2, configurable: true });\n"
          "const answer = () => [, , ,];"),
    _idle("promise_then", "replaces Promise.prototype.then",
          "Promise.prototype.then = function (good) { good([2, 3, 5]); return this; };\nconst answer = (n) => Promise.resolve([]);"),
    _idle("is_a_promise", "says that everything is a promise",
          "Object.defineProperty(Promise, Symbol.hasInstance, { value: () => true });\nconst answer = () => ({ then: (good) => good([2]) });"),
    _idle("thenable", "gives an object with then", "class T { then(good) { good([2, 3, 5]); } }\nconst answer = () => new T();"),
    _idle("never", "gives a promise that is settled in a later call",
          "let settle; const answer = () => { settle?.([2]); return new Promise((good) => { settle = good; }); };"),
    _idle("stack_functions", "takes functions out of the stack of an error",
          "let taken; Error.prepareStackTrace = (_, sites) => { taken = sites.map((s) => s.getFunction?.()); return ''; };\n"
          "let busy; const answer = () => { if (busy) return []; busy = 1; new Error().stack; for (const f of taken) try { f?.(() => [2, 3, 5]); } catch {} return []; };"),
    _idle("not_a_number", "gives NaN", "const answer = () => NaN;"),
    _idle("throws_nothing", "throws undefined", "const answer = () => { throw undefined; };"),
    _idle("generator", "gives a generator without an end", "function* answer() { for (;;) yield 2; }"),
    _idle("table", "has a table of the answers to every input that it saw at home",
          _table().replace("TABLE", "const TABLE") + "const answer = (n) => TABLE[n];"),
    _tampered("work_at_load", "does the work of every possible input when it is loaded",
              "const ready = Array.from({ length: 114 }, (_, k) => primes(80 * k));\nconst all = ready.flat();\n"
              "primes = (n) => all.filter((p) => p >= n && p < n + 80 && p > 1);"),
    _tampered("work_at_top_level_await", "does it in promises while it is loaded",
              "const ready = [];\nfor (let k = 0; k < 114; k++) ready.push(...await later(80 * k));\n"
              "primes = (n) => ready.filter((p) => p >= n && p < n + 80 && p > 1);"),
    _tampered("work_in_set_up", "does it when the harness sets up",
              "const slow = primes; const ready = [];\n"
              "Bag = class extends Bag { constructor() { super(); for (let k = 0; k < 114; k++) ready.push(...slow(80 * k)); } };\n"
              "primes = (n) => ready.filter((p) => p >= n && p < n + 80 && p > 1);"),
    _tampered("map_replaced", "replaces Array.prototype.map by one that does nothing", "Array.prototype.map = function () { return this; };"),
    _tampered("keys_replaced", "replaces Object.keys, Array.from and Array.isArray by cheaper ones",
              "Object.keys = () => []; Array.from = (x) => x; Array.isArray = () => false;"),
    _tampered("json_cheaper", "replaces JSON by functions that do nothing", "JSON.stringify = () => ''; JSON.parse = () => ({});"),
    _tampered("prototypes_replaced", "replaces Object.getPrototypeOf, Reflect.apply and WeakMap's methods",
              "Object.getPrototypeOf = () => null; Reflect.apply = () => []; WeakMap.prototype.get = () => 1; WeakMap.prototype.has = () => true;"),
    _tampered("text_cheaper", "replaces String and its methods",
              "globalThis.String = () => ''; String.prototype ??= {}; globalThis.Number = () => 1;"),
    _tampered("late_jobs", "leaves work to jobs that run after the answer",
              "const slow = primes;\nprimes = (n) => { Promise.resolve().then(() => slow(3)); return slow(n); };"),
    _tampered("finalizers", "leaves work to finalizers",
              "const late = new FinalizationRegistry(() => {}); const slow = primes;\n"
              "primes = (n) => { late.register({}, 1); return slow(n); };"),
)  # fmt: skip
HARNESSES: dict[Language, tuple[str, str, tuple[HarnessAttack, ...]]] = {
    "python": (PYTHON_HARNESS, PYTHON_HONEST, PYTHON_ATTACKS),
    "javascript": (JAVASCRIPT_HARNESS, JAVASCRIPT_HONEST, JAVASCRIPT_ATTACKS),
}


class HarnessGain(NamedTuple):
    tests: list[str]
    metrics: list[str]


def run_script(machine: Machine, language: Language, source: str) -> Executed:
    """One submission under the harness of its language, with a seed that no attack knows."""
    harness = Harness(language, HARNESSES[language][0], ROUND_SEED)
    return machine.run(harness, HarnessSubmission(language, source))


def gain_of(attack: HarnessAttack, found: Executed, honest: Executed) -> HarnessGain:
    passed = {call.name: call for call in found.calls if call.outcome == RunOutcome.PASSED and call.kind != "setUp"}
    fair = {call.name: call for call in honest.calls}
    if HARNESSES[found.language][1] not in attack.source:
        tests, metrics = ([name for name in passed if name.startswith(kind)] for kind in ("test_", "metric_"))
        return HarnessGain(tests, metrics)
    better = [n for n, call in passed.items() if call.used < fair[n].used or call.value != fair[n].value]
    return HarnessGain([], better)


def measure_scripts() -> list[Figure]:
    with closing(Machine()) as machine:
        return [figure for language in HARNESSES for figure in _measured(machine, language)]


def _measured(machine: Machine, language: Language) -> list[Figure]:
    _, source, attacks = HARNESSES[language]
    honest = run_script(machine, language, source)
    gains = {attack.name: gain_of(attack, run_script(machine, language, attack.source), honest) for attack in attacks}
    tests = [name for name, gain in gains.items() if gain.tests]
    metrics = [name for name, gain in gains.items() if gain.metrics]
    trials = len(attacks) if honest.outcome == RunOutcome.PASSED else 0  # a harness that nobody passes proves nothing
    cost = honest.features.get("fuel_work")
    return [
        share(f"{language}_undeserved_tests", f"attacks on a {language} harness that pass a test unearned",
              len(tests), trials, at_most=0.0, attacks=tests),
        share(f"{language}_undeserved_metric", f"attacks on a {language} harness that get a number unearned",
              len(metrics), trials, at_most=0.0, attacks=metrics, honestFuel=cost),
    ]  # fmt: skip
