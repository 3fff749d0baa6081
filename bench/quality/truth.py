"""The labelled submissions of the reader's bench, and what tools measure about each.

`python bench/quality/truth.py` regenerates labels.json from the tools and by_hand.json; a test compares it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tree_sitter import Node

from clara_eval.config.eval_config import FeatureSchema, compile_schema, parse_eval_config
from clara_eval.core.syntax import parse
from clara_eval.evaluation.features.measured import sentences_of, words_of
from clara_eval.harness import Harness, HarnessSubmission, Machine

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "gas-golf"
Kind = Literal["code", "text"]
Label = int | float | bool | str | None

FUNCTIONS = {
    "function_definition", "function_declaration", "method_definition", "constructor_definition",
}  # fmt: skip
LOOPS = {"for_statement", "while_statement", "for_in_statement", "do_statement", "do_while_statement"}
RAISES = {"raise_statement", "throw_statement", "revert_statement"}
CATCHES = {"try_statement"}
_CONCLUDES = re.compile(r"\b(?:so|therefore|in short|in conclusion)\b", re.IGNORECASE)
PARAMETERS = {"identifier", "required_parameter", "parameter", "default_parameter", "typed_parameter"}


@dataclass(frozen=True, slots=True)
class Submission:
    name: str
    language: str | None
    half: Literal["seen", "unseen"]
    statement: str
    text: str

    @property
    def task(self) -> str:
        return self.name.partition("/")[0]

    @property
    def kind(self) -> Kind:
        return "code" if self.language else "text"


def read_json(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


@cache
def submissions() -> dict[str, Submission]:
    tasks, found = read_json("tasks.json"), {}
    for language in ("python", "javascript", "solidity", "text"):
        whole = (HERE / f"{language}.txt").read_text(encoding="utf-8")
        for part in re.split(r"^=== ", whole, flags=re.MULTILINE)[1:]:
            name, _, text = part.partition("\n")
            task = tasks[name.partition("/")[0]]
            found[name] = Submission(name, task["language"], task["half"], task["statement"], text)
    return found


@cache
def programs() -> dict[str, Submission]:
    """Return the programs of the set, and those of examples/gas-golf, which are only compared."""
    found = {name: one for name, one in submissions().items() if one.language}
    for file in sorted((EXAMPLE / "submissions").glob("*.sol")):
        name = f"gas-golf/{file.stem}"
        found[name] = Submission(name, "solidity", "seen", "", file.read_text(encoding="utf-8"))
    return found


@cache
def schema_of(kind: Kind) -> FeatureSchema:
    return compile_schema(parse_eval_config(json.dumps(read_json("schema.json")[kind]).encode()))[0]


def labels() -> dict[str, dict[str, Label]]:
    found: dict[str, dict[str, Label]] = read_json("labels.json")
    return found


Ran = tuple[int, int, int | None]
"""Passed tests, all tests, and the gas of the metric."""


def tool_labels(ran: Mapping[str, Ran]) -> dict[str, dict[str, Label]]:
    """Return the labels of each submission from tools, these runs and by_hand.json."""
    by_hand: dict[str, dict[str, Label]] = read_json("by_hand.json")
    works = {name: passed == asked for name, (passed, asked, _) in ran.items()}
    found = {}
    for name, one in submissions().items():
        known = code_labels(one) | {"works": works.get(name)} if one.language else text_labels(one.text)
        known |= {feature: values[name] for feature, values in by_hand.items() if name in values}
        found[name] = known
    return found


def code_labels(one: Submission) -> dict[str, Label]:
    assert one.language is not None
    source = one.text.encode()
    parsed = parse(source, one.language)
    assert parsed is not None
    nodes = list(_nodes(parsed.tree.root_node))
    functions = [node for node in nodes if _is_function(node)]
    loops = [node for node in nodes if node.type in LOOPS]
    raises = any(node.type in RAISES or _called(node) in ("require", "revert") for node in nodes)
    checks = any(node.type == "assert_statement" or (_called(node) or "").startswith("assert") for node in nodes)
    if one.language == "javascript":  # there, `require` loads a module
        raises = any(node.type in RAISES for node in nodes)
    lines = [node.end_point.row - _whole(node).start_point.row + 1 for node in functions]
    return {
        "function_count": len(functions),
        "parameter_count": max(map(_parameters, functions), default=0),
        "loop_count": len(loops),
        "mean_lines": round(sum(lines) / len(lines), 2) if lines else 0,
        "nested_loops": any(_inside(node, LOOPS) for node in loops),
        "is_recursive": any(_called(node) == _name(function) for function in functions for node in _nodes(function)),
        "has_checks": checks,
        "error_handling": "catches" if any(n.type in CATCHES for n in nodes) else "raises" if raises else "none",
    }


def text_labels(text: str) -> dict[str, Label]:
    paragraphs = [part for part in re.split(r"\n\s*\n", text.strip()) if part]
    listed = re.compile(r"^(?:- |\d+\. )", re.MULTILINE)
    return {
        "paragraph_count": len(paragraphs),
        "number_count": len(re.findall(r"\d+", listed.sub("", text))),
        "sentence_words": round(len(words_of(text)) / len(sentences_of(text)), 2),
        "has_list": bool(listed.search(text)),
        "has_question": "?" in text,
        "has_example": "for example" in text.lower(),
        "names_source": bool(re.search(r"according to|https?://", text, re.IGNORECASE)),
        "has_conclusion": bool(_CONCLUDES.search(paragraphs[-1])),
    }


def run_scripts() -> dict[str, Ran]:
    """Return how many tests each Python and JavaScript program passes."""
    tasks, found = read_json("tasks.json"), {}
    jobs: list[dict[str, Any]] = []
    for name, one in submissions().items():
        task = tasks[one.task]
        if one.language == "python":
            passed = sum(_passes(one.text, task["call"], *case) for case in task["cases"])
            found[name] = (passed, len(task["cases"]), None)
        elif one.language == "javascript":
            jobs.append({"name": name, "source": one.text, "call": task["call"], "cases": task["cases"]})
    command = ["node", str(HERE / "run_cases.cjs")]
    ran = subprocess.run(command, input=json.dumps(jobs), stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return found | {name: (passed, of, None) for name, (passed, of) in json.loads(ran.stdout).items()}


def run_contracts(these: Mapping[str, Submission]) -> dict[str, Ran]:
    """Return how many tests of its harness each contract passes, and its gas."""
    found: dict[str, Ran] = {}
    with closing(Machine()) as machine:
        for name, one in these.items():
            if one.language == "solidity":
                file = HERE / "harness" / f"{one.task}.sol"
                file = file if file.exists() else EXAMPLE / "harness.sol"
                harness = Harness("solidity", file.read_text(encoding="utf-8"))
                calls = machine.run(harness, HarnessSubmission("solidity", one.text)).calls
                tests = [call.outcome == "passed" for call in calls if call.kind == "test"]
                gas = [call.value for call in calls if call.kind == "metric"]
                found[name] = (sum(tests), len(tests), int(gas[0]) if gas and gas[0] is not None else None)
    return found


def _passes(source: str, call: str, args: list[Any], wanted: object) -> bool:
    space: dict[str, Any] = {}
    exec(source, space)  # our own programs
    try:
        found = space[call](*args)
    except ValueError:
        return bool(wanted == "error")
    return bool(json.loads(json.dumps(found)) == wanted)


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _is_function(node: Node) -> bool:
    """Return whether it is a named function; an arrow function is named by its constant."""
    named = node.type == "arrow_function" and node.parent is not None and node.parent.type == "variable_declarator"
    return node.type in FUNCTIONS or named


def _whole(node: Node) -> Node:
    return node.parent or node if node.type == "arrow_function" else node


def _name(function: Node) -> str:
    named = _whole(function).child_by_field_name("name")
    return named.text.decode() if named is not None and named.text else "constructor"


def _parameters(function: Node) -> int:
    held = function.child_by_field_name("parameters")
    if held is not None:
        return sum(child.type in PARAMETERS for child in held.children)
    return sum(child.type == "parameter" for child in function.children)


def _called(node: Node) -> str | None:
    if node.type not in ("call", "call_expression"):
        return None
    callee = node.child_by_field_name("function")
    return callee.text.decode() if callee is not None and callee.text else None


def _inside(node: Node, kinds: set[str]) -> bool:
    above = node.parent
    while above is not None and above.type not in kinds:
        above = above.parent
    return above is not None


if __name__ == "__main__":
    ran = run_scripts() | run_contracts(programs())
    documents: dict[str, Mapping[str, object]] = {"executed.json": ran, "labels.json": tool_labels(ran)}
    for name, document in documents.items():
        rows = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(document.items())]
        (HERE / name).write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
