"""The settings, read once from the environment or a `.env`: the only module that reads the environment.

Invariant: secrets are `SecretStr`, from `NAME` or the file in `NAME_FILE`. No evaluator key means dry run.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from clara_eval.config.networks import NETWORKS, Network
from clara_eval.core.address import to_address
from clara_eval.core.constants import INTERFACES
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.core.web_origin import read_origin


def _address(value: object) -> object:
    if value is None or value == "":
        return None
    try:
        return to_address(str(value))
    except BadInput as bad:
        raise ValueError(str(bad)) from None


def _none_is_no_bound(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in {"", "none"} else value


SHORTEST_ADMIN_KEY = 16
_HOST_NAME = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?")
OptionalAddress = Annotated[str | None, BeforeValidator(_address)]
Usd = Annotated[Annotated[float, Field(ge=0, le=1e12)] | None, BeforeValidator(_none_is_no_bound)]
"""Finite, and in millionths still a number that every database holds."""


def _known_network(name: str) -> str:
    if name not in NETWORKS:
        raise ValueError(f"it is not a known network; use one of {', '.join(NETWORKS)}")
    return name


def listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _proxies(text: str) -> str:
    for part in listed(text):
        try:
            ipaddress.ip_network(part)
        except ValueError:
            raise ValueError(f"{part!r} is neither an IP address nor a network such as 10.0.0.0/8") from None
    return text


def _host_names(text: str) -> str:
    for part in listed(text):
        if not _HOST_NAME.fullmatch(part):
            raise ValueError(f"{part!r} is not a host name such as eval.example.org or eval.example.org:8443")
    return text


def _origins(text: str) -> str:
    for part in listed(text):
        if part != "*" and read_origin(part) is None:
            raise ValueError(f"{part!r} is not an origin such as https://app.example.org, without a path")
    return text


def _long(key: SecretStr | None) -> SecretStr | None:
    if key is not None and len(key) < SHORTEST_ADMIN_KEY:
        raise ValueError(f"it is shorter than {SHORTEST_ADMIN_KEY} characters; `openssl rand -hex 32` makes one")
    return key


def _tick(seconds: int) -> int:
    """Ticks follow the clock, so that several processes agree on them."""
    units = ((1, 60), (60, 3600), (3600, 86_400))
    if seconds < 1 or not any(seconds % unit == 0 and seconds < span and span % seconds == 0 for unit, span in units):
        raise ValueError(
            "ticks follow the clock: use seconds that divide a minute, whole minutes that divide an hour, "
            "or whole hours that divide a day"
        )
    return seconds


def _by_endpoint(text: str) -> dict[str, str]:
    """Read `URL=HOW,…`; a single word is for all endpoints, under `*`."""
    if "=" not in text:
        return {"*": text.strip()}
    pairs = (part.rpartition("=") for part in listed(text))
    return {url.strip().rstrip("/"): how.strip() for url, _, how in pairs}


def _attestation(text: str) -> str:
    if not set(_by_endpoint(text).values()) <= {"off", *INTERFACES}:
        raise ValueError("it is neither off, near, aci nor a comma list of URL=near or URL=aci")
    return text


def _attested(name: str, said: Mapping[str, str]) -> str:
    """Add how the endpoint signs to the judge's name, unless the name says it."""
    _, at, url = name.partition("@")
    how = said.get(url.rstrip("/"), said.get("*", "off")) if at and "#" not in url else "off"
    return name if how == "off" else f"{name.rstrip('/')}#{how}"


class Settings(BaseModel):
    """One field a setting; the environment name is the alias."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="ignore")

    network_name: Annotated[str, AfterValidator(_known_network)] = Field("local", alias="CLARA_NETWORK")
    rpc_url: str = Field("http://127.0.0.1:8545", alias="CLARA_RPC_URL", repr=False)
    challenge_factory: OptionalAddress = Field(None, alias="CLARA_CHALLENGE_FACTORY")
    from_block: int | None = Field(None, alias="CLARA_FROM_BLOCK", ge=0)

    evaluator_key: SecretStr | None = Field(None, alias="CLARA_EVALUATOR_KEY")
    evaluator_keystore: Path | None = Field(None, alias="CLARA_EVALUATOR_KEYSTORE")
    evaluator_password: SecretStr | None = Field(None, alias="CLARA_EVALUATOR_PASSWORD")
    signer_url: SecretStr | None = Field(None, alias="CLARA_SIGNER_URL")
    """Where the evaluator's key is, if not here: a web3signer's http(s) address, or aws-kms:KEY; needs the address."""
    evaluator_address: OptionalAddress = Field(None, alias="CLARA_EVALUATOR_ADDRESS")
    wallet_key: SecretStr | None = Field(None, alias="CLARA_WALLET_KEY")
    """The local key of a poster or agent, for `challenge …` and MCP; without it transactions come back unsigned."""
    wallet_limit_usd: Usd = Field(100.0, alias="CLARA_WALLET_LIMIT_USD")
    """The most a local wallet key may move in one transaction."""
    wallet_tokens: str = Field("", alias="CLARA_WALLET_TOKENS")
    """Further tokens, comma list, that a local wallet key may move; each counts as a dollar."""
    usdc_address: OptionalAddress = Field(None, alias="CLARA_USDC")
    """The dollar token that prizes are paid in, where the network has no fixed one."""

    database_url: str = Field("sqlite:///var/clara-eval.db", alias="CLARA_DATABASE_URL", repr=False)

    judges_as_set: str = Field("rules", alias="CLARA_JUDGES")
    anthropic_api_key: SecretStr | None = Field(None, alias="ANTHROPIC_API_KEY")
    anthropic_base_url: str | None = Field(None, alias="ANTHROPIC_BASE_URL")
    """A gateway for every judge anthropic:MODEL that names no address of its own."""
    openai_api_key: SecretStr | None = Field(None, alias="OPENAI_API_KEY")
    endpoint_keys: SecretStr | None = Field(None, alias="CLARA_ENDPOINT_KEYS")
    """Keys of endpoints that are not OpenAI's: comma list of URL=KEY, the URL as it stands in CLARA_JUDGES."""
    attestation: Annotated[str, AfterValidator(_attestation)] = Field("off", alias="CLARA_ATTESTATION")
    """How endpoints sign their answers: `off`, `near` or `aci` for all that CLARA_JUDGES names, or URL=near,…"""
    pccs_url: str = Field("https://api.trustedservices.intel.com", alias="CLARA_PCCS_URL")
    """Where the collateral of enclaves' quotes is fetched."""
    batches: Literal["auto", "never"] = Field("auto", alias="CLARA_BATCHES")
    """Ask Claude in message batches, at half the price, where the scoring window leaves time for them."""
    prices: str = Field("", alias="CLARA_PRICES")
    """Prices the public table does not know: comma list of JUDGE=INPUT/OUTPUT in dollars per million tokens."""
    answer_tokens: int = Field(16_384, alias="CLARA_ANSWER_TOKENS", ge=1_024, le=131_072)
    """The largest limit of one answer, thinking included; a cut answer is asked for again up to it."""
    elo: Literal["order-free", "literal"] = Field("order-free", alias="CLARA_ELO")
    """`literal`: the specification's single pass, every pair once in canonical order."""
    max_concurrency: int = Field(64, alias="CLARA_MAX_CONCURRENCY", ge=1, le=1024)
    """Calls of one judge in flight, of all evaluations of one process together."""

    budget_per_challenge_usd: Usd = Field(25.0, alias="CLARA_BUDGET_PER_CHALLENGE_USD")
    budget_per_poster_day_usd: Usd = Field(50.0, alias="CLARA_BUDGET_PER_POSTER_DAY_USD")
    budget_per_month_usd: Usd = Field(350.0, alias="CLARA_BUDGET_PER_MONTH_USD")
    new_posters_share: float = Field(0.5, alias="CLARA_NEW_POSTERS_SHARE", ge=0, le=1)
    """What all posters without an evaluation older than a week may spend together of the month's budget."""
    min_prize_usd: Usd = Field(0.0, alias="CLARA_MIN_PRIZE_USD")
    review_above_usd: Usd = Field(1000.0, alias="CLARA_REVIEW_ABOVE_USD")
    review_doubt_usd: Usd = Field(50.0, alias="CLARA_REVIEW_DOUBT_USD")
    review_doubt_share: float = Field(0.2, alias="CLARA_REVIEW_DOUBT_SHARE", ge=0, le=1)
    """A person decides if more than this, in dollars and as a share of the prize, is expected at wrong addresses."""
    calibration: Literal["known", "required", "off"] = Field("known", alias="CLARA_CALIBRATION")
    """Whether judges need a calibration on people's labels to post alone: where one is known, always, or never."""
    calibration_floor: float = Field(0.85, alias="CLARA_CALIBRATION_FLOOR", ge=0, le=1)
    """The least agreement with people on clear pairs for a judge that posts alone."""
    fee_mode: Literal["platform", "prize_pool", "poster"] = Field("platform", alias="CLARA_FEE_MODE")

    admin_api_key: Annotated[SecretStr | None, AfterValidator(_long)] = Field(None, alias="CLARA_ADMIN_API_KEY")
    host: str = Field("127.0.0.1", alias="CLARA_HOST")
    port: int = Field(8080, alias="CLARA_PORT", ge=0, le=65535)
    tick_seconds: Annotated[int, AfterValidator(_tick)] = Field(300, alias="CLARA_TICK_SECONDS")
    """How often the service looks for what is due."""
    cors_origins: Annotated[str, AfterValidator(_origins)] = Field("", alias="CLARA_CORS_ORIGINS")
    public_hosts: Annotated[str, AfterValidator(_host_names)] = Field("", alias="CLARA_PUBLIC_HOSTS")
    """Names under which the service is reached from elsewhere, comma list: others cannot call the tools under /mcp."""
    trusted_proxies: Annotated[str, AfterValidator(_proxies)] = Field("", alias="CLARA_TRUSTED_PROXIES")
    """Addresses or networks, comma list, whose X-Forwarded-For is believed; from everybody else it is ignored."""
    traces_public: Literal["after_post", "never"] = Field("after_post", alias="CLARA_TRACES_PUBLIC")
    otlp_url: str | None = Field(None, alias="CLARA_OTLP_URL")
    """Where an OpenTelemetry collector takes traces over HTTP, such as http://collector:4318/v1/traces."""
    webhook_url: str | None = Field(None, alias="CLARA_WEBHOOK_URL", repr=False)
    webhook_secret: SecretStr | None = Field(None, alias="CLARA_WEBHOOK_SECRET")

    objection_window: int = Field(0, alias="CLARA_OBJECTION_WINDOW", ge=0, le=30 * 86_400)
    """For how many seconds a result is announced before it is posted, so that submitters can object; 0 is off."""
    objection_judge: str = Field("", alias="CLARA_OBJECTION_JUDGE")
    """Who does disputed steps again, as in CLARA_JUDGES; without it a person looks."""
    reputation: Literal["off", "on", "winners"] = Field("off", alias="CLARA_REPUTATION")
    """Give feedback on chain (ERC-8004) after a challenge is final: on every ranked agent, or on the winners only."""
    reputation_registry: OptionalAddress = Field(None, alias="CLARA_REPUTATION_REGISTRY")
    """The registry of feedback, where the network has no fixed one."""
    reputation_gas: int = Field(6_000_000, alias="CLARA_REPUTATION_GAS", ge=0)
    """The most gas that feedback may use in one tick; the rest is given at the next."""

    ipfs_gateway: str = Field("https://ipfs.io", alias="CLARA_IPFS_GATEWAY")
    """A comma list: the next is asked where one cannot give the content."""
    ipfs_api: str | None = Field(None, alias="CLARA_IPFS_API")
    """An IPFS node's HTTP API: submitted content is pinned there instead of going into a data: URI, as are traces."""
    kv_account: str | None = Field(None, alias="CLARA_KV_ACCOUNT")
    """Cloudflare's account; with a namespace and a token, posted results go to its KV, too."""
    kv_namespace: str | None = Field(None, alias="CLARA_KV_NAMESPACE")
    kv_token: SecretStr | None = Field(None, alias="CLARA_KV_TOKEN")
    kv_url: str = Field("https://api.cloudflare.com/client/v4", alias="CLARA_KV_URL")
    trace_dir: Path = Field(Path("var/traces"), alias="CLARA_TRACE_DIR")
    solc: str | None = Field(None, alias="CLARA_SOLC")
    """The Solidity compiler for harnesses: a binary, or the folder of the npm package; if empty, that is sought."""
    cache_dir: Path = Field(Path("~/.cache/clara-eval"), alias="CLARA_CACHE_DIR")
    """What was compiled to run submissions; it may be removed at any time."""
    api_url: str | None = Field(None, alias="CLARA_API_URL")
    """Where a running service answers, for the agents' tools; without it they read store and chain themselves."""

    @property
    def network(self) -> Network:
        """The network of that name, with the dollar of `CLARA_USDC` where that is set."""
        known = NETWORKS[self.network_name]
        return replace(known, usdc=self.usdc_address) if self.usdc_address else known

    @property
    def judge_names(self) -> tuple[str, ...]:
        """The judges; an attested one carries `#near` or `#aci`, so that unsigned answers never count as signed."""
        said = _by_endpoint(self.attestation)
        return tuple(_attested(name, said) for name in listed(self.judges_as_set))

    @property
    def judges(self) -> str:
        return ",".join(self.judge_names)

    @property
    def rpc_urls(self) -> tuple[str, ...]:
        return listed(self.rpc_url)

    @property
    def keys_by_endpoint(self) -> dict[str, SecretStr]:
        text = self.endpoint_keys.get_secret_value() if self.endpoint_keys else ""
        pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
        if any(not url.startswith(("http://", "https://")) or not key.strip() for url, _, key in pairs):
            raise ConfigError(
                "CLARA_ENDPOINT_KEYS is not a comma list of URL=KEY.",
                remedy="Write https://host/v1=KEY, with the address as it stands in CLARA_JUDGES.",
            )
        return {url.rstrip("/"): SecretStr(key.strip()) for url, _, key in pairs}

    @property
    def kv(self) -> tuple[str, str, SecretStr] | None:
        """Account, namespace and token of Cloudflare KV; None where none of them is set."""
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
    def usdc(self) -> str | None:
        return self.network.usdc

    @property
    def first_block(self) -> int:
        return self.network.from_block if self.from_block is None else self.from_block

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, env_file: Path | None = Path(".env")) -> Settings:
        """Read, check, freeze; a wrong value ends here with its name, the reason and the remedy."""
        values = dict(_read_env_file(env_file)) if env_file and environ is None else {}
        values.update(os.environ if environ is None else environ)
        wanted = {field.alias for field in cls.model_fields.values() if field.alias}
        chosen = {name: value for name, value in values.items() if name in wanted and value != ""}
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


SECRETS = tuple(str(one.alias) for one in Settings.model_fields.values() if one.annotation == SecretStr | None)
FROM_FILES = (*SECRETS, "CLARA_DATABASE_URL", "CLARA_RPC_URL", "CLARA_WEBHOOK_URL")
"""What may be named by NAME_FILE: every secret, and addresses that may hold one."""


_OTHERS = ("CLARA_DEVNET_", "CLARA_E2E_")
"""Names of our own tools, which are not settings."""


def given_names(environ: Mapping[str, str] | None = None, *, env_file: Path = Path(".env")) -> dict[str, str]:
    """Every CLARA_… name and known setting that has a value, with its source: the environment or `.env`."""
    sources = (("environment", os.environ if environ is None else environ), (str(env_file), _read_env_file(env_file)))
    known = {str(field.alias) for field in Settings.model_fields.values()}
    return {
        name: source
        for source, values in reversed(sources)
        for name, value in values.items()
        if value and (name.startswith("CLARA_") or name.removesuffix("_FILE") in known)
    }


def unknown_names(given: Mapping[str, str]) -> list[str]:
    """The given names that no setting has, as a misspelt one."""
    known = {str(field.alias) for field in Settings.model_fields.values()} | {f"{name}_FILE" for name in FROM_FILES}
    return [name for name in given if name not in known and not name.startswith(_OTHERS)]


def _secret_from_file(name: str, path: str) -> str:
    try:
        found = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(f"{name}_FILE={path!r} cannot be read: {type(bad).__name__}.") from None
    if not found:
        raise ConfigError(f"{name}_FILE={path!r} is empty.", remedy="Write the secret into it, or unset the setting.")
    return found


def _first_problem(bad: ValidationError) -> str:
    problem = bad.errors(include_url=False, include_context=False)[0]
    name = str(problem["loc"][0]) if problem["loc"] else ""
    shown = "(hidden)" if name in SECRETS else repr(problem["input"])
    reason = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    if not problem["loc"]:  # about several settings: what was given may hold a secret
        return f"The settings do not fit together: {reason}."
    return f"{name}={shown} is not usable: {reason}."


def _read_env_file(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(
            f"The file {path} cannot be read: {type(bad).__name__}.", remedy="Make it readable UTF-8, or remove it."
        ) from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{path}:{number} is not NAME=value.", remedy="Write one setting a line.")
        found[name.strip()] = _value(value)
    return found


def _value(text: str) -> str:
    """Quoted as it stands; bare text ends where a comment begins."""
    bare = text.strip()
    if len(bare) >= 2 and bare[0] in "'\"" and bare[0] in bare[1:]:
        return bare[1 : bare.index(bare[0], 1)]
    return "" if bare.startswith("#") else bare.split(" #", 1)[0].strip()
