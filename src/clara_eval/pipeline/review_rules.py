"""What a person must look at before money moves.

In: the challenge and its walk. Out: remarks; those of severity `review` hold the post until somebody approves. The
contract takes no post back, so doubt about a paid place, or about who is just below it, waits; doubt about the others
is told and does not wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from clara_eval.challenge.model import Address, Challenge
from clara_eval.features.features import Features
from clara_eval.pipeline.remarks import Remark
from clara_eval.ranking.rank import Ranking
from clara_eval.solutions import Cluster, Rejected
from clara_eval.tournament.play import Comparison
from clara_eval.winners import Placed

UNDECIDED_WARN, UNDECIDED_REVIEW = 0.0, 0.05
"""Shares of games without a verdict: any is told, more than one in twenty waits for a person."""


def remarks(
    challenge: Challenge,
    ranking: Ranking | None,
    placed: Sequence[Placed],
    rejected: Sequence[Rejected],
    clusters: Sequence[Cluster],
    features: Mapping[Address, Features],
    comparisons: Sequence[Comparison],
) -> tuple[Remark, ...]:
    """All remarks about one walk, in a fixed order."""
    near_money = {place.account for place in placed[: challenge.winner_count + 1]}
    paid = {place.account for place in placed[: challenge.winner_count]}
    found = [
        *_paid_rejections(rejected, paid),
        *_contested(clusters, near_money),
        *_feature_flags(features, near_money),
        *_undecided(comparisons),
    ]
    if ranking is not None:
        found += [Remark(flag.code, flag.sentence, flag.severity) for flag in ranking.flags]
    return tuple(found)


def _paid_rejections(rejected: Sequence[Rejected], paid: set[Address]) -> Iterator[Remark]:
    for refused in rejected:
        account = refused.submission.submitter
        if account in paid:
            yield Remark(
                "paid_rejection",
                f"{account} stands on a paid place although its submission was rejected ({refused.code}): there are "
                "fewer judged submissions than winners, and the contract wants exactly winnerCount.",
                "review",
                account,
            )


def _contested(clusters: Sequence[Cluster], near_money: set[Address]) -> Iterator[Remark]:
    for cluster in clusters:
        account = cluster.original.submission.submitter
        if cluster.contested and account in near_money:
            yield Remark(
                "contested_copy",
                f"{account} counts as the original of a copied work, but the copy came in the same second or was "
                "resubmitted later, and may be the older one.",
                "review",
                account,
            )


def _feature_flags(features: Mapping[Address, Features], near_money: set[Address]) -> Iterator[Remark]:
    for account, facts in sorted(features.items()):
        for flag in facts.flags:
            severity: Literal["warn", "review"] = (
                "review" if account in near_money and flag.severity == "review" else "warn"
            )
            yield Remark(flag.code, f"{account}: {flag.sentence}", severity, account)


def _undecided(comparisons: Sequence[Comparison]) -> Iterator[Remark]:
    missing = sum(comparison.winner is None for comparison in comparisons)
    if not missing:
        return
    share = missing / len(comparisons)
    yield Remark(
        "undecided",
        f"{missing} of {len(comparisons)} games ({100 * share:.1f} %) have no verdict; they count for nobody.",
        "review" if share > UNDECIDED_REVIEW else "warn",
    )
