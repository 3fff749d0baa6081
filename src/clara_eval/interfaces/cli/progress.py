"""Progress of an evaluation on standard error: bars on a terminal, one line a stage elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from clara_eval.documents.results import EvalStatus


class LiveProgress:
    """Call it with every status; `tell` prints a sentence beside the bars."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=False,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def tell(self, stage: str, sentence: str) -> None:
        self._console.print(f"[bold cyan]{stage:<12}[/bold cyan] {sentence}", soft_wrap=True)

    def __call__(self, status: EvalStatus) -> None:
        stage = status.stage
        if stage is None or stage.name is None or status.status not in ("extracting", "comparing"):
            return
        if stage.name not in self._tasks:
            self._tasks[stage.name] = self._progress.add_task(stage.name, total=stage.total, note="")
        note = f"{stage.calls} calls  ${stage.costUsd or 0:.4f}" if stage.calls else ""
        if stage.callsPerSecond and stage.calls:
            note += f"  {stage.callsPerSecond:.1f}/s"
        self._progress.update(self._tasks[stage.name], completed=stage.done, total=stage.total, note=note)
        if stage.done == stage.total and self._progress.disable:
            self.tell(stage.name, f"{stage.done} of {stage.total} {note}".rstrip())
