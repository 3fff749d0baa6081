"""Settings come from the environment, a file, or secret files; wrong ones are named."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from croniter import croniter

from clara_eval.config.settings import SECRETS, Settings
from clara_eval.core.errors import ConfigError
from clara_eval.service.due import EngineOptions
from clara_eval.service.logs import Redaction

EXAMPLE = Path(__file__).parents[2] / ".env.example"


def test_the_defaults_need_nothing() -> None:
    """Without any setting everything is embedded: local chain, SQLite, rules, no key."""
    settings = Settings.from_env({})
    assert settings.network_name == "local"
    assert settings.database_url.startswith("sqlite:")
    assert settings.judges == "rules"
    assert settings.evaluator_key is None


def test_the_example_names_every_setting_with_its_default() -> None:
    """.env.example lists every setting, and reading it gives the defaults."""
    names = set(re.findall(r"^([A-Z_]+)=", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert names == {field.alias for field in Settings.model_fields.values()}
    assert Settings.from_env({}, env_file=None) == _from_file(EXAMPLE)


def test_the_example_is_read_alike_by_those_who_know_no_trailing_comments() -> None:
    """`podman run --env-file` and systemd take everything behind the equals sign as the value."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    plain = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert len(plain) == len(Settings.model_fields)
    assert Settings.from_env(plain) == Settings.from_env({}, env_file=None)


def _from_file(path: Path) -> Settings:
    from clara_eval.config.settings import _read_env_file

    return Settings.from_env(_read_env_file(path))


def test_a_file_is_read_with_quotes_and_comments(tmp_path: Path) -> None:
    """Quotes, `export` and trailing comments are understood."""
    file = tmp_path / ".env"
    file.write_text("export CLARA_JUDGES='rules' # who\nCLARA_PORT=9000   # here\n\n# CLARA_HOST=x\n")
    settings = _from_file(file)
    assert (settings.judges, settings.port, settings.host) == ("rules", 9000, "127.0.0.1")


def test_a_line_without_a_value_is_named(tmp_path: Path) -> None:
    """A line that is not NAME=value is an error with its place."""
    file = tmp_path / ".env"
    file.write_text("CLARA_PORT=1\nnonsense\n")
    with pytest.raises(ConfigError, match=r"\.env:2"):
        _from_file(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLARA_NETWORK", "mainnet"),
        ("CLARA_PORT", "70000"),
        ("CLARA_BUDGET_PER_CHALLENGE_USD", "-1"),
        ("CLARA_CHALLENGE_FACTORY", "0x12"),
        ("CLARA_FROM_BLOCK", "soon"),
        ("CLARA_FEE_MODE", "free"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    """The error says which setting is wrong and what it was."""
    with pytest.raises(ConfigError, match=f"{name}='{value}'"):
        Settings.from_env({name: value})


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_never_shows(name: str, tmp_path: Path) -> None:
    """A secret comes from NAME or NAME_FILE and appears in no text of the settings."""
    secret = "hunter2-" + "9" * 20
    file = tmp_path / "secret"
    file.write_text(secret + "\n")
    for settings in (Settings.from_env({name: secret}), Settings.from_env({f"{name}_FILE": str(file)})):
        held = next(getattr(settings, key) for key, field in Settings.model_fields.items() if field.alias == name)
        assert held.get_secret_value() == secret
        assert secret not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_an_unreadable_secret_file_is_named_without_its_content(tmp_path: Path) -> None:
    """A missing secret file is an error with its path."""
    with pytest.raises(ConfigError, match="CLARA_EVALUATOR_KEY_FILE"):
        Settings.from_env({"CLARA_EVALUATOR_KEY_FILE": str(tmp_path / "none")})


def test_a_secret_that_is_set_twice_is_refused(tmp_path: Path) -> None:
    """Which of two keys would sign is not left to a rule that nobody remembers; neither is shown."""
    (tmp_path / "key").write_text("0x" + "1b" * 32, encoding="utf-8")
    environ = {"CLARA_EVALUATOR_KEY": "0x" + "2c" * 32, "CLARA_EVALUATOR_KEY_FILE": str(tmp_path / "key")}
    with pytest.raises(ConfigError, match="CLARA_EVALUATOR_KEY and CLARA_EVALUATOR_KEY_FILE are both set") as caught:
        Settings.from_env(environ)
    assert "1b1b" not in str(caught.value)
    assert "2c2c" not in str(caught.value)


def test_an_empty_secret_file_is_not_taken_for_no_secret(tmp_path: Path) -> None:
    """A mount that failed must not silently leave the webhook unsigned or the service without its key."""
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"CLARA_WEBHOOK_SECRET_FILE=.* is empty"):
        Settings.from_env({"CLARA_WEBHOOK_SECRET_FILE": str(tmp_path / "empty")})


@pytest.mark.parametrize("value", ["inf", "1e300", "nan", "-1"])
def test_a_budget_is_a_number_that_can_be_counted(value: str) -> None:
    """An endless budget passes no check at the start to break every evaluation later."""
    with pytest.raises(ConfigError, match="CLARA_BUDGET_PER_MONTH_USD"):
        Settings.from_env({"CLARA_BUDGET_PER_MONTH_USD": value})


def test_a_cap_can_be_lifted() -> None:
    """`none` is no bound; a blank setting is not set at all and keeps the default."""
    settings = Settings.from_env({"CLARA_BUDGET_PER_MONTH_USD": "None", "CLARA_BUDGET_PER_CHALLENGE_USD": ""})
    assert (settings.budget_per_month_usd, settings.budget_per_challenge_usd) == (None, 25.0)


def test_a_local_network_needs_a_factory() -> None:
    """Base has a fixed factory; a local chain says where to get one."""
    assert Settings.from_env({"CLARA_NETWORK": "base"}).factory.startswith("0x4eaf")
    with pytest.raises(ConfigError, match="devnet"):
        _ = Settings.from_env({}).factory


def test_a_settings_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    """A .env of bytes that are not text is an error of that file."""
    place = tmp_path / ".env"
    place.write_bytes(b"CLARA_PORT=\xff")
    with pytest.raises(ConfigError, match=r"\.env cannot be read"):
        Settings.from_env(env_file=place)


@pytest.mark.parametrize("password", ["p%40ss%2Fw", "p@ss/w%rd", "plain-password", "a@b@c"])
def test_a_password_in_a_url_is_never_shown(password: str) -> None:
    """Secrets in the URLs of database, node and webhook stand in no repr of the settings and in no log line."""
    urls = {
        "CLARA_DATABASE_URL": f"postgresql://clara:{password}@db.example/clara",
        "CLARA_RPC_URL": f"https://user:{password}@node.example/v2/{password}",
        "CLARA_WEBHOOK_URL": f"https://hooks.example/{password}?token={password}",
    }
    settings = Settings.from_env(urls)
    assert password not in repr(settings) + str(settings)
    for url in urls.values():
        line = Redaction().text(f"cannot reach {url} now")
        assert password not in line
        assert ".example" in line


@pytest.mark.parametrize("seconds", [1, 5, 30, 60, 300, 1800, 3600, 43_200])
def test_ticks_follow_the_clock(seconds: int) -> None:
    """The schedule of every allowed setting strikes exactly that far apart, over hours and days."""
    settings = Settings.from_env({"CLARA_TICK_SECONDS": str(seconds)})
    options = EngineOptions.ticking(settings.tick_seconds)
    clock = croniter(options.tick_cron, datetime(2026, 11, 16, 22, 58, tzinfo=UTC), second_at_beginning=True)
    struck = [clock.get_next(float) for _ in range(200)]
    assert {after - before for before, after in pairwise(struck)} == {seconds}
    assert options.tick_seconds == seconds


@pytest.mark.parametrize("seconds", ["0", "7", "90", "2700", "100000", "-5"])
def test_ticks_that_cannot_follow_the_clock_are_refused(seconds: str) -> None:
    """Where the distance would change at the end of a minute or an hour, the setting is named with what fits."""
    with pytest.raises(ConfigError, match=r"CLARA_TICK_SECONDS.*divide"):
        Settings.from_env({"CLARA_TICK_SECONDS": seconds})


@pytest.mark.parametrize("seconds", ["often", "1.5", "5m"])
def test_ticks_that_are_no_number_are_refused(seconds: str) -> None:
    """The setting and what was given are named."""
    with pytest.raises(ConfigError, match=rf"CLARA_TICK_SECONDS='{seconds}' is not usable.*integer"):
        Settings.from_env({"CLARA_TICK_SECONDS": seconds})


def test_half_of_a_kv_is_none() -> None:
    """Account, namespace and token belong together; what is missing is named, and the token is not shown."""
    with pytest.raises(ConfigError, match="CLARA_KV_NAMESPACE is not set") as caught:
        _ = Settings.from_env({"CLARA_KV_ACCOUNT": "a", "CLARA_KV_TOKEN": "kv-secret"}).kv
    assert "kv-secret" not in str(caught.value)


def test_settings_that_do_not_fit_together_show_no_secret() -> None:
    """An error about several settings names the reason and nothing of what was given."""
    with pytest.raises(ConfigError, match="CLARA_ATTESTATION") as caught:
        Settings.from_env({"CLARA_ATTESTATION": "wrong", "CLARA_KV_TOKEN": "kv-secret", "OPENAI_API_KEY": "sk-secret"})
    assert "secret" not in str(caught.value)
