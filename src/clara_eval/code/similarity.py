"""Compare all works of a round: which repeat one another, and which are too alike to be independent.

Invariant: what is in the problem statement, or in several unrelated works of the round, is no evidence.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from clara_eval.code.language import READ_AS_CODE, VOCABULARY, guess_language, words
from clara_eval.code.neutral import live_text
from clara_eval.code.reading import Shape, shapes_in
from clara_eval.core.syntax import Parsed, parse

_STRINGS = r"'(?:[^'\\\n]|\\.)*'?|\"(?:[^\"\\\n]|\\.)*\"?"
_PYTHON = re.compile(
    r"(?:\#[^\n]*|(?:(?<=\n)|\A)[ \t]*[rRbBuUfF]{0,2}(?:'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)))"
    r"|('''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|" + _STRINGS + r"|\w+|[^\w\s])",
    re.DOTALL,
)
_BRACES = re.compile(r"(?://[^\n]*|/\*.*?(?:\*/|\Z))|(" + _STRINGS + r"|`(?:[^`\\]|\\.)*`?|\w+|[^\w\s])", re.DOTALL)
# In Rust 'a is a lifetime, not the start of a string.
_RUST = re.compile(r"(?://[^\n]*|/\*.*?(?:\*/|\Z))|(\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\\n]|\\.)'|\w+|[^\w\s])", re.DOTALL)
_FIXED_WORDS = {name: words(text) for name, text in VOCABULARY["fixed"].items()}  # words that cannot be renamed
_HOLE = re.compile(r"\$?\{[^{}]*\}")
_SIZED = re.compile(r"(?:u?int|bytes|[iuf])\d{1,3}")
_WITH_SIZES = frozenset({"solidity", "rust", "go"})
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅαονρΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijshdqwABEKMHOPCTXIJSaovpABEZHIKMNOPTYX",
)
ODD = np.uint64(0x9E3779B97F4A7C15)
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
NO_HASHES: Hashes = np.empty(0, dtype=np.uint64)
LARGEST = 1024  # features of one work that are compared; shares are right to about 3 percentage points (1/√1024)
# The largest hash in a sample, by how often it was halved. No work has 2^24 features.
_BOUNDS = np.array([0xFFFFFFFFFFFFFFFF >> shift for shift in range(24)], dtype=np.uint64)
Bools = npt.NDArray[np.bool_]
MIN_SHARE = 0.75  # share of one work that the other has; honest entries for one small task reach 0.74 (`bench/honest`)
MIN_OF_LATER = 0.15  # share of a later work that is the earlier one; below, the later one only uses a part of it
MIN_OF_EARLIER = 0.5  # share of an earlier work that is left in the later one, if the later one is a shortened copy
MIN_COPY_WINDOWS = 200  # windows of 5 tokens, about 25 lines: so many equal tokens are not chance
TASK_HOLDERS = 2  # a feature that this many other, unrelated works have belongs to the task
MIN_LEAVES = 3  # names, numbers and strings; a smaller statement, such as `return x`, is in every work
TOKENS_WIDTH, RENAMED_WIDTH, PROPERTIES_WIDTH = 5, 8, 3  # tokens per window: more without names
SimilarKind = Literal["tokens", "renamed", "statements", "minified"]
MIN_STATEMENTS = 64
MEASURES: tuple[tuple[SimilarKind, int], ...] = (
    # Windows of tokens with their names; 100 are a dozen lines. Honest entries of that size share 52 %.
    ("tokens", 100),
    ("tokens", 40),  # windows of words, a short paragraph; independent texts for one task share 3 %
    ("renamed", 100),  # windows of tokens without chosen names, a dozen lines; honest ring buffers share 74 %
    ("renamed", 100),  # and without statements that do nothing, only for small works (`_Given.read`)
    # Statements without names, in any order, weighted by leaves. Honest entries share 85 % of 60 leaves.
    ("statements", MIN_STATEMENTS),
    ("minified", 20),  # windows of property names, which a minifier keeps; honest entries share at most 16
)
"""Kinds of features, each with the least shared weight that is evidence; the plainest kind is first."""
_MAX_SMALL = int(MIN_STATEMENTS / MIN_OF_LATER)  # leaves; a larger work cannot copy one with too few statements
Alike: TypeAlias = tuple[int, int, SimilarKind, float]  # a later work, the earliest it resembles, kind, share


def token_stream(text: str, language: str | None = None) -> tuple[tuple[str, ...], str | None]:
    """Return the tokens of a work and its language, guessed if unknown; of prose, its words."""
    language = language if language in READ_AS_CODE else guess_language(text)
    plain = text
    if not text.isascii():  # Cyrillic lookalikes and zero-width characters must not hide a copy
        folded = unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)
        plain = "".join(char for char in folded if unicodedata.category(char) != "Cf")
    if language is None:
        kept, position = list[str](), 0  # skip comments, which Markdown does not show
        while (start := plain.find("<!--", position)) >= 0 and (end := plain.find("-->", start)) >= 0:
            kept.append(plain[position:start])
            position = end + 3
        return tuple(re.findall(r"\w+", " ".join((*kept, plain[position:])).casefold())), None
    pattern, quotes = {"python": (_PYTHON, "'\""), "rust": (_RUST, "'\"")}.get(language, (_BRACES, "'\"`"))
    found = pattern.findall(plain)  # a comment is an empty string
    lifetime = "'" if language == "rust" else ""
    # Use one kind of quote, because formatters change it.
    tokens = [t if t[0] not in quotes or t == lifetime else '"' + t.strip("'\"`") + '"' for t in found if t]
    return tuple(tokens), language


@dataclass(frozen=True, slots=True)
class Coded:
    """The tokens of a work as numbers, from which all kinds of windows are made."""

    distinct: list[str]
    numbers: Ints  # the index in `distinct` of each token
    codes: Hashes
    language: str | None
    key: bytes

    @classmethod
    def of(cls, tokens: Sequence[str], language: str | None, key: bytes) -> Coded:
        known: dict[str, int] = {token: n for n, token in enumerate(dict.fromkeys(tokens))}
        numbers = np.fromiter(map(known.__getitem__, tokens), dtype=np.int64, count=len(tokens))
        codes = np.array([_keyed_token(token, key) for token in known], dtype=np.uint64)
        return cls(list(known), numbers, codes[numbers] if len(numbers) else NO_HASHES, language, key)

    def windows(self, width: int) -> Hashes:
        return _windows([self.codes] * width, len(self.codes), width)

    def kept_windows(self, width: int) -> Hashes:
        """Return windows of the names after a point or before a colon, which a minifier keeps."""
        if self.language is None or not len(self.numbers):
            return NO_HASHES
        is_name = self._are_names(self.language)
        places = {token: number for number, token in enumerate(self.distinct)}
        behind = np.append(False, self.numbers[:-1] == places.get(".", -1))
        before = np.append(self.numbers[1:] == places.get(":", -1), False)
        kept = self.codes[is_name & (behind | before)]
        return _windows([kept] * width, len(kept), width)

    def _are_names(self, language: str) -> npt.NDArray[np.bool_]:
        """Return which tokens are names chosen by the programmer; a string of one word counts as a name."""
        fixed, has_sizes = _FIXED_WORDS[language], language in _WITH_SIZES
        found = [
            token.strip('"').isidentifier() and token not in fixed and not (has_sizes and _SIZED.fullmatch(token))
            for token in self.distinct
        ]
        are_names: npt.NDArray[np.bool_] = np.array(found, dtype=bool)[self.numbers]
        return are_names

    def abstract_windows(self, width: int) -> Hashes:
        """Return windows with each chosen name replaced by the distance to its last use in the window."""
        if self.language is None or len(self.codes) < width:
            return NO_HASHES  # without its words, prose has nothing left to compare
        is_name = self._are_names(self.language)
        filled = {
            n: _HOLE.sub("{}", token) for n, token in enumerate(self.distinct) if token[0] == '"' and "{" in token
        }
        codes = self.codes.copy() if filled else self.codes
        for n, token in filled.items():
            codes[self.numbers == n] = keyed(token, self.key)
        order = np.argsort(self.numbers, kind="stable")
        apart = np.zeros(len(self.numbers), dtype=np.int64)
        is_repeat = self.numbers[order][1:] == self.numbers[order][:-1]
        apart[order[1:][is_repeat]] = (order[1:] - order[:-1])[is_repeat]
        since = apart.astype(np.uint64)
        back = np.where(since <= np.arange(width, dtype=np.uint64)[:, None], since, np.uint64(0))
        return _windows(np.where(is_name, back + np.uint64(1), codes), len(self.codes), width)


def keyed(text: str, key: bytes) -> int:
    """Return a 64-bit hash that cannot be predicted without the key."""
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=key).digest(), "big")


_keyed_token = lru_cache(maxsize=16_384)(keyed)  # works have most tokens in common, but few statements


def _windows(by_offset: Iterable[Hashes], length: int, width: int) -> Hashes:
    count = length - width + 1
    if count < 1:
        return NO_HASHES
    mixed = np.zeros(count, dtype=np.uint64)
    for offset, codes in enumerate(by_offset):
        mixed ^= codes[offset : offset + count]
        mixed *= ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """The features of one work, or a sample of them: sorted, distinct, each with its weight."""

    hashes: Hashes
    weights: Ints
    level: int = 0  # the sample has every hash below 2^(64 − level)

    @classmethod
    def of(cls, hashes: Hashes, weights: Ints | None = None) -> FeatureSet:
        """Sample the features; a repeated one counts as another feature. Without weights each counts 1."""
        order = np.argsort(hashes, kind="stable")
        hashes, first = np.unique(_numbered(hashes[order]), return_index=True)
        weights = np.ones(len(hashes), dtype=np.int64) if weights is None else weights[order][first]
        level = max(0, (len(hashes) - 1).bit_length() - LARGEST.bit_length() + 1) if len(hashes) else 0
        kept = slice(int(np.searchsorted(hashes, _BOUNDS[level], side="right")))
        return cls(hashes[kept], weights[kept], level)

    @property
    def amount(self) -> int:
        """Return the weight of all features of the work, estimated from the sample."""
        return int(self.weights.sum()) << self.level


def _numbered(hashes: Hashes) -> Hashes:
    """Make repeated hashes different; the input must be sorted."""
    places = np.arange(len(hashes))
    is_first = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
    times = (places - np.maximum.accumulate(np.where(is_first, places, 0))).astype(np.uint64)
    mixed = (hashes + times * ODD) * ODD
    return np.where(is_first, hashes, mixed ^ (mixed >> np.uint64(31)))


class Shared(NamedTuple):
    """What one set has in common with each earlier set."""

    of_earlier: npt.NDArray[np.float64]  # share of the earlier set's features
    of_later: npt.NDArray[np.float64]
    amount: Ints  # the weight of the common features, estimated from the coarser sample


def shared_by(sets: Sequence[FeatureSet]) -> Iterator[Shared]:
    """Yield for each set what it shares with every earlier one."""
    level = np.array([one.level for one in sets], dtype=np.int64)
    levels = 1 + max(level.tolist(), default=0)
    sizes = np.array([np.searchsorted(one.hashes, _BOUNDS[:levels], side="right") for one in sets], dtype=np.int64)
    feature, owner = _features(sets)
    weights = np.concatenate([np.empty(0, dtype=np.int64), *(one.weights for one in sets)])
    by_feature = np.argsort(feature, kind="stable")
    owners, place = owner[by_feature], np.empty_like(by_feature)
    place[by_feature] = np.arange(len(place))
    first = np.searchsorted(feature[by_feature], np.arange(1 + feature.max(initial=0)))[feature]
    times = place - first  # how many earlier sets have this feature
    bounds = np.searchsorted(owner, np.arange(len(sets) + 1)).tolist()
    for later, (start, end) in enumerate(pairwise(bounds)):
        count = times[start:end]
        begins = np.repeat(first[start:end] - np.cumsum(count) + count, count)
        having = owners[begins + np.arange(len(begins))]
        common = np.bincount(having, minlength=later)
        weight = np.bincount(having, weights=np.repeat(weights[start:end], count), minlength=later).astype(np.int64)
        pair = np.maximum(level[:later], level[later])
        theirs, mine = sizes[np.arange(later), pair], sizes[later, pair]
        yield Shared(common / np.maximum(theirs, 1), common / np.maximum(mine, 1), weight << pair)


def common_features(sets: Sequence[FeatureSet], group: Ints, least: int) -> list[Bools]:
    """Return for each set which of its features at least `least` other groups also have."""
    feature, owner = _features(sets)
    _, first = np.unique(feature * (1 + group.max(initial=0)) + group[owner], return_index=True)
    is_common = np.bincount(feature[first])[feature] > least
    return np.split(is_common, np.cumsum([len(one.hashes) for one in sets])[:-1]) if sets else []


def _features(sets: Sequence[FeatureSet]) -> tuple[Ints, Ints]:
    """Number the features of all sets, and return with each the number of its set."""
    _, feature = np.unique(np.concatenate([NO_HASHES, *(one.hashes for one in sets)]), return_inverse=True)
    return feature, np.repeat(np.arange(len(sets)), [len(one.hashes) for one in sets])


class Work(NamedTuple):
    """A text to compare, with its language if it is known."""

    text: str
    language: str | None
    sha256: str


def compare_works(works: Sequence[Work], *, template: str, key: bytes) -> tuple[list[list[int]], list[Alike]]:
    """Return groups of copies, and pairs of similar works, by index; `works` has the earliest first.

    `template` is the problem statement. `key` must be unknown to the authors, so that they cannot evade the sample.
    """
    given = _Given(template, key)
    prints = [given.read(work) for work in works]
    same_bytes, same_tokens = _same([work.sha256 for work in works]), _same([tokens for tokens, _ in prints])
    columns = [[features[n] for _, features in prints] for n in range(len(MEASURES))]
    candidates = [
        [_candidates(shared, least) for shared in shared_by(sets)]
        for (_, least), sets in zip(MEASURES, columns, strict=True)
    ]
    # Works that may be copies form a group: what they share only with each other is not the task's.
    related = np.arange(len(works))
    for members in same_tokens:
        join(related, members)
    for later, earlier in (pair for column in candidates for pair in enumerate(column)):
        join(related, [later, *earlier])
    own = [
        [
            FeatureSet(one.hashes[~common], one.weights[~common], one.level)
            for one, common in zip(sets, common_features(sets, related, TASK_HOLDERS), strict=True)
        ]
        if same_tokens or any(found)  # else this measure is not needed
        else []
        for sets, found in zip(columns, candidates, strict=True)
    ]
    refused = [m for m in same_tokens if max(own[0][m[0]].amount, own[1][m[0]].amount) >= MIN_COPY_WINDOWS]
    head = np.arange(len(works))
    for members in (*same_bytes, *refused):
        join(head, members)
    alike: list[Alike] = [
        (later, first, "tokens", 1.0)
        for first, *others in same_tokens
        for later in others
        if head[later] != head[first]
    ]
    for (kind, least), sets, found in zip(MEASURES, own, candidates, strict=True):
        for later, shared in enumerate(shared_by(sets)):
            others = ((n, share) for n, share in found[later].items() if head[n] != head[later])
            proved = ((n, share) for n, share in others if shared.amount[n] >= least)
            alike += [(later, n, kind, share) for n, share in islice(proved, 1)]
    copies = [np.flatnonzero(head == one).tolist() for one, size in Counter(head.tolist()).items() if size > 1]
    return copies, sorted(alike, key=lambda one: one[:2])


class _Given:
    """The features of the problem statement and of its code blocks, which are left out of all works."""

    def __init__(self, template: str, key: bytes) -> None:
        self.key = hashlib.blake2b(key, digest_size=32).digest()
        self._parts = [part for part in (template, *template.split("```")[1::2]) if part.strip()]
        coded = [Coded.of(*token_stream(part), self.key) for part in self._parts]
        self.words = np.concatenate([NO_HASHES, *(one.windows(TOKENS_WIDTH) for one in coded)])
        self.renamed = np.concatenate([NO_HASHES, *(one.abstract_windows(RENAMED_WIDTH) for one in coded)])
        self.properties = np.concatenate([NO_HASHES, *(one.kept_windows(PROPERTIES_WIDTH) for one in coded)])
        self._statements: dict[str, Hashes] = {}

    def statements(self, language: str) -> Hashes:
        if language not in self._statements:
            # The first line of a fenced block may be the name of its language.
            texts = (re.sub(r"\A[^\S\n]*[^\W_]+[^\S\n]*\n", "", part) for part in self._parts)
            self._statements[language] = self.hashed([shape for text in texts for shape in _statements(text, language)])
        return self._statements[language]

    def read(self, work: Work) -> tuple[str, tuple[FeatureSet, ...]]:
        """Return a digest of a work's tokens, and its features by measure, without those of the statement."""
        language = work.language if work.language in READ_AS_CODE else guess_language(work.text)
        tokens, _ = token_stream(work.text, language)
        coded = Coded.of(tokens, language, self.key)
        words = _own(coded.windows(TOKENS_WIDTH), self.words)
        # A text of comments only has no tokens: with its own hash it equals no other such text.
        joined = "\x1f".join(tokens).encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(joined).hexdigest() if tokens else work.sha256
        if language is None:
            return digest, (_NOTHING, words, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
        parsed, running = parse(work.text.encode("utf-8", "replace"), language), _NOTHING
        shapes = _statements(work.text, language, parsed)
        leaves = np.array([shape.leaves for shape in shapes], dtype=np.int64)
        if leaves.sum() <= _MAX_SMALL:
            live = Coded.of(*token_stream(live_text(work.text, parsed), language), self.key)
            running = _own(live.abstract_windows(RENAMED_WIDTH), self.renamed)
        return digest, (
            words,
            _NOTHING,
            _own(coded.abstract_windows(RENAMED_WIDTH), self.renamed),
            running,
            _own(self.hashed(shapes), self.statements(language), leaves),
            _own(coded.kept_windows(PROPERTIES_WIDTH), self.properties),
        )

    def hashed(self, shapes: Sequence[Shape]) -> Hashes:
        return np.array([keyed(shape.text, self.key) for shape in shapes], dtype=np.uint64)


def _statements(text: str, language: str, parsed: Parsed | None = None) -> list[Shape]:
    shapes = shapes_in(text.encode("utf-8", "replace"), language, parsed)
    return [shape for shape in shapes if shape.leaves >= MIN_LEAVES]


_NOTHING = FeatureSet.of(NO_HASHES)


def _own(hashes: Hashes, given: Hashes, weights: Ints | None = None) -> FeatureSet:
    is_own = ~np.isin(hashes, given)
    return FeatureSet.of(hashes[is_own], None if weights is None else weights[is_own])


def _candidates(shared: Shared, least: int) -> dict[int, float]:
    """Return the earlier works that a later one may copy, each with its share, before weighing."""
    holds = (shared.of_earlier >= MIN_SHARE) & (shared.of_later >= MIN_OF_LATER)
    is_part = (shared.of_later >= MIN_SHARE) & (shared.of_earlier >= MIN_OF_EARLIER)
    share = np.minimum(1.0, np.maximum(shared.of_earlier, shared.of_later))
    places = np.flatnonzero((holds | is_part) & (shared.amount >= least)).tolist()
    return {place: float(share[place]) for place in places}


def _same(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return groups of indices with equal keys."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        found[key].append(number)
    return [members for members in found.values() if len(members) > 1]


def join(head: Ints, members: Sequence[int]) -> None:
    """Merge the groups of these members; the lowest index names the group."""
    if len(members) > 1:
        heads = np.unique(head[list(members)])
        head[np.isin(head, heads)] = heads[0]
