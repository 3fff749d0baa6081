"""Prompts, strict reading of answers, the judges of two typed vectors, and the providers of models."""

from __future__ import annotations

from clara_eval.judge.admission import Gate, RetryPolicy
from clara_eval.judge.cached_llm import AnswerAhead, CachedLlm, FallbackLlm
from clara_eval.judge.comparison import Decision, Judge, JudgeVector, ModelJudge, Verdict
from clara_eval.judge.extraction import type_names
from clara_eval.judge.port import Answer, Asker, PaidAnswer, Prompt
from clara_eval.judge.retrying_llm import CallListener
from clara_eval.judge.rules import RulesJudge
from clara_eval.judge.structured_llm import AnswerLog, StructuredLlm
from clara_eval.judge.templates import prompt_files

__all__ = [
    "Answer", "AnswerAhead", "AnswerLog", "Asker", "CachedLlm", "CallListener", "Decision", "FallbackLlm", "Gate",
    "Judge", "JudgeVector", "ModelJudge", "PaidAnswer", "Prompt", "RetryPolicy", "RulesJudge", "StructuredLlm",
    "Verdict", "prompt_files", "type_names",
]  # fmt: skip
