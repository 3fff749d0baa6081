"""Find entries that repeat one another: copies, which are refused, and similar work, which is ranked and shown.

Refused are equal bytes, and equal tokens of a length that cannot be chance. Similar is what shares most of its tokens,
with or without names, of its statements, or of what a minifier keeps. The problem statement, and what several unrelated
entries of the round have, proves nothing. The author is whom the chain shows first with this content.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from clara_eval.code.language import guess_language
from clara_eval.code.reading import shapes_in
from clara_eval.code.tokens import (
    NO_HASHES,
    READ_AS_CODE,
    Coded,
    Hashes,
    keyed,
    token_stream,
)
from clara_eval.core.address import Address
from clara_eval.core.submission import Version
from clara_eval.submissions.authors import Authors
from clara_eval.submissions.model import Rejected, Solution
from clara_eval.submissions.overlap import (
    FeatureSet,
    Ints,
    Shared,
    common_features,
    numbered,
    shared_by,
)

LONG = 200
"""Windows of its own that an entry needs for equal tokens to be a copy: about 25 lines. Shorter ones are similar."""
HELD = 0.15
"""Of the later entry, the share at least that an earlier one must be: below, it uses a part, and is another work."""
CUT = 0.5
"""Of the earlier entry, the share at least that a later one must have kept to be that work with parts left out."""
EVERYBODYS = 2
"""Unrelated entries that hold a feature, from which on it belongs to the task and proves nothing."""
LEAVES = 3
"""Names, numbers and strings that a statement must have to be compared: `return x` is everybody's."""

CopyKind = Literal["exact", "normalised"]
SimilarKind = Literal["tokens", "renamed", "statements", "minified"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of feature, and from where on it makes two entries similar."""

    kind: SimilarKind
    share: float
    """Of one entry, what the other has. Honest entries for one small task stay below (`bench/honest`)."""
    least: int
    """Features in common that are not the task's own: fewer may be chance at any share."""


TOKENS = Measure("tokens", share=0.65, least=100)
"""Windows of 5 tokens with their names. Honest entries with 100 in common share 52 %."""
PROSE = Measure("tokens", share=0.75, least=40)
"""Windows of 5 words: a short paragraph. Independent texts of one task share 3 %."""
RENAMED = Measure("renamed", share=0.8, least=100)
"""Windows of 8 tokens without chosen names. 100 are a dozen lines: honest ring buffers share 74 % of 250."""
STATEMENTS = Measure("statements", share=0.75, least=16)
"""Statements without names, in any order. Honest ones with 13 and less in common share up to 100 %."""
MINIFIED = Measure("minified", share=0.6, least=20)
"""Windows of 3 names of properties. Honest entries have up to 16 in common, and share 33 %."""
MEASURES = (TOKENS, PROSE, RENAMED, STATEMENTS, MINIFIED)
"""The plainest first: it names the likeness."""
WINDOW, WORDS, KEPT = 8, 5, 3


@dataclass(frozen=True, slots=True)
class Copy:
    """An entry that is refused, and the ranked one that it repeats."""

    solution: Solution
    kind: CopyKind
    may_be_first: bool = False
    """It was sent within a minute, resubmitted, or stood at an address whose content can change."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One work that several handed in."""

    original: Solution
    copies: tuple[Copy, ...]

    @property
    def contested(self) -> bool:
        """Whether a copy may be the older work."""
        return any(copy.may_be_first for copy in self.copies)

    def rejected(self) -> tuple[Rejected, ...]:
        """The verdict about each copy."""
        return tuple(Rejected(copy.solution.submission, "copy", self._reason(copy)) for copy in self.copies)

    def _reason(self, copy: Copy) -> str:
        first = self.original.submission
        how = "Identical to" if copy.kind == "exact" else "Identical, without comments and formatting, to"
        at = datetime.fromtimestamp(first.submitted_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{how} the submission of {first.submitter} at {at}, which is ranked."


@dataclass(frozen=True, slots=True)
class Similar:
    """Two ranked entries of which the later one may be the earlier one in disguise."""

    earlier: Address
    later: Address
    kind: SimilarKind
    share: float
    """Of one of them, what the other has, by this kind of feature."""
    contested: bool
    """The order does not say who wrote it."""

    @property
    def sentence(self) -> str:
        """What they have in common, for people."""
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
class Taken:
    """A ranked entry whose very bytes somebody else handed in first, and replaced later."""

    account: Address
    author: Address


@dataclass(frozen=True, slots=True)
class Likeness:
    """What the entries of a round have to do with one another."""

    clusters: tuple[Cluster, ...]
    families: dict[Address, Address] = field(default_factory=dict)
    """The earliest of those that are similar, by steps, or sent for one agent; for each of them."""
    similar: tuple[Similar, ...] = ()
    """For each later entry the earliest one that it resembles."""
    taken: tuple[Taken, ...] = ()


def find_likeness(
    solutions: Iterable[Solution], *, template: str = "", versions: Iterable[Version] = (), key: bytes = b""
) -> Likeness:
    """Find copies among all, and similar ones among those that are no copies.

    `template` is the problem statement. `key` is something that nobody knew when the submissions were written, so that
    none is written to deceive the sample.
    """
    held = tuple(solutions)
    authors = Authors.of(held, tuple(versions))
    ordered = sorted(held, key=authors.order)
    given = _Given(template, key)
    prints = [_Print.of(solution, given) for solution in ordered]
    copies, alike = _compare(prints)
    clusters = tuple(_with_author(authors, [ordered[n] for n in group]) for group in copies)
    heads = {c.solution.submission.submitter: one.original for one in clusters for c in one.copies}
    similar = [
        _oriented(authors, _head(heads, ordered[one.earlier]), _head(heads, ordered[one.later]), one) for one in alike
    ]
    ranked = [one for one in ordered if one.submission.submitter not in heads]
    return Likeness(
        clusters,
        _families(ranked, similar),
        _once(similar),
        tuple(Taken(account, author) for account, author in sorted(authors.taken(ranked))),
    )


def _head(heads: Mapping[Address, Solution], solution: Solution) -> Solution:
    return heads.get(solution.submission.submitter, solution)


def _with_author(authors: Authors, works: Sequence[Solution]) -> Cluster:
    """One work with its author as the original, and a mark at every copy that may be older still."""
    author, *others = sorted(works, key=lambda work: authors.order(work, works))
    copies = [
        Copy(
            one,
            "exact" if one.content_sha256 == author.content_sha256 else "normalised",
            authors.may_be_first(one, author, works),
        )
        for one in others
    ]
    return Cluster(author, tuple(copies))


def _oriented(authors: Authors, one: Solution, other: Solution, alike: _Alike) -> Similar:
    """The pair with its author as the earlier one."""
    works = (one, other)
    earlier, later = sorted(works, key=lambda work: authors.order(work, works))
    contested = authors.may_be_first(later, earlier, works)
    accounts = earlier.submission.submitter, later.submission.submitter
    return Similar(*accounts, alike.kind, round(alike.share, 2), contested)


def _once(similar: Iterable[Similar]) -> tuple[Similar, ...]:
    """One for each later entry, in order of the later ones."""
    found: dict[Address, Similar] = {}
    for pair in similar:
        found.setdefault(pair.later, pair)
    return tuple(found[account] for account in sorted(found))


def _families(ranked: Sequence[Solution], similar: Sequence[Similar]) -> dict[Address, Address]:
    """The author of each family, by member; who is alone is left out."""
    later = {pair.later for pair in similar}
    ranked = sorted(ranked, key=lambda one: one.submission.submitter in later)
    accounts = [solution.submission.submitter for solution in ranked]
    number = {account: n for n, account in enumerate(accounts)}
    head = np.arange(len(ranked))
    for members in _same([solution.submission.agent_id for solution in ranked]):
        _join(head, members)
    for pair in similar:
        _join(head, [number[pair.earlier], number[pair.later]])
    sizes = Counter(head.tolist())
    return {one: accounts[first] for one, first in zip(accounts, head.tolist(), strict=True) if sizes[first] > 1}


class _Given:
    """What the poster's words already hold: as a whole, and each fenced block of code in them."""

    def __init__(self, template: str, key: bytes) -> None:
        self.key = hashlib.blake2b(key, digest_size=32).digest()
        self._parts = [part for part in (template, *template.split("```")[1::2]) if part.strip()]
        coded = [Coded.of(token_stream(part), self.key) for part in self._parts]
        self.windows = np.concatenate([NO_HASHES, *(one.abstract_windows(WINDOW) for one in coded)])
        self.words = np.concatenate([NO_HASHES, *(one.windows(WORDS) for one in coded)])
        self.kept = np.concatenate([NO_HASHES, *(one.kept_windows(KEPT) for one in coded)])
        self._statements: dict[str, Hashes] = {}

    def statements(self, language: str) -> Hashes:
        """The poster's statements, read as this language."""
        if language not in self._statements:
            found = [_statements(_words_only(part), language, self.key) for part in self._parts]
            self._statements[language] = np.concatenate([NO_HASHES, *found])
        return self._statements[language]


def _words_only(part: str) -> str:
    """A fenced block without the name of its language in the first line."""
    first, newline, rest = part.partition("\n")
    return rest if newline and first.strip().isalnum() else part


def _statements(text: str, language: str, key: bytes) -> Hashes:
    shapes = shapes_in(text.encode("utf-8", "replace"), language)
    return np.array([keyed(shape.text, key) for shape in shapes if shape.leaves >= LEAVES], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class _Print:
    """What is compared of one solution, without what the poster gave."""

    content: str
    tokens: str
    features: tuple[FeatureSet, ...]
    """By measure."""

    @classmethod
    def of(cls, solution: Solution, given: _Given) -> _Print:
        language = solution.language if solution.language in READ_AS_CODE else guess_language(solution.text)
        stream = token_stream(solution.text, language)
        coded = Coded.of(stream, given.key)
        words = _own(coded.windows(WORDS), given.words)
        features = (
            words if language else _NOTHING,
            _NOTHING if language else words,
            _own(coded.abstract_windows(WINDOW), given.windows),
            _own(_statements(solution.text, language, given.key), given.statements(language)) if language else _NOTHING,
            _own(coded.kept_windows(KEPT), given.kept),
        )
        # A text of comments only has no tokens, and must not equal every other such text.
        tokens = _digest("\x1f".join(stream.tokens)) if stream.tokens else solution.content_sha256
        return cls(solution.content_sha256, tokens, features)


_NOTHING = FeatureSet(NO_HASHES)


def _own(hashes: Hashes, given: Hashes) -> FeatureSet:
    return FeatureSet.of(numbered(hashes[~np.isin(hashes, given)]))


@dataclass(frozen=True, slots=True)
class _Alike:
    """The earliest entry that a later one resembles, both by number."""

    later: int
    earlier: int
    kind: SimilarKind
    share: float


def _compare(prints: Sequence[_Print]) -> tuple[list[list[int]], list[_Alike]]:
    """Groups of copies, and who resembles whom; what unrelated entries have in common is no evidence."""
    same_bytes, same_tokens = list(_same([p.content for p in prints])), list(_same([p.tokens for p in prints]))
    columns = [[one.features[n] for one in prints] for n in range(len(MEASURES))]
    candidates = [
        [_candidates(shared, measure) for shared in shared_by(sets)]
        for measure, sets in zip(MEASURES, columns, strict=True)
    ]
    group = np.arange(len(prints))
    for members in same_tokens:
        _join(group, members)
    for later, earlier in ((later, earlier) for column in candidates for later, earlier in enumerate(column)):
        _join(group, [later, *earlier])
    own = [_without_common(sets, group) for sets in columns]
    refused = [m for m in same_tokens if max(own[0][m[0]].amount, own[1][m[0]].amount) >= LONG]
    head = np.arange(len(prints))
    for members in (*same_bytes, *refused):
        _join(head, members)
    alike = [
        _Alike(later, first, "tokens", 1.0)
        for first, *others in same_tokens
        for later in others
        if head[later] != head[first]
    ]
    for measure, sets, found in zip(MEASURES, own, candidates, strict=True):
        for later, shared in enumerate(shared_by(sets)):
            others = ((n, share) for n, share in found[later].items() if head[n] != head[later])
            proved = next(((n, share) for n, share in others if shared.amount[n] >= measure.least), None)
            alike += [_Alike(later, proved[0], measure.kind, proved[1])] if proved else []
    copies = [np.flatnonzero(head == one).tolist() for one, size in Counter(head.tolist()).items() if size > 1]
    return copies, sorted(alike, key=lambda one: (one.later, one.earlier))


def _candidates(shared: Shared, measure: Measure) -> dict[int, float]:
    """The earlier ones of which a later one may be a copy in disguise, each with the share; not yet weighed."""
    holds = (shared.of_earlier >= measure.share) & (shared.of_later >= HELD)
    is_part = (shared.of_later >= measure.share) & (shared.of_earlier >= CUT)
    share = np.minimum(1.0, np.maximum(shared.of_earlier, shared.of_later))
    places = np.flatnonzero((holds | is_part) & (shared.amount >= measure.least)).tolist()
    return {place: float(share[place]) for place in places}


def _without_common(sets: Sequence[FeatureSet], group: Ints) -> list[FeatureSet]:
    """Each set without what several unrelated entries hold."""
    return [one.without(dropped) for one, dropped in zip(sets, common_features(sets, group, EVERYBODYS), strict=True)]


def _same(keys: Sequence[Hashable]) -> Iterator[list[int]]:
    """Who has an equal key, earliest first."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        found[key].append(number)
    return (members for members in found.values() if len(members) > 1)


def _join(head: Ints, members: Sequence[int]) -> None:
    """Make one group of the groups of these members, named by its lowest number."""
    if len(members) > 1:
        heads = np.unique(head[list(members)])
        head[np.isin(head, heads)] = heads[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
