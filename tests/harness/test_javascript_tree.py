"""JavaScript submissions of several files: ES modules and CommonJS files that import each other, and what thieves try."""

from __future__ import annotations

import pytest

from clara_eval.core.hashing import sha256_hex
from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine
from clara_eval.harness.quickjs import GUESTS
from clara_eval.submissions.files import one_program, pack_files, read_archive

HARNESS = """
export async function test_add(submission) {
  const found = await submission.add(1, 2);
  if (found !== 3) throw new Error("1 and 2 are " + found);
}
export const EXPECTED = 3;
"""
Files = dict[str, str]
LOADS: dict[str, Files] = {
    "names": {
        "a_main.js": "import { twice } from './lib/z.js';\nimport {\n  one,\n} from \"./lib/one.js\";\n"
        "export const start = twice(one);\nexport function add(a, b) { return a + b + start - 2; }",
        "lib/one.js": "export const one = 1;",
        "lib/z.js": "import { one } from './one.js';\nexport { one };\nexport const twice = (n) => n + one;",
    },
    "default, renamed and namespace": {
        "main.js": "import plus, { a as b } from './p.js'; import * as all from './p.js';\n"
        "export const add = (x, y) => plus(x, y) + b - all.a;",
        "p.js": "export default function (x, y) { return x + y; }\nconst q = 7; export { q as a };",
    },
    "re-exports": {
        "main.mjs": "export * from './p.js'; export { default as add } from './p.js';",
        "p.js": "export * from './q.js'; export * as inner from './q.js'; export { add as default } from './q.js';",
        "q.js": "export const add = (x, y) => x + y;",
    },
    "side effects in order": {
        "index.js": "import './s.js'; import './r.js'; export const add = (x, y) => globalThis.plus(x, y);",
        "s.js": "globalThis.zero = 0;",
        "r.js": "const { zero } = globalThis; globalThis.plus = (x, y) => x + y + zero;",
    },
    "a circle of modules": {
        "main.js": "import { plus } from './b.js'; export const one = 1; export const add = (x, y) => plus(x, y);",
        "b.js": "import { one } from './main.js'; export const plus = (x, y) => x + y + one - 1;",
    },
    "equal names in two files, words of imports in text": {
        "main.js": "import { h as plus } from './b.js'; const h = 1, text = `\nimport x from './none.js';\n`;\n"
        "// require('./none')\nexport const add = (x, y) => plus(x, y) + h - 1 + (text.length - text.length);",
        "b.js": "const one = 1, h = (x, y) => x + y; export { h };",
    },
    "a binding that lives": {
        "main.js": "import { n, up } from './b.js'; export const add = (x, y) => { up(); return x + y + n - 1; };",
        "b.js": "export let n = 0; export function up() { n++; }",
    },
    "await at the top": {
        "main.js": "import { plus } from './b.js'; export const add = plus;",
        "b.js": "const zero = await Promise.resolve(0); export const plus = (x, y) => x + y + zero;",
    },
    "import when it is called": {
        "main.js": "export const add = async (x, y) => (await import('./lib/c.js')).default.plus(x, y);",
        "lib/c.js": "exports.plus = (x, y) => import('./d.js').then((d) => d.zero + x + y);",
        "lib/d.js": "export const zero = 0;",
    },
    "CommonJS": {
        "index.js": "const { twice } = require('./lib/z');\nmodule.exports = {\n  add,\n  two: twice(1),\n};\n"
        "function add(a, b) { return a + b + twice(1) - 2; }",
        "lib/one.js": "exports.one = 1; // the end",
        "lib/z.js": "const one = require('./one.js').one;\nmodule.exports.twice = (n) => n + one;",
        "lib/index.js": "",
    },
    "CommonJS that exports what it computes": {
        "index.js": "module.exports = require('./lib')(0);",
        "lib/index.js": "const f = (zero) => ({ add: (x, y) => x + y + zero, 'a b': 1, '\\ud800': 2 }); module.exports = f;",
    },
    "a circle of CommonJS": {
        "index.js": "exports.one = 1; const b = require('./lib/b'); exports.add = (x, y) => b.plus(x, y);",
        "lib/b.js": "const all = require('..'); exports.plus = (x, y) => x + y + all.one - 1;",
    },
    "a module of CommonJS": {
        "main.js": "import c, { plus, one as uno } from './c.js'; import * as all from './c.js';\n"
        "export const add = (x, y) => c.plus(plus(x, y), 0) + uno - all.one;",
        "c.js": "exports.plus = (x, y) => x + y; exports.one = 1;",
    },
    "CommonJS of a module": {
        "main.js": "const { plus } = require('./e.mjs'), again = require('./e.mjs');\n"
        "exports.add = (x, y) => again.plus === plus ? plus(x, y) : 0;",
        "e.mjs": "import zero from './f.js'; export const plus = (x, y) => x + y + zero;",
        "f.js": "export default 0;",
    },
    "a module of CommonJS of a module": {
        "main.js": "import { u } from './u.js'; import { plus } from './c.js'; import './later.js';\n"
        "export const add = (x, y) => plus(x, y) + u - 1; plus(1, 1);",
        "c.js": "const { u } = require('./u.js'); exports.plus = (x, y) => x + y + u - require('./later.js').one;",
        "later.js": "export const one = 1;",
        "u.js": "export const u = 1;",
    },
    "a circle through require once all is loaded": {
        "main.js": "import { plus } from './c.js'; export const zero = 0; export const add = plus;",
        "c.js": "exports.plus = (x, y) => x + y + require('./d.js').nothing;",
        "d.js": "import { zero } from './main.js'; export const nothing = zero;",
    },
    "names of ours and of prototypes": {
        "code.js": "import './guest.js'; import './harness.js'; import './tree.js'; export const one = 1;",
        "guest.js": "import * as all from './code.js'; export { all };",
        "harness.js": "export const test_add = 1;",
        "main.js": "import { one } from './code.js'; import p from './__proto__.js'; import c from './constructor.js';\n"
        "export const add = (x, y) => x + y + one + p.two + c - 4;",
        "tree.js": "export default 1;",
        "__proto__.js": "exports.two = 2; exports.__proto__ = { two: 9 };",
        "constructor.js": "export default 1;",
    },
    "names of CommonJS taken": {
        "main.js": "import { one } from './b.js'; globalThis.require = () => ({ one: 9 }); globalThis.module = 7;\n"
        "export const add = (x, y) => x + y + one - 1;",
        "b.js": "var exports = exports || 1; function module() {}; exports.one = require('./c').one;",
        "c.js": "module.exports = { one: 1 };",
    },
    "prototypes changed": {
        "main.js": "require('./p'); const { one } = require('./b'); exports.add = (x, y) => x + y + one - 1;",
        "p.js": "Object.prototype['b.js'] = 9; Object.prototype.one = 9; Object.keys = () => ['q'];\n"
        "Function.prototype.apply = Reflect.apply = JSON.stringify = String.prototype.slice = () => 9; module.exports;",
        "b.js": "exports.one = require('./c.mjs').one;",
        "c.mjs": "export const one = 1;",
    },
    "the table of files": {
        "main.js": "$files['b.js'] = { exports: { one: 1 } }; $files.none = 5; const { one } = require('./b');\n"
        "exports.add = (x, y) => x + y + one - 1;",
        "b.js": "exports.one = 100;",
    },
}  # fmt: skip
HOST = """
let host;
Error.prepareStackTrace = (_, sites) => {
  for (const site of sites) if (site.getFunction()?.name === "host") host = site.getFunction();
};
try { require("./b"); } catch (error) { error.stack; }
"""
"""Finds the function by which our own code asks the world outside."""
OUTSIDE = "main.js can only import files of the submission, by ./ or ../"
NO_FILE = "which is no JavaScript file of the submission."
REFUSED: dict[str, tuple[Files, str, str]] = {
    **{
        f"import of {name}": ({"main.js": f"import '{name}';"}, "forbidden_import", f"'{name}': {OUTSIDE}")
        for name in ("node:fs", "fs", "/etc/passwd", "https://x.org/x.js", "data:text/javascript,1", "../x.js", "code.js")
    },
    "require of a package": ({"main.js": "require('fs');"}, "forbidden_import", OUTSIDE),
    "require of nothing": ({"main.js": "require();"}, "forbidden_import", OUTSIDE),
    "a missing file": ({"main.js": "import './lib/none.js';"}, "does_not_load", f"main.js asks for './lib/none.js', {NO_FILE}"),
    "a missing file of CommonJS": ({"main.js": "require('./none');"}, "does_not_load", f"main.js asks for './none', {NO_FILE}"),
    "a file that is no code": ({"main.js": "import d from './d.json' with { type: 'json' };"}, "does_not_load", NO_FILE),
    "the harness": ({"main.js": "import { EXPECTED } from './harness.js';"}, "does_not_load", NO_FILE),
    "the file before it": ({"main.js": "import './code.js';"}, "does_not_load", NO_FILE),
    "a missing name": ({"main.js": "import { x } from './b.js';"}, "does_not_load", "Could not find export 'x' in module 'b.js'"),
    "a missing name of CommonJS": (
        {"main.js": "import { x } from './b.js';", "b.js": "exports.y = 1;"}, "does_not_load", "Could not find export 'x'",
    ),
    "a file that throws": (
        {"main.js": "import './b.js';", "b.js": "throw new TypeError('boom');"}, "does_not_load", "TypeError: boom",
    ),
    "a CommonJS file that throws": (
        {"main.js": "import './b.js';", "b.js": "module.exports; throw new TypeError('boom');"},
        "does_not_load", "TypeError: boom",
    ),
    "a required module that throws": (
        {"main.js": "require('./b.mjs');", "b.mjs": "throw new TypeError('boom');"}, "does_not_load", "TypeError: boom",
    ),
    "a file that is broken": ({"main.js": "import './b.js';", "b.js": "export const = 1;"}, "does_not_load", "SyntaxError"),
    "exports that cannot be listed": (
        {"main.js": "import './b.js';", "b.js": "module.exports = new Proxy({}, { ownKeys() { throw new Error('keys'); } });"},
        "does_not_load", "Error: keys",
    ),
    "a value before it is there": (
        {"main.js": "import './b.js'; export const a = 1;", "b.js": "import { a } from './main.js'; export const b = a + 1;"},
        "does_not_load", "a is not initialized",
    ),
    "a circle through require": (
        {"main.js": "import './c.js';", "c.js": "module.exports = require('./main.js');"},
        "does_not_load", "c.js requires an ES module that needs c.js itself, through main.js",
    ),
    "a longer circle through require": (
        {"main.js": "import './a.js';", "a.js": "import { f } from './c.js'; export const q = 1; f();",
         "c.js": "exports.f = () => require('./d.js');", "d.js": "import { q } from './a.js'; export const two = 2;"},
        "does_not_load", "c.js requires an ES module that needs c.js itself, through a.js",
    ),
    "require of what waits": (
        {"main.js": "require('./b.mjs');", "b.mjs": "await 1;"}, "does_not_load", "b.mjs waits for something while it loads",
    ),
    "await without end": (
        {"main.js": "import './b.js';", "b.js": "await new Promise(() => {});"}, "does_not_load", "It never finishes loading.",
    ),
    "two that await each other": (
        {"main.js": "await import('./b.js');", "b.js": "await import('./main.js');"}, "does_not_load", "It never finishes loading.",
    ),
    "imports without end": ({"main.js": "for (let i = 0; ; i++) await import('./x' + i).catch(() => 0);"}, "out_of_fuel", ""),
    "requires without end": ({"main.js": "for (;;) require('./b');"}, "out_of_fuel", ""),
    "files that forget that they ran": (
        {"main.js": "$files['main.js'] = undefined; require('./b');", "b.js": "$files['b.js'] = undefined; require('./main');"},
        "stack_overflow", "more than 100 files require each other in turn",
    ),
    "a chain of 990 imports": (
        {"main.js": "import './0.js';", **{f"{n}.js": f"import './{n + 1}.js';" for n in range(990)}, "990.js": ""},
        "stack_overflow", "Maximum call stack size exceeded",
    ),
    "a chain of 150 requires": (
        {"main.js": "require('./0');", **{f"{n}.js": f"require('./{n + 1}');" for n in range(150)}, "150.js": ""},
        "stack_overflow", "more than 100 files require each other in turn",
    ),
    "modules and requires in turn": (
        {"main.js": "require('./0');", "40.js": "",
         **{f"{n}.js": f"require('./{n + 1}');" if n % 2 else f"import './{n + 1}.js';" for n in range(40)}},
        "does_not_load", "More than 16 ES modules are required, one in another",
    ),
    "more names than a message holds": (
        {"main.js": "import './b.js';", "b.js": "for (let i = 0; i < 30000; i++) exports['k' + i] = i;"}, "too_much_output", "",
    ),
    "another table of files": ({"main.js": "import './b.js'; $files = {};"}, "does_not_load", "'$files' is read-only"),
    **{
        f"our own function, found by a stack trace: {words}": (
            {"main.js": f"{HOST}globalThis.host = host; globalThis.again = {words!r}; {words};", "b.js": "exports = ;"},
            outcome, "",
        )
        for words, outcome in {
            "host('ask', '{}')": "illegal_instruction",
            "host('script', 1, 2)": "illegal_instruction",
            "host('script x', again)": "stack_overflow",
            "host('module x', again)": "stack_overflow",
            "for (;;) host('script x', '1')": "out_of_fuel",
        }.items()
    },
}  # fmt: skip


def tree(files: Files) -> HarnessSubmission:
    """The submission as an archive gives it, with a second file so that it is a tree."""
    packed = pack_files({name: text.encode() for name, text in {"b.js": "", **files}.items()})
    source = read_archive(packed).program("javascript")
    assert source is not None
    assert not isinstance(source, str)
    return HarnessSubmission("javascript", source)


def run(machine: Machine, files: Files) -> Executed:
    return machine.run(Harness("javascript", HARNESS), tree(files))


@pytest.mark.parametrize("name", LOADS)
def test_the_files_of_a_tree_import_each_other(machine: Machine, name: str) -> None:
    """Every form of import and export works between files, ES modules and CommonJS, whatever their names."""
    found = run(machine, LOADS[name])
    assert (found.outcome, found.detail, found.logs) == ("passed", "", ())


@pytest.mark.parametrize("name", REFUSED)
def test_a_tree_that_does_not_load_says_why(machine: Machine, name: str) -> None:
    """What is not in the tree, throws, waits, or never ends is a named outcome in words, and the next tree runs."""
    files, outcome, words = REFUSED[name]
    found = machine.run(None, tree(files))
    assert (found.outcome, found.facts) == (outcome, {"loads": False})
    assert words in found.detail


def test_an_import_that_fails_in_a_test_fails_that_test(machine: Machine) -> None:
    """Files that are asked for while a test runs fail it in words, and no other."""
    harness = (
        "export const test_a = (s) => s.a(); export const test_b = (s) => s.b(); export const test_c = (s) => s.c();"
    )
    files = {
        "main.js": "exports.a = () => import('node:fs'); exports.b = () => require('./b'); exports.c = () => require('./c');"
    }
    found = machine.run(Harness("javascript", harness), tree(files))
    assert [call.outcome for call in found.calls] == ["passed", "failed", "passed", "failed"]
    assert found.logs == (
        f"test_a: Error: could not load module 'node:fs': {OUTSIDE}",
        f"test_c: Error: main.js asks for './c', {NO_FILE}",
    )


def test_a_tree_is_repeated_and_pays_nothing_for_its_imports(machine: Machine) -> None:
    """Two runs of a tree use equal fuel, little more than its text in one file; its loader is part of the machine."""
    one = "export const add = (x, y) => x + y;"
    first, again = (run(machine, {"main.js": "export * from './b.js';", "b.js": one}) for _ in range(2))
    single = machine.run(Harness("javascript", HARNESS), HarnessSubmission("javascript", one))
    assert first.to_json() == again.to_json()
    assert single.used < first.used < 2 * single.used
    assert single.machine["guest"] == sha256_hex(GUESTS[0].read_bytes()) != first.machine["guest"]
    assert set(first.machine) - set(single.machine) == {"limits.lookups"}


def test_one_file_is_run_as_it_is(machine: Machine) -> None:
    """An archive with one file of code gives its text, which has no `require` and imports nothing."""
    packed = pack_files({"main.js": b"module.exports = {};\n", "read.me": b"text\n"})
    assert read_archive(packed).program("javascript") == "module.exports = {};\n"
    sources = ("module.exports = {};", "import './main.js';", "$files;")
    found = [machine.run(None, HarnessSubmission("javascript", source)) for source in sources]
    assert [(one.outcome, one.detail) for one in found] == [
        ("does_not_load", "ReferenceError: module is not defined"),
        ("forbidden_import", "ReferenceError: could not load module 'main.js'"),
        ("does_not_load", "ReferenceError: $files is not defined"),
    ]


def test_the_size_of_a_tree_is_that_of_its_files(machine: Machine) -> None:
    """A tree over the limit in bytes is not run."""
    found = run(machine, {"main.js": "1;", "b.js": "/".ljust(131_072, "/")})
    assert (found.outcome, found.facts) == ("too_large", {"loads": False})


def test_the_first_file_has_a_usual_name_or_is_at_the_top() -> None:
    """The file that is run is the first of the program: a usual name, else one at the top, else the first."""
    for names, first in (
        (["a.js", "main.mjs", "lib/submission.js"], "main.mjs"),
        (["a.js", "index.js", "solution.mjs"], "solution.mjs"),
        (["lib/main.js", "z.js"], "z.js"),
        (["lib/a.js", "lib/main.js"], "lib/a.js"),
    ):
        program = one_program(dict.fromkeys(names, ""), "javascript")
        assert not isinstance(program, str)
        assert [next(iter(program)), sorted(program)] == [first, sorted(names)]


def test_a_long_chain_of_solidity_imports_is_ordered() -> None:
    """A thousand files, each importing the next, and a circle are put in order without recursion."""
    chain = {f"{n:03}.sol": f'import "./{n + 1:03}.sol";\ncontract C{n:03} {{}}\n' for n in range(999)}
    source = str(one_program(chain, "solidity"))
    assert source.index("C998") < source.index("C500") < source.index("C000")
    circle = {"a.sol": 'import "./b.sol";\ncontract A {}\n', "b.sol": 'import "./a.sol";\ncontract B {}\n'}
    assert str(one_program(circle, "solidity")).split() == ["contract", "B", "{}", "contract", "A", "{}"]
