"""A poster's config: read, checked, hashed, and compiled to typed features."""

from __future__ import annotations

from clara_eval.config.eval_config.catalogue import (
    COMMON,
    EXECUTED,
    LEVEL_ANCHORS,
    MEASURED,
    level_feature,
    typed,
)
from clara_eval.config.eval_config.compiling import compile_schema, with_types
from clara_eval.config.eval_config.lint import lint
from clara_eval.config.eval_config.metadata import build_metadata, config_hash, read_metadata
from clara_eval.config.eval_config.model import (
    BareName,
    Better,
    EvalConfig,
    Feature,
    FeatureSchema,
    FeatureType,
    HarnessSpec,
    Metadata,
    Source,
    SubmissionFormat,
)
from clara_eval.config.eval_config.problems import BadEvalConfig, ConfigProblem
from clara_eval.config.eval_config.reading import collect_problems, parse_eval_config
from clara_eval.core.strict_json import JsonLimits, read_strict_json

__all__ = [
    "COMMON",
    "EXECUTED",
    "LEVEL_ANCHORS",
    "MEASURED",
    "BadEvalConfig",
    "BareName",
    "Better",
    "ConfigProblem",
    "EvalConfig",
    "Feature",
    "FeatureSchema",
    "FeatureType",
    "HarnessSpec",
    "JsonLimits",
    "Metadata",
    "Source",
    "SubmissionFormat",
    "build_metadata",
    "collect_problems",
    "compile_schema",
    "config_hash",
    "level_feature",
    "lint",
    "parse_eval_config",
    "read_metadata",
    "read_strict_json",
    "typed",
    "with_types",
]
