"""Posters and agents on a local chain: settings for one of them, a config, and solutions that differ.

For tests, transcripts and trying things out: each account gets its own settings with its own public development key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from clara_eval.config.settings import Settings
from clara_eval.devnet.anvil import DevAccount
from clara_eval.devnet.local_chain import LocalChain


def _number(name: str, low: int, high: int, better: str) -> dict[str, object]:
    return {"name": name, "type": "integer", "min": low, "max": high, "better": better, "source": "measured"}


RULES_CONFIG = json.dumps(
    {
        "version": 1,
        "judge": "rules",
        "criteria": "Prefer solutions that parse and have many short, simple functions with useful comments.",
        "features": [
            {"name": "parses", "type": "boolean", "better": "higher", "weight": 3, "source": "measured"},
            _number("functions", 0, 10, "higher"),
            _number("max_complexity", 1, 20, "lower"),
        ],
        "submissionFormat": "code",
        "language": "python",
    }
)
"""A config that is judged without any model: free, deterministic."""

GOOD_SOLUTION = '''"""Sorts numbers."""


def smallest(values):
    return min(values)


def sort(values):
    rest, done = list(values), []
    while rest:
        done.append(smallest(rest))
        rest.remove(done[-1])
    return done
'''
POOR_SOLUTION = """def sort(v):
    for i in range(len(v)):
        for j in range(len(v)):
            if i < j and v[i] > v[j] or i > j and v[i] < v[j]:
                if v[i] != v[j]:
                    v[i], v[j] = v[j], v[i]
    return v
"""


def agent_environment(chain: LocalChain, account: DevAccount | None, database: Path) -> dict[str, str]:
    """The environment of one agent's server; without an account it has no wallet."""
    found = {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
        "CLARA_FROM_BLOCK": str(chain.deployment.from_block),
        "CLARA_USDC": chain.deployment.token,
        "CLARA_EVALUATOR_ADDRESS": chain.evaluator.address,
        "CLARA_DATABASE_URL": f"sqlite:///{database}",
        "CLARA_WALLET_LIMIT_USD": "2000",
    }
    return found | ({"CLARA_WALLET_KEY": account.key} if account else {})


def agent_settings(
    chain: LocalChain, account: DevAccount | None, database: Path, changed: Mapping[str, str] | None = None
) -> Settings:
    """The same as settings, with single values changed."""
    return Settings.from_env(agent_environment(chain, account, database) | dict(changed or {}))
