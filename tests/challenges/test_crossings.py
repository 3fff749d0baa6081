"""How much of the product a reader crosses to follow one dry run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from tests.support.fake_endpoint import FakeEndpoint
from tests.support.rounds import closed_round, opened

import clara_eval
from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.devnet.local_chain import LocalChain

SOURCE = str(Path(clara_eval.__file__).parent)


class Crossings:
    """Records the functions of the package that start, in their order."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.packages: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        is_start = event == "call" and frame.f_lineno == code.co_firstlineno
        if not is_start or not code.co_filename.startswith(SOURCE) or code.co_name.startswith("<"):
            return
        path = code.co_filename[len(SOURCE) + 1 :]
        self.functions.add((path, code.co_qualname))
        package = path.split("/")[0]
        if not self.packages or self.packages[-1] != package:
            self.packages.append(package)


async def test_a_dry_run_stays_within_few_files_and_functions(local_chain: LocalChain, tmp_path: Path) -> None:
    """A dry run of five submissions crosses at most 110 files, 900 functions and 2,000 changes of package."""
    address = await closed_round(local_chain)
    async with (
        FakeEndpoint().running() as endpoint,
        opened(local_chain, tmp_path, judges_as_set=f"openai:model@{endpoint.url}") as app,
    ):
        crossed = Crossings()
        sys.setprofile(crossed)
        try:
            done = await evaluate(app, address, EvaluationRequest(dry_run=True))
        finally:
            sys.setprofile(None)
    assert done.ran is not None
    files = {path for path, _ in crossed.functions}
    figures = (len(files), len(crossed.functions), len(crossed.packages) - 1)
    assert all(found <= most for found, most in zip(figures, (110, 900, 2_000), strict=True)), figures
