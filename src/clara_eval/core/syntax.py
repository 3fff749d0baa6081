"""Parse hostile source code into a syntax tree in bounded time and memory.

Invariant: sizes and errors decide what is read, so every machine reads the same; time and memory are a last resort.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import resource
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeAlias

from tree_sitter import Language, Node, Parser, Tree

from clara_eval.core.extras import MODULES, require

MAX_BYTES = 1_048_576
MAX_ERRORS = 20
MAX_ERROR_SHARE, MAX_ERROR_BYTES = 0.1, 2_000  # skipped text; the parser needs 0.3 s for so much in the worst case
CPU_SECONDS = 1.0
_COMMENT_RUN = 100  # Lines of comments in a row; longer runs are blanked because Python's scanner is quadratic in them.
_CONTINUED = re.compile(rb"(?:\\\r?\n[ \t]*){100}")
"""A hundred lines of only a backslash, which are slow to scan and do not occur in real code."""
_SHORT = 8_192  # bytes that are parsed at once: they take at most 800 kB of the stack, 100 MB and 0.2 s
_STACK_BYTES = 524_288  # a quarter of the smallest usual stack; the parser frees nested ambiguities by recursion


@dataclass(frozen=True, slots=True)
class Parsed:
    language: str
    source: bytes
    tree: Tree
    errors: int  # Nodes that the parser skipped or invented; 0 if the source is valid
    blanked: tuple[tuple[int, int], ...] = ()  # Byte ranges of comment lines hidden from the parser


@cache
def load_language(name: str) -> Language:
    """Load a grammar; ConfigError with the install command if it is missing."""
    package = "typescript" if name == "tsx" else name
    if f"tree_sitter_{package}" in MODULES["languages"]:
        require("languages", f"Reading {package}")
    with warnings.catch_warnings():
        # Some grammar wheels still return a plain integer, which the binding accepts with a warning.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(f"tree_sitter_{package}")
        factory = {"typescript": "language_typescript", "tsx": "language_tsx"}.get(name, "language")
        return Language(getattr(module, factory)())


@cache
def node_kinds(name: str) -> tuple[tuple[str, bool], ...]:
    """List the name of each node kind by its id, and whether it is a named node."""
    language = load_language(name)
    ids = range(language.node_kind_count)
    return tuple((language.node_kind_for_id(kind) or "", language.node_kind_is_named(kind)) for kind in ids)


def parse(source: bytes, language: str) -> Parsed | None:
    """Parse source code; None if it is too broken, too large or too slow to be measured."""
    if len(source) > MAX_BYTES or (language == "python" and b"\\" in source and _CONTINUED.search(source)):
        return None
    plain = _parse_as(source, language)
    if language == "typescript" and (plain is None or plain.errors) and (b"/>" in source or b"</" in source):
        # TypeScript has two grammars: `<T>x` is a cast in one and markup in the other.
        markup = _parse_as(source, "tsx")
        return markup if markup and (plain is None or markup.errors < plain.errors) else plain
    return plain


@lru_cache(maxsize=64)
def _is_readable(masked: bytes, language: str) -> bool:
    """Try in a child process: a broken text may cost the parser hours, all memory or all of the stack."""
    load_language(language)  # not in the child, where another thread's import lock is never released
    if not (child := os.fork()):
        try:
            gc.disable()  # what the other threads dropped is theirs to clean up
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for number in (signal.SIGPROF, signal.SIGSEGV, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # in which the parser takes a gigabyte at most
            signal.alarm(60)  # if the child hangs without using the processor
            threading.stack_size(_STACK_BYTES)
            trial = threading.Thread(target=lambda: os._exit(_read_tree(masked, language) is None))
            trial.start()
            trial.join()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _parse_as(source: bytes, language: str) -> Parsed | None:
    masked, blanked = _blank_long_comments(source) if language == "python" else (source, ())
    if len(source) > _SHORT and not _is_readable(masked, language):
        return None
    read = _read_tree(masked, language)
    return None if read is None else Parsed(language, source, *read, blanked)


def _read_tree(masked: bytes, language: str) -> tuple[Tree, int] | None:
    tree = Parser(load_language(language)).parse(masked)
    errors, lost = _count_errors(tree) if tree.root_node.has_error else (0, 0)
    most_lost = min(MAX_ERROR_SHARE * max(len(masked), 1), MAX_ERROR_BYTES)
    return None if errors > MAX_ERRORS or lost > most_lost else (tree, errors)


def _blank_long_comments(source: bytes) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """Blank long runs of comment lines without moving other bytes; return the source and the ranges.

    A line with a triple quote ends a run: it may be inside a string and close it.
    """
    blanked: list[tuple[int, int]] = []
    position = run_start = run = 0
    for line in [*source.split(b"\n"), b"end"]:
        bare = line.lstrip()
        if bare and (not bare.startswith(b"#") or b'"""' in bare or b"'''" in bare):
            if run > _COMMENT_RUN:
                blanked.append((run_start, position))
            run = 0
        elif bare:
            run_start, run = (run_start, run + 1) if run else (position, 1)
        position += len(line) + 1
    masked = bytearray(source)
    for start, end in blanked:
        breaks = source.count(b"\n", start, end)
        masked[start:end] = b"\n" * breaks + b" " * (len(source[start:end]) - breaks)
    return bytes(masked), tuple(blanked)


def _count_errors(tree: Tree) -> tuple[int, int]:
    """Count errors and the bytes in them; stop when there are too many."""
    errors = lost = 0
    nodes = [tree.root_node]
    while nodes and errors <= MAX_ERRORS:
        node = nodes.pop()
        if node.is_error or node.is_missing:
            errors += 1
            lost += node.end_byte - node.start_byte
        else:
            nodes += [child for child in node.children if child.has_error]
    return errors, lost


def walk(tree: Tree) -> Iterator[tuple[Node, int]]:
    """Yield every node with its depth, parents first; iterative, because input controls the depth."""
    cursor = tree.walk()
    depth = 0
    while True:
        node = cursor.node
        assert node is not None
        yield node, depth
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


Edit: TypeAlias = tuple[int, int, str]  # Start byte, end byte, replacement text


def edited(source: bytes, edits: Iterable[Edit]) -> str:
    """Apply edits to the source; if two overlap, the earlier and outer one wins."""
    kept: list[bytes] = []
    position = 0
    for start, end, text in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if start >= position:
            kept += [source[position:start], text.encode("utf-8", "replace")]
            position = end
    return b"".join((*kept, source[position:])).decode("utf-8", "replace")
