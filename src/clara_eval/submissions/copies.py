"""Find entries that repeat one another: copies, which are refused, and similar work, which is ranked and shown."""

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

CONTESTED_SECONDS = 60  # thirty blocks of Base: a copy of a pending submission needs a few, and fees decide the order
CopyKind = Literal["exact", "normalised"]


class _Authors:
    """Who committed to what, and when, with the versions that were replaced."""

    def __init__(self, solutions: Sequence[Solution], replaced: Sequence[Version]) -> None:
        held = [one.submission for one in solutions]
        current = [Version(one.submitter, one.solution_hash, one.submitted_at) for one in held]
        newest_first = sorted((*replaced, *current), key=lambda v: (v.submitted_at, v.submitter), reverse=True)
        # Of several the oldest stays.
        self._first = {one.solution_hash.lower(): one for one in newest_first}
        self._own = {(one.submitter, one.solution_hash.lower()): one.submitted_at for one in newest_first}
        oldest_last = sorted(replaced, key=lambda v: v.submitted_at, reverse=True)
        self._first_replaced = {one.submitter: one.submitted_at for one in oldest_last}

    def order(self, solution: Solution, works: Iterable[Solution] = ()) -> tuple[bool, int, str]:
        """Sort key: content that can change never comes before content that cannot, then by `since`."""
        return not solution.pinned, self.since(solution, works), solution.submission.submitter

    def since(self, solution: Solution, works: Iterable[Solution] = ()) -> int:
        """When its submitter first committed to it, or to any of these works, now or in a replaced version."""
        own = solution.submission
        keys = [(own.submitter, committed) for work in (solution, *works) for committed in _fixing(work)]
        return min((self._own[key] for key in keys if key in self._own), default=own.submitted_at)

    def may_be_first(self, later: Solution, earlier: Solution, works: Sequence[Solution]) -> bool:
        """Whether the later one may be the author: sent within a minute, at an address that can change, or replaced."""
        began, submission = self.since(earlier, works), later.submission
        if self.since(later, works) <= began + CONTESTED_SECONDS:
            return True
        first = self._first_replaced.get(submission.submitter)
        # What a replaced version held is not known here, only when it was sent.
        return submission.version > 1 if first is None else first <= began + CONTESTED_SECONDS

    def taken(self, ranked: Iterable[Solution]) -> Iterator[tuple[Address, Address]]:
        """Ranked entries whose very bytes somebody else had committed to before, each with that account."""
        for solution in ranked:
            account = solution.submission.submitter
            for committed in _fixing(solution):
                first = self._first.get(committed)
                if first and first.submitter != account and first.submitted_at < self.since(solution):
                    yield account, first.submitter
                    break


def _fixing(solution: Solution) -> tuple[str, ...]:
    """The hashes that fix exactly this content: that of the bytes, and that of a URI which fixes them."""
    own = (solution.content_keccak,)
    return (*own, solution.submission.solution_hash.lower()) if solution.pinned else own


@dataclass(frozen=True, slots=True)
class Copy:
    """An entry that is refused, and the ranked one that it repeats."""

    solution: Solution
    kind: CopyKind
    may_be_first: bool = False  # sent within a minute, resubmitted, or at an address whose content can change


@dataclass(frozen=True, slots=True)
class Cluster:
    """One work that several handed in."""

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
    """Two ranked entries of which the later one may be the earlier one in disguise."""

    earlier: Address
    later: Address
    kind: SimilarKind
    share: float  # of one of them, what the other has, by this kind of feature
    contested: bool  # the order does not say who wrote it

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
    families: dict[Address, Address] = field(default_factory=dict)  # to the earliest that is similar or of one agent
    similar: tuple[Similar, ...] = ()  # for each later entry the earliest one that it resembles
    taken: tuple[tuple[Address, Address], ...] = ()  # ranked, and who handed in the very bytes first


def find_likeness(
    solutions: Iterable[Solution], *, template: str = "", versions: Iterable[Version] = (), key: bytes = b""
) -> Likeness:
    """Find copies, and similar ones among the rest; nobody knew `key` when the submissions were written."""
    held = tuple(solutions)
    authors = _Authors(held, tuple(versions))
    ordered = sorted(held, key=authors.order)
    works = [Work(one.code, one.language, one.work_sha256) for one in ordered]
    copies, alike = compare_works(works, template=template, key=key)
    clusters = tuple(_with_author(authors, [ordered[n] for n in group]) for group in copies)
    heads = {c.solution.submission.submitter: one.original for one in clusters for c in one.copies}
    firsts = [heads.get(one.submission.submitter, one) for one in ordered]
    similar = [_oriented(authors, (firsts[old], firsts[new]), kind, share) for new, old, kind, share in alike]
    once = dict(sorted({pair.later: pair for pair in reversed(similar)}.items()))
    ranked = [one for one in ordered if one.submission.submitter not in heads]
    return Likeness(clusters, _families(ranked, similar), tuple(once.values()), tuple(sorted(authors.taken(ranked))))


def _with_author(authors: _Authors, works: Sequence[Solution]) -> Cluster:
    """One work with its author as the original, and a mark at every copy that may be older still."""
    author, *others = sorted(works, key=lambda work: authors.order(work, works))
    copies = list[Copy]()
    for one in others:
        kind: CopyKind = "exact" if one.work_sha256 == author.work_sha256 else "normalised"
        copies.append(Copy(one, kind, authors.may_be_first(one, author, works)))
    return Cluster(author, tuple(copies))


def _oriented(authors: _Authors, works: Sequence[Solution], kind: SimilarKind, share: float) -> Similar:
    earlier, later = sorted(works, key=lambda work: authors.order(work, works))
    contested = authors.may_be_first(later, earlier, works)
    return Similar(earlier.submission.submitter, later.submission.submitter, kind, round(share, 2), contested)


def _families(ranked: Sequence[Solution], similar: Sequence[Similar]) -> dict[Address, Address]:
    """Return the author of each family, by member; who is alone is left out."""
    later = {pair.later for pair in similar}
    ranked = sorted(ranked, key=lambda one: one.submission.submitter in later)
    place = {solution.submission.submitter: n for n, solution in enumerate(ranked)}
    head = {account: account for account in place}
    agents: dict[int, list[Address]] = defaultdict(list)
    for solution in ranked:
        agents[solution.submission.agent_id].append(solution.submission.submitter)
    for one, other in (
        *((members[0], member) for members in agents.values() for member in members[1:]),
        *((pair.earlier, pair.later) for pair in similar),
    ):
        first, second = sorted((head[one], head[other]), key=lambda account: place[account])
        head = {account: first if top == second else top for account, top in head.items()}
    sizes = Counter(head.values())
    return {account: top for account, top in head.items() if sizes[top] > 1}
