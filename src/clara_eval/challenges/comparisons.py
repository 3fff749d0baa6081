"""Read the comparisons of a round for a few entries at a time.

A large round by rules stores none: each is made again from one document and the features of the two entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from math import comb

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.documents.results import (
    Document,
    Features,
    Pairwise,
    Played,
    Values,
    read,
)
from clara_eval.documents.store_keys import features_key, pairwise_key, verdicts_key
from clara_eval.evaluation.play import compared, votes_document
from clara_eval.judge.comparison import JudgeVector
from clara_eval.judge.rules import RulesJudge
from clara_eval.ranking import Pairing
from clara_eval.store.sql_store import PublicKeys


class Verdicts(Document):
    """`verdicts`: the schema and the entries of a large round by rules, in canonical order."""

    judge: str
    schedule: str
    count: int
    sha256: str
    items: list[str]
    features: list[dict[str, object]]
    """The schema."""

    def comparison(self, first: str, second: str, facts: Mapping[str, Features]) -> Pairwise | None:
        """The comparison of these two, from their facts; None if they were not compared in this order."""
        if not {first, second} <= facts.keys() & set(self.items) or first == second:
            return None
        places = self.items.index(first), self.items.index(second)
        if not is_shown(self.schedule, len(self.items), self.count, *places):
            return None
        schema = FeatureSchema.from_json({"features": self.features})
        shown = [
            JudgeVector(tuple((f.name, facts[account].features[f.name]) for f in schema.judged))
            for account in (first, second)
        ]
        decision = RulesJudge(schema).decide(*shown)
        return Pairwise.model_validate(votes_document([compared(Pairing(first, second, self.judge), decision)]))


async def comparisons_among(keys: PublicKeys, chain_id: int, address: str, accounts: Sequence[str]) -> Played:
    """Every comparison in which both sides are of these accounts."""
    if (ruled := await read(keys, chain_id, Verdicts, verdicts_key(address))) is not None:
        return await _ruled(keys, chain_id, address, ruled, list(permutations(accounts, 2)))
    wanted, found = set(accounts), Played()
    for first in accounts:
        start = pairwise_key(address, first, "")
        for key, value in await keys.items(chain_id, start):
            if (second := key.removeprefix(start)) in wanted:
                found[first, second] = Pairwise.model_validate_json(value)
    return found


async def comparisons_of(values: Values, chain_id: int, address: str, account: str, rivals: Sequence[str]) -> Played:
    """The comparisons of one account against these rivals, in both orders."""
    asked = [pair for rival in rivals for pair in ((account, rival), (rival, account))]
    if (ruled := await read(values, chain_id, Verdicts, verdicts_key(address))) is not None:
        return await _ruled(values, chain_id, address, ruled, asked)
    found = {pair: await read(values, chain_id, Pairwise, pairwise_key(address, *pair)) for pair in asked}
    return {pair: comparison for pair, comparison in found.items() if comparison is not None}


async def read_comparison(values: Values, chain_id: int, address: str, first: str, second: str) -> Pairwise | None:
    """The comparison in which the first was shown first."""
    return (await comparisons_of(values, chain_id, address, first, [second])).get((first, second))


async def _ruled(
    values: Values, chain_id: int, address: str, ruled: Verdicts, asked: Sequence[tuple[str, str]]
) -> Played:
    accounts = dict.fromkeys(account for pair in asked for account in pair)
    read_facts = {a: await read(values, chain_id, Features, features_key(address, a)) for a in accounts}
    facts = {account: found for account, found in read_facts.items() if found is not None}
    made = {pair: ruled.comparison(*pair, facts) for pair in asked}
    return {pair: comparison for pair, comparison in made.items() if comparison is not None}


def is_shown(schedule: str, size: int, count: int, first: int, second: int) -> bool:
    """Whether a look at these two, in this order, is among the first `count` of `full` or `both`."""
    low, high = min(first, second), max(first, second)
    place = low * size - low * (low + 1) // 2 + high - low - 1
    is_balanced = (first == low) == bool((low + high) % 2)
    if not is_balanced and schedule != "both":
        return False
    return place + (0 if is_balanced else comb(size, 2)) < count
