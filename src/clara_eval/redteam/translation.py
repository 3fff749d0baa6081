"""Translate Python to JavaScript and JavaScript to TypeScript; generate code without effect."""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.MatMult: "*",
}  # fmt: skip
_COMPARE = {
    ast.Eq: "===", ast.NotEq: "!==", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "===",
    ast.IsNot: "!==", ast.In: "in", ast.NotIn: "in",
}  # fmt: skip
_BOOLEAN = {ast.And: " && ", ast.Or: " || "}
_UNARY = {ast.Not: "!", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
_RESERVED = frozenset(
    {"var", "let", "new", "function", "delete", "default", "case", "switch", "typeof", "void", "this"}
)
_NAMES = {"self": "this", "None": "null", "True": "true", "False": "false", "print": "log", "len": "size"}


def python_to_javascript(text: str) -> str | None:
    try:
        tree = ast.parse(text)
        return "\n".join(line for one in tree.body for line in _lines(one)) + "\n"
    except (SyntaxError, ValueError, RecursionError):
        return None


def typed_javascript(text: str) -> str:
    """Return TypeScript: variables and parameters get the type `any`."""
    typed = re.sub(r"\b(const|let|var) (\w+) = ", r"\1 \2: any = ", text)
    return re.sub(
        r"(\bfunction\s*\w*\s*)\(([\w\s,]*)\)(\s*\{)",
        lambda m: f"{m[1]}({', '.join(f'{p.strip()}: any' for p in m[2].split(',') if p.strip())}){m[3]}",
        typed,
    )


def _block(body: list[ast.stmt]) -> list[str]:
    return [f"  {line}" for one in body for line in _lines(one)]


def _lines(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [f"function {node.name}({_parameters(node.args)}) {{", *_block(_without_docstring(node.body)), "}"]
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
            managers = ", ".join(_expr(item.context_expr) for item in node.items)
            return [f"using_({managers});", "{", *_block(node.body), "}"]
        case _:
            simple = _SIMPLE.get(type(node))
            return [f"{simple(node)};" if simple else ";"]


def _members(node: ast.ClassDef) -> list[str]:
    lines: list[str] = []
    for one in _without_docstring(node.body):
        written = _lines(one)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            written[0] = written[0].removeprefix("function ")
        lines += written if not isinstance(one, (ast.If, ast.For, ast.Try, ast.Expr)) else []
    return lines


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


def _parameters(arguments: ast.arguments) -> str:
    plain = [one.arg for one in (*arguments.posonlyargs, *arguments.args) if one.arg not in ("self", "cls")]
    defaults = [_expr(one) for one in arguments.defaults]
    bare = len(plain) - len(defaults)
    named = [name if n < bare else f"{name} = {defaults[n - bare]}" for n, name in enumerate(plain)]
    return ", ".join(named + ([f"...{arguments.vararg.arg}"] if arguments.vararg else []))


def _expr(node: ast.expr | None) -> str:
    write = _EXPRESSIONS.get(type(node))
    return write(node) if write else "null"


def _assign(node: ast.Assign) -> str:
    declared = "let " if all(isinstance(target, ast.Name) for target in node.targets) else ""
    return f"{declared}{' = '.join(map(_expr, node.targets))} = {_expr(node.value)}"


def _call(node: ast.Call) -> str:
    given = [*node.args, *(one.value for one in node.keywords)]
    return f"{_expr(node.func)}({', '.join(map(_expr, given))})"


def _compare(node: ast.Compare) -> str:
    rights = [f" {_COMPARE[type(op)]} {_expr(one)}" for op, one in zip(node.ops, node.comparators, strict=True)]
    return f"({_expr(node.left)}{''.join(rights)})"


def _dict(node: ast.Dict) -> str:
    pairs = zip(node.keys, node.values, strict=True)
    return "{" + ", ".join(f"[{_expr(key)}]: {_expr(value)}" for key, value in pairs if key) + "}"


def _loop(node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> str:
    loop = node.generators[0]
    return f"{_expr(loop.iter)}.map(({_expr(loop.target)}) => {_expr(node.elt)})"


def _template(node: ast.JoinedStr) -> str:
    values = ["${" + _expr(one.value) + "}" for one in node.values if isinstance(one, ast.FormattedValue)]
    return "`" + "".join(values) + "`"


def _constant(node: ast.Constant) -> str:
    value = None if node.value is Ellipsis else node.value
    return json.dumps(value if isinstance(value, (str, int, float, type(None))) else str(value))


_SIMPLE: dict[type, Callable[..., str]] = {
    ast.Return: lambda node: f"return {_expr(node.value)}" if node.value else "return",
    ast.Assign: _assign,
    ast.AnnAssign: lambda node: f"{_expr(node.target)} = {_expr(node.value)}" if node.value else "",
    ast.AugAssign: lambda node: f"{_expr(node.target)} {_BINARY[type(node.op)]}= {_expr(node.value)}",
    ast.Raise: lambda node: f"throw {_expr(node.exc)}" if node.exc else "throw e",
    ast.Assert: lambda node: f"assert({_expr(node.test)})",
    ast.Expr: lambda node: _expr(node.value),
    ast.Break: lambda _: "break",
    ast.Continue: lambda _: "continue",
}
"""One-line statements; any other becomes an empty statement."""
_EXPRESSIONS: dict[type, Callable[..., str]] = {
    type(None): lambda _: "",
    ast.Name: lambda node: _NAMES.get(node.id, f"{node.id}_" if node.id in _RESERVED else node.id),
    ast.Constant: _constant,
    ast.Attribute: lambda node: f"{_expr(node.value)}.{node.attr}",
    ast.Call: _call,
    ast.Subscript: lambda node: f"{_expr(node.value)}[{_expr(node.slice)}]",
    ast.BinOp: lambda node: f"({_expr(node.left)} {_BINARY[type(node.op)]} {_expr(node.right)})",
    ast.BoolOp: lambda node: "(" + _BOOLEAN[type(node.op)].join(map(_expr, node.values)) + ")",
    ast.UnaryOp: lambda node: f"{_UNARY[type(node.op)]}{_expr(node.operand)}",
    ast.Compare: _compare,
    **dict.fromkeys((ast.List, ast.Tuple, ast.Set), lambda node: f"[{', '.join(map(_expr, node.elts))}]"),
    ast.Dict: _dict,
    ast.IfExp: lambda node: f"({_expr(node.test)} ? {_expr(node.body)} : {_expr(node.orelse)})",
    ast.Lambda: lambda node: f"(({_parameters(node.args)}) => {_expr(node.body)})",
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), _loop),
    ast.JoinedStr: _template,
    ast.Starred: lambda node: f"...{_expr(node.value)}",
    **dict.fromkeys((ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr), lambda node: _expr(node.value)),
    ast.Slice: lambda node: _expr(node.lower) or "0",
}
"""Any other expression becomes `null`."""


def junk_function(language: str, rng: random.Random) -> str:
    name, a, b = (f"{rng.choice('pqrstuvw')}{rng.randrange(10**6)}" for _ in range(3))
    steps = [_junk_step(language, a, b, rng) for _ in range(rng.randrange(3, 9))]
    body = "".join(f"    {line}\n" for step in steps for line in step.split("\n"))
    if language == "python":
        return f"def {name}({a}, {b}={rng.randrange(99)}):\n{body}    return {a} * {rng.randrange(2, 99)} + {b}\n"
    if language == "solidity":
        return (
            f"library {name} {{\n  function f(uint256 {a}, uint256 {b}) internal pure returns (uint256) {{\n"
            f"{body}    return {a} * {rng.randrange(2, 99)} + {b};\n  }}\n}}\n"
        )
    return f"function {name}({a}, {b}) {{\n{body}    return {a} * {rng.randrange(2, 99)} + {b};\n}}\n"


def _junk_step(language: str, a: str, b: str, rng: random.Random) -> str:
    x, y, z = (rng.randrange(2, 10**4) for _ in range(3))
    end = "" if language == "python" else ";"
    if rng.random() < 0.5:
        return f"{a} = ({a} + {x}) * {b} - {y} % {z}{end}"
    if language == "python":
        return f"if {a} > {x} and {b} != {y}:\n    {b} = {a} - {z}"
    return f"if ({a} > {x} && {b} != {y}) {{ {b} = {a} - {z}; }}"


def noop(language: str, indent: str, rng: random.Random) -> str:
    name, x, y = f"unused{rng.randrange(10**5)}", rng.randrange(99), rng.randrange(99)
    if language == "python":
        return rng.choice(
            ("pass", f"{name} = {x} * {y}", f"if False:\n{indent}    {name} = {x}", "assert True", f"{x}")
        )
    declared = "uint256" if language == "solidity" else "let"
    return rng.choice((";" if language != "solidity" else "{}", f"{declared} {name} = {x} * {y};", "if (false) {}"))
