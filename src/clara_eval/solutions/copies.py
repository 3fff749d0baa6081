"""Copies of one another, found before anything is ranked: one work, one place. And families, which may be one hand.

Solutions come in, clusters go out; each names the author as the original and every other as a copy: exact (same bytes),
normalised (same tokens without comments and formatting), near (most of both in common) or contained (one holds the
other, with padding or with parts left out). Compared are tokens, tokens without the chosen names, and the shapes of
statements, which neither renaming nor moving nor restyling changes; where statements are few, the outline: all of them,
as often as they stand there. Tiny texts, of less than ten statements, are never near copies: they look alike. Families
are wider: ranked entries that share half, or one that holds a whole earlier one, or one agent's. Nobody is refused for
that; the ranking asks whether somebody else would be paid without them, and two on paid places wait. The author is whom
the chain shows first with this content, in any version; mutable content is never first.
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

from clara_eval.challenge.model import Address, Version
from clara_eval.solutions.language import guess_language
from clara_eval.solutions.model import Rejected, Solution
from clara_eval.solutions.tokens import (
    NO_HASHES,
    READ_AS_CODE,
    Coded,
    Hashes,
    keyed,
    token_stream,
)
from clara_eval.syntax.reading import shapes_in
from clara_eval.syntax.shapes import Shape

ALIKE = 0.5
"""Families: of all that two have, this share in common."""
WIDTH = 5
ABSTRACT_WIDTH = 8
MIN_SHAPE_LEAVES = 3
MIN_OUTLINE_LEAVES = 2
LARGEST = 1024
"""Features of one entry that are compared; of more, a sample that the key draws, the same for all entries."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """From where on two entries are one work, by one kind of feature. Unrelated programs stay far below."""

    least: int
    """Features that an entry must have for this kind to say anything."""
    near: float
    """Of all that two have, this share in common."""
    held: float
    """Of all that one has, this share in the other, with `padded` or `cut` for the size of the other."""
    padded: float = 0.4
    """A work that holds an earlier one is its copy if at least this share of it is that one; below, a person looks."""
    cut: float = 0.6
    """A work that an earlier one holds is its copy if it is at least this share of that one."""
    complete: float = 0.95
    """Nearly all of an earlier work in a later one is a copy even where it is only `buried` of it."""
    buried: float = 0.2


PLAIN = Bounds(least=60, near=0.8, held=0.8)
ABSTRACT = Bounds(least=80, near=0.57, held=0.8)
SHAPES = Bounds(least=16, near=0.65, held=0.7)
FEW_SHAPES = Bounds(least=6, near=0.8, held=0.85)
"""Few statements prove little: their tokens must be alike too, half of them at least."""
HALF = 0.5
OUTLINE = Bounds(least=10, near=0.9, held=0.95)
"""Where statements are few or repeat each other, all of them count, as often as they stand there."""
THIRD = 0.35
"""Of the tokens at least, so that an outline says anything."""
_FEW_TOKENS = 16
"""Windows over tokens that bear out an outline, where they are too few to say anything themselves."""
_FEW = 32
"""Entries with more different shapes than this need no outline."""
_LEVELS = 24
_BOUNDS = np.array([0xFFFFFFFFFFFFFFFF >> shift for shift in range(_LEVELS)], dtype=np.uint64)
_FEWEST_SAMPLED = 16
_WORTH_A_LOOK = 0.5
"""Whoever shares less than this of either with another, by every kind of feature, is neither copy nor family."""

_AT_ONCE = 4_000_000
"""Shared features counted in one go, so that memory does not follow how alike the entries are."""
Amounts = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]

CopyKind = Literal["exact", "normalised", "near", "contained"]


@dataclass(frozen=True, slots=True)
class Copy:
    solution: Solution
    kind: CopyKind
    similarity: float
    like: Solution
    """The earliest submission that it resembles; not always the original, because likeness can go by steps."""
    may_be_first: bool = False
    """It was resubmitted, or came in the very same second, or at an address whose content can change."""


@dataclass(frozen=True, slots=True)
class Cluster:
    original: Solution
    copies: tuple[Copy, ...]

    @property
    def contested(self) -> bool:
        """A "copy" may be the older work."""
        return any(copy.may_be_first for copy in self.copies)

    def rejected(self) -> tuple[Rejected, ...]:
        return tuple(Rejected(copy.solution.submission, "copy", self._reason(copy)) for copy in self.copies)

    def _reason(self, copy: Copy) -> str:
        first = self.original.submission
        how = {
            "exact": "It is byte for byte",
            "normalised": "Without comments and formatting it is",
            "near": f"{copy.similarity:.0%} of it is",
            "contained": f"It has {copy.similarity:.0%} in common with",
        }[copy.kind]
        through = "" if copy.like is self.original else f", through {copy.like.submission.submitter}"
        at = datetime.fromtimestamp(first.submitted_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{how} the submission of {first.submitter} at {at}{through}, which is ranked."


@dataclass(frozen=True, slots=True)
class Doubt:
    """A ranked entry that may live from somebody else's work, without being plainly a copy of it."""

    account: Address
    other: Address
    share: float | None
    """Of the other's submission, what this one holds; None where this one's very bytes were the other's before."""

    @property
    def sentence(self) -> str:
        if self.share is None:
            return f"{self.other} handed in these very bytes first, and replaced them later."
        return f"It holds {self.share:.0%} of the earlier submission of {self.other}, among other things."


@dataclass(frozen=True, slots=True)
class Likeness:
    """Clusters of two or more, earliest first; the head of its family for every ranked member of one; doubts."""

    clusters: tuple[Cluster, ...]
    families: dict[Address, Address]
    doubts: tuple[Doubt, ...] = ()


def find_likeness(
    solutions: Iterable[Solution], *, template: str = "", versions: Iterable[Version] = (), key: bytes = b""
) -> Likeness:
    """Copies among all, and families among those that are no copies.

    What the poster gave does not count as copied: `template` is the problem statement, or a skeleton from it. `key` is
    something that nobody knew when the submissions were written, so that none is written to deceive the sample.
    """
    held = tuple(solutions)
    chain = _Authors.of(held, tuple(versions))
    ordered = sorted(held, key=chain.order)
    given = _Given(template, key)
    prints = [_Print.of(solution, given) for solution in ordered]
    compared = _Compared(prints)
    clusters = tuple(chain.with_author(cluster) for cluster in _gather(ordered, _links(compared)))
    copied = {copy.solution.submission.submitter for cluster in clusters for copy in cluster.copies}
    ranked = [number for number, one in enumerate(ordered) if one.submission.submitter not in copied]
    families, held_earlier = _families([ordered[number] for number in ranked], compared.among(ranked))
    taken = chain.taken(ordered[number] for number in ranked)
    return Likeness(clusters, families, tuple(sorted((*held_earlier, *taken), key=lambda d: (d.account, d.other))))


def _families(
    ordered: Sequence[Solution], compared: Iterable[tuple[int, _Alike]]
) -> tuple[dict[Address, Address], tuple[Doubt, ...]]:
    """The earliest submitter of each family, by member; whoever is alone is left out."""
    head = list(range(len(ordered)))
    accounts = [solution.submission.submitter for solution in ordered]
    doubts: dict[Address, Doubt] = {}

    def join(one: int, other: int) -> None:
        older, younger = sorted((head[one], head[other]))
        if older != younger:
            head[:] = [older if number == younger else number for number in head]

    for earlier, later in _same([solution.submission.agent_id for solution in ordered]):
        join(earlier, later)
    for later, alike in compared:
        for earlier in alike.earlier[alike.family].tolist():
            join(earlier, later)
        for place in np.flatnonzero(alike.held >= PLAIN.held)[:1].tolist():
            earlier, held = int(alike.earlier[place]), float(alike.held[place])
            doubts[accounts[later]] = Doubt(accounts[later], accounts[earlier], round(held, 2))
    sizes = Counter(head)
    families = {account: accounts[first] for account, first in zip(accounts, head, strict=True) if sizes[first] > 1}
    return families, tuple(doubts.values())


@dataclass(frozen=True, slots=True)
class _Authors:
    """Who had which content first, as far as the chain can tell."""

    first_with: dict[tuple[Address, str], int]
    """When a submitter first committed to a hash."""
    first_at_all: dict[Address, int]
    by_hash: dict[str, tuple[int, Address]]

    @classmethod
    def of(cls, solutions: Sequence[Solution], versions: Sequence[Version]) -> _Authors:
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

    def order(self, solution: Solution) -> tuple[bool, int, str]:
        """Authors first: content that can change never comes before content that cannot."""
        return not solution.pinned, self.since(solution, [solution]), solution.submission.submitter

    def since(self, solution: Solution, works: Iterable[Solution]) -> int:
        """When its submitter first committed to any of these works, now or in a version that was replaced."""
        account = solution.submission.submitter
        moments = [self.first_with.get((account, committed)) for work in works for committed in _fixing(work)]
        return min([moment for moment in moments if moment is not None], default=solution.submission.submitted_at)

    def with_author(self, cluster: Cluster) -> Cluster:
        """The cluster with its author as the original, and a mark at every copy that may be older still."""
        links = {copy.solution.submission.submitter: copy for copy in cluster.copies}
        works = [cluster.original, *(copy.solution for copy in cluster.copies)]
        since = {work.submission.submitter: self.since(work, works) for work in works}
        author = min(works, key=lambda w: (not w.pinned, since[w.submission.submitter], w.submission.submitter))
        link = links.get(author.submission.submitter)
        if link is not None:
            links[cluster.original.submission.submitter] = Copy(cluster.original, link.kind, link.similarity, author)
            del links[author.submission.submitter]
        began = since[author.submission.submitter]
        copies = [
            Copy(copy.solution, copy.kind, copy.similarity, copy.like, self._may_be_first(copy.solution, began, since))
            for copy in sorted(links.values(), key=lambda copy: self.order(copy.solution))
        ]
        return Cluster(author, tuple(copies))

    def _may_be_first(self, solution: Solution, began: int, since: Mapping[Address, int]) -> bool:
        submission = solution.submission
        if since[submission.submitter] <= began:
            return True  # the same second, or an earlier one with content that could change
        earliest = self.first_at_all.get(submission.submitter)
        # What stood in a replaced version is not known here, only when it came.
        return submission.version > 1 if earliest is None else earliest <= began

    def taken(self, ranked: Iterable[Solution]) -> Iterator[Doubt]:
        """Ranked entries whose very bytes somebody else had committed to before."""
        for solution in ranked:
            account = solution.submission.submitter
            for committed in _fixing(solution):
                moment, author = self.by_hash.get(committed, (0, account))
                if author != account and moment < self.since(solution, [solution]):
                    yield Doubt(account, author, None)
                    break


def _fixing(solution: Solution) -> tuple[str, ...]:
    """The hashes that stand for exactly this content: that of the bytes, and that of a URI which fixes them."""
    if solution.hash_kind == "content" or not solution.pinned:
        return (solution.content_keccak,)
    return solution.content_keccak, solution.submission.solution_hash.lower()


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
class FeatureSet:
    """What one entry has, as numbers with weights: all of it, or a sample by the lowest numbers."""

    hashes: Hashes
    weights: Amounts
    level: int
    """The sample holds every number below 2^(64 − level)."""

    @classmethod
    def of(cls, hashes: Hashes, weights: Amounts | None = None) -> FeatureSet:
        weights = np.broadcast_to(1.0, hashes.shape) if weights is None else weights
        level = max(0, (len(hashes) - 1).bit_length() - LARGEST.bit_length() + 1) if len(hashes) else 0
        if level:
            kept = hashes <= _BOUNDS[level]
            hashes, weights = hashes[kept], weights[kept]
        return cls(hashes, weights, level)

    def below(self, levels: int) -> tuple[Ints, Amounts]:
        """By level: the number and the weight of what is below its bound, for so many levels."""
        if levels == 1:
            return np.array([len(self.hashes)]), np.array([self.weights.sum()])
        places = np.searchsorted(self.hashes, _BOUNDS[:levels], side="right")
        return places, np.concatenate([[0.0], np.cumsum(self.weights)])[places]


class _Given:
    """What the poster's words already hold: as a whole, and each fenced block of code in them."""

    def __init__(self, template: str, key: bytes) -> None:
        self.key = hashlib.blake2b(key, digest_size=32).digest()
        self._parts = [part for part in (template, *template.split("```")[1::2]) if part.strip()]
        streams = [Coded.of(token_stream(part), self.key) for part in self._parts]
        self.plain = _union([one.shingles(WIDTH) for one in streams])
        self.abstract = _union([one.abstract_shingles(ABSTRACT_WIDTH) for one in streams])
        self._shapes: dict[str, Hashes] = {}

    def shapes(self, language: str) -> Hashes:
        if language not in self._shapes:
            found = [_shape_counts(_words_only(part), language) for part in self._parts]
            self._shapes[language] = _union([_hashed(counts, self.key)[0] for counts in found])
        return self._shapes[language]


def _words_only(part: str) -> str:
    """A fenced block without the name of its language in the first line."""
    first, newline, rest = part.partition("\n")
    return rest if newline and first.strip().isalnum() else part


@dataclass(frozen=True, slots=True)
class _Print:
    """What is compared of one solution."""

    content: str
    stream: str
    plain: FeatureSet
    abstract: FeatureSet
    shapes: FeatureSet
    outline: FeatureSet

    @classmethod
    def of(cls, solution: Solution, given: _Given) -> _Print:
        language = solution.language if solution.language in READ_AS_CODE else guess_language(solution.text)
        stream = token_stream(solution.text, language)
        coded = Coded.of(stream, given.key)
        plain, abstract = coded.shingles(WIDTH), coded.abstract_shingles(ABSTRACT_WIDTH)
        shapes, outline = _shape_features(solution.text, language, given)
        return cls(
            content=solution.content_sha256,
            # A text of comments only has no tokens, and must not equal every other such text.
            stream=_digest("\x1f".join(stream.tokens)) if stream.tokens else solution.content_sha256,
            plain=FeatureSet.of(plain[_is_own(plain, given.plain)]),
            abstract=FeatureSet.of(abstract[_is_own(abstract, given.abstract)]),
            shapes=shapes,
            outline=outline,
        )


def _is_own(hashes: Hashes, given: Hashes) -> npt.NDArray[np.bool_]:
    """Which of these are not the poster's; both are sorted."""
    if not len(given):
        return np.ones(len(hashes), dtype=bool)
    place = np.minimum(np.searchsorted(given, hashes), len(given) - 1)
    own: npt.NDArray[np.bool_] = given[place] != hashes
    return own


def _shape_features(text: str, language: str | None, given: _Given) -> tuple[FeatureSet, FeatureSet]:
    """The shapes of the statements, and where they are few the outline; nothing where the text cannot be parsed."""
    counts = _shape_counts(text, language) if language else {}
    if not counts or not language:
        return FeatureSet.of(NO_HASHES), FeatureSet.of(NO_HASHES)
    poster = given.shapes(language)
    hashes, weights = _hashed([shape for shape in counts if shape.leaves >= MIN_SHAPE_LEAVES], given.key)
    own = _is_own(hashes, poster)
    shapes = FeatureSet.of(hashes[own], weights[own])
    if len(hashes) > _FEW:
        return shapes, FeatureSet.of(NO_HASHES)
    poster_has = set(poster.tolist())
    each = [
        Shape(f"{text} {time}", leaves)
        for (text, leaves), times in counts.items()
        if not poster_has or keyed(text, given.key) not in poster_has
        for time in range(times)
    ]
    return shapes, FeatureSet.of(*_hashed(each, given.key))


def _shape_counts(text: str, language: str) -> Counter[Shape]:
    """How often each statement stands there."""
    shapes = shapes_in(text.encode("utf-8", "replace"), language)
    return Counter([shape for shape in shapes if shape[1] >= MIN_OUTLINE_LEAVES])


def _hashed(shapes: Iterable[Shape], key: bytes) -> tuple[Hashes, Amounts]:
    weights = {shape[0]: _weight(shape[0]) for shape in shapes}
    hashes = np.array([keyed(text, key) for text in weights], dtype=np.uint64)
    order = np.argsort(hashes)
    return hashes[order], np.array(list(weights.values()), dtype=np.float64)[order]


def _weight(text: str) -> int:
    """From the words alone: equal shapes weigh the same, however they were written."""
    return 1 + text.count(",")


def _union(sets: Sequence[Hashes]) -> Hashes:
    return np.unique(np.concatenate([*sets, NO_HASHES]))


def _links(compared: _Compared) -> dict[int, _Link]:
    """For each copy the earliest submission it resembles, by the plainest kind of likeness."""
    links = dict(compared.same)
    for later, alike in compared.pairs:
        found = alike.first()
        if found is not None:
            links[later] = found
    return links


class _Compared:
    """Each entry with what it shares with earlier ones, by all kinds of features, counted once."""

    def __init__(self, prints: Sequence[_Print]) -> None:
        self._prints = prints
        self.same: dict[int, _Link] = {}
        """Copies that have the same bytes or tokens as an earlier one; they are not compared further."""
        kinds: tuple[tuple[CopyKind, list[str]], ...] = (
            ("exact", [one.content for one in prints]),
            ("normalised", [one.stream for one in prints]),
        )
        for kind, keys in kinds:
            for earlier, later in _same(keys):
                self.same.setdefault(later, _Link(earlier, kind, 1.0))
        self.pairs = tuple(_alike(prints, self.same.keys()))

    def among(self, ranked: Sequence[int]) -> Iterator[tuple[int, _Alike]]:
        """The same for some of the entries, numbered anew."""
        if any(number in self.same for number in ranked):  # an author with the same bytes as an earlier submitter
            yield from _alike([self._prints[number] for number in ranked])
            return
        anew = np.full(len(self._prints), -1, dtype=np.int64)
        anew[list(ranked)] = np.arange(len(ranked))
        for later, alike in self.pairs:
            if anew[later] >= 0:
                yield int(anew[later]), alike.only(anew)


def _alike(prints: Sequence[_Print], known: Container[int] = ()) -> Iterator[tuple[int, _Alike]]:
    """Each entry that shares much with earlier ones."""
    plain = overlaps([one.plain for one in prints], _FEW_TOKENS, known)
    abstract = overlaps([one.abstract for one in prints], _FEW_TOKENS, known)
    shapes = overlaps([one.shapes for one in prints], FEW_SHAPES.least, known)
    outline = overlaps([one.outline for one in prints], OUTLINE.least, known)
    much_plain = _hold_at_least(PLAIN.least, [one.plain for one in prints])
    much_abstract = _hold_at_least(ABSTRACT.least, [one.abstract for one in prints])
    many_shapes = _hold_at_least(SHAPES.least, [one.shapes for one in prints])
    for later, kinds in enumerate(zip(plain, abstract, shapes, outline, strict=True)):
        earlier = np.flatnonzero(np.logical_or.reduce([kind.likely for kind in kinds]))
        if len(earlier):
            by_plain, by_abstract, by_shapes, by_outline = (kind.of(earlier) for kind in kinds)
            yield (
                later,
                _Alike(
                    earlier,
                    by_plain.where(much_plain[earlier] & much_plain[later]),
                    by_abstract.where(much_abstract[earlier] & much_abstract[later]),
                    by_shapes,
                    by_outline.where(np.maximum(by_plain.most, by_abstract.most) >= THIRD),
                    many_shapes[earlier] & many_shapes[later],
                ),
            )


def _hold_at_least(least: int, sets: Sequence[FeatureSet]) -> npt.NDArray[np.bool_]:
    return np.array([len(one.hashes) >= least for one in sets], dtype=bool)


@dataclass(frozen=True, slots=True)
class _Alike:
    """One entry beside the earlier ones with which it shares much; everything is in their order."""

    earlier: Ints
    plain: Overlap
    abstract: Overlap
    shapes: Overlap
    outline: Overlap
    """Nothing where the tokens do not bear it out."""
    many_shapes: npt.NDArray[np.bool_]

    def only(self, anew: Ints) -> _Alike:
        """With those earlier ones only that have a new number, under it."""
        kept = np.flatnonzero(anew[self.earlier] >= 0)
        plain, abstract, shapes = self.plain.only(kept), self.abstract.only(kept), self.shapes.only(kept)
        places, outline = anew[self.earlier[kept]], self.outline.only(kept)
        return _Alike(places, plain, abstract, shapes, outline, self.many_shapes[kept])

    def first(self) -> _Link | None:
        """The earliest of which this is a copy."""
        tokens = np.maximum(self.plain.most, self.abstract.most)
        # How much of the later one it is: padding may be rich in one kind of feature, hardly in all.
        share = np.maximum(np.maximum(self.plain.of_later, self.abstract.of_later), self.shapes.of_later)
        always = np.ones_like(self.many_shapes)
        verdicts = [
            (self.plain, PLAIN, always),
            (self.abstract, ABSTRACT, always),
            (self.shapes, SHAPES, self.many_shapes),
            (self.shapes, FEW_SHAPES, tokens >= HALF),
            (self.outline, OUTLINE, always),
        ]
        found: list[tuple[int, CopyKind, float]] = []
        for overlap, bounds, counts in verdicts:
            alike = np.flatnonzero(overlap.within(bounds, share) & counts)
            if len(alike):
                place = int(alike[0])
                is_near = overlap.jaccard[place] >= bounds.near
                likeness = overlap.jaccard[place] if is_near else overlap.most[place]
                kind: CopyKind = "near" if is_near else "contained"
                found.append((int(self.earlier[place]), kind, min(1.0, float(likeness))))
        return _Link(*min(found, key=lambda one: one[0])) if found else None

    @property
    def family(self) -> npt.NDArray[np.bool_]:
        """Those of which it shares half, or which it holds."""
        jaccard = np.maximum(self.plain.jaccard, self.abstract.jaccard)
        by_shapes = (self.shapes.jaccard >= ALIKE) & self.many_shapes
        family: npt.NDArray[np.bool_] = (jaccard >= ALIKE) | by_shapes | (self.held >= PLAIN.held)
        return family

    @property
    def held(self) -> Amounts:
        """How much of every earlier one this one holds."""
        tokens = np.maximum(self.plain.of_earlier, self.abstract.of_earlier)
        held: Amounts = np.minimum(1.0, np.maximum(tokens, np.where(self.many_shapes, self.shapes.of_earlier, 0.0)))
        return held


def _same(keys: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    first: dict[Hashable, int] = {}
    for number, key in enumerate(keys):
        if key in first:
            yield first[key], number
        else:
            first[key] = number


@dataclass(frozen=True, slots=True)
class Overlap:
    """What one entry shares with every earlier one, by weight: of both together, of the earlier, of itself."""

    jaccard: Amounts
    of_earlier: Amounts
    of_later: Amounts

    @property
    def most(self) -> Amounts:
        most: Amounts = np.maximum(self.of_earlier, self.of_later)
        return most

    def where(self, counts: npt.NDArray[np.bool_]) -> Overlap:
        """Nothing in common where it does not count."""
        return Overlap(self.jaccard * counts, self.of_earlier * counts, self.of_later * counts)

    def only(self, kept: Ints) -> Overlap:
        return Overlap(self.jaccard[kept], self.of_earlier[kept], self.of_later[kept])

    def within(self, bounds: Bounds, share: Amounts) -> npt.NDArray[np.bool_]:
        """Which earlier ones it is a copy of; `share` is how much of it each of them is, by all kinds."""
        padded = (self.of_earlier >= bounds.held) & (share >= bounds.padded)
        buried = (self.of_earlier >= bounds.complete) & (share >= bounds.buried)
        cut = (self.of_later >= bounds.held) & (self.of_earlier >= bounds.cut)
        within: npt.NDArray[np.bool_] = (self.jaccard >= bounds.near) | padded | buried | cut
        return within


def overlaps(sets: Sequence[FeatureSet], least: int, known: Container[int] = ()) -> Iterator[Shared]:
    """For each set what it shares with every earlier one; those too small or already known resemble nothing.

    Shared features are counted through an inverted index: all pairs exactly, at the cost of what they share.
    """
    none = FeatureSet.of(NO_HASHES)
    counted = [one if len(one.hashes) >= least and n not in known else none for n, one in enumerate(sets)]
    index, table = _Index.of(counted), _Sizes.of(counted)
    for later in range(len(sets)):
        yield Shared(table, index.shared(later), later)


@dataclass(frozen=True, slots=True)
class _Index:
    """Who holds each feature, feature after feature; what was needed to sort them is gone when this stands."""

    owners: Small
    start: Small
    before: Small
    """Of each set's features, set after set: where its owners begin, and how many of them came earlier."""
    weights: Amounts
    ends: Ints

    @classmethod
    def of(cls, sets: Sequence[FeatureSet]) -> _Index:
        lengths = np.array([len(one.hashes) for one in sets], dtype=np.int64)
        everything = np.concatenate([*(one.hashes for one in sets), NO_HASHES])
        by_feature = np.argsort(everything, kind="stable")
        everything = everything[by_feature]
        places = np.arange(len(by_feature), dtype=np.int32)
        is_first = np.concatenate([[True], everything[1:] != everything[:-1]])[: len(places)]
        first = np.maximum.accumulate(np.where(is_first, places, 0)).astype(np.int32)
        start, before = np.empty_like(places), np.empty_like(places)
        start[by_feature], before[by_feature] = first, places - first
        owners = np.repeat(np.arange(len(sets), dtype=np.int32), lengths)[by_feature]
        weights = np.concatenate([*(one.weights for one in sets), np.zeros(0)])
        return cls(owners, start, before, weights, np.concatenate([[0], np.cumsum(lengths)]))

    def shared(self, later: int) -> Amounts:
        """How much of this set each earlier one holds."""
        mine = slice(self.ends[later], self.ends[later + 1])
        return _shared(self.owners, self.start[mine], self.before[mine], self.weights[mine], later)


@dataclass(frozen=True, slots=True)
class Shared:
    """How much one set has in common with every earlier one; shares of it are worked out for those asked for."""

    table: _Sizes
    shared: Amounts
    later: int

    @property
    def likely(self) -> npt.NDArray[np.bool_]:
        """Where it may be much of either."""
        sizes = self.table.least
        likely: npt.NDArray[np.bool_] = (self.shared > 0) & (
            self.shared >= _WORTH_A_LOOK * np.minimum(sizes[: self.later], sizes[self.later])
        )
        return likely

    def of(self, earlier: Ints) -> Overlap:
        return self.table.overlap(self.shared[earlier], earlier, self.later)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How much each set holds below the bound of every level: two samples are compared at the finer one's level."""

    level: Ints
    size: Amounts
    count: Ints
    least: Amounts
    """The size at the coarsest level that any comparison here uses: never more than what is compared."""

    @classmethod
    def of(cls, sets: Sequence[FeatureSet]) -> _Sizes:
        level = np.array([one.level for one in sets], dtype=np.int64)
        levels = 1 + max(level.tolist(), default=0)
        count, size = np.zeros((len(sets), levels), dtype=np.int64), np.zeros((len(sets), levels))
        for number, one in enumerate(sets):
            count[number], size[number] = one.below(levels)
        return cls(level, size, count, size[:, -1].copy())

    def overlap(self, shared: Amounts, earlier: Ints, later: int) -> Overlap:
        level = np.maximum(self.level[earlier], self.level[later])
        theirs, mine = self.size[earlier, level], self.size[later, level]
        enough = (np.minimum(self.count[earlier, level], self.count[later, level]) >= _FEWEST_SAMPLED) | (level == 0)
        shared = np.where(enough, shared, 0.0)
        return Overlap(
            jaccard=shared / np.maximum(theirs + mine - shared, 1e-9),
            of_earlier=shared / np.maximum(theirs, 1e-9),
            of_later=shared / np.maximum(mine, 1e-9),
        )


def _shared(owners: Small, start: Small, before: Small, weights: Amounts, later: int) -> Amounts:
    """How much each earlier set has in common: from `start` on, `before` owners of each feature came earlier."""
    shared, total = np.zeros(later), int(before.sum())
    if not total:
        return shared
    pieces = 1 + total // _AT_ONCE
    size = -(-len(before) // pieces)
    for part in [slice(place, place + size) for place in range(0, len(before), size)]:
        ahead = before[part]
        jumps = np.repeat(start[part] - (np.cumsum(ahead) - ahead), ahead)
        held_by = owners[jumps + np.arange(len(jumps))]
        shared += np.bincount(held_by, weights=np.repeat(weights[part], ahead), minlength=later)
    return shared


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
