"""Who judges: the names in `CLARA_JUDGES`, read once and checked.

A comma list comes in, one `JudgeName` each goes out, in the order given. Forms: `rules`, `anthropic:MODEL`,
`openai:MODEL`, `openai:MODEL@https://host/v1`, `local:smollm2`. The name goes into request hashes and into the public
trace, so an address with a password or a query in it is refused, and so is the same judge twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

from clara_eval.errors import ConfigError

Provider = Literal["rules", "anthropic", "openai", "local"]
FORMS = "rules, anthropic:MODEL, openai:MODEL, openai:MODEL@https://host/v1, local:smollm2"
LOCAL_MODELS = ("smollm2",)


@dataclass(frozen=True, slots=True)
class JudgeName:
    """One judge. `text` is its one name, as set but for a slash at the end; `base_url` only for a foreign endpoint."""

    text: str
    provider: Provider
    model: str
    base_url: str | None = None

    @property
    def is_free(self) -> bool:
        """Runs on our own machine: no token is ever paid for."""
        return self.provider in ("rules", "local")


def parse_jury(text: str) -> tuple[JudgeName, ...]:
    """Every judge of the list; none at all, an unknown form, or a repetition is a ConfigError."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ConfigError("CLARA_JUDGES names no judge.", remedy=f"Use one or more of: {FORMS}.")
    jury = tuple(parse_judge(name) for name in names)
    for judge in jury:
        if sum(other == judge for other in jury) > 1:
            raise ConfigError(
                f"CLARA_JUDGES names {judge.text} twice; the second would repeat the first's recorded answers.",
                remedy="Name each judge once.",
            )
    return jury


def parse_judge(name: str) -> JudgeName:
    if name == "rules":
        return JudgeName(name, "rules", "rules")
    provider, colon, rest = name.partition(":")
    model, at, base_url = rest.partition("@")
    if not colon or not model or model != model.strip() or provider not in ("anthropic", "openai", "local"):
        raise _unknown(name)
    if at and provider != "openai":
        raise _unknown(name)
    if provider == "local" and model not in LOCAL_MODELS:
        raise ConfigError(
            f"CLARA_JUDGES: there is no local model {model!r}.",
            remedy=f"Use local:{LOCAL_MODELS[0]}, or one of {FORMS}.",
        )
    if not at:
        return JudgeName(name, cast("Provider", provider), model)
    url = _checked_url(base_url)
    return JudgeName(f"{provider}:{model}@{url}", cast("Provider", provider), model, url)


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"CLARA_JUDGES: {name[:80]!r} is no judge.", remedy=f"Use one of: {FORMS}.")


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        raise _bad_url("it cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good:
        raise _bad_url("it is not http(s)://host/path")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise _bad_url("it holds a user, a password or a query, and judges' names are public")
    return url.rstrip("/")


def _bad_url(reason: str) -> ConfigError:
    return ConfigError(
        f"CLARA_JUDGES: the address after @ is not usable: {reason}.",
        remedy="Write openai:MODEL@https://host/v1, and the key in OPENAI_API_KEY or CLARA_ENDPOINT_KEYS.",
    )
