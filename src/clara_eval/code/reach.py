"""Drop code that is unreachable from the interface that the task asks for, by name, not by type.

If the task names none of it, all exported or public code is the interface, except parts under half the largest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from clara_eval.code.dead_code import DeadCode, Item, inside
from clara_eval.code.language import NODES, words
from clara_eval.core.syntax import MAX_BYTES

_FUNCTIONS, _CLASSES, _VALUES, _IMPORTS = (NODES[kind] for kind in ("functions", "classes", "values", "imports"))
_WRAPPERS = words("decorated_definition export_statement")
_ALWAYS = words("constructor_definition fallback_receive_definition using_directive package_clause impl_item")
_SPECIAL = words("constructor setUp setUpClass tearDown beforeEach afterEach init main")
_NEVER = words("pragma_directive hash_bang_line")
_NAMES = NODES["used_names"]
_TOP = words("module program source_file")
_BASES = words("argument_list class_heritage inheritance_specifier extends_clause implements_clause")
_BODIES = words("block statement_block function_body block_statement module program statement_list")
_HOLDERS = words("with_statement if_statement")
_TEST_CALLS = dict.fromkeys(("it", "test"), "function") | dict.fromkeys(("describe", "suite", "context"), "class")
_LONGEST_TEST = 16_000  # bytes
_LONGEST_TYPE = 500  # bytes of a type, or nodes of a pattern or of what a class extends: they may hold definitions
_FUNCTION_VALUES = words("arrow_function function_expression generator_function class lambda")
_WORKING_VALUES = _FUNCTION_VALUES | words("call call_expression new_expression")
_TESTS = {"python": ("test",), "solidity": ("test", "invariant", "check_"), "go": ("Test", "Fuzz")}
_SCRIPTS = ("javascript", "typescript", "tsx")
_LABELLING = _FUNCTIONS | _CLASSES | words("keyword_argument call_struct_argument")
_DECLARED = _VALUES | words("variable_declarator const_spec var_spec type_spec")


@dataclass(eq=False, slots=True)
class ReachUnit:
    """A definition, an import or a top-level statement, which is kept or dropped as a whole."""

    item: Item
    kind: str  # `function`, `class`, `value`, `import`, `statement`
    names: frozenset[str]
    parent: ReachUnit | None
    is_exported: bool = False
    is_test: bool = False
    is_public: bool = True
    is_reached: bool = False
    is_root: bool = False
    uses: set[str] = field(default_factory=set)  # names it refers to, without those that only its parts refer to
    bases: frozenset[str] = frozenset()
    parts: list[ReachUnit] = field(default_factory=list)
    has_wanted_part: bool = False

    @property
    def size(self) -> int:
        return self.item.end - self.item.start

    @property
    def all_uses(self) -> set[str]:
        """Return its own uses and those of everything defined inside it."""
        found, waiting = set(self.uses), [*self.parts]
        for one in waiting:
            found |= one.uses
            waiting += one.parts
        return found


def drop_unreached(code: DeadCode, wanted: frozenset[str]) -> frozenset[str]:
    """Drop what is not reached, and return the names of the tests that are kept."""
    program = _Program(code, wanted)
    program.reach()
    program.keep_tests()
    for unit in program.units:
        if not unit.is_reached:
            unit.item.drop()
    return frozenset(name for unit in program.units if unit.is_test and unit.is_reached for name in unit.names)


class _Program:
    def __init__(self, code: DeadCode, wanted: frozenset[str]) -> None:
        self._code, self._wanted = code, wanted
        self.units = list(_Reader(code).units())
        self._top = [unit for unit in self.units if unit.parent is None]
        self._by_name: dict[str, list[ReachUnit]] = {}
        for unit in self.units:
            for name in unit.names:
                self._by_name.setdefault(name, []).append(unit)
            if unit.parent is not None and unit.names & wanted and not unit.is_test:
                unit.parent.has_wanted_part = True
        self._used: set[str] = set()  # names that reached units define or refer to
        self._waiting: list[ReachUnit] = []

    def reach(self) -> None:
        """Mark everything that the interface reaches."""
        for unit in self._roots():
            unit.is_root = True
            self._mark(unit)
        for unit in self._top:
            self._try(unit)
        extended = set[str]()
        while self._waiting:
            unit = self._waiting.pop()
            new = (unit.uses | (unit.names if unit.kind != "import" else frozenset())) - self._used
            self._used |= new
            for name in new:
                for other in self._by_name.get(name, ()):
                    self._try(other)
            names = unit.bases - extended if unit.is_root else frozenset[str]()
            extended |= names
            for base in (base for name in names for base in self._by_name.get(name, ())):
                if base.kind == "class" and base.parent is None and not base.is_root:
                    base.is_root, base.is_reached = True, True
                    self._waiting.append(base)
            for part in unit.parts:
                self._try(part)

    def keep_tests(self) -> None:
        reached = {name for unit in self.units if unit.is_reached and unit.kind != "import" for name in unit.names}
        live, budget = reached | self._wanted, 2 * len(self._code.source)  # bytes to read, of tests in tests too
        for unit in (unit for unit in self.units if unit.is_test and unit.size <= _LONGEST_TEST):
            budget -= unit.size
            around = unit if budget >= 0 and self._asserts(unit, live) else None
            while around is not None and not around.is_reached:
                around.is_reached = True
                around = around.parent
        used = {name for unit in self.units if unit.is_reached for name in unit.uses}
        for unit in self.units:
            if unit.kind == "import" and unit.names & used:
                unit.is_reached = True

    def _roots(self) -> list[ReachUnit]:
        defined = [u for u in self._top if u.kind in ("function", "class", "value") and not u.is_test]
        named = [u for u in defined if u.names & self._wanted and (u.kind != "value" or _is_code(u, _FUNCTION_VALUES))]
        if named := named or [unit for unit in defined if unit.has_wanted_part]:
            return named
        for unit in self._top:
            if unit.kind == "statement" and not unit.is_test:
                self._mark(unit)
        return list(self._largest(defined))

    def _largest(self, defined: list[ReachUnit]) -> Iterator[ReachUnit]:
        groups = _groups(defined)
        sizes = [sum(unit.size for unit in group) for group in groups]
        exported = any(unit.is_exported for unit in defined)
        run = {name for unit in self._top if unit.kind == "statement" for name in unit.all_uses}
        least = max(sizes, default=0) / 2  # unconnected parts that are smaller do not belong to the work
        for group, size in zip(groups, sizes, strict=True):
            if size < least and not any(unit.names & run for unit in group):
                continue
            chosen = [unit for unit in group if (unit.is_exported if exported else unit.is_public)]
            yield from (unit for unit in chosen or group if unit.kind != "value" or unit.is_exported or _is_code(unit))

    def _mark(self, unit: ReachUnit) -> None:
        if not unit.is_reached:
            unit.is_reached = True
            self._waiting.append(unit)

    def _try(self, unit: ReachUnit) -> None:
        if not unit.is_reached and self._is_called(unit):
            self._mark(unit)

    def _is_called(self, unit: ReachUnit) -> bool:
        around = unit.parent
        if unit.is_test or (around is not None and not around.is_reached):
            return False
        if unit.names & self._used:
            return True
        if unit.item.kind in _ALWAYS or unit.kind == "import":
            return not unit.names
        # A statement belongs to the work only if it sets something that is used.
        if unit.kind == "statement" or around is None:
            return False
        is_asked = bool(unit.names & (self._wanted | _SPECIAL))
        return is_asked or (around.kind == "class" and self._is_interface(unit, around))

    def _is_interface(self, unit: ReachUnit, around: ReachUnit) -> bool:
        if any(name in self._code.library and (name.startswith("__") or around.bases) for name in unit.names):
            return True  # called by the language, or by an imported base class
        if not around.is_root or not unit.is_public or unit.kind != "function":
            return False
        # All public functions of a contract can be called; of a class only those that the task names count.
        return self._code.language == "solidity" or not around.has_wanted_part

    def _asserts(self, test: ReachUnit, reached: set[str]) -> bool:
        """Return whether a test checks something that reached code computes; False if nested too deeply."""
        code, items = self._code, list(inside(test.item))
        bound = [(target, value) for target, value in (one.binding() for one in items) if target and value]
        checks = [one for one in items if code.is_check(one)]
        sizes = [one.end - one.start for one in (*checks, *(one for pair in bound for one in pair))]
        if sum(sizes) > 4 * _LONGEST_TEST:
            return False
        names, live = [tuple(map(code.own_names, pair)) for pair in bound], set[str]()
        for _ in range(3):
            for targets, values in names:
                if not (values.isdisjoint(reached) and values.isdisjoint(live)):
                    live |= targets
        statements = dict.fromkeys(_around(one) for one in checks if not code.is_idle_check(one))
        return any(not (used.isdisjoint(reached) and used.isdisjoint(live)) for used in map(code.own_names, statements))


def _around(check: Item) -> Item:
    """Return the statement of an assertion, or the `if` or `with` statement that contains it."""
    item = check
    while item.parent is not None and item.parent.kind not in _BODIES:
        item = item.parent
        if item.kind in _HOLDERS:
            return item
    holder = item.parent.parent if item.parent is not None else None
    return holder if holder is not None and holder.kind in _HOLDERS else item


def _is_code(unit: ReachUnit, kinds: frozenset[str] = _WORKING_VALUES) -> bool:
    return any(one.kind in kinds for one in inside(unit.item))


def _groups(units: list[ReachUnit]) -> list[list[ReachUnit]]:
    """Group definitions that refer to each other, directly or through others."""
    by_name = {name: n for n, unit in enumerate(units) for name in unit.names}
    leader = list(range(len(units)))

    def top(n: int) -> int:
        while leader[n] != n:
            leader[n] = n = leader[leader[n]]
        return n

    for n, unit in enumerate(units):
        for name in (unit.all_uses | unit.names) & by_name.keys():
            leader[top(n)] = top(by_name[name])
    found: dict[int, list[ReachUnit]] = {}
    for n, unit in enumerate(units):
        found.setdefault(top(n), []).append(unit)
    return list(found.values())


class _Reader:
    def __init__(self, code: DeadCode) -> None:
        self._root, self._code, self._language = code.root, code, code.language
        exports = set[str]()
        for item in self._root.children if code.language in _SCRIPTS else ():
            is_list = item.kind == "export_statement" and item.at("declaration") is None
            exports |= self._names_in(item) if is_list or "exports" in code.text(item, 40) else set()
        self._exports = frozenset(exports - {"module", "exports"})
        self._marked_tests = set[Item]()  # items that follow a Rust attribute such as `#[test]`
        for item in inside(self._root) if code.language == "rust" else ():
            marked = False
            for child in item.named:
                is_attribute = child.kind == "attribute_item"
                if marked and not is_attribute:
                    self._marked_tests.add(child)
                marked = is_attribute and (marked or "test" in code.text(child, 80))

    def units(self) -> Iterator[ReachUnit]:
        waiting: list[tuple[Item, ReachUnit | None]] = [(child, None) for child in reversed(self._root.children)]
        while waiting:
            item, around = waiting.pop()
            if item.kind in _NEVER:
                item.drop()
            if item.is_dropped:
                continue
            unit = self._unit(item, around)
            if unit is not None:
                unit.is_exported = item.kind == "export_statement" or bool(unit.names & self._exports)
                if around is not None:
                    around.parts.append(unit)
                yield unit
                inner = _definition(item)
                # A wrapper and its definition are one unit: continue inside the definition.
                for child in item.children:
                    waiting += [(c, unit) for c in (child.children if child is inner else [child])]
                continue
            if around is not None and item.kind in _NAMES and not _is_label(item):
                around.uses.add(self._code.text(item).lstrip("#"))
            waiting += [(child, around) for child in item.children]

    def _unit(self, item: Item, around: ReachUnit | None) -> ReachUnit | None:
        inner, at_top = _definition(item), item.parent is not None and item.parent.kind in _TOP
        if item.kind in _IMPORTS and at_top:
            return ReachUnit(item, "import", self._names_in(item), around)
        if inner.kind in _FUNCTIONS or inner.kind in _CLASSES:
            return self._defined(item, inner, around)
        if test := self._test_call(item):
            return ReachUnit(item, test, frozenset(), around, is_test=test == "function")
        in_class = around is not None and around.kind == "class"
        if inner.kind in _VALUES and (at_top or in_class):
            if in_class and inner.kind == "lexical_declaration":
                return None
            return ReachUnit(item, "value", self._bound(inner), around)
        if at_top and item.is_named:
            if self._language == "python" and (names := self._assigned(item)):
                return ReachUnit(item, "value", names, around)
            is_export = item.kind == "export_statement" or "exports" in self._code.text(item, 40)
            names = self._written(item)
            return ReachUnit(item, "statement", names | (self._exports if is_export else frozenset()), around)
        return None

    def _defined(self, item: Item, inner: Item, around: ReachUnit | None) -> ReachUnit:
        named = inner.at("name") or (inner.at("type") if inner.kind == "impl_item" else None)
        most = _LONGEST_TYPE if inner.kind == "impl_item" else MAX_BYTES
        names = frozenset({self._code.text(named, most).lstrip("#")}) if named is not None else self._bound(inner)
        kind = "function" if inner.kind in _FUNCTIONS else "class"
        based_on = (child for child in inner.children if child.kind in _BASES)
        bases = frozenset(name for child in based_on for name in self._names_in(child, _LONGEST_TYPE))
        has_test_name = any(name.startswith(_TESTS.get(self._language, ())) for name in names)
        is_test = kind == "function" and (has_test_name or item in self._marked_tests)
        is_public = self._is_public(inner, names)
        return ReachUnit(item, kind, names, around, is_test=is_test, is_public=is_public, uses=set(bases), bases=bases)

    def _test_call(self, item: Item) -> str:
        """Return the kind of a call such as `it(…)` or `describe(…)`; empty for anything else."""
        if item.kind != "expression_statement" or not item.named or self._language not in _SCRIPTS:
            return ""
        called = item.named[0].at("function") if item.named[0].kind == "call_expression" else None
        return _TEST_CALLS.get(self._code.text(called, 40).partition(".")[0], "") if called is not None else ""

    def _is_public(self, inner: Item, names: frozenset[str]) -> bool:
        if self._language == "python":
            return not any(name.startswith("_") for name in names)
        head = self._code.text(inner, 600).partition("{")[0].split()
        if self._language == "solidity":
            return inner.kind in _CLASSES or "external" in head or "public" in head
        if self._language == "go":
            return any(name[:1].isupper() for name in names)
        is_hidden = any(child.kind.startswith("private_") for child in inner.children)
        return not is_hidden and not {"private", "protected"} & set(head)

    def _names_in(self, item: Item, most: int = MAX_BYTES) -> frozenset[str]:
        return frozenset(self._code.text(one) for one in islice(inside(item), most) if one.kind in _NAMES)

    def _bound(self, item: Item) -> frozenset[str]:
        found: set[str] = set()
        for one in (item, *item.named):
            for target in one.named:
                if target.field in ("name", "property", "pattern") and one.kind in _DECLARED:
                    found |= self._names_in(target, _LONGEST_TYPE)
        return frozenset(name.lstrip("#") for name in found)

    def _assigned(self, item: Item) -> frozenset[str]:
        inner = item.named[0] if item.kind == "expression_statement" and len(item.named) == 1 else None
        left = inner.at("left") if inner is not None and inner.kind == "assignment" else None
        is_plain = left is not None and left.kind in ("identifier", "pattern_list", "tuple_pattern")
        return self._names_in(left) if left is not None and is_plain else frozenset()

    def _written(self, item: Item) -> frozenset[str]:
        """Return the names that a statement assigns to or calls a method on."""
        found, ends = set[str](), list[int]()  # ends of targets whose first name is still to come
        for one in inside(item):
            if one.kind in _NAMES and ends:
                found |= {self._code.text(one)} if one.end <= max(ends) else set()
                ends = []
            target = None
            if one.kind in ("assignment", "augmented_assignment", "assignment_expression"):
                target = one.at("left")
            elif one.kind in ("call", "call_expression") and (called := one.at("function")) is not None:
                target = called if called.kind in ("attribute", "member_expression") else None
            ends += [target.end] if target is not None else []
        return frozenset(found - self._code.library)


def _definition(item: Item) -> Item:
    """Return the definition inside decorators and exports."""
    while item.kind in _WRAPPERS and (inner := item.at("definition") or item.at("declaration")) is not None:
        item = inner
    return item


def _is_label(item: Item) -> bool:
    """Return whether a name only labels an argument, a key or the definition that it belongs to."""
    if item.parent is None or item.field != "name":
        return item.parent is not None and item.field == "key"
    return item.parent.kind in _LABELLING
