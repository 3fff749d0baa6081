"""Languages, metrics and similarity of source code, read from its text without running it."""

from clara_eval.code.language import choose_language, guess_language, language_name
from clara_eval.code.reading import Code, read_code
from clara_eval.code.similarity import Work, compare_works

__all__ = ["Code", "Work", "choose_language", "compare_works", "guess_language", "language_name", "read_code"]
