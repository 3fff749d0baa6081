"""The optional extras of the package, and the command that installs each."""

from __future__ import annotations

from importlib.util import find_spec

from clara_eval.core.errors import ConfigError

MODULES = {
    "anthropic": ("genai_prices",),
    "openai": ("genai_prices",),
    "postgres": ("psycopg", "psycopg_pool"),
    "mcp": ("mcp", "mcp_types"),
    "languages": ("tree_sitter_go", "tree_sitter_rust", "tree_sitter_typescript"),
    "server": (
        *("dbos", "fastapi", "jinja2", "markupsafe"),
        *("prometheus_client", "sqlalchemy", "sse_starlette", "starlette", "uvicorn", "mcp"),
    ),
    "cloudflare": ("cloudflare",),
    "kms": ("boto3", "botocore"),
    "telemetry": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "attestation": ("dcap_qvl",),
    "javascript": ("wasmtime",),
    "python": ("wasmtime",),
}


def install(extra: str) -> str:
    return f"pip install 'clara-eval[{extra}]'"


def require(extra: str, what: str) -> None:
    """Raise ConfigError with the install command, unless the extra is installed."""
    if not is_installed(extra):
        raise _missing(extra, what)


def is_installed(extra: str) -> bool:
    try:
        return all(find_spec(module) is not None for module in MODULES[extra])
    except ModuleNotFoundError:  # a parent package is missing
        return False


def missing_part(bad: ModuleNotFoundError) -> ConfigError | None:
    """Return the error for a failed import; None if the module belongs to no extra."""
    for extra, modules in MODULES.items():
        if bad.name is not None and any(bad.name.split(".")[0] == module.split(".")[0] for module in modules):
            return _missing(extra, "This")
    return None


def _missing(extra: str, what: str) -> ConfigError:
    return ConfigError(f"{what} needs a part that is not installed.", remedy=f"Run `{install(extra)}`.")
