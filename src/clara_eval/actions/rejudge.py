"""Ask some comparisons of a verified trace again, drawn by the hash of the block after the post."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clara_eval.actions.calibrate import proportion
from clara_eval.actions.verify import open_chain_of
from clara_eval.app import open_jury
from clara_eval.challenges.replay import Checked
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, Temporary
from clara_eval.core.gather import gather_or_raise
from clara_eval.evaluation.play import Comparison, compared
from clara_eval.evaluation.ruled import RuledComparisons
from clara_eval.judge import Judge, ModelJudge, RulesJudge
from clara_eval.judge.calibration_gate import Measured
from clara_eval.judge.comparison import comparison_prompt
from clara_eval.judge.costs.prices import Tokens, estimated_tokens
from clara_eval.judge.providers.registry import parse_jury, price_cards

ANSWER_TOKENS = 150


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The expected cost; `micro_usd` is None if the judge has no known price."""

    judge: str
    calls: int
    micro_usd: int | None


@dataclass(frozen=True, slots=True)
class Rejudged:
    judge: str
    seed: str
    """The hash of the block after the post."""
    block_number: int
    decided: int
    """Comparisons of the trace that have a verdict: from these it was drawn."""
    drawn: int
    unanswered: int
    otherwise: tuple[Comparison, ...]
    """As recorded, where the judge now decides otherwise."""
    disagreement: Measured
    """The share that comes out otherwise, with a 95 % interval for all comparisons of the round."""
    cost: Foreseen


def draw(seed: str, count: int, wanted: int) -> list[int]:
    """Draw different numbers below `count`: a shuffle by SHA-256 over the seed and a counter."""
    moved: dict[int, int] = {}
    chosen: list[int] = []
    for place in range(min(wanted, count)):
        digest = hashlib.sha256(bytes.fromhex(seed.removeprefix("0x")) + place.to_bytes(8)).digest()
        other = place + int.from_bytes(digest) % (count - place)
        chosen.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return chosen


async def rejudge(
    checked: Checked,
    settings: Settings,
    *,
    judge: str,
    wanted: int,
    rpc: str | None,
    foreseen: Callable[[Foreseen], None],
) -> Rejudged:
    """Ask `wanted` comparisons again; `foreseen` gets the cost first and may raise to stop."""
    if rpc is None or checked.posted is None:
        raise BadInput(
            "What is asked again is drawn by the block after the post.", path="rpc", remedy="Give --rpc URL."
        )
    number = checked.posted.block_number + 1
    async with open_chain_of(checked.challenge.chain_id, settings, rpc) as chain:
        seed = (await chain.blocks.block_at(number)).hash
    decided = decided_numbers(checked.result.comparisons)
    chosen = [checked.result.comparisons[decided[place]] for place in draw(seed, len(decided), wanted)]
    cost = _foresee(checked, settings, judge, chosen)
    foreseen(cost)
    async with open_jury(settings, judge) as (askers, _store):
        asker = askers[judge]
        criteria, schema = checked.result.given.config.criteria, checked.result.schema
        found: Judge = RulesJudge(schema) if asker is None else ModelJudge(asker, criteria, schema)
        again = await gather_or_raise(_again(checked, found, one) for one in chosen)
    answered = [(before, after) for before, after in zip(chosen, again, strict=True) if after.winner is not None]
    otherwise = tuple(before for before, after in answered if before.winner != after.winner)
    return Rejudged(
        judge, seed, number, len(decided), len(chosen), len(chosen) - len(answered), otherwise,
        proportion(len(otherwise), len(answered)), cost,
    )  # fmt: skip


def decided_numbers(comparisons: Sequence[Comparison]) -> Sequence[int]:
    """Which comparisons have a verdict; a large round by rules has one for each, made when asked for."""
    if isinstance(comparisons, RuledComparisons):
        return range(len(comparisons))
    return [number for number, one in enumerate(comparisons) if one.winner is not None]


async def _again(checked: Checked, judge: Judge, one: Comparison) -> Comparison:
    first, second = (checked.result.features[account].vector for account in _pair(one))
    decision = await judge.compare(first, second)
    if decision.outage:
        raise Temporary(f"{judge.name} did not answer: {decision.reason}", remedy="Ask again: paid answers are kept.")
    return compared(one.pairing, decision)


def _pair(one: Comparison) -> tuple[Address, Address]:
    return Address(one.first), Address(one.second)


def _foresee(checked: Checked, settings: Settings, judge: str, chosen: list[Comparison]) -> Foreseen:
    (named,) = parse_jury(judge)
    card = price_cards(settings, [named]).get(named.text)
    if named.text == "rules":
        return Foreseen(judge, 0, 0)
    criteria, schema = checked.result.given.config.criteria, checked.result.schema
    prompts = [
        comparison_prompt(criteria, schema, *(checked.result.features[a].vector for a in _pair(one))) for one in chosen
    ]
    counts = [estimated_tokens(prompt.system + prompt.user) for prompt in prompts]
    cost = None if card is None else sum(card.cost(Tokens(count, ANSWER_TOKENS)) for count in counts)
    return Foreseen(judge, len(prompts), cost)
