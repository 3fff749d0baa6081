"""A poster's config as typed values: a feature, the compiled schema, the config.

Invariant: `text` features are for people and never in `judged`, so no submitter's words reach the judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.core.model import LARGEST_NUMBER, HarnessLanguage

FeatureType: TypeAlias = Literal["number", "integer", "boolean", "enum", "text"]
Better: TypeAlias = Literal["higher", "lower"]
Source: TypeAlias = Literal["llm", "measured"]
SubmissionFormat: TypeAlias = Literal["code", "text", "url", "json"]
IfNotRevealed: TypeAlias = Literal["public", "fail"]


@dataclass(frozen=True)
class Feature:
    """One typed fact about a submission.

    `better` says which end is good: for numbers the larger or the smaller; for booleans `higher` means true is better;
    for enums the order of `values` counts: with `higher`, later values are better, with `lower`, earlier ones.
    None means that the judge decides from the criteria.
    """

    name: str
    type: FeatureType
    min: float | None = None
    max: float | None = None
    values: tuple[str, ...] = ()
    better: Better | None = None
    weight: float = 1.0
    source: Source = "llm"
    description: str = ""
    anchors: tuple[str, ...] = ()  # for levels: what each value from `min` upwards means, one sentence each

    @cached_property
    def low(self) -> float:
        return -LARGEST_NUMBER if self.min is None else self.min

    @cached_property
    def high(self) -> float:
        return LARGEST_NUMBER if self.max is None else self.max

    def to_json(self) -> dict[str, object]:
        """Return every field, so that a trace does not depend on our defaults."""
        return to_camel_json(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Feature:
        try:
            return cls(**{**value, "values": tuple(value["values"]), "anchors": tuple(value["anchors"])})
        except (KeyError, TypeError) as bad:
            raise BadInput(f"A compiled feature has the wrong fields: {bad}.", value=dict(value)) from None


@dataclass(frozen=True, slots=True)
class BareName:
    """A feature with only a name; its type is chosen before any submission is read."""

    name: str


@dataclass(frozen=True)
class FeatureSchema:
    features: tuple[Feature, ...]

    @cached_property
    def judged(self) -> tuple[Feature, ...]:
        """Return the features that may reach the judge, never `text`."""
        return tuple(feature for feature in self.features if feature.type != "text")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)

    def feature(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise BadInput(f"The schema has no feature {name!r}.", value=name, remedy=f"It has: {', '.join(self.names)}.")

    def to_json(self) -> dict[str, object]:
        return {"features": [feature.to_json() for feature in self.features]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FeatureSchema:
        return cls(tuple(Feature.from_json(item) for item in value["features"]))


@dataclass(frozen=True, slots=True)
class HarnessSpec:
    """The poster's program that runs every submission: public, or hidden until it is revealed."""

    language: HarnessLanguage
    source: str | None = None  # the public harness; with a hidden one, what counts if that is not revealed
    hidden: bool = False
    if_not_revealed: IfNotRevealed = "public"
    reference: str | None = None
    """A solution that passes, if there is one, to check the harness with before posting."""


@dataclass(frozen=True, slots=True)
class EvalConfig:
    version: int
    features: tuple[Feature | BareName, ...]
    criteria: str
    submission_format: SubmissionFormat | None
    language: str | None
    judge: Literal["rules"] | None
    canonical: bytes  # RFC 8785 form of the document that was parsed
    harness: HarnessSpec | None = None


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A part of a config that counts in another form than it was written, or not at all."""

    path: str
    written: str  # as the poster wrote it, shortened
    taken: str  # as it counts; empty if it is ignored
    reason: str


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of `challengeURI`, with the config that the chain committed to."""

    title: str
    problem_statement: str
    skills: tuple[str, ...]
    config_bytes: bytes  # the exact bytes whose keccak is `evalConfigHash`
    config: EvalConfig
    hash_kind: Literal["string", "canonical"]
    adapted: tuple[Adaptation, ...] = ()  # parts of the config that count in another form
