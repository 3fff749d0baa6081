"""Languages, metrics and similarity of source code, read from its text without running it."""

from __future__ import annotations

from clara_eval.code.language import choose_language, guess_language, language_name
from clara_eval.code.neutral import neutral_code, wanted_names
from clara_eval.code.reading import Code, is_held, read_code
from clara_eval.code.similarity import SimilarKind, Work, compare_works
from clara_eval.code.tokens import READ_AS_CODE

__all__ = [
    "READ_AS_CODE",
    "Code",
    "SimilarKind",
    "Work",
    "choose_language",
    "compare_works",
    "guess_language",
    "is_held",
    "language_name",
    "neutral_code",
    "read_code",
    "wanted_names",
]
