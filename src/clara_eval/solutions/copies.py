"""Copies of one another, found before anything is ranked: one work, one place.

Solutions come in, clusters go out; each names the earliest current submission as the original and every later one as a
copy: exact (same bytes), normalised (same tokens without comments and formatting), or near (at least 0.8 of the token
shingles shared, also when names were changed). Short texts are never near copies: tiny programs look alike. MinHash
bands only propose pairs; the exact Jaccard index decides. All hashes are fixed, so the result is the same everywhere.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from clara_eval.solutions.model import Rejected, Solution
from clara_eval.solutions.tokens import abstract_shingles, shingles, token_stream

NEAR = 0.8
WIDTH = 5
MIN_SHINGLES = 60
ABSTRACT_WIDTH = 8
MIN_ABSTRACT_SHINGLES = 80
_BANDS, _ROWS = 32, 4
"""At similarity 0.8 a pair is missed by all bands with probability 0.59^32 ≈ 5e-8."""

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
        """A "copy" was resubmitted, which moved its time: it may be the older work. A person should look."""
        return any(copy.solution.submission.version > 1 for copy in self.copies)

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
        return f"{how} the submission of {first.submitter} at {first.submitted_at}{through}, which is ranked."


def find_copies(solutions: Iterable[Solution], *, template: str = "") -> tuple[Cluster, ...]:
    """Clusters of two or more, earliest first.

    What the poster gave does not count as copied: `template` is the problem statement, or a skeleton from it.
    """
    ordered = sorted(solutions, key=_by_time)
    given = _Given.of(template)
    prints = [_Print.of(solution, given) for solution in ordered]
    return _gather(ordered, _links(prints))


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
    plain: frozenset[str]
    abstract: frozenset[str]

    @classmethod
    def of(cls, solution: Solution, given: _Given) -> _Print:
        stream = token_stream(solution.text)
        return cls(
            content=solution.content_sha256,
            # A text of comments only has no tokens, and must not equal every other such text.
            stream=_digest("\x1f".join(stream.tokens)) if stream.tokens else solution.content_sha256,
            plain=frozenset(shingles(stream, WIDTH) - given.plain),
            abstract=frozenset(abstract_shingles(stream, ABSTRACT_WIDTH) - given.abstract),
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
    for sets, least in (
        ([one.plain for one in prints], MIN_SHINGLES),
        ([one.abstract for one in prints], MIN_ABSTRACT_SHINGLES),
    ):
        for link_of, link in _near(sets, least, links.keys()):
            links.setdefault(link_of, link)
    return links


def _same(keys: Sequence[str]) -> Iterator[tuple[int, int]]:
    first: dict[str, int] = {}
    for number, key in enumerate(keys):
        if key in first:
            yield first[key], number
        else:
            first[key] = number


def _near(sets: Sequence[frozenset[str]], least: int, known: Container[int]) -> list[tuple[int, _Link]]:
    """Each set with the earliest one it resembles; pairs are proposed by a shared band of their MinHash."""
    found: list[tuple[int, _Link]] = []
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for later, one in enumerate(sets):
        if len(one) < least or later in known:
            continue
        keys = list(enumerate(_bands(one)))
        for earlier in sorted({number for key in keys for number in buckets[key]}):
            similarity = len(sets[earlier] & one) / len(sets[earlier] | one)
            if similarity >= NEAR:
                found.append((later, _Link(earlier, "near", similarity)))
                break
        for key in keys:
            buckets[key].append(later)
    return found


def _bands(one: frozenset[str]) -> list[bytes]:
    import numpy as np

    hashes = np.frombuffer(b"".join(map(_short, one)), dtype="<u8")
    factors = np.frombuffer(_factors(), dtype="<u8") | np.uint64(1)
    signature = np.array([(hashes * factor).min() for factor in factors], dtype="<u8")
    return [signature[start : start + _ROWS].tobytes() for start in range(0, len(factors), _ROWS)]


@lru_cache(maxsize=1)
def _factors() -> bytes:
    return b"".join(_short(f"factor {number}") for number in range(_BANDS * _ROWS))


def _short(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
