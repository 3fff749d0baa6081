"""Typed facts of each submission: measured by tools, claimed by a model, or executed."""

from __future__ import annotations

from clara_eval.evaluation.features.extract import ReadingContext, extract_features
from clara_eval.evaluation.features.features import SubmissionFacts
from clara_eval.evaluation.features.measured import MEASURED_NAMES, measure
from clara_eval.judge.comparison import JudgeVector

__all__ = ["MEASURED_NAMES", "JudgeVector", "ReadingContext", "SubmissionFacts", "extract_features", "measure"]
