"""The features room: what each submission is, as typed facts.

In come a schema and a solution; out go `Features`: one typed vector for the judge, texts for people, and flags. What
tools can measure is measured and beats what a model claims. What is not known is None, never a good value by default.
"""

from __future__ import annotations

from clara_eval.evaluation.features.extract import Reading, extract_features
from clara_eval.evaluation.features.features import Features
from clara_eval.evaluation.features.measured import MEASURED_NAMES, measure
from clara_eval.judge.vector import JudgeVector

__all__ = ["MEASURED_NAMES", "Features", "JudgeVector", "Reading", "extract_features", "measure"]
