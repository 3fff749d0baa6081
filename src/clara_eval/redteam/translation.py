"""Translate Python to JavaScript and JavaScript to TypeScript; the result parses."""

from __future__ import annotations

import ast
import json
import re

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.MatMult: "*",
}  # fmt: skip
_COMPARE = {
    ast.Eq: "===", ast.NotEq: "!==", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "===",
    ast.IsNot: "!==", ast.In: "in", ast.NotIn: "in",
}  # fmt: skip
_UNARY = {ast.Not: "!", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
_RESERVED = frozenset(
    {"var", "let", "new", "function", "delete", "default", "case", "switch", "typeof", "void", "this"}
)
_NAMES = {"self": "this", "None": "null", "True": "true", "False": "false", "print": "log", "len": "size"}


def python_to_javascript(text: str) -> str | None:
    try:
        tree = ast.parse(text)
        return "\n".join(_statement(one, "") for one in tree.body) + "\n"
    except (SyntaxError, ValueError, RecursionError):
        return None


def typed_javascript(text: str) -> str:
    """TypeScript: variables and parameters of functions get a type."""
    typed = re.sub(r"\b(const|let|var) (\w+) = ", r"\1 \2: any = ", text)
    return re.sub(
        r"(\bfunction\s*\w*\s*)\(([\w\s,]*)\)(\s*\{)",
        lambda m: f"{m[1]}({', '.join(f'{p.strip()}: any' for p in m[2].split(',') if p.strip())}){m[3]}",
        typed,
    )


def _statement(node: ast.stmt, indent: str) -> str:
    return "\n".join(indent + line for line in _lines(node))


def _block(body: list[ast.stmt]) -> list[str]:
    return [f"  {line}" for one in body for line in _lines(one)]


def _lines(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            names = ", ".join(_parameters(node.args))
            return [f"function {node.name}({names}) {{", *_block(_bare(node.body)), "}"]
        case ast.ClassDef():
            return [f"class {node.name} {{", *(f"  {line}" for line in _members(node)), "}"]
        case ast.If():
            tail = ["} else {", *_block(node.orelse), "}"] if node.orelse else ["}"]
            return [f"if ({_expr(node.test)}) {{", *_block(node.body), *tail]
        case ast.For() | ast.AsyncFor():
            head = f"for (const {_expr(node.target)} of {_expr(node.iter)}) {{"
            return [head, *_block(node.body), "}"]
        case ast.While():
            return [f"while ({_expr(node.test)}) {{", *_block(node.body), "}"]
        case ast.Try():
            caught = [line for handler in node.handlers for line in _block(handler.body)]
            last = ["} finally {", *_block(node.finalbody), "}"] if node.finalbody else ["}"]
            return ["try {", *_block(node.body), "} catch (e) {", *caught, *last]
        case ast.With() | ast.AsyncWith():
            held = ", ".join(_expr(item.context_expr) for item in node.items)
            return [f"using_({held});", "{", *_block(node.body), "}"]
        case _:
            return [_simple(node)]


def _simple(node: ast.stmt) -> str:  # noqa: PLR0911 - one line a kind of node
    match node:
        case ast.Return():
            return f"return {_expr(node.value)};" if node.value else "return;"
        case ast.Assign():
            declared = "let " if all(isinstance(target, ast.Name) for target in node.targets) else ""
            return f"{declared}{' = '.join(_expr(target) for target in node.targets)} = {_expr(node.value)};"
        case ast.AnnAssign():
            return f"{_expr(node.target)} = {_expr(node.value)};" if node.value else ";"
        case ast.AugAssign():
            return f"{_expr(node.target)} {_BINARY[type(node.op)]}= {_expr(node.value)};"
        case ast.Raise():
            return f"throw {_expr(node.exc)};" if node.exc else "throw e;"
        case ast.Assert():
            return f"assert({_expr(node.test)});"
        case ast.Expr():
            return f"{_expr(node.value)};"
        case ast.Break():
            return "break;"
        case ast.Continue():
            return "continue;"
        case _:
            return ";"


def _members(node: ast.ClassDef) -> list[str]:
    lines: list[str] = []
    for one in _bare(node.body):
        written = _lines(one)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            written[0] = written[0].removeprefix("function ")
        lines += written if not isinstance(one, (ast.If, ast.For, ast.Try, ast.Expr)) else []
    return lines


def _bare(body: list[ast.stmt]) -> list[ast.stmt]:
    """Without a docstring."""
    first = body[0] if body else None
    is_doc = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_doc else body


def _parameters(arguments: ast.arguments) -> list[str]:
    plain = [one.arg for one in (*arguments.posonlyargs, *arguments.args) if one.arg not in ("self", "cls")]
    defaults = [_expr(one) for one in arguments.defaults]
    bare = len(plain) - len(defaults)
    named = [name if n < bare else f"{name} = {defaults[n - bare]}" for n, name in enumerate(plain)]
    return named + ([f"...{arguments.vararg.arg}"] if arguments.vararg else [])


def _expr(node: ast.expr | None) -> str:  # noqa: C901, PLR0911 - one line a kind of node
    match node:
        case None:
            return ""
        case ast.Name():
            return _NAMES.get(node.id, f"{node.id}_" if node.id in _RESERVED else node.id)
        case ast.Constant():
            return _constant(node.value)
        case ast.Attribute():
            return f"{_expr(node.value)}.{node.attr}"
        case ast.Call():
            given = [_expr(one) for one in node.args] + [_expr(one.value) for one in node.keywords]
            return f"{_expr(node.func)}({', '.join(given)})"
        case ast.Subscript():
            return f"{_expr(node.value)}[{_expr(node.slice)}]"
        case ast.BinOp():
            return f"({_expr(node.left)} {_BINARY[type(node.op)]} {_expr(node.right)})"
        case ast.BoolOp():
            return "(" + (" && " if isinstance(node.op, ast.And) else " || ").join(map(_expr, node.values)) + ")"
        case ast.UnaryOp():
            return f"{_UNARY[type(node.op)]}{_expr(node.operand)}"
        case ast.Compare():
            rights = [f" {_COMPARE[type(op)]} {_expr(one)}" for op, one in zip(node.ops, node.comparators, strict=True)]
            return f"({_expr(node.left)}{''.join(rights)})"
        case _:
            return _collection(node)


def _collection(node: ast.expr) -> str:  # noqa: PLR0911 - one line a kind of node
    match node:
        case ast.List() | ast.Tuple() | ast.Set():
            return f"[{', '.join(map(_expr, node.elts))}]"
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return "{" + ", ".join(f"[{_expr(key)}]: {_expr(value)}" for key, value in pairs if key) + "}"
        case ast.IfExp():
            return f"({_expr(node.test)} ? {_expr(node.body)} : {_expr(node.orelse)})"
        case ast.Lambda():
            return f"(({', '.join(_parameters(node.args))}) => {_expr(node.body)})"
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            loop = node.generators[0]
            return f"{_expr(loop.iter)}.map(({_expr(loop.target)}) => {_expr(node.elt)})"
        case ast.JoinedStr():
            held = ["${" + _expr(one.value) + "}" if isinstance(one, ast.FormattedValue) else "" for one in node.values]
            return "`" + "".join(held) + "`"
        case ast.Starred():
            return f"...{_expr(node.value)}"
        case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr():
            return _expr(node.value)
        case ast.Slice():
            return f"{_expr(node.lower) or 0}"
        case _:
            return "null"


def _constant(value: object) -> str:
    if value is None or value is Ellipsis:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (str, int, float)) else json.dumps(str(value))
