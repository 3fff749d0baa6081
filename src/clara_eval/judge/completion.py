"""The chat completion of compatible endpoints as bytes, for asking and for checking recorded and signed bytes later."""

from __future__ import annotations

import json
from dataclasses import replace

from clara_eval.judge.attestation import NotAttested, SigningKey, check_answer
from clara_eval.judge.port import Answer, Prompt, Stop

_STOPS: dict[str, Stop] = {
    **dict.fromkeys(("length", "model_length", "max_tokens", "max_output_tokens", "incomplete"), "max_tokens"),
    **dict.fromkeys(("content_filter", "refusal", "safety"), "refusal"),
}
"""How compatible endpoints say that an answer did not end by itself."""
TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")


def with_schema(system: str, schema_json: str) -> str:
    """Return the system text for an endpoint that refuses the response format."""
    return f"{system}\n\nAnswer with one JSON object that fits this JSON Schema:\n{schema_json}"


def read_completion(content: bytes, prompt: Prompt, model: str) -> Answer:
    """Read an answer; `model` is used if the endpoint names none. Raises ValueError for anything else."""
    try:
        body = json.loads(content)
        choice = body["choices"][0]
        message = choice["message"]
        refusal, reason = message.get("refusal"), str(choice.get("finish_reason")).lower()
        if reason == "error":
            raise ValueError("The model failed in the middle of its answer.")
        stop = "refusal" if refusal else _STOPS.get(reason, "end")
        said = str(refusal or _words(message.get("content")))
        thought = "".join(_words(message.get(name)) for name in ("reasoning_content", "reasoning"))
        # Without a count: an answer that was cut used up its limit.
        least = prompt.max_tokens if stop == "max_tokens" else len(said + thought) // 3 + 1
        return Answer(said, str(body.get("model") or model), stop, *_tokens(body.get("usage"), prompt, least))
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as bad:
        raise ValueError("It is not a chat completion.") from bad


def asks(content: bytes, prompt: Prompt, model: str) -> bool:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return False
    if not isinstance(body, dict) or body.get("model") != model:
        return False
    limits = [body[name] for name in TOKEN_LIMITS if name in body]
    systems = (prompt.system, with_schema(prompt.system, prompt.schema_json))
    asked = [[{"role": "system", "content": s}, {"role": "user", "content": prompt.user}] for s in systems]
    return limits == [prompt.max_tokens] and body.get("messages") in asked


def _words(content: object) -> str:
    """Join the text parts of a message; parts of another kind (thinking) are not the answer."""
    if isinstance(content, list):
        return "".join(_words(part.get("text")) for part in content if part.get("type") in ("text", "output_text"))
    return content if isinstance(content, str) else ""


def _tokens(usage: object, prompt: Prompt, uncounted: int) -> tuple[int, int, int]:
    """Return input, output and cached tokens. Missing counts are estimated by size, never free; thinking is output."""
    counted = usage or {}
    if not isinstance(counted, dict):
        raise TypeError("The usage is not an object.")
    sent, came, total = (counted.get(f"{kind}_tokens") for kind in ("prompt", "completion", "total"))
    details = counted.get("prompt_tokens_details") or {}
    asked = (len(prompt.system) + len(prompt.user)) // 3 + 1 if sent is None else int(sent)
    answered = uncounted if came is None else int(came)
    thought = int((counted.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)
    if total is not None and sent is not None:
        answered = max(answered, int(total) - asked)
    if thought > answered:
        answered += thought  # left out of both
    return asked, answered, int(details.get("cached_tokens") or 0)


def signing(judge: str) -> tuple[str, str]:
    """Return the model and the signing interface of a judge's name (`openai:MODEL@URL#near`), or an empty interface."""
    rest, _, interface = judge.partition("#")
    return rest.partition(":")[2].partition("@")[0], interface


def check_signed(prompt: Prompt, answer: Answer, key: SigningKey, model: str) -> None:
    """Raise NotAttested unless this key signed exactly this question and this answer."""
    assert answer.signed is not None
    request, response = check_answer(answer.signed, key, model)
    if not asks(request, prompt, model):
        raise NotAttested("the signed request is another question")
    try:
        said = read_completion(response, prompt, model)
    except ValueError as bad:
        raise NotAttested("the signed response is not a chat completion") from bad
    if said != replace(answer, signed=None, sampling=None):
        raise NotAttested("the signed response says something else")
