"""Equal records: items that nothing but luck could tell apart, and the order among them.

Two items are equal if they have the same points from opponents who are equal again: the coarsest split of the field in
which members of a class have the same points and met each class equally often. Only integers are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum

import numpy as np

from clara_eval.core.flags import Flag
from clara_eval.ranking.results import Floats, Ints
from clara_eval.ranking.tally import Tally


def equal_records(table: Tally) -> Ints:
    """The class of each item, numbered from 0."""
    size, met = table.size, table.met
    gained = np.bincount(table.first, table.half_points, size) + np.bincount(table.second, 2 - table.half_points, size)
    classes: Ints = np.unique(gained, return_inverse=True)[1].astype(np.int64)
    if np.all(met + met[:1, 1:2] * np.eye(size) == met[:1, 1:2]):
        return classes  # every two met equally often: the split is as fine as it gets
    while True:
        members = classes[:, None] == np.arange(classes.max(initial=-1) + 1)
        rows = np.column_stack((classes, met @ members))  # counts far below 2^53: every sum is exact
        finer: Ints = np.unique(rows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
        if finer.max(initial=-1) == classes.max(initial=-1):
            return classes
        classes = finer


def level(ratings: Floats, classes: Ints, decimals: int) -> Floats:
    """Give every member of a class the exact mean of its ratings, rounded."""
    members: dict[int, list[int]] = {}
    for item, number in enumerate(classes.tolist()):
        members.setdefault(number, []).append(item)
    evened = ratings.copy()
    for group in members.values():
        if len(group) > 1:
            evened[group] = round(fsum(ratings[group].tolist()) / len(group), decimals)
    return evened


def in_order(
    items: Sequence[str],
    ratings: Floats,
    arrival: Mapping[str, int],
    *,
    by_name: bool,
    among: Iterable[int] | None = None,
) -> list[int]:
    """Indices, best first; among equals the earlier, then the lower name or else the lower index."""
    latest = max(arrival.values(), default=0) + 1
    return sorted(
        range(len(items)) if among is None else among,
        key=lambda i: (-ratings[i], arrival.get(items[i], latest), items[i] if by_name else "", i),
    )


def tied_places(order: Sequence[int], ratings: Floats) -> list[list[int]]:
    """The items that share a rating with another, group by group, best first."""
    groups: dict[float, list[int]] = {}
    for i in order:
        groups.setdefault(float(ratings[i]), []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def tie_flags(
    items: Sequence[str], order: Sequence[int], ratings: Floats, payout_bps: Sequence[int], arrival: Mapping[str, int]
) -> Iterator[Flag]:
    """One flag for each tie that decides about money."""
    prize = dict(zip(order, payout_bps, strict=False))
    for group in tied_places(order, ratings):
        if len({prize.get(i, 0) for i in group}) == 1:
            continue
        paid, unpaid = [items[i] for i in group if prize.get(i)], [items[i] for i in group if not prize.get(i)]
        names = _listed([items[i] for i in group])
        why = "because among equals the lower name comes first"
        if any(items[i] in arrival for i in group):
            why = "because among equals the earlier submission comes first, then the lower address"
        if unpaid:
            verb = "are" if len(paid) > 1 else "is"
            told = f"A tie at the pay line: {names} have equal records. {_listed(paid)} {verb} paid and "
            yield Flag("tie_at_pay_line", "warn", f"{told}{_listed(unpaid)} not, {why}.")
        else:
            told = f"{names} have equal records and take their prizes in this order, {why}."
            yield Flag("tie_for_prize", "warn", told)


def _listed(names: Sequence[str], most: int = 6) -> str:
    shown = [*names[:most], f"{len(names) - most} others"] if len(names) > most + 1 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
