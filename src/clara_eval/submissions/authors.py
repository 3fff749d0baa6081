"""Who had which content first, as far as the chain can tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from clara_eval.core.address import Address
from clara_eval.core.submission import Version
from clara_eval.submissions.model import Solution

CONTESTED_SECONDS = 60
"""Thirty blocks of Base: who reads a pending or a fresh submission and sends it again needs a few blocks, and who is
first among them is up to fees and nodes. Within this time the order proves nothing about who wrote it.
"""


@dataclass(frozen=True, slots=True)
class Authors:
    """The first moment of every commitment, versions that were replaced included."""

    first_with: dict[tuple[Address, str], int]
    """When a submitter first committed to a hash."""
    first_at_all: dict[Address, int]
    by_hash: dict[str, tuple[int, Address]]

    @classmethod
    def of(cls, solutions: Sequence[Solution], versions: Sequence[Version]) -> Authors:
        current = [
            Version(s.submission.submitter, s.submission.solution_hash, s.submission.submitted_at) for s in solutions
        ]
        first_with: dict[tuple[Address, str], int] = {}
        first_at_all: dict[Address, int] = {}
        by_hash: dict[str, tuple[int, Address]] = {}
        for one in sorted((*versions, *current), key=lambda v: (v.submitted_at, v.submitter)):
            committed = one.solution_hash.lower()
            first_with.setdefault((one.submitter, committed), one.submitted_at)
            by_hash.setdefault(committed, (one.submitted_at, one.submitter))
        for one in versions:
            first_at_all[one.submitter] = min(one.submitted_at, first_at_all.get(one.submitter, one.submitted_at))
        return cls(first_with, first_at_all, by_hash)

    def order(self, solution: Solution, works: Iterable[Solution] = ()) -> tuple[bool, int, str]:
        """Sort key: content that can change never comes before content that cannot, then by `since`."""
        return not solution.pinned, self.since(solution, works), solution.submission.submitter

    def since(self, solution: Solution, works: Iterable[Solution] = ()) -> int:
        """When its submitter first committed to it, or to any of these works, now or in a replaced version."""
        account = solution.submission.submitter
        hashes = [committed for work in (solution, *works) for committed in _fixing(work)]
        moments = [self.first_with.get((account, committed)) for committed in hashes]
        return min((one for one in moments if one is not None), default=solution.submission.submitted_at)

    def may_be_first(self, later: Solution, earlier: Solution, works: Sequence[Solution]) -> bool:
        """Whether the later one may be the author: sent within a minute, at an address that can change, or replaced."""
        began, submission = self.since(earlier, works), later.submission
        if self.since(later, works) <= began + CONTESTED_SECONDS:
            return True
        first = self.first_at_all.get(submission.submitter)
        # What a replaced version held is not known here, only when it was sent.
        return submission.version > 1 if first is None else first <= began + CONTESTED_SECONDS

    def taken(self, ranked: Iterable[Solution]) -> Iterator[tuple[Address, Address]]:
        """Ranked entries whose very bytes somebody else had committed to before, each with that account."""
        for solution in ranked:
            account = solution.submission.submitter
            for committed in _fixing(solution):
                moment, author = self.by_hash.get(committed, (0, account))
                if author != account and moment < self.since(solution):
                    yield account, author
                    break


def _fixing(solution: Solution) -> tuple[str, ...]:
    """The hashes that fix exactly this content: that of the bytes, and that of a URI which fixes them."""
    if solution.hash_kind == "content" or not solution.pinned:
        return (solution.content_keccak,)
    return solution.content_keccak, solution.submission.solution_hash.lower()
