"""What a provider of judges declares, and how to find it: a file in `providers` or an entry point."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import SecretStr

from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError
from clara_eval.judge.costs.budgets import FREE, PriceCard, RunBudget, parse_prices
from clara_eval.judge.port import AnswerBook, ConnectedLlm, JournalEntries, Llm, Prompt
from clara_eval.judge.reading import THINKING_ROOM, TokenLimits

ENTRY_POINTS = "clara_eval.judges"
NO_KEY = "no-key"  # sent to self-hosted endpoints, which may need no key
EFFORT = "low"  # of thinking models: judges read short texts and compare a few typed values


@dataclass(frozen=True, slots=True)
class JudgeName:
    """The parsed name of one judge."""

    text: str  # its name in settings and traces
    provider: str
    model: str
    base_url: str | None = None  # None: the provider's own endpoint
    attestation: str = ""  # how its endpoint signs, the word after `#`; empty if it does not


class JudgeStore(AnswerBook, JournalEntries, Protocol):
    """The answer book, and the journals of batches and of attested keys; the store implements it."""


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One model in one run, with its budget."""

    llm: Llm
    store: JudgeStore
    run: str
    budget: RunBudget
    card: PriceCard | None
    poll_seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    name: str  # the word before the colon in CLARA_JUDGES
    form: str  # the syntax of its judges' names, for messages and documents
    build: Callable[[JudgeName, Settings], ConnectedLlm] | None
    """Opens no connection. Raises ConfigError for a missing key or package. None: judges without a model."""
    price: Callable[[JudgeName, datetime], PriceCard | None]
    takes_address: bool = False  # whether `@https://host/v1` may follow the model
    models: tuple[str, ...] = ()  # all models; empty: any name is accepted
    most_at_once: int | None = None  # concurrent calls, if fewer than CLARA_MAX_CONCURRENCY
    thinks: Callable[[JudgeName], bool] = lambda _judge: False  # whether the model is known to think before it answers
    most_tokens: int | None = None  # the longest answer, if shorter than CLARA_ANSWER_TOKENS
    answer_in_batches: Callable[[BatchRun, Sequence[Prompt], float], Awaitable[None]] | None = None
    """Answers prompts in batches if that is worth it in the given seconds."""
    signs: tuple[str, ...] = ()
    """Interfaces (`near`, `aci`) of endpoints that sign inside an enclave; `build` gives `SigningOpenAi`."""


RULES_PROVIDER = Provider(name="rules", form="rules", build=None, price=lambda _judge, _at: FREE)


def provider_of(judge: JudgeName) -> Provider:
    found = _load_provider(judge.provider)
    assert found is not None, "a parsed name has a provider"
    return found


def parse_jury(text: str) -> tuple[JudgeName, ...]:
    """Parse a list of judges. Raises ConfigError for an empty list, an unknown judge or a duplicate."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ConfigError("CLARA_JUDGES names no judge.", remedy=f"Use one or more of: {forms()}.")
    jury = tuple(parse_judge(name) for name in names)
    if twice := [judge.text for judge in jury if jury.count(judge) > 1]:
        message = f"CLARA_JUDGES names {twice[0]} twice; the second would repeat the first's recorded answers."
        raise ConfigError(message, remedy="Name each judge once.")
    return jury


def parse_judge(name: str) -> JudgeName:
    provider_name, colon, rest = name.partition(":")
    provider = _load_provider(provider_name)
    if provider is None or bool(colon) != (provider.build is not None):
        raise _unknown_judge(name)
    if provider.build is None:
        return JudgeName(name, name, name)
    rest, hash_sign, attestation = rest.partition("#")
    model, at, base_url = rest.partition("@")
    if hash_sign and (attestation not in provider.signs or not at):
        raise ConfigError(
            f"CLARA_JUDGES: {name[:80]!r} asks for attestation, and there is none of this kind.",
            remedy="Only openai:MODEL@https://host/v1 can be attested, by #near or #aci; see CLARA_ATTESTATION.",
        )
    if not model or model != model.strip() or (at and not provider.takes_address):
        raise _unknown_judge(name)
    if provider.models and model not in provider.models:
        message = f"CLARA_JUDGES: there is no {provider.name} model {model!r}."
        raise ConfigError(message, remedy=f"Use {provider.name}:{provider.models[0]}, or one of {forms()}.")
    if not at:
        return JudgeName(name, provider.name, model)
    url = _check_url(base_url)
    return JudgeName(f"{provider.name}:{model}@{url}{hash_sign}{attestation}", provider.name, model, url, attestation)


def models_of(jury: Iterable[JudgeName]) -> list[JudgeName]:
    return [judge for judge in jury if provider_of(judge).build is not None]


def price_card(judge: JudgeName, given: Mapping[str, PriceCard]) -> PriceCard | None:
    """Return the operator's price, else the provider's; None if unknown."""
    known = given.get(judge.text) or given.get(judge.text.partition("#")[0])
    return known or provider_of(judge).price(judge, datetime.now(UTC))


def price_cards(settings: Settings, jury: Iterable[JudgeName]) -> dict[str, PriceCard | None]:
    given = parse_prices(settings.prices)
    return {judge.text: price_card(judge, given) for judge in models_of(jury)}


def thinking_models(jury: Iterable[JudgeName]) -> set[str]:
    return {judge.text for judge in models_of(jury) if provider_of(judge).thinks(judge)}


def token_limits(settings: Settings, jury: Sequence[JudgeName]) -> TokenLimits:
    """Return limits that all models of a jury can meet, with tokens for thinking if one thinks."""
    bounds = [provider_of(judge).most_tokens for judge in models_of(jury)]
    most = min([settings.answer_tokens, *(bound for bound in bounds if bound is not None)])
    return TokenLimits(THINKING_ROOM if thinking_models(jury) else 0, most)


def build_llm(name: str | JudgeName, settings: Settings) -> ConnectedLlm:
    judge = parse_judge(name) if isinstance(name, str) else name
    build = provider_of(judge).build
    if build is None:
        raise ConfigError(f"{judge.text} judges without a model.", remedy=f"A model is one of: {forms()}.")
    return build(judge, settings)


def endpoint_key(settings: Settings, judge: JudgeName, secret: SecretStr | None, variable: str) -> str:
    """Return an endpoint's key; the provider's own goes to another host only if the jury has no other."""
    if judge.base_url is not None:
        own = settings.keys_by_endpoint.get(judge.base_url)
        if own is not None:
            return own.get_secret_value()
        endpoints = {other.base_url for other in parse_jury(settings.judges) if other.provider == judge.provider}
        if secret is None or endpoints - {judge.base_url}:
            return NO_KEY
    if secret is None or not secret.get_secret_value().strip():
        raise ConfigError(f"{judge.text} needs a key, and {variable} is not set.", remedy=f"Set {variable}.")
    return secret.get_secret_value().strip()


@cache
def forms() -> str:
    names = [RULES_PROVIDER.name, *_provider_files(), *sorted(entry.name for entry in entry_points(group=ENTRY_POINTS))]
    found = (_load_provider(name) for name in dict.fromkeys(names))
    return ", ".join(provider.form for provider in found if provider is not None)


@cache
def _load_provider(name: str) -> Provider | None:
    """Load a provider; an installed package cannot replace a file of this package."""
    if name == RULES_PROVIDER.name:
        return RULES_PROVIDER
    found: object = None
    if name in _provider_files():
        found = getattr(importlib.import_module(f"clara_eval.judge.providers.{name}"), "PROVIDER", None)
    else:
        for entry in entry_points(group=ENTRY_POINTS, name=name):
            found = entry.load()
    return found if isinstance(found, Provider) and found.name == name else None


@cache
def _provider_files() -> tuple[str, ...]:
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "providers")]))
    return tuple(sorted(name for name in names if not name.startswith("test_")))


def _unknown_judge(name: str) -> ConfigError:
    return ConfigError(f"CLARA_JUDGES: there is no judge {name[:80]!r}.", remedy=f"Use one of: {forms()}.")


def _check_url(url: str) -> str:
    reason = "it is not http(s)://host/path"
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query or parts.fragment:
            reason = "it holds a user, a password or a query, and judges' names are public"
        elif parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url.rstrip("/")
    raise ConfigError(
        f"CLARA_JUDGES: the address after @ is not usable: {reason}.",
        remedy="Write openai:MODEL@https://host/v1, and the key in CLARA_ENDPOINT_KEYS or the provider's setting.",
    )
