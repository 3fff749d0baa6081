"""What is wrong with a config, as values: where, what, why, and what to do about it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput

Severity = Literal["error", "warning"]
MOST_TOLD = 20
"""How many errors one message lists."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    path: str
    """For example `$.features[2].min`."""
    value: object
    reason: str
    remedy: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} {self.remedy}".strip()

    def to_json(self) -> dict[str, object]:
        return to_camel_json(self)


class BadEvalConfig(BadInput):
    """A config with at least one error: the message lists all of them, and `problems` has the warnings too."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        first = errors[0]
        more = f"\n… and {len(errors) - MOST_TOLD} more errors." if len(errors) > MOST_TOLD else ""
        super().__init__(
            f"The eval config is not usable. {first.path}: {first.reason}",
            path=first.path,
            value=first.value,
            remedy=first.remedy + "".join(f"\n{problem}" for problem in errors[1:MOST_TOLD]) + more,
        )


@dataclass(slots=True)
class ProblemReport:
    problems: list[ConfigProblem] = field(default_factory=list)
    is_lenient: bool = False
    """The money is escrowed already: what only offends our taste stops nothing; it stands in `waived`."""
    waived: list[ConfigProblem] = field(default_factory=list)

    def error(self, path: str, value: object, reason: str, remedy: str) -> None:
        self.problems.append(ConfigProblem(path, shown(value), reason, remedy))

    def warn(self, path: str, value: object, reason: str, remedy: str) -> None:
        self.problems.append(ConfigProblem(path, shown(value), reason, remedy, "warning"))

    def forbid(self, path: str, value: object, reason: str, remedy: str) -> None:
        """What a poster must mend before posting, and what an evaluation takes as it is."""
        (self.waived if self.is_lenient else self.problems).append(ConfigProblem(path, shown(value), reason, remedy))

    @property
    def failed(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)


def shown(value: object, limit: int = 120) -> object:
    """A value small enough to stand in a message; long ones are cut there, and only there."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[:limit] + "…"


def at(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) else f"{path}[{json.dumps(key[:60])}]"


def suggestion(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """`Did you mean "x"?`, or the list of what there is."""
    names = list(known)
    folded = {_fold(name): name for name in names}
    close = difflib.get_close_matches(_fold(word), folded, n=1, cutoff=likeness)
    return f'Did you mean "{folded[close[0]]}"?' if close else f"Known: {', '.join(names)}."


def _fold(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
