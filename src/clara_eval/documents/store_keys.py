"""The keys of the public documents in the store of a network; addresses are lower case."""

from __future__ import annotations

from collections.abc import Callable

INDEX = "challenge-index:"
REVIEWS = "review-index:"
TRACE_URIS = "trace-uri:"  # Prefix for challenges whose trace also has a URI outside this store

KeyOfOne = Callable[[str], str]
KeyOfTwo = Callable[[str, str], str]

status_key: KeyOfOne = "challenges:{}:eval-status".format
scores_key: KeyOfOne = "challenges:{}:scores".format
trace_key: KeyOfOne = "challenges:{}:eval-trace".format
review_key: KeyOfOne = "challenges:{}:review".format
draft_key: KeyOfOne = "challenges:{}:draft".format
"""A result that is announced before it is posted, open to objections."""
provisional_key: KeyOfOne = "challenges:{}:provisional".format
"""What tools measured of the entries of an open challenge."""
harness_key: KeyOfOne = "challenges:{}:harness".format  # A hidden harness, once its poster has revealed it
public_harness_key: KeyOfOne = "challenge-harness:{}".format
"""The source of a public harness, apart from the summary, which lists of challenges read whole."""
verdicts_key: KeyOfOne = "challenges:{}:verdicts".format
"""The basis of all comparisons of a large round by rules, which has no pairwise keys."""
features_key: KeyOfTwo = "challenges:{}:features:{}".format  # by submitter; an empty one gives the prefix of all
pairwise_key: Callable[[str, str, str], str] = "challenges:{}:pairwise:{}:{}".format
kept_key: KeyOfTwo = "kept-result:{}:{}".format
"""By digest and key: a signed document, kept when its challenge is read again. Empty key: prefix."""
trace_uri_key: KeyOfOne = (TRACE_URIS + "{}").format
index_key: KeyOfOne = (INDEX + "{}").format
result_key: KeyOfOne = "round-result:{}".format
created_key: KeyOfOne = "challenge-created:{}".format
claims_key: KeyOfOne = "challenge-claims:{}".format
calibration_key: Callable[[str, str, str], str] = "calibration:{}:{}:{}".format
"""By judge, prompt and kind of work; an empty kind gives the prefix of all."""
entry_key: Callable[[int | str, str], str] = "agent-entry:{}:{}".format
"""By agent and challenge; an empty challenge gives the prefix of all entries of the agent."""
