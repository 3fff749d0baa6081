"""The version of this package, and of the rules by which it evaluates."""

import ast
from functools import cache
from hashlib import sha256
from pathlib import Path

__version__ = "0.2.0"
RULES = 9
"""Raised by every change after which the same evidence gives other entries: a trace is checked by its own rules."""
_DECIDING = ("code", "config", "core", "evaluation", "harness", "judge", "ranking", "submissions")
"""Packages that decide a result."""


@cache
def code_version(root: Path = Path(__file__).parents[1]) -> str:
    """The version, with a hash of the code that decides results: builds of one version may differ."""
    found = sha256()
    for folder in _DECIDING:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                content = file.read_bytes()
                deciding = _syntax(content) if file.suffix == ".py" else content
                found.update(file.relative_to(root).as_posix().encode() + b"\0" + deciding)
    return f"{__version__} rules {RULES} {found.hexdigest()[:12]}"


def _syntax(source: bytes) -> bytes:
    """The syntax tree without comments, docstrings and line numbers."""
    tree = ast.parse(source)
    scopes: list[ast.AST] = [tree]
    for scope in scopes:
        if isinstance(scope, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            scope.body = [one for one in scope.body if not _is_words(one)]
        scopes += (child for child in ast.iter_child_nodes(scope) if isinstance(child, ast.stmt))
    return ast.dump(tree).encode()


def _is_words(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
