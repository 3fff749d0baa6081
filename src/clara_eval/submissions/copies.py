"""Find copies, which are rejected, and similar entries, which are ranked and flagged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from clara_eval.code import Work, compare_works
from clara_eval.code.similarity import SimilarKind
from clara_eval.core.address import Address
from clara_eval.core.model import Version
from clara_eval.submissions.model import Rejected, Solution

CONTESTED_SECONDS = 60  # 30 blocks of Base: a pending submission can be copied and overtaken by a higher fee
CopyKind = Literal["exact", "normalised"]


class _Authors:
    """Who committed to which hash, and when, including replaced versions."""

    def __init__(self, solutions: Sequence[Solution], replaced: Sequence[Version]) -> None:
        submissions = [one.submission for one in solutions]
        current = [Version(one.submitter, one.solution_hash, one.submitted_at) for one in submissions]
        newest_first = sorted((*replaced, *current), key=lambda v: (v.submitted_at, v.submitter), reverse=True)
        # In each dict the last value for a key, which is the oldest, counts.
        self._first = {one.solution_hash.lower(): one for one in newest_first}
        self._own = {(one.submitter, one.solution_hash.lower()): one.submitted_at for one in newest_first}
        oldest_last = sorted(replaced, key=lambda v: v.submitted_at, reverse=True)
        self._first_replaced = {one.submitter: one.submitted_at for one in oldest_last}

    def order(self, solution: Solution, works: Iterable[Solution] = ()) -> tuple[bool, int, str]:
        """Return a sort key: pinned content first, then by `since`."""
        return not solution.pinned, self.since(solution, works), solution.submission.submitter

    def since(self, solution: Solution, works: Iterable[Solution] = ()) -> int:
        """Return when its submitter first committed to it or to one of `works`, also in a replaced version."""
        own = solution.submission
        keys = [(own.submitter, committed) for work in (solution, *works) for committed in _content_hashes(work)]
        return min((self._own[key] for key in keys if key in self._own), default=own.submitted_at)

    def may_be_first(self, later: Solution, earlier: Solution, works: Sequence[Solution]) -> bool:
        """Return whether `later` may be the original: sent before, within a minute, or as a replacement."""
        latest, submission = self.since(earlier, works) + CONTESTED_SECONDS, later.submission
        if self.since(later, works) <= latest:
            return True
        first = self._first_replaced.get(submission.submitter)
        # The content of a replaced version is not known here, only its time.
        return submission.version > 1 if first is None else first <= latest

    def taken(self, ranked: Iterable[Solution]) -> Iterator[tuple[Address, Address]]:
        """Yield each ranked entry whose exact content another account committed to before, with that account."""
        for solution in ranked:
            account = solution.submission.submitter
            for committed in _content_hashes(solution):
                first = self._first.get(committed)
                if first and first.submitter != account and first.submitted_at < self.since(solution):
                    yield account, first.submitter
                    break


def _content_hashes(solution: Solution) -> tuple[str, ...]:
    """Return the hashes that determine this content: of its bytes, and of an immutable URI."""
    own = (solution.content_keccak,)
    return (*own, solution.submission.solution_hash.lower()) if solution.pinned else own


@dataclass(frozen=True, slots=True)
class Copy:
    """An entry that is rejected because it repeats a ranked one."""

    solution: Solution
    kind: CopyKind
    may_be_first: bool = False  # it may be the original: see `_Authors.may_be_first`


@dataclass(frozen=True, slots=True)
class Cluster:
    """One work that several accounts submitted."""

    original: Solution
    copies: tuple[Copy, ...]

    @property
    def contested(self) -> bool:
        return any(copy.may_be_first for copy in self.copies)

    def rejected(self) -> tuple[Rejected, ...]:
        first = self.original.submission
        at = datetime.fromtimestamp(first.submitted_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        ranked = f"the submission of {first.submitter} at {at}, which is ranked."
        how = {"exact": "Identical to", "normalised": "Identical, without comments and formatting, to"}
        return tuple(Rejected(copy.solution.submission, "copy", f"{how[copy.kind]} {ranked}") for copy in self.copies)


@dataclass(frozen=True, slots=True)
class Similar:
    """Two ranked entries; the later may be a disguised copy of the earlier."""

    earlier: Address
    later: Address
    kind: SimilarKind
    share: float  # share of one entry's features of this kind that the other has too
    contested: bool  # the order does not show who wrote it

    @property
    def sentence(self) -> str:
        what = {
            "tokens": "text without formatting",
            "renamed": "code without names",
            "statements": "statements without names",
            "minified": "names of properties, in order",
        }[self.kind]
        doubt = " Who of them wrote it first cannot be told from the chain." if self.contested else ""
        other = f"the earlier submission of {self.earlier}"
        return f"{self.later}: {self.share:.0%} in common with {other} ({what}).{doubt}"


@dataclass(frozen=True, slots=True)
class Likeness:
    clusters: tuple[Cluster, ...]
    families: dict[Address, Address] = field(default_factory=dict)  # to the first entry that is similar or of one agent
    similar: tuple[Similar, ...] = ()  # each later entry with the earliest one that it resembles
    taken: tuple[tuple[Address, Address], ...] = ()  # ranked account, and the account that first submitted its content


def find_likeness(
    solutions: Iterable[Solution], *, template: str = "", versions: Iterable[Version] = (), key: bytes = b""
) -> Likeness:
    """Find copies, and similar entries among the rest. Submitters must not know `key` in advance."""
    entries = tuple(solutions)
    authors = _Authors(entries, tuple(versions))
    ordered = sorted(entries, key=authors.order)
    works = [Work(one.code, one.language, one.work_sha256) for one in ordered]
    copies, alike = compare_works(works, template=template, key=key)
    clusters = tuple(_make_cluster(authors, [ordered[n] for n in group]) for group in copies)
    heads = {c.solution.submission.submitter: one.original for one in clusters for c in one.copies}
    firsts = [heads.get(one.submission.submitter, one) for one in ordered]
    similar = [_make_similar(authors, (firsts[old], firsts[new]), kind, share) for new, old, kind, share in alike]
    once = dict(sorted({pair.later: pair for pair in reversed(similar)}.items()))
    ranked = [one for one in ordered if one.submission.submitter not in heads]
    return Likeness(clusters, _families(ranked, similar), tuple(once.values()), tuple(sorted(authors.taken(ranked))))


def _make_cluster(authors: _Authors, works: Sequence[Solution]) -> Cluster:
    """Build the cluster of equal works, with the first author's as the original."""
    author, *others = sorted(works, key=lambda work: authors.order(work, works))
    copies = list[Copy]()
    for one in others:
        kind: CopyKind = "exact" if one.work_sha256 == author.work_sha256 else "normalised"
        copies.append(Copy(one, kind, authors.may_be_first(one, author, works)))
    return Cluster(author, tuple(copies))


def _make_similar(authors: _Authors, works: Sequence[Solution], kind: SimilarKind, share: float) -> Similar:
    earlier, later = sorted(works, key=lambda work: authors.order(work, works))
    contested = authors.may_be_first(later, earlier, works)
    return Similar(earlier.submission.submitter, later.submission.submitter, kind, round(share, 2), contested)


def _families(ranked: Sequence[Solution], similar: Sequence[Similar]) -> dict[Address, Address]:
    """Return the first account of each family, by member; entries without relatives are left out."""
    later = {pair.later for pair in similar}
    ranked = sorted(ranked, key=lambda one: one.submission.submitter in later)
    position = {solution.submission.submitter: n for n, solution in enumerate(ranked)}
    head = {account: account for account in position}
    agents: dict[int, list[Address]] = defaultdict(list)
    for solution in ranked:
        agents[solution.submission.agent_id].append(solution.submission.submitter)
    for one, other in (
        *((members[0], member) for members in agents.values() for member in members[1:]),
        *((pair.earlier, pair.later) for pair in similar),
    ):
        first, second = sorted((head[one], head[other]), key=lambda account: position[account])
        head = {account: first if top == second else top for account, top in head.items()}
    sizes = Counter(head.values())
    return {account: top for account, top in head.items() if sizes[top] > 1}
