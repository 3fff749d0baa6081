"""Copies of one another, found before anything is ranked: one work, one place. And families, which may be one hand.

Solutions come in, clusters go out; each names the earliest current submission as the original and every later one as a
copy: exact (same bytes), normalised (same tokens without comments and formatting), or near (at least 0.8 of the token
shingles shared, also when names were changed). Short texts are never near copies: tiny programs look alike.
Families are wider: ranked entries that share half of their shingles or come from one agent. Nobody is refused for that;
the ranking only asks whether somebody else would be paid had the whole family stayed away.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import numpy.typing as npt

from clara_eval.challenge.model import Address
from clara_eval.solutions.model import Rejected, Solution
from clara_eval.solutions.tokens import abstract_shingles, shingles, token_stream

NEAR = 0.8
ALIKE = 0.5
WIDTH = 5
MIN_SHINGLES = 60
ABSTRACT_WIDTH = 8
MIN_ABSTRACT_SHINGLES = 80

_AT_ONCE = 4_000_000
"""Shared shingles counted in one go, so that memory does not follow how alike the entries are."""
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
_NONE: Hashes = np.empty(0, dtype=np.uint64)

CopyKind = Literal["exact", "normalised", "near"]


@dataclass(frozen=True, slots=True)
class Copy:
    solution: Solution
    kind: CopyKind
    similarity: float
    like: Solution
    """The earliest submission that it resembles; not always the original, because likeness can go by steps."""


@dataclass(frozen=True, slots=True)
class Cluster:
    original: Solution
    copies: tuple[Copy, ...]

    @property
    def contested(self) -> bool:
        """A "copy" may be the older work: it was resubmitted, which moved its time, or came in the very same second."""
        first = self.original.submission.submitted_at
        return any(
            copy.solution.submission.version > 1 or copy.solution.submission.submitted_at == first
            for copy in self.copies
        )

    def rejected(self) -> tuple[Rejected, ...]:
        return tuple(Rejected(copy.solution.submission, "copy", self._reason(copy)) for copy in self.copies)

    def _reason(self, copy: Copy) -> str:
        first = self.original.submission
        how = {
            "exact": "It is byte for byte",
            "normalised": "Without comments and formatting it is",
            "near": f"{copy.similarity:.0%} of it is",
        }[copy.kind]
        through = "" if copy.like is self.original else f", through {copy.like.submission.submitter}"
        at = datetime.fromtimestamp(first.submitted_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{how} the submission of {first.submitter} at {at}{through}, which is ranked."


@dataclass(frozen=True, slots=True)
class Likeness:
    """Clusters of two or more, earliest first; and the head of its family for every ranked member of one."""

    clusters: tuple[Cluster, ...]
    families: dict[Address, Address]


def find_likeness(solutions: Iterable[Solution], *, template: str = "") -> Likeness:
    """Copies among all, and families among those that are no copies.

    What the poster gave does not count as copied: `template` is the problem statement, or a skeleton from it.
    """
    ordered = sorted(solutions, key=_by_time)
    given = _Given.of(template)
    prints = [_Print.of(solution, given) for solution in ordered]
    links = _links(prints)
    ranked = [number for number in range(len(ordered)) if number not in links]
    families = _families([ordered[number] for number in ranked], [prints[number] for number in ranked])
    return Likeness(_gather(ordered, links), families)


def _families(ordered: Sequence[Solution], prints: Sequence[_Print]) -> dict[Address, Address]:
    """The earliest submitter of each family, by member; whoever is alone is left out."""
    head = list(range(len(ordered)))

    def join(one: int, other: int) -> None:
        older, younger = sorted((head[one], head[other]))
        if older != younger:
            head[:] = [older if number == younger else number for number in head]

    for earlier, later in _same([solution.submission.agent_id for solution in ordered]):
        join(earlier, later)
    for sets, least in _by_kind(prints):
        for later, likeness in likenesses(sets, least):
            for earlier in np.flatnonzero(likeness >= ALIKE).tolist():
                join(earlier, later)
    sizes = Counter(head)
    accounts = [solution.submission.submitter for solution in ordered]
    return {account: accounts[first] for account, first in zip(accounts, head, strict=True) if sizes[first] > 1}


def _by_time(solution: Solution) -> tuple[int, str]:
    return solution.submission.submitted_at, solution.submission.submitter


@dataclass(frozen=True, slots=True)
class _Link:
    earlier: int
    kind: CopyKind
    similarity: float


def _gather(ordered: Sequence[Solution], links: Mapping[int, _Link]) -> tuple[Cluster, ...]:
    members: dict[int, list[Copy]] = defaultdict(list)
    root: dict[int, int] = {}
    for later in sorted(links):
        link = links[later]
        root[later] = root.get(link.earlier, link.earlier)
        members[root[later]].append(Copy(ordered[later], link.kind, link.similarity, ordered[link.earlier]))
    return tuple(Cluster(ordered[first], tuple(members[first])) for first in sorted(members))


@dataclass(frozen=True, slots=True)
class _Given:
    """What the poster's words already hold: as a whole, and each fenced block of code in them."""

    plain: frozenset[str]
    abstract: frozenset[str]

    @classmethod
    def of(cls, template: str) -> _Given:
        streams = [token_stream(part) for part in (template, *template.split("```")[1::2])]
        return cls(
            plain=frozenset().union(*(shingles(one, WIDTH) for one in streams)),
            abstract=frozenset().union(*(abstract_shingles(one, ABSTRACT_WIDTH) for one in streams)),
        )


@dataclass(frozen=True, slots=True)
class _Print:
    """What is compared of one solution."""

    content: str
    stream: str
    plain: Hashes
    abstract: Hashes

    @classmethod
    def of(cls, solution: Solution, given: _Given) -> _Print:
        stream = token_stream(solution.text)
        return cls(
            content=solution.content_sha256,
            # A text of comments only has no tokens, and must not equal every other such text.
            stream=_digest("\x1f".join(stream.tokens)) if stream.tokens else solution.content_sha256,
            plain=_hashes(shingles(stream, WIDTH) - given.plain),
            abstract=_hashes(abstract_shingles(stream, ABSTRACT_WIDTH) - given.abstract),
        )


def _links(prints: Sequence[_Print]) -> dict[int, _Link]:
    """For each copy the earliest submission it resembles, by the plainest kind of likeness."""
    links: dict[int, _Link] = {}
    kinds: tuple[tuple[CopyKind, list[str]], ...] = (
        ("exact", [one.content for one in prints]),
        ("normalised", [one.stream for one in prints]),
    )
    for kind, keys in kinds:
        for earlier, later in _same(keys):
            links.setdefault(later, _Link(earlier, kind, 1.0))
    for sets, least in _by_kind(prints):
        for link_of, link in _near(sets, least, links.keys()):
            links.setdefault(link_of, link)
    return links


def _by_kind(prints: Sequence[_Print]) -> tuple[tuple[list[Hashes], int], ...]:
    """Shingles as written and with names forgotten, each with how many it takes to say anything."""
    return (
        ([one.plain for one in prints], MIN_SHINGLES),
        ([one.abstract for one in prints], MIN_ABSTRACT_SHINGLES),
    )


def _same(keys: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    first: dict[Hashable, int] = {}
    for number, key in enumerate(keys):
        if key in first:
            yield first[key], number
        else:
            first[key] = number


def _near(sets: Sequence[Hashes], least: int, known: Container[int]) -> list[tuple[int, _Link]]:
    """Each set with the earliest one it resembles."""
    found = []
    for later, likeness in likenesses(sets, least, known):
        alike = np.flatnonzero(likeness >= NEAR)
        if len(alike):
            found.append((later, _Link(int(alike[0]), "near", float(likeness[alike[0]]))))
    return found


def likenesses(
    sets: Sequence[Hashes], least: int, known: Container[int] = ()
) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    """Each set with its Jaccard index to every earlier one; those too small or already known resemble nothing.

    Shared shingles are counted through an inverted index: all pairs exactly, at the cost of what they share.
    """
    counted = [one if len(one) >= least and n not in known else one[:0] for n, one in enumerate(sets)]
    sizes = np.array([len(one) for one in counted], dtype=np.int64)
    _, shingle, spread = np.unique(np.concatenate([*counted, _NONE]), return_inverse=True, return_counts=True)
    by_shingle = np.argsort(shingle, kind="stable")
    owners = np.repeat(np.arange(len(sets)), sizes)[by_shingle]
    place = np.empty_like(by_shingle)
    place[by_shingle] = np.arange(len(by_shingle))
    start = (np.cumsum(spread) - spread)[shingle]
    ends = np.cumsum(sizes)
    for later in np.flatnonzero(sizes).tolist():
        mine = slice(ends[later] - sizes[later], ends[later])
        shared = _shared(owners, start[mine], place[mine] - start[mine], later)
        yield later, shared / (sizes[:later] + sizes[later] - shared)


def _shared(owners: Ints, start: Ints, before: Ints, later: int) -> Ints:
    """How many shingles each earlier set has in common: from `start` on, `before` owners of each came earlier."""
    shared = np.zeros(later, dtype=np.int64)
    for part in np.array_split(np.arange(len(before)), 1 + int(before.sum()) // _AT_ONCE):
        ahead = before[part]
        jumps = np.repeat(start[part] - (np.cumsum(ahead) - ahead), ahead)
        shared += np.bincount(owners[jumps + np.arange(len(jumps))], minlength=later)
    return shared


def _hashes(parts: Iterable[str]) -> Hashes:
    """Eight bytes a shingle: a round of the largest entries has to fit into memory."""
    return np.unique(np.frombuffer(b"".join(map(_short, parts)), dtype="<u8"))


def _short(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
