"""The keys of the public documents in the store, for each network; addresses are lower case."""

from __future__ import annotations

from collections.abc import Callable

INDEX = "challenge-index:"
REVIEWS = "review-index:"
TRACE_URIS = "trace-uri:"  # Before the address of every challenge whose trace has an address that outlives this store

KeyOfOne = Callable[[str], str]
KeyOfTwo = Callable[[str, str], str]

status_key: KeyOfOne = "challenges:{}:eval-status".format
scores_key: KeyOfOne = "challenges:{}:scores".format
trace_key: KeyOfOne = "challenges:{}:eval-trace".format
review_key: KeyOfOne = "challenges:{}:review".format
draft_key: KeyOfOne = "challenges:{}:draft".format
"""A result that is announced before it is posted, open for objections."""
provisional_key: KeyOfOne = "challenges:{}:provisional".format
"""What tools measured of the entries of an open challenge."""
harness_key: KeyOfOne = "challenges:{}:harness".format  # A hidden harness, once its poster has revealed it
public_harness_key: KeyOfOne = "challenge-harness:{}".format
"""The source of a harness that is public from the start; apart from the summary, which lists read whole."""
verdicts_key: KeyOfOne = "challenges:{}:verdicts".format
"""From what is here, and the features, every comparison of a large round by rules follows; its pairs have no keys."""
features_key: KeyOfTwo = "challenges:{}:features:{}".format
"""Of a submitter; with an empty one: what the keys of all of them begin with."""
pairwise_key: Callable[[str, str, str], str] = "challenges:{}:pairwise:{}:{}".format
kept_key: KeyOfTwo = "kept-result:{}:{}".format
"""Of a digest and a key, whose document was signed before its challenge was read anew; no key: all of a digest."""
trace_uri_key: KeyOfOne = (TRACE_URIS + "{}").format
index_key: KeyOfOne = (INDEX + "{}").format
result_key: KeyOfOne = "round-result:{}".format
created_key: KeyOfOne = "challenge-created:{}".format
claims_key: KeyOfOne = "challenge-claims:{}".format
calibration_key: Callable[[str, str, str], str] = "calibration:{}:{}:{}".format
"""Of a judge, a prompt and a kind of work; with an empty one: what the keys of all of them begin with."""
entry_key: Callable[[int | str, str], str] = "agent-entry:{}:{}".format
"""Of an agent and a challenge; with no address: what all entries of an agent begin with."""
