"""Submissions made for a trial: a text becomes a `Solution` as if the chain had held it."""

from __future__ import annotations

from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex, sha256_hex
from clara_eval.core.submission import Submission
from clara_eval.evaluation.features.extract import ReadingContext
from clara_eval.submissions.model import Solution

READING = ReadingContext("0x" + "22" * 20, "0x" + "11" * 32, "python")


def solution_of(text: str, number: int = 1, language: str | None = "python", *, at: int | None = None) -> Solution:
    """Handed in by account `number`, at second `at`; lone surrogates of a payload become question marks."""
    content = text.encode("utf-8", "replace")
    submission = Submission(
        Address(f"0x{number:040x}"), number, "data:,", keccak_hex(content), at if at is not None else number, 1
    )
    return Solution(
        submission=submission,
        content=content,
        text=content.decode(),
        media_type="text/plain",
        content_keccak=keccak_hex(content),
        content_sha256=sha256_hex(content),
        hash_kind="content",
        pinned=True,
        language=language,
    )
