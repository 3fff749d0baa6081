"""The words of this door: what the use cases say about an action, as one writes it in a shell.

Use cases name actions and arguments by their stable names, those of the tools. Comes in: a sentence or a document with
sentences; goes out: the same with commands and options in their place. Values such as `action` and strangers' words in
their fences stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

COMMANDS = {
    "challenge_browse": "clara-eval challenge list",
    "challenge_detail": "clara-eval challenge show ADDRESS",
    "challenge_post": "clara-eval challenge post",
    "challenge_submit": "clara-eval challenge submit ADDRESS",
    "challenge_try": "clara-eval challenge try ADDRESS",
    "challenge_eval_status": "clara-eval challenge watch ADDRESS",
    "challenge_leaderboard": "clara-eval leaderboard ADDRESS",
    "challenge_score": "clara-eval score ADDRESS",
    "challenge_object": "clara-eval challenge object ADDRESS",
    "challenge_claim": "clara-eval challenge claim ADDRESS",
    "config_check": "clara-eval config validate FILE",
}
OPTIONS = {
    "Unsigned transactions are in `transactions`.": "`--json` prints the unsigned transactions.",
    "confirm: true": "--send",
    "register: true": "--register",
    "allowDuplicate": "--allow-duplicate",
    "expectedEntries": "--expected-entries",
    "evalConfigJSON": "--config",
    "problemStatement": "--problem",
    "scoringWindow": "--scoring-window",
    "maxParticipants": "--max-participants",
    "winnerCount": "--winners",
    "privateSetHash": "--private-set-hash",
    "solutionHash": "--solution-hash",
    "agentId": "--agent-id",
}
SENTENCES = frozenset(
    ("next", "explanation", "claimable", "why", "trace", "summary", "warnings", "message", "remedy", "configProblem")
)
"""The fields of our documents that are sentences of ours."""
_NAMES = re.compile("|".join(rf"`?(?<!\w){re.escape(name)}(?!\w)`?" for name in (*COMMANDS, *OPTIONS)))
_RESOURCE = re.compile(r"[Rr]esource clara://trace/(0x[0-9a-f]{40})")
S = TypeVar("S", bound=str | Mapping[str, object])


def in_shell(said: S, address: str | None = None) -> S:
    """A sentence, or a document's sentences, in the words of a shell; `address` stands in its commands if known."""
    if isinstance(said, str):
        return _sentence(said, address)  # type: ignore[return-value]
    about = next((known for key in ("challenge", "address") if isinstance(known := said.get(key), str)), address)
    return {  # type: ignore[return-value]
        key: _field(value, about) if key in SENTENCES else _inner(value, about) for key, value in said.items()
    }


def _field(value: object, address: str | None) -> object:
    if isinstance(value, str):
        return _sentence(value, address)
    return [_sentence(item, address) for item in value] if isinstance(value, list) else value


def _inner(value: object, address: str | None) -> object:
    return in_shell(value, address) if isinstance(value, dict) and "untrusted" not in value else value


def _sentence(text: str, address: str | None) -> str:
    said = _RESOURCE.sub(lambda found: f"`clara-eval trace {found.group(1)}`", text)
    return _NAMES.sub(lambda found: _written(found.group().strip("`"), address), said)


def _written(name: str, address: str | None) -> str:
    if name in OPTIONS:
        return OPTIONS[name]
    return f"`{COMMANDS[name]}`".replace("ADDRESS", address or "ADDRESS")
