"""Who stands equal: entries whose records say the same, whatever luck the sampled permutations had.

In comes a `Tally`; out goes a class number for each item. Two items are equal if they have the same points from
opponents who are equal again: the coarsest split of the field in which members of a class have the same points and have
met each class equally often. Where everybody met everybody equally often this is "the same points"; where the schedule
chose, it also asks against whom. Equal items have the same Bradley–Terry strength whatever the scale, so nothing but
luck could tell them apart. Only integers are compared: the classes are the same on every machine.

Members of a class get the same rating. Who is first among equals: the earlier submission, then the lower address (the
order of the items where neither is known). Where that moves money it is said in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum

import numpy as np

from clara_eval.core.flags import Flag
from clara_eval.ranking.strength import one_thread
from clara_eval.ranking.tally import Floats, Ints, Tally


def equal_records(table: Tally) -> Ints:
    """The class of each item, numbered from 0."""
    size = table.size
    gained = np.bincount(table.first, table.half_points, size) + np.bincount(table.second, 2 - table.half_points, size)
    met = np.bincount(table.first * size + table.second, minlength=size * size).reshape(size, size)
    met = (met + met.T).astype(np.float64)  # counts far below 2^53: every sum is exact
    classes: Ints = np.unique(gained, return_inverse=True)[1].astype(np.int64)
    if np.all(met + met[:1, 1:2] * np.eye(size) == met[:1, 1:2]):
        return classes  # everybody met everybody equally often: the split is as fine as it gets
    fresh = np.arange(int(classes.max(initial=-1)) + 1)
    while len(fresh) and int(classes.max()) + 1 < size:
        with one_thread():
            against = met @ (classes[:, None] == fresh).astype(np.float64)
        before = classes
        rows = np.column_stack((classes, against))
        classes = np.unique(rows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
        fresh = _parts(before, classes)
    return classes


def _parts(before: Ints, classes: Ints) -> Ints:
    """The classes that are only a part of one before: against all others everybody has been counted already."""
    number, first = np.unique(classes, return_index=True)
    origin = before[first]
    parts: Ints = number[np.bincount(origin)[origin] > 1]
    return parts


def level(ratings: Floats, classes: Ints, decimals: int) -> Floats:
    """The same rating for every member of a class: the exact mean, rounded."""
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
        shares = [prize.get(i, 0) for i in group]
        if len(set(shares)) == 1:
            continue
        unpaid = [items[i] for i, share in zip(group, shares, strict=True) if not share]
        paid = [items[i] for i, share in zip(group, shares, strict=True) if share]
        names = _listed([items[i] for i in group])
        why = _why([items[i] for i in group], arrival)
        if unpaid:
            sentence = f"A tie at the pay line: {names} have equal records. {_listed(paid)} is paid and "
            sentence = sentence.replace(" is paid", " are paid") if len(paid) > 1 else sentence
            yield Flag("tie_at_pay_line", "warn", f"{sentence}{_listed(unpaid)} not, {why}.")
        else:
            yield Flag(
                "tie_for_prize", "warn", f"{names} have equal records and take their prizes in this order, {why}."
            )


def _why(tied: Sequence[str], arrival: Mapping[str, int]) -> str:
    if any(item in arrival for item in tied):
        return "because among equals the earlier submission comes first, then the lower address"
    return "because among equals the lower name comes first"


def _listed(names: Sequence[str], most: int = 6) -> str:
    shown = [*names[:most], f"{len(names) - most} others"] if len(names) > most + 1 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
