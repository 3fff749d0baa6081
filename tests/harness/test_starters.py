"""The first harness that `harness init` writes: its solution passes it, and a wrong one does not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from clara_eval.actions.harness import starter_files
from clara_eval.core.errors import BadInput
from clara_eval.harness import Harness, HarnessSubmission, Language, Machine, MissingEngine, RunOutcome
from clara_eval.harness.model import LANGUAGES
from clara_eval.interfaces.cli.config import init_harness as init

WRONG = {"python": ("sorted(items)", "list(items)"), "javascript": (".sort(", ".concat("), "solidity": ("/ 2]", "- 1]")}


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("python_engine")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_starter_passes_and_a_wrong_solution_does_not(language: Language, solc: str | None) -> None:
    """In every language the two files fit, and a small mistake in the solution fails a test."""
    harness, solution = (content.decode() for content in starter_files(language).values())
    with closing(Machine(solc=solc)) as machine:
        try:
            right = machine.run(Harness(language, harness), HarnessSubmission(language, solution))
        except MissingEngine as missing:
            pytest.skip(str(missing))
        wrong = solution.replace(*WRONG[language])
        assert wrong != solution
        failed = machine.run(Harness(language, harness), HarnessSubmission(language, wrong))
    assert right.outcome == RunOutcome.PASSED, (right.detail, right.logs)
    assert failed.outcome == RunOutcome.FAILED


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Two files are written once; the second time, and for an unknown language, the reason is told."""
    init("py", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["harness.py", "solution.py"]
    with pytest.raises(BadInput, match="exists"):
        init("py", tmp_path)
    with pytest.raises(BadInput, match="cannot be executed"):
        init("cobol", tmp_path)
