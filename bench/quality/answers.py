"""Store the answers of the bench as JSON lines, so that a run can continue after a stop.

Two questions that differ only in nonce and check number share an answer; its check number is replaced.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clara_eval.core.errors import BadAnswer
from clara_eval.judge.port import Answer, Asker, Llm, PaidAnswer, Prompt, request_hash

_NONCE = re.compile(r"(?<=-)[0-9a-f]{24}(?=>)")
_CHECK = re.compile(r"(?:The value of check is |with check = )(\d{6})")


class NotAsked(Exception):
    """There is no stored answer, and no model to ask."""


class KeptAnswers(Asker):
    """Answer from the file, else from the model; each new answer is written before it is used."""

    def __init__(self, name: str, file: Path, llm: Llm | None = None) -> None:
        self._name, self._file, self._llm = name, file, llm
        self._answers = {one["asked"]: one for one in read_lines(file) if "asked" in one}
        self.seconds = 0.0
        self.calls = 0

    @property
    def name(self) -> str:
        return self._name

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        del prompts

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        asked, check = _identity(self._name, prompt, attempt)
        one = self._answers.get(asked) or await self._new(asked, check, prompt)
        self.calls, self.seconds = self.calls + 1, self.seconds + one["seconds"]
        text = one["text"].replace(one["check"], check) if check else one["text"]
        answer = Answer(text, one["model"], one["stop"], one["in"], one["out"])
        return PaidAnswer(request_hash(self._name, prompt, attempt), "bench", self._name, prompt.purpose, answer, 0)

    async def _new(self, asked: str, check: str, prompt: Prompt) -> dict[str, Any]:
        if self._llm is None:
            raise NotAsked(asked)
        begun = time.monotonic()
        try:
            answer = await self._llm.complete(prompt)
        except BadAnswer as bad:
            answer = Answer(bad.message, self._name, "refusal", 0, 0)
        one = {
            "asked": asked,
            "llm": self._name,
            "model": answer.model,
            "check": check,
            "text": answer.text,
            "stop": answer.stop,
            "in": answer.input_tokens,
            "out": answer.output_tokens,
            "seconds": round(time.monotonic() - begun, 1),
        }
        append(self._file, one)
        self._answers[asked] = one
        return one


def _identity(name: str, prompt: Prompt, attempt: int) -> tuple[str, str]:
    """Return the hash of a question without nonce and check number, and the check number."""
    found = _CHECK.search(prompt.user)
    check = found[1] if found else ""
    user = _NONCE.sub("nonce", prompt.user)
    plain = replace(prompt, user=user.replace(check, "check") if check else user)
    return hashlib.sha256(request_hash(name, plain, attempt).encode()).hexdigest()[:24], check


def read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def append(file: Path, *lines: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(line, sort_keys=True) + "\n" for line in lines)


def results(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the newest result of each part, variant and item."""
    return {(one["part"], one["variant"], one["item"]): one for one in lines if "part" in one}
