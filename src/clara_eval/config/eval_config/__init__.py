"""A poster's config: read, checked, hashed, and compiled to typed features."""

from __future__ import annotations

from clara_eval.config.eval_config.catalogue import EXECUTED, MEASURED, compile_schema, level_feature, with_types
from clara_eval.config.eval_config.metadata import build_metadata, config_hash, read_metadata
from clara_eval.config.eval_config.model import EvalConfig, Feature, FeatureSchema, HarnessSpec, Metadata
from clara_eval.config.eval_config.reading import collect_problems, parse_eval_config
from clara_eval.config.eval_config.shape import TYPES_WITH, BadEvalConfig, ConfigProblem

__all__ = [
    "EXECUTED",
    "MEASURED",
    "TYPES_WITH",
    "BadEvalConfig",
    "ConfigProblem",
    "EvalConfig",
    "Feature",
    "FeatureSchema",
    "HarnessSpec",
    "Metadata",
    "build_metadata",
    "collect_problems",
    "compile_schema",
    "config_hash",
    "level_feature",
    "parse_eval_config",
    "read_metadata",
    "with_types",
]
