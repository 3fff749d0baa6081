"""Prompts, strict reading of answers, the judges of two typed vectors, and the providers of models."""

from __future__ import annotations

from clara_eval.judge.cached_llm import AnswerAhead, CachedLlm, FallbackLlm
from clara_eval.judge.comparison import Judge, JudgeVector, ModelJudge
from clara_eval.judge.extraction import type_names
from clara_eval.judge.retrying_llm import CallListener, Gate, RetryingLlm, RetryPolicy
from clara_eval.judge.rules import RulesJudge
from clara_eval.judge.templates import prompt_files

__all__ = [
    "AnswerAhead", "CachedLlm", "CallListener", "FallbackLlm", "Gate", "Judge", "JudgeVector", "ModelJudge",
    "RetryPolicy", "RetryingLlm", "RulesJudge", "prompt_files", "type_names",
]  # fmt: skip
