"""Compare all works of a round: which repeat one another, and which are too alike to be independent.

Invariant: the problem statement, and what several unrelated works of the round hold, is no evidence.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from clara_eval.code.language import guess_language
from clara_eval.code.neutral import live_text
from clara_eval.code.reading import Shape, shapes_in
from clara_eval.code.tokens import NO_HASHES, ODD, READ_AS_CODE, Coded, Hashes, Ints, keyed, token_stream

LARGEST = 1024
"""Features of one entry that are compared: shares are then right to about 3 percentage points (1/√1024)."""
_LEVELS = 24
"""Halvings of the sample that are possible: 2^24 features are more than an entry can have."""
_BOUNDS = np.array([0xFFFFFFFFFFFFFFFF >> shift for shift in range(_LEVELS)], dtype=np.uint64)
_SHIFT = np.uint64(31)
_NO_INTS: Ints = np.empty(0, dtype=np.int64)
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """The features of one entry, or a sample of them: sorted, each once, with what each counts as evidence."""

    hashes: Hashes
    weights: Ints
    level: int = 0
    """The sample holds every number below 2^(64 − level)."""

    @classmethod
    def of(cls, hashes: Hashes, weights: Ints | None = None) -> FeatureSet:
        """Sample the features; the second occurrence of one is another feature. Without weights each counts 1."""
        order = np.argsort(hashes, kind="stable")
        hashes, first = np.unique(_numbered(hashes[order]), return_index=True)
        weights = np.ones(len(hashes), dtype=np.int64) if weights is None else weights[order][first]
        level = max(0, (len(hashes) - 1).bit_length() - LARGEST.bit_length() + 1) if len(hashes) else 0
        kept = slice(int(np.searchsorted(hashes, _BOUNDS[level], side="right")))
        return cls(hashes[kept], weights[kept], level)

    @property
    def amount(self) -> int:
        """The weight of all features of the entry, estimated from the sample."""
        return int(self.weights.sum()) << self.level

    def without(self, dropped: Bools) -> FeatureSet:
        return FeatureSet(self.hashes[~dropped], self.weights[~dropped], self.level)


def _numbered(hashes: Hashes) -> Hashes:
    """Make repeated numbers different, for sorted ones."""
    places = np.arange(len(hashes))
    is_first = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
    times = (places - np.maximum.accumulate(np.where(is_first, places, 0))).astype(np.uint64)
    mixed = (hashes + times * ODD) * ODD
    return np.where(is_first, hashes, mixed ^ (mixed >> _SHIFT))


@dataclass(frozen=True, slots=True)
class Shared:
    """What one set has in common with each earlier one."""

    of_earlier: npt.NDArray[np.float64]
    """The share of the earlier one's features."""
    of_later: npt.NDArray[np.float64]
    amount: Ints
    """The weight of the common features, estimated from the coarser sample."""


def shared_by(sets: Sequence[FeatureSet]) -> Iterator[Shared]:
    """For each set what it shares with every earlier one; features of one set alone are not looked at."""
    level = np.array([one.level for one in sets], dtype=np.int64)
    levels = 1 + max(level.tolist(), default=0)
    sizes = np.array([np.searchsorted(one.hashes, _BOUNDS[:levels], side="right") for one in sets], dtype=np.int64)
    feature, owner = _features(sets)
    is_shared = np.bincount(feature)[feature] > 1
    feature, owner = feature[is_shared], owner[is_shared]
    weights = np.concatenate([_NO_INTS, *(one.weights for one in sets)])[is_shared]
    own = np.zeros(1 + feature.max(initial=0), dtype=np.int64)
    for later in range(len(sets)):
        start, end = np.searchsorted(owner, [later, later + 1])
        own[feature[start:end]] = weights[start:end]
        found = own[feature[:start]]
        own[feature[start:end]] = 0
        common = np.bincount(owner[:start][found > 0], minlength=later)
        weight = np.bincount(owner[:start], weights=found, minlength=later).astype(np.int64)
        pair = np.maximum(level[:later], level[later])
        theirs, mine = sizes[np.arange(later), pair], sizes[later, pair]
        yield Shared(common / np.maximum(theirs, 1), common / np.maximum(mine, 1), weight << pair)


def common_features(sets: Sequence[FeatureSet], group: Ints, least: int) -> list[Bools]:
    """For each set, which of its features at least so many groups other than its own hold."""
    feature, owner = _features(sets)
    _, first = np.unique(feature * (1 + group.max(initial=0)) + group[owner], return_index=True)
    is_common = np.bincount(feature[first])[feature] > least
    return np.split(is_common, np.cumsum([len(one.hashes) for one in sets])[:-1]) if sets else []


def _features(sets: Sequence[FeatureSet]) -> tuple[Ints, Ints]:
    """All features of all sets, numbered, each with the number of its set."""
    _, feature = np.unique(np.concatenate([NO_HASHES, *(one.hashes for one in sets)]), return_inverse=True)
    return feature, np.repeat(np.arange(len(sets)), [len(one.hashes) for one in sets])


MIN_SHARE = 0.75
"""Share of one work that the other must have. Honest entries for one small task reach .74 (`bench/honest`)."""
MIN_OF_LATER = 0.15
"""Share of a later work that an earlier one must be: below, the later one only uses a part of it."""
MIN_OF_EARLIER = 0.5
"""Share of an earlier work that a later one must keep to be that work with parts left out."""
MIN_COPY_WINDOWS = 200
"""Windows of 5 tokens, about 25 lines, from which on equal tokens cannot be chance."""
TASK_HOLDERS = 2
"""Unrelated works that hold a feature, from which on it belongs to the task."""
MIN_LEAVES = 3
"""Names, numbers and strings of a statement that is compared: `return x` is in every work."""
TOKENS_WIDTH, RENAMED_WIDTH, PROPERTIES_WIDTH = 5, 8, 3
"""Tokens in a window: names make a short window telling, without names it takes more."""

SimilarKind = Literal["tokens", "renamed", "statements", "minified"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of feature, and how much of it two works must share."""

    kind: SimilarKind
    min_evidence: int
    """Weight of the shared features that are not the task's own: less may be chance at any share."""


TOKENS = Measure("tokens", 100)
"""Windows of tokens with their names, a dozen lines. Honest entries of a dozen lines share 52 %."""
PROSE = Measure("tokens", 40)
"""Windows of words, a short paragraph. Independent texts of one task share 3 %."""
RENAMED = Measure("renamed", 100)
"""Windows of tokens without chosen names, a dozen lines. Honest ring buffers share 74 %."""
RUNNING = Measure("renamed", 100)
"""The windows of `RENAMED` without statements that do nothing; of small works alone, see `_Given`."""
STATEMENTS = Measure("statements", 64)
"""Statements without names, in any order, each as heavy as its leaves. Honest entries share 85 % of 60 leaves."""
MINIFIED = Measure("minified", 20)
"""Windows of names of properties, which a minifier keeps. Honest entries share 16 windows at most."""
MEASURES = (TOKENS, PROSE, RENAMED, RUNNING, STATEMENTS, MINIFIED)
"""The plainest first: it names the likeness."""
_MAX_SMALL = int(STATEMENTS.min_evidence / MIN_OF_LATER)
"""Leaves of the largest work that can hold one too small for `STATEMENTS`."""


@dataclass(frozen=True, slots=True)
class Work:
    """A text to compare, with its language if it is known."""

    text: str
    language: str | None
    sha256: str


@dataclass(frozen=True, slots=True)
class Alike:
    """The earliest work that a later one resembles, both by number."""

    later: int
    earlier: int
    kind: SimilarKind
    share: float


def compare_works(works: Sequence[Work], *, template: str, key: bytes) -> tuple[list[list[int]], list[Alike]]:
    """Return groups of copies, and who resembles whom, of works in the order of their authors.

    `template` is the problem statement. `key` must be unknown to the authors, so that none can deceive the sample.
    """
    given = _Given(template, key)
    prints = [given.read(work) for work in works]
    same_bytes, same_tokens = _same([work.sha256 for work in works]), _same([tokens for tokens, _ in prints])
    columns = [[features[n] for _, features in prints] for n in range(len(MEASURES))]
    candidates = [
        [_candidates(shared, measure) for shared in shared_by(sets)]
        for measure, sets in zip(MEASURES, columns, strict=True)
    ]
    # Works that may be one work are a group: what such a group shares, it shares with itself.
    related = np.arange(len(works))
    for members in same_tokens:
        join(related, members)
    for later, earlier in (pair for column in candidates for pair in enumerate(column)):
        join(related, [later, *earlier])
    own = [
        [one.without(dropped) for one, dropped in zip(sets, common_features(sets, related, TASK_HOLDERS), strict=True)]
        for sets in columns
    ]
    refused = [m for m in same_tokens if max(own[0][m[0]].amount, own[1][m[0]].amount) >= MIN_COPY_WINDOWS]
    head = np.arange(len(works))
    for members in (*same_bytes, *refused):
        join(head, members)
    alike = [
        Alike(later, first, "tokens", 1.0)
        for first, *others in same_tokens
        for later in others
        if head[later] != head[first]
    ]
    for measure, sets, found in zip(MEASURES, own, candidates, strict=True):
        for later, shared in enumerate(shared_by(sets)):
            others = ((n, share) for n, share in found[later].items() if head[n] != head[later])
            proved = next(((n, share) for n, share in others if shared.amount[n] >= measure.min_evidence), None)
            alike += [Alike(later, proved[0], measure.kind, proved[1])] if proved else []
    copies = [np.flatnonzero(head == one).tolist() for one, size in Counter(head.tolist()).items() if size > 1]
    return copies, sorted(alike, key=lambda one: (one.later, one.earlier))


class _Given:
    """The features of the problem statement: as a whole, and of each fenced block of code in it. Reads the works."""

    def __init__(self, template: str, key: bytes) -> None:
        self.key = hashlib.blake2b(key, digest_size=32).digest()
        self._parts = [part for part in (template, *template.split("```")[1::2]) if part.strip()]
        coded = [Coded.of(token_stream(part), self.key) for part in self._parts]
        self.words = np.concatenate([NO_HASHES, *(one.windows(TOKENS_WIDTH) for one in coded)])
        self.renamed = np.concatenate([NO_HASHES, *(one.abstract_windows(RENAMED_WIDTH) for one in coded)])
        self.properties = np.concatenate([NO_HASHES, *(one.kept_windows(PROPERTIES_WIDTH) for one in coded)])
        self._statements: dict[str, Hashes] = {}

    def statements(self, language: str) -> Hashes:
        if language not in self._statements:
            found = [shape for part in self._parts for shape in _statements(_without_info(part), language)]
            self._statements[language] = self.hashed(found)
        return self._statements[language]

    def read(self, work: Work) -> tuple[str, tuple[FeatureSet, ...]]:
        """A digest of the tokens of a work, and its features by measure, without what the poster gave."""
        language = work.language if work.language in READ_AS_CODE else guess_language(work.text)
        stream = token_stream(work.text, language)
        coded = Coded.of(stream, self.key)
        words = _own(coded.windows(TOKENS_WIDTH), self.words)
        # A text of comments only has no tokens, and must not equal every other such text.
        joined = "\x1f".join(stream.tokens).encode("utf-8", "surrogatepass")
        tokens = hashlib.sha256(joined).hexdigest() if stream.tokens else work.sha256
        if language is None:
            return tokens, (_NOTHING, words, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
        shapes, running = _statements(work.text, language), _NOTHING
        leaves = np.array([shape.leaves for shape in shapes], dtype=np.int64)
        if leaves.sum() <= _MAX_SMALL:
            live = Coded.of(token_stream(live_text(work.text, language), language), self.key)
            running = _own(live.abstract_windows(RENAMED_WIDTH), self.renamed)
        return tokens, (
            words,
            _NOTHING,
            _own(coded.abstract_windows(RENAMED_WIDTH), self.renamed),
            running,
            _own(self.hashed(shapes), self.statements(language), leaves),
            _own(coded.kept_windows(PROPERTIES_WIDTH), self.properties),
        )

    def hashed(self, shapes: Sequence[Shape]) -> Hashes:
        return np.array([keyed(shape.text, self.key) for shape in shapes], dtype=np.uint64)


def _without_info(part: str) -> str:
    """Drop the name of the language from the first line of a fenced block."""
    first, newline, rest = part.partition("\n")
    return rest if newline and first.strip().isalnum() else part


def _statements(text: str, language: str) -> list[Shape]:
    return [shape for shape in shapes_in(text.encode("utf-8", "replace"), language) if shape.leaves >= MIN_LEAVES]


_NOTHING = FeatureSet.of(NO_HASHES)


def _own(hashes: Hashes, given: Hashes, weights: Ints | None = None) -> FeatureSet:
    is_own = ~np.isin(hashes, given)
    return FeatureSet.of(hashes[is_own], None if weights is None else weights[is_own])


def _candidates(shared: Shared, measure: Measure) -> dict[int, float]:
    """Return the earlier works that a later one may be in disguise, each with the share; not yet weighed."""
    holds = (shared.of_earlier >= MIN_SHARE) & (shared.of_later >= MIN_OF_LATER)
    is_part = (shared.of_later >= MIN_SHARE) & (shared.of_earlier >= MIN_OF_EARLIER)
    share = np.minimum(1.0, np.maximum(shared.of_earlier, shared.of_later))
    places = np.flatnonzero((holds | is_part) & (shared.amount >= measure.min_evidence)).tolist()
    return {place: float(share[place]) for place in places}


def _same(keys: Sequence[Hashable]) -> list[list[int]]:
    """The places of equal keys, earliest first."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        found[key].append(number)
    return [members for members in found.values() if len(members) > 1]


def join(head: Ints, members: Sequence[int]) -> None:
    """Make one group of the groups of these members, named by its lowest number."""
    if len(members) > 1:
        heads = np.unique(head[list(members)])
        head[np.isin(head, heads)] = heads[0]
