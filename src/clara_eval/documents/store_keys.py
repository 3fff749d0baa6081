"""The keys of the public documents in the store, for each network; addresses are lower case."""

from __future__ import annotations

INDEX = "challenge-index:"
REVIEWS = "review-index:"
RESULTS = "round-result:"
ENTRIES = "agent-entry:"
CREATED = "challenge-created:"
CLAIMS = "challenge-claims:"
TRACE_URIS = "trace-uri:"
"""Before the address of every challenge whose trace has an address that outlives this store."""


def status_key(address: str) -> str:
    return f"challenges:{address}:eval-status"


def features_key(address: str, submitter: str) -> str:
    """With no submitter: what the keys of all of them begin with."""
    return f"challenges:{address}:features:{submitter}"


def pairwise_key(address: str, first: str, second: str) -> str:
    return f"challenges:{address}:pairwise:{first}:{second}"


def verdicts_key(address: str) -> str:
    """From what is here, and the features, every game of a large round by rules follows; its pairs have no keys."""
    return f"challenges:{address}:verdicts"


def scores_key(address: str) -> str:
    return f"challenges:{address}:scores"


def trace_key(address: str) -> str:
    return f"challenges:{address}:eval-trace"


def plots_key(address: str) -> str:
    return f"challenges:{address}:plots"


def review_key(address: str) -> str:
    return f"challenges:{address}:review"


def draft_key(address: str) -> str:
    """A result that is announced before it is posted, open for objections."""
    return f"challenges:{address}:draft"


def harness_key(address: str) -> str:
    """A hidden harness, once its poster has revealed it."""
    return f"challenges:{address}:harness"


def kept_key(digest: str, key: str) -> str:
    """A document of a result that was signed before its challenge was read anew; no key: what they all begin with."""
    return f"kept-result:{digest}:{key}"


def trace_uri_key(address: str) -> str:
    return f"{TRACE_URIS}{address}"


def index_key(address: str) -> str:
    return f"{INDEX}{address}"


def result_key(address: str) -> str:
    return RESULTS + address


def entry_key(agent_id: int | str, address: str) -> str:
    """With no address: what all entries of an agent begin with."""
    return f"{ENTRIES}{agent_id}:{address}"


def created_key(address: str) -> str:
    return CREATED + address


def claims_key(address: str) -> str:
    return CLAIMS + address
