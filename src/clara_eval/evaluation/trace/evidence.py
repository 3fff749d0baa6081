"""The entries of a checked trace, decoded when asked for; texts stay in a file."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from tempfile import TemporaryFile

from clara_eval.evaluation.trace.document import Approval, read_entries


class Evidence(Mapping[str, object]):
    """The body of each entry by its key; of several with one key the last, as in any JSON object."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Raises BadTrace for the first line that is not as it was written."""
        self._file = TemporaryFile()  # noqa: SIM115 - it is closed when this is forgotten
        self._ends = array("Q", [0])
        self._seq_of: dict[str, int] = {}
        self._single: dict[str, object] = {}
        """Of those asked for: what concerns the whole round and is asked for again and again."""
        self.approvals: list[Approval] = []
        self.digest = ""
        for entry in read_entries(self._kept(lines), self.approvals):
            self._seq_of[entry.key] = entry.seq
            self.digest = entry.hash

    @property
    def count(self) -> int:
        """Of the entries; there may be fewer keys."""
        return max(0, len(self._ends) - 3)  # the file's first and last lines are no entries

    def at(self, seq: int) -> tuple[str, object]:
        begin, end = self._ends[seq + 1], self._ends[seq + 2]
        self._file.seek(begin)
        line = self._file.read(end - begin).decode()
        entry = json.loads(line.rstrip(",\n"))["entry"]
        return entry["key"], entry["body"]

    def __getitem__(self, key: str) -> object:
        if key in self._single:
            return self._single[key]
        body = self.at(self._seq_of[key])[1]
        if "/" not in key:
            self._single[key] = body
        return body

    def __iter__(self) -> Iterator[str]:
        return iter(self._seq_of)

    def __len__(self) -> int:
        return len(self._seq_of)

    def _kept(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            written = self._file.write(line.encode())
            self._ends.append(self._ends[-1] + written)
            yield line
