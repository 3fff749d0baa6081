"""Mark statements that do nothing; a condition that depends on run time is never decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from tree_sitter import Node

from clara_eval.code.language import LIBRARY, NODES, STRINGS, words
from clara_eval.core.syntax import MAX_BYTES, Parsed, load_language, node_kinds

MOST_ITEMS = 400_000  # a larger tree is not read; 256 kB of ordinary code has about 100,000 items
COMMENTS = words("comment line_comment block_comment html_comment hash_bang_line shebang jsx_text")
_WRAPPERS = words("parenthesized_expression expression statement call_argument expression_statement")
_ENDS = words("return_statement raise_statement throw_statement break_statement continue_statement revert_statement")
_ENDS |= words("return_expression break_expression continue_expression")
_BLOCKS = words("block statement_block function_body block_statement module program statement_list yul_block")
_HOISTED = words("function_declaration generator_function_declaration class_definition function_definition")
_CALLS = words("call call_expression new_expression macro_invocation await await_expression yield yield_expression")
_EFFECTS = _CALLS | NODES["effects"]
_SIMPLE = STRINGS | NODES["simple"]
_BINDINGS = words("assignment variable_declarator variable_declaration_statement let_declaration")
_ASSIGNMENTS = _BINDINGS | {"assignment_expression"}
_NAMES = NODES["names"]
_NUMBERS = words("integer float number number_literal int_literal integer_literal float_literal")
_IDLE = words("assert_statement expression_statement")  # kinds that may do nothing
_LOOPS = words("for_statement for_in_statement while_statement for_expression while_expression")
_LOOKED_AT = _BLOCKS | _LOOPS | _IDLE | {"if_statement", "elif_clause"}
_FALSE = words("false False none None null nil undefined")
_CHECKS = ("assert", "expect", "require", "console.assert", "self.assert")
_LONGEST = 4_000  # bytes; a longer expression or loop is assumed to do something
_SHORT = 200
_NOTHING: list[Item] = []  # shared by all leaves
_DEEPEST = 24  # levels; deeper conditions are not decided, so that a submission cannot exhaust our stack
_LITERALS = _NUMBERS | words("true false none null undefined boolean_literal")
_STATEMENTS = words(
    "expression_statement lexical_declaration variable_declaration let_declaration variable_declaration_statement"
)
_HOLDERS = _BLOCKS | words("statement class_body export_statement source_file")
_SAME = {"==": True, "===": True, "is": True, ">=": True, "<=": True, "!=": False, "!==": False, "<": False, ">": False}
_NUMBER_BEGINS = frozenset("0123456789.+-")  # `float` reads names such as `inf` too
_ORDERS = {
    "==": (0,), "===": (0,), "!=": (-1, 1), "!==": (-1, 1), "<": (-1,), ">": (1,), "<=": (-1, 0), ">=": (0, 1),
}  # fmt: skip


class Item:
    """A node of the syntax tree: kind, field in its parent, place in the source, children."""

    __slots__ = ("children", "end", "field", "instead", "is_dropped", "is_named", "kind", "parent", "start")

    def __init__(self, kind: str, is_named: bool, field: str | None, node: Node, parent: Item | None) -> None:
        self.kind, self.is_named, self.field, self.parent = kind, is_named, field, parent
        self.start, self.end, self.is_dropped = node.start_byte, node.end_byte, False
        self.children = _NOTHING

    @property
    def named(self) -> list[Item]:
        """Return the children that are not tokens, comments or dropped."""
        return [c for c in self.children if c.is_named and not c.is_dropped and c.kind not in COMMENTS]

    def at(self, field: str) -> Item | None:
        return next((child for child in self.children if child.field == field and not child.is_dropped), None)

    def binding(self) -> tuple[Item | None, Item | None]:
        """Return the target and the value of an assignment or a declaration."""
        return self.at("left") or self.at("name") or self.at("pattern"), self.at("right") or self.at("value")

    def drop(self, instead: str = "") -> None:
        """Drop the item and everything in it except tokens, which items may share."""
        self.instead = instead
        for item in inside(self):
            item.is_dropped = item.is_named or bool(item.children)


def read_items(parsed: Parsed, *, shares_tokens: bool) -> list[Item] | None:
    """Return all items except tokens, parents first, or None if there are more than MOST_ITEMS."""
    cursor, around, language = parsed.tree.walk(), None, load_language(parsed.language)
    fields = (None, *map(language.field_name_for_id, range(1, language.field_count + 1)))
    found, tokens, kinds = list[Item](), dict[tuple[int, int | None], Item](), node_kinds(parsed.language)
    for _ in range(MOST_ITEMS):
        node = cursor.node
        assert node is not None
        number, field, is_inner = node.kind_id, cursor.field_id, cursor.goto_first_child()
        kind, is_named = kinds[number] if number < len(kinds) else (node.type, node.is_named)  # an error has no entry
        item = None if is_inner or is_named else tokens.get((number, field))
        if item is None:
            item = Item(kind, is_named, fields[field or 0], node, around)
            if is_named or is_inner:
                found.append(item)
            elif shares_tokens:  # it keeps the place of its first occurrence
                tokens[number, field] = item
        if around is not None:
            around.children.append(item)
        if is_inner:
            around, item.children = item, []
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return found
            around = around.parent if around is not None else None
    return None


def inside(top: Item) -> Iterator[Item]:
    """Yield the item and everything in it that is not dropped, parents first."""
    waiting = [top]
    while waiting:
        item = waiting.pop()
        if not item.is_dropped:
            yield item
            waiting.extend(reversed(item.children))


def bare(item: Item) -> Item:
    while item.kind in _WRAPPERS and len(item.named) == 1:
        item = item.named[0]
    return item


class DeadCode:
    def __init__(self, items: list[Item], source: bytes, language: str) -> None:
        self.root, self._items, self.source, self.language = items[0], items, source, language
        self._is_python, self.library = language == "python", LIBRARY[language]
        self._looked_at = [item for item in items if item.kind in _LOOKED_AT]
        self._assigned = [item for item in items if item.kind in _ASSIGNMENTS]
        self._effects = [item for item in items if item.kind in _EFFECTS]
        self._names = [(item, self.text(item)) for item in items if item.kind in _NAMES]
        self._constants: dict[str, bool | None] = {}  # truth of names that are bound once, to a literal
        bound = Counter[str]()
        values: dict[str, Item] = {}
        for item, name in self._names:
            around = item.parent or self.root
            if item.field in ("left", "name", "pattern", "alias", "argument"):
                bound[name] += 1
                if around.kind in _BINDINGS and (value := around.at("right") or around.at("value")):
                    values[name] = value
            elif item.kind == "identifier" and "param" in around.kind:
                bound[name] += 2
        for name, value in values.items():
            if bound[name] == 1 and bare(value).kind in _LITERALS:
                self._constants[name] = self.truth(value)

    @classmethod
    def of(cls, parsed: Parsed | None, kept: frozenset[str], *, shares_tokens: bool = False) -> DeadCode | None:
        """Mark the dead code of a program, except the `kept` names; None without a tree of usable size."""
        if parsed is None or (items := read_items(parsed, shares_tokens=shares_tokens)) is None:
            return None
        code = cls(items, parsed.source, parsed.language)
        code.drop_dead()
        code.drop_unread(kept)
        return code

    def text(self, item: Item, most: int = MAX_BYTES) -> str:
        """Return the source of an item, at most `most` bytes of it."""
        return self.source[item.start : min(item.end, item.start + most)].decode("utf-8", "replace")

    def dropped(self) -> Iterator[Item]:
        """Yield the outermost dropped items."""
        return (item for item in self._items if item.is_dropped and not (item.parent and item.parent.is_dropped))

    def free(self) -> None:
        """Break the cycles of parents and children."""
        for item in self._items:  # the garbage collector needs a third of the search for them
            item.children = _NOTHING

    def drop_dead(self) -> None:
        for item in self._looked_at:
            if item.is_dropped:
                continue
            if item.kind in _BLOCKS:
                is_over = False
                for child in item.named:
                    if is_over and child.kind not in _HOISTED:
                        child.drop()
                    is_over = is_over or self._ends(child)
            elif item.kind in ("if_statement", "elif_clause"):
                self._drop_branch(item)
            elif item.kind in _LOOPS:
                header = item.at("condition") or (item.at("right") if item.kind != "while_statement" else None)
                if header is not None and header.kind != "empty_statement" and self.truth(header) is False:
                    item.drop()
            if item.kind in _IDLE and not item.is_dropped and self._does_nothing(item):
                item.drop()

    def drop_unread(self, kept: frozenset[str]) -> None:
        """Drop assignments without side effects to names or members that nothing reads, except `kept`."""
        for _ in range(4):
            written: dict[str, list[Item]] = {}
            calls, effects = self._holding(_CALLS), self._holding(_EFFECTS)
            seen = Counter([name.lstrip("#") for item, name in self._names if not item.is_dropped])
            for item in self._assigned:
                if not item.is_dropped and (name := self._bound_plainly(item, calls, effects)) is not None:
                    written.setdefault(name, []).append(item)
            dropped = False
            for name, items in written.items():
                if name not in kept and name != "_" and seen[name] <= len(items):
                    dropped |= self._drop_bindings(items)
            if not dropped:
                return

    def is_check(self, item: Item) -> bool:
        called = (item.at("function") or item.at("macro") or item.at("constructor")) if item.kind in _CALLS else None
        if called is None:
            return item.kind == "assert_statement"
        text = self.text(called, 200).lstrip()
        last = text.rpartition(".")[2]
        return (
            text.startswith(_CHECKS)
            or last.startswith(("assert", "raises", "should", "expectRevert", "Errorf"))
            or (last in ("Error", "Fatal", "Fatalf", "Fail", "FailNow") and text.startswith("t."))
        )

    def is_idle_check(self, item: Item) -> bool:
        """Return whether an assertion always holds; one that is too long to analyse counts as such."""
        if not _is_short(item):
            return True
        if item.kind == "assert_statement":
            return bool(item.named) and self.truth(item.named[0]) is True
        arguments: list[str] = []
        for one in inside(item):
            if one.kind in _CALLS:
                listed = one.at("arguments")
                arguments += [self.text(a) for a in (listed or one).named if listed or a.kind == "call_argument"]
                others = (a for a in one.named if a.kind not in STRINGS)
                if any(self.truth(a) is True and self.own_names(a) for a in others):  # compared with itself
                    return True
        return not self.own_names(item) or (len(arguments) > 1 and len(set(arguments)) == 1)

    def own_names(self, item: Item) -> set[str]:
        """Return the names in an item that are not the language's own."""
        found = {self.text(one) for one in inside(item) if one.kind in _NAMES}
        return {name for name in found if name not in self.library and not name.startswith(("assert", "expect"))}

    def truth(self, item: Item, depth: int = 0) -> bool | None:
        """Return the constant truth of a condition, or None if it is not constant."""
        item = bare(item)
        plain = self._plain_truth(item)
        if plain is not None or depth > _DEEPEST or not item.children or item.kind in STRINGS:
            return plain
        operator = next((c.kind for c in item.children if not c.is_named and c.kind not in "()"), "")
        if operator in ("not", "!") and item.named:
            inner = self.truth(item.named[-1], depth + 1)
            return None if inner is None else not inner
        if len(item.named) != 2:
            return None
        left, right = item.named
        if operator in ("and", "&&", "or", "||"):
            is_and, sides = operator in ("and", "&&"), [self.truth(left, depth + 1), self.truth(right, depth + 1)]
            if (not is_and) in sides:
                return not is_and
            return is_and if sides == [is_and, is_and] else None
        return self._compared(operator, left, right)

    def _plain_truth(self, item: Item) -> bool | None:
        """Return the constant truth of an expression without operators, or None."""
        text, kind = self.text(item) if item.end - item.start < _SHORT else "", item.kind
        if text in ("true", "True") or kind in ("lambda", "arrow_function"):
            return True
        if text in _FALSE or text.replace(" ", "") in ("range(0)", "[]"):
            # In scripts an empty list is true, but a loop over it does nothing.
            return kind == "array" and not (item.parent is not None and item.parent.kind in _LOOPS)
        if kind in _NUMBERS:
            value = _number(text)
            return None if value is None else bool(value)
        if kind in STRINGS:
            return item.end - item.start > len('""')
        if kind in ("list", "tuple", "dictionary", "set"):
            return bool(item.named)
        return self._constants.get(text) if kind == "identifier" else None

    def _compared(self, operator: str, left: Item, right: Item) -> bool | None:
        left, right = bare(left), bare(right)
        if not (_is_short(left) and _is_short(right)):
            return None
        one, other = self.text(left), self.text(right)
        if one == other:
            return _SAME.get(operator)
        values = _number(one), _number(other)
        if values[0] is None or values[1] is None:
            return None
        order = (values[0] > values[1]) - (values[0] < values[1])
        return order in _ORDERS[operator] if operator in _ORDERS else None

    def _ends(self, item: Item, depth: int = 0) -> bool:
        """Return whether nothing after this statement in its block is ever reached."""
        item = bare(item)
        if item.kind in _ENDS:
            return True
        if depth > _DEEPEST:
            return False
        if item.kind == "while_statement":
            condition = item.at("condition")
            endless = condition is not None and _is_short(item) and self.truth(condition) is True
            return endless and not any(one.kind == "break_statement" for one in inside(item))
        if item.kind == "if_statement":
            arms = [c for c in item.named if c.field in ("consequence", "alternative", "body")]
            has_else = any(c.kind == "else_clause" for c in arms) or (len(arms) > 1 and arms[-1].kind != "elif_clause")
            return has_else and all(self._ends(arm, depth + 1) for arm in arms)
        if item.kind in _BLOCKS or item.kind in ("else_clause", "elif_clause"):
            return any(self._ends(child, depth + 1) for child in item.named)
        return False

    def _drop_branch(self, item: Item) -> None:
        condition = item.at("condition")
        known = None if condition is None else self.truth(condition)
        taken = item.at("consequence") or item.at("body")
        if known is None or taken is None:
            return
        others = [child for child in item.named if child.field == "alternative"]
        if known:
            for other in others:
                other.drop()
        elif not others and item.kind == "if_statement":
            item.drop("" if self._is_python or self._is_statement(item) else "{}")
        else:
            taken.drop("pass" if self._is_python else "{}")

    def _is_statement(self, item: Item) -> bool:
        return item.parent is not None and item.parent.kind in (*_BLOCKS, "statement")

    def _does_nothing(self, item: Item) -> bool:
        """Return whether a statement is a constant assertion or an unused expression without effects."""
        if item.kind == "assert_statement":
            return self.is_idle_check(item)
        if item.kind != "expression_statement" or len(item.named) != 1 or not self._is_statement(item):
            return False
        only = bare(item)
        if only.kind in _CALLS and _is_short(only):
            return self.is_check(only) and not self.own_names(only)
        # A lone `_` marks the function's body in a Solidity modifier.
        if not _is_short(only) or only.kind not in _SIMPLE or (only.kind == "identifier" and self.text(only) == "_"):
            return False
        operators = {child.kind for child in only.children}
        is_and, is_or = bool(operators & {"and", "&&"}), bool(operators & {"or", "||"})
        if len(only.named) == 2 and (is_and or is_or) and self.truth(only.named[0]) is (not is_and):
            return True
        return not any(one.kind in _EFFECTS for one in inside(only))

    def _holding(self, kinds: frozenset[str]) -> set[Item]:
        """Return the items that are of these kinds or hold one, in one pass at any depth."""
        found = set[Item]()
        for one in (one for one in self._effects if one.kind in kinds and not one.is_dropped):
            around: Item | None = one
            while around is not None and around not in found:
                found.add(around)
                around = around.parent
        return found

    def _bound_plainly(self, item: Item, calls: set[Item], effects: set[Item]) -> str | None:
        """Return the name that a statement binds, or None if it may do anything else."""
        target, value = item.binding()
        if item.kind == "variable_declaration_statement" and target is None:
            declared = next((c for c in item.named if c.kind == "variable_declaration"), None)
            target = declared.at("name") if declared is not None else None
        if target is None or (value is None and item.kind == "assignment_expression"):
            return None
        if value is not None and (not _is_short(value) or value in effects):
            return None
        target = bare(target)
        if target.kind in ("attribute", "member_expression"):
            member = target.at("attribute") or target.at("property")
            if member is None or not _is_short(target) or target in calls:
                return None
            target = member
        name = self.text(target).lstrip("#") if target.kind in _NAMES else "exports"
        return None if name == "exports" else name

    def _drop_bindings(self, items: list[Item]) -> bool:
        dropped = False
        for item in items:
            statement: Item | None = item
            while statement is not None and statement.kind not in _STATEMENTS:
                statement = statement.parent
            if statement is None or statement.is_dropped or statement.parent is None:
                continue
            parts = [child for child in statement.named if child.kind in _ASSIGNMENTS]
            if (statement is item or len(parts) < 2) and statement.parent.kind in _HOLDERS:
                statement.drop()
                dropped = True
        return dropped


def _is_short(item: Item) -> bool:
    return item.end - item.start <= _LONGEST


def _number(text: str) -> int | float | None:
    for read in (partial(int, base=0), float) if text[:1] in _NUMBER_BEGINS and len(text) < 40 else ():
        with suppress(ValueError):
            return read(text)
    return None
