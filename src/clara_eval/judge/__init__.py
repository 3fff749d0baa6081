"""Prompts, strict reading of answers, the judges of two typed vectors, and the providers of models."""

from __future__ import annotations

from clara_eval.judge.comparison import Decision, Judge, ModelJudge
from clara_eval.judge.feature_types import type_names
from clara_eval.judge.rules import RulesJudge
from clara_eval.judge.templates import prompt_files
from clara_eval.judge.vector import JudgeVector
from clara_eval.judge.verdict import Verdict

__all__ = ["Decision", "Judge", "JudgeVector", "ModelJudge", "RulesJudge", "Verdict", "prompt_files", "type_names"]
