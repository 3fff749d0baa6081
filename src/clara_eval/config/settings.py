"""The networks and the settings, read from the environment or a `.env` file, only by this module.

Invariant: secrets are `SecretStr`, from `NAME` or the file in `NAME_FILE`. No evaluator key means dry run.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from clara_eval.core.address import to_address
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.core.model import SIGNING_INTERFACES
from clara_eval.core.web import read_origin


@dataclass(frozen=True, slots=True)
class Network:
    """A chain with challenges; `local` has no fixed addresses, so the settings give them."""

    name: str
    chain_id: int
    confirmations: int  # blocks on top of a transaction before we treat it as final
    finality_tag: str  # the block tag at which submissions may be pinned
    from_block: int
    factory: str | None = None
    identity_registry: str | None = None
    usdc: str | None = None
    explorer: str | None = None
    contracts: str = "1"  # the version of the contracts that is deployed there
    reputation_registry: str | None = None
    """The canonical reputation registry (ERC-8004), if it uses the identity registry above."""


_FACTS = json.loads(resources.files(__package__).joinpath("networks.json").read_text("utf-8"))
NETWORKS = {name: Network(name=name, **facts) for name, facts in _FACTS.items()}


def network_of_chain(chain_id: object) -> Network | None:
    """Return the network with this chain id, a number or its text; None if none is known."""
    return next((one for one in NETWORKS.values() if str(one.chain_id) == str(chain_id)), None)


def _parse_address(value: object) -> object:
    if value is None or value == "":
        return None
    try:
        return to_address(str(value))
    except BadInput as bad:
        raise ValueError(str(bad)) from None


def _parse_unlimited(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in {"", "none"} else value


SHORTEST_ADMIN_KEY = 16
_HOST_NAME = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?")
OptionalAddress = Annotated[str | None, BeforeValidator(_parse_address)]
Usd = Annotated[Annotated[float, Field(ge=0, le=1e12)] | None, BeforeValidator(_parse_unlimited)]
"""Dollars, or None for no limit. In millionths the amount fits into the integers of every database."""


def _check_network(name: str) -> str:
    if name not in NETWORKS:
        raise ValueError(f"it is not a known network; use one of {', '.join(NETWORKS)}")
    return name


def listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _check_each(is_usable: Callable[[str], object], problem: str) -> AfterValidator:
    """Check every part of a comma-separated list."""

    def check(text: str) -> str:
        for part in listed(text):
            if not is_usable(part):
                raise ValueError(f"{part!r} is {problem}")
        return text

    return AfterValidator(check)


def _is_ip_network(text: str) -> bool:
    try:
        return bool(ipaddress.ip_network(text))
    except ValueError:
        return False


_PROXIES = _check_each(_is_ip_network, "neither an IP address nor a network such as 10.0.0.0/8")
_HOSTS = _check_each(_HOST_NAME.fullmatch, "not a host name such as eval.example.org or eval.example.org:8443")
_ORIGINS = _check_each(
    lambda part: part == "*" or read_origin(part), "not an origin such as https://app.example.org, without a path"
)


def _check_key(key: SecretStr | None) -> SecretStr | None:
    if key is not None and len(key) < SHORTEST_ADMIN_KEY:
        raise ValueError(f"it is shorter than {SHORTEST_ADMIN_KEY} characters; `openssl rand -hex 32` makes one")
    return key


def _check_tick(seconds: int) -> int:
    """Check that ticks can follow the clock, so that several processes agree on them."""
    units = ((1, 60), (60, 3600), (3600, 86_400))
    if seconds < 1 or not any(seconds % unit == 0 and seconds < span and span % seconds == 0 for unit, span in units):
        raise ValueError(
            "ticks follow the clock: use seconds that divide a minute, whole minutes that divide an hour, "
            "or whole hours that divide a day"
        )
    return seconds


def _read_by_endpoint(text: str) -> dict[str, str]:
    """Read `URL=VALUE,…`; a single value is for all endpoints, under `*`."""
    if "=" not in text:
        return {"*": text.strip()}
    return {url.strip().rstrip("/"): value.strip() for url, _, value in (one.rpartition("=") for one in listed(text))}


def _check_attestation(text: str) -> str:
    if not set(_read_by_endpoint(text).values()) <= {"off", *SIGNING_INTERFACES}:
        raise ValueError("it is neither off, near, aci nor a comma list of URL=near or URL=aci")
    return text


def _mark_attested(name: str, modes: Mapping[str, str]) -> str:
    """Add the endpoint's attestation mode to the judge's name, unless the name has one."""
    _, at, url = name.partition("@")
    mode = modes.get(url.rstrip("/"), modes.get("*", "off")) if at and "#" not in url else "off"
    return name if mode == "off" else f"{name.rstrip('/')}#{mode}"


class Settings(BaseModel):
    """One field per setting; the alias is its environment name, and `env.example` explains it."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="ignore")

    network_name: Annotated[str, AfterValidator(_check_network)] = Field("local", alias="CLARA_NETWORK")
    rpc_url: str = Field("http://127.0.0.1:8545", alias="CLARA_RPC_URL", repr=False)
    challenge_factory: OptionalAddress = Field(None, alias="CLARA_CHALLENGE_FACTORY")
    from_block: int | None = Field(None, alias="CLARA_FROM_BLOCK", ge=0)

    evaluator_key: SecretStr | None = Field(None, alias="CLARA_EVALUATOR_KEY")
    evaluator_keystore: Path | None = Field(None, alias="CLARA_EVALUATOR_KEYSTORE")
    evaluator_password: SecretStr | None = Field(None, alias="CLARA_EVALUATOR_PASSWORD")
    signer_url: SecretStr | None = Field(None, alias="CLARA_SIGNER_URL")
    evaluator_address: OptionalAddress = Field(None, alias="CLARA_EVALUATOR_ADDRESS")
    wallet_key: SecretStr | None = Field(None, alias="CLARA_WALLET_KEY")
    wallet_limit_usd: Usd = Field(100.0, alias="CLARA_WALLET_LIMIT_USD")
    """The most dollars that a local wallet key may move in one transaction."""
    wallet_tokens: str = Field("", alias="CLARA_WALLET_TOKENS")
    """Comma list of other tokens that a local wallet key may move; each counts as one dollar."""
    usdc_address: OptionalAddress = Field(None, alias="CLARA_USDC")

    database_url: str = Field("sqlite:///var/clara-eval.db", alias="CLARA_DATABASE_URL", repr=False)

    judges_as_set: str = Field("rules", alias="CLARA_JUDGES")
    anthropic_api_key: SecretStr | None = Field(None, alias="ANTHROPIC_API_KEY")
    anthropic_base_url: str | None = Field(None, alias="ANTHROPIC_BASE_URL")
    openai_api_key: SecretStr | None = Field(None, alias="OPENAI_API_KEY")
    endpoint_keys: SecretStr | None = Field(None, alias="CLARA_ENDPOINT_KEYS")
    attestation: Annotated[str, AfterValidator(_check_attestation)] = Field("off", alias="CLARA_ATTESTATION")
    pccs_url: str = Field("https://api.trustedservices.intel.com", alias="CLARA_PCCS_URL")
    batches: Literal["auto", "never"] = Field("auto", alias="CLARA_BATCHES")
    prices: str = Field("", alias="CLARA_PRICES")
    answer_tokens: int = Field(16_384, alias="CLARA_ANSWER_TOKENS", ge=1_024, le=131_072)
    elo: Literal["order-free", "literal"] = Field("order-free", alias="CLARA_ELO")
    jury: Literal["together", "in-turn"] = Field("together", alias="CLARA_JURY")
    max_concurrency: int = Field(64, alias="CLARA_MAX_CONCURRENCY", ge=1, le=1024)

    budget_per_challenge_usd: Usd = Field(25.0, alias="CLARA_BUDGET_PER_CHALLENGE_USD")
    budget_per_poster_day_usd: Usd = Field(50.0, alias="CLARA_BUDGET_PER_POSTER_DAY_USD")
    budget_per_month_usd: Usd = Field(350.0, alias="CLARA_BUDGET_PER_MONTH_USD")
    new_posters_share: float = Field(0.5, alias="CLARA_NEW_POSTERS_SHARE", ge=0, le=1)
    min_prize_usd: Usd = Field(0.0, alias="CLARA_MIN_PRIZE_USD")
    review_above_usd: Usd = Field(1000.0, alias="CLARA_REVIEW_ABOVE_USD")
    review_doubt_usd: Usd = Field(50.0, alias="CLARA_REVIEW_DOUBT_USD")
    review_doubt_share: float = Field(0.2, alias="CLARA_REVIEW_DOUBT_SHARE", ge=0, le=1)
    calibration: Literal["known", "required", "off"] = Field("known", alias="CLARA_CALIBRATION")
    calibration_floor: float = Field(0.85, alias="CLARA_CALIBRATION_FLOOR", ge=0, le=1)
    fee_mode: Literal["platform", "prize_pool", "poster"] = Field("platform", alias="CLARA_FEE_MODE")

    admin_api_key: Annotated[SecretStr | None, AfterValidator(_check_key)] = Field(None, alias="CLARA_ADMIN_API_KEY")
    host: str = Field("127.0.0.1", alias="CLARA_HOST")
    port: int = Field(8080, alias="CLARA_PORT", ge=0, le=65535)
    tick_seconds: Annotated[int, AfterValidator(_check_tick)] = Field(300, alias="CLARA_TICK_SECONDS")
    cors_origins: Annotated[str, _ORIGINS] = Field("", alias="CLARA_CORS_ORIGINS")
    public_hosts: Annotated[str, _HOSTS] = Field("", alias="CLARA_PUBLIC_HOSTS")
    trusted_proxies: Annotated[str, _PROXIES] = Field("", alias="CLARA_TRUSTED_PROXIES")
    traces_public: Literal["after_post", "never"] = Field("after_post", alias="CLARA_TRACES_PUBLIC")
    otlp_url: str | None = Field(None, alias="CLARA_OTLP_URL")
    webhook_url: str | None = Field(None, alias="CLARA_WEBHOOK_URL", repr=False)
    webhook_secret: SecretStr | None = Field(None, alias="CLARA_WEBHOOK_SECRET")

    objection_window: int = Field(0, alias="CLARA_OBJECTION_WINDOW", ge=0, le=30 * 86_400)
    objection_judge: str = Field("", alias="CLARA_OBJECTION_JUDGE")
    reputation: Literal["off", "on", "winners"] = Field("off", alias="CLARA_REPUTATION")
    reputation_registry: OptionalAddress = Field(None, alias="CLARA_REPUTATION_REGISTRY")
    reputation_gas: int = Field(6_000_000, alias="CLARA_REPUTATION_GAS", ge=0)

    ipfs_gateway: str = Field("https://ipfs.io", alias="CLARA_IPFS_GATEWAY")
    ipfs_api: str | None = Field(None, alias="CLARA_IPFS_API")
    kv_account: str | None = Field(None, alias="CLARA_KV_ACCOUNT")
    kv_namespace: str | None = Field(None, alias="CLARA_KV_NAMESPACE")
    kv_token: SecretStr | None = Field(None, alias="CLARA_KV_TOKEN")
    kv_url: str = Field("https://api.cloudflare.com/client/v4", alias="CLARA_KV_URL")
    trace_dir: Path = Field(Path("var/traces"), alias="CLARA_TRACE_DIR")
    solc: str | None = Field(None, alias="CLARA_SOLC")
    cache_dir: Path = Field(Path("~/.cache/clara-eval"), alias="CLARA_CACHE_DIR")
    api_url: str | None = Field(None, alias="CLARA_API_URL")
    """The URL of a running service for the agents' tools, which otherwise read store and chain."""

    @property
    def network(self) -> Network:
        """Return the network, with the USDC token of `CLARA_USDC` if that is set."""
        known = NETWORKS[self.network_name]
        return replace(known, usdc=self.usdc_address) if self.usdc_address else known

    @property
    def judges(self) -> str:
        """Return the judges; `#near` or `#aci` marks an attested one, whose answers must be signed."""
        modes = _read_by_endpoint(self.attestation)
        return ",".join(_mark_attested(name, modes) for name in listed(self.judges_as_set))

    @property
    def keys_by_endpoint(self) -> dict[str, SecretStr]:
        text = self.endpoint_keys.get_secret_value() if self.endpoint_keys else ""
        pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
        if any(not url.startswith(("http://", "https://")) or not key.strip() for url, _, key in pairs):
            raise ConfigError(
                "CLARA_ENDPOINT_KEYS is not a comma list of URL=KEY.",
                remedy="Write https://host/v1=KEY, with the URL as in CLARA_JUDGES.",
            )
        return {url.rstrip("/"): SecretStr(key.strip()) for url, _, key in pairs}

    @property
    def kv(self) -> tuple[str, str, SecretStr] | None:
        """Return account, namespace and token of Cloudflare KV, or None if none of them is set."""
        given = {"ACCOUNT": self.kv_account, "NAMESPACE": self.kv_namespace, "TOKEN": self.kv_token}
        missing = [f"CLARA_KV_{name}" for name, value in given.items() if not value]
        if len(missing) == len(given):
            return None
        if not (self.kv_account and self.kv_namespace and self.kv_token):
            raise ConfigError(
                f"Cloudflare KV needs an account, a namespace and a token; {' and '.join(missing)} is not set.",
                remedy="Set all three, or none.",
            )
        for name, text in (("ACCOUNT", self.kv_account), ("NAMESPACE", self.kv_namespace)):
            if not re.fullmatch("[0-9a-fA-F]{32}", text):
                raise ConfigError(f"CLARA_KV_{name} is {text[:80]!a}.", remedy="Cloudflare's ids are 32 hex digits.")
        if not re.fullmatch("[!-~]+", self.kv_token.get_secret_value()):
            raise ConfigError(
                "CLARA_KV_TOKEN holds a space, a line end or a letter that no token has.", remedy="Copy it again."
            )
        if not self.kv_url.startswith(("https://", "http://")):
            raise ConfigError(f"CLARA_KV_URL is {self.kv_url[:80]!a}.", remedy="Write https://…, or leave it out.")
        return self.kv_account, self.kv_namespace, self.kv_token

    @property
    def factory(self) -> str:
        found = self.challenge_factory or self.network.factory
        if found is None:
            raise ConfigError(
                f"CLARA_CHALLENGE_FACTORY is not set and the network {self.network_name!r} has no fixed one.",
                remedy="Set CLARA_NETWORK to base or base-sepolia; for a local chain `clara-eval devnet` prints it.",
            )
        return found

    @property
    def first_block(self) -> int:
        return self.network.from_block if self.from_block is None else self.from_block

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, env_file: Path | None = Path(".env")) -> Settings:
        """Read and check all settings; raises ConfigError with the name, reason and remedy of a wrong one."""
        values = dict(_read_env_file(env_file)) if env_file and environ is None else {}
        values.update(os.environ if environ is None else environ)
        chosen = {name: value for name, value in values.items() if name in _NAMES and value != ""}
        for name in FROM_FILES:
            path = values.get(f"{name}_FILE")
            if path and name in SECRETS and name in chosen:
                raise ConfigError(
                    f"{name} and {name}_FILE are both set.", remedy="Keep the one that holds, unset the other."
                )
            if path:
                chosen[name] = _secret_from_file(name, path)
        try:
            return cls.model_validate(chosen)
        except ValidationError as bad:
            raise ConfigError(_first_problem(bad), remedy="`clara-eval settings --example` has them all.") from None


_NAMES = {str(field.alias) for field in Settings.model_fields.values()}
SECRETS = tuple(str(one.alias) for one in Settings.model_fields.values() if one.annotation == SecretStr | None)
FROM_FILES = (*SECRETS, "CLARA_DATABASE_URL", "CLARA_RPC_URL", "CLARA_WEBHOOK_URL")
"""Settings that NAME_FILE may give: every secret, and URLs that may contain one."""
_TOOL_PREFIXES = ("CLARA_DEVNET_", "CLARA_E2E_")  # for our own tools, not settings


def given_names() -> dict[str, str]:
    """Return every CLARA_… name and known setting that has a value, with its source."""
    return {
        name: source
        for source, values in ((".env", _read_env_file(Path(".env"))), ("environment", os.environ))
        for name, value in values.items()
        if value and (name.startswith("CLARA_") or name.removesuffix("_FILE") in _NAMES)
    }


def unknown_names(given: Mapping[str, str]) -> list[str]:
    """Return the given names that no setting has, for example a misspelt one."""
    known = _NAMES | {f"{name}_FILE" for name in FROM_FILES}
    return [name for name in given if name not in known and not name.startswith(_TOOL_PREFIXES)]


def _read_text(path: Path, what: str, remedy: str = "") -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(f"{what} cannot be read: {type(bad).__name__}.", remedy=remedy) from None


def _secret_from_file(name: str, path: str) -> str:
    found = _read_text(Path(path), f"{name}_FILE={path!r}").strip()
    if not found:
        raise ConfigError(f"{name}_FILE={path!r} is empty.", remedy="Write the secret into it, or unset the setting.")
    return found


def _first_problem(bad: ValidationError) -> str:
    problem = bad.errors(include_url=False, include_context=False)[0]
    name = str(problem["loc"][0])
    shown = "(hidden)" if name in SECRETS else repr(problem["input"])
    reason = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    return f"{name}={shown} is not usable: {reason}."


def _read_env_file(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    lines = _read_text(path, f"The file {path}", "Make it readable UTF-8, or remove it.").splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{path}:{number} is not NAME=value.", remedy="Write one setting per line.")
        found[name.strip()] = _parse_value(value)
    return found


def _parse_value(text: str) -> str:
    """Return quoted text unchanged, and bare text up to a comment."""
    bare = text.strip()
    if len(bare) >= 2 and bare[0] in "'\"" and bare[0] in bare[1:]:
        return bare[1 : bare.index(bare[0], 1)]
    return "" if bare.startswith("#") else bare.split(" #", 1)[0].strip()
