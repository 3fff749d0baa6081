"""Whether the bytes that an enclave signed are this question and this answer."""

from __future__ import annotations

from dataclasses import replace

from clara_eval.judge.attestation import NotAttested, SigningKey, check_answer
from clara_eval.judge.completion import asks, read_completion
from clara_eval.judge.port import Answer, Prompt


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
    if said != replace(answer, signed=None):
        raise NotAttested("the signed response says something else")
