"""Scan for words that speak to a judge: a reason for a person to look, never a verdict. Linear in the length."""

from __future__ import annotations

import re

from clara_eval.core.flags import Flag

_SIGNS = {
    "an end of the data": r"<\s{0,3}/\s{0,3}submission",
    "marks of a chat": r"<\|(?:im_start|im_end|system|assistant|user|endoftext|eot_id|start_header_id)\|>|\[/?INST\]"
    r"|<</?SYS>>|<system-reminder>|\n\n(?:Human|Assistant): ",
    "a demand to ignore the task": r"\b(?:ignore|disregard|forget)\s{1,3}(?:(?:all|of|the|your|any)\s{1,3}){0,3}"
    r"(?:previous|prior|above|earlier|preceding)\s{1,3}(?:instructions?|prompts?|rules|directions)",
    "a verdict": r"[\"']winner[\"']\s{0,3}:\s{0,3}[\"'](?:A|B)[\"']",
    "an address to the evaluator": r"\b(?:note|attention|message|instructions?)\s{1,3}(?:to|for)\s{1,3}(?:the\s{1,3})?"
    r"(?:ai\s{1,3}|llm\s{1,3})?(?:judge|grader|evaluator|extractor|reviewer model)\b",
}
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _SIGNS.items()}


def speaks_to_judge(text: str) -> list[Flag]:
    found = [name for name, pattern in _COMPILED.items() if pattern.search(text)]
    if not found:
        return []
    return [Flag("speaks_to_judge", "review", f"The text contains {', '.join(found)}.")]
