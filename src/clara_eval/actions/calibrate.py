"""Measure judges against human labels, or by asking part of a verified trace again."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Literal

from clara_eval.actions.verify import open_chain_of
from clara_eval.app import open_jury
from clara_eval.challenges.public_documents import keep_calibration
from clara_eval.challenges.replay import Checked
from clara_eval.config.eval_config import EvalConfig, FeatureSchema, compile_schema, parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, Temporary
from clara_eval.core.strict_json import json_rows
from clara_eval.core.tasks import gather_or_raise
from clara_eval.evaluation.play import Comparison, RuledComparisons, compared
from clara_eval.judge import calibration_gate as gate
from clara_eval.judge.comparison import Decision, JudgeVector, ModelJudge, RulesJudge, comparison_prompt, make_vector
from clara_eval.judge.costs.budgets import estimated_tokens
from clara_eval.judge.provider import parse_jury, price_cards
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.ranking import Result, rank, tally
from clara_eval.store.sql_store import PublicKeys

LEAST_LABELS = gate.LEAST_LABELS
Calibration = gate.Calibration
Measured = gate.Measured
Side = Literal["first", "second", "tie"]
SIDES: tuple[Side, ...] = ("first", "second", "tie")
MAX_LABELS = 100_000
Z = 1.959964  # 97.5 % quantile of the normal distribution, for 95 % intervals
_STRAIGHT: dict[str, Side] = {"A": "first", "B": "second", "tie": "tie"}
_SWAPPED: dict[str, Side] = {"A": "second", "B": "first", "tie": "tie"}
_SIGN: dict[Side | None, int] = {"first": 1, "second": -1, "tie": 0}
ANSWER_TOKENS = 150  # output tokens per comparison, assumed for the cost estimate


@dataclass(frozen=True, slots=True)
class Label:
    first: JudgeVector
    second: JudgeVector
    winner: Side
    lengths: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Labels:
    config: EvalConfig
    schema: FeatureSchema
    pairs: tuple[Label, ...]

    @property
    def work(self) -> str:
        return gate.work_hash(self.config, self.schema)


def read_labels(text: str) -> Labels:
    rows = list(islice(json_rows("the labels", text), MAX_LABELS + 1))
    if not rows:
        raise BadInput("The labels are empty.", remedy='Begin with {"evalConfig": …}, then one pair per line.')
    if len(rows) > MAX_LABELS:
        raise BadInput(f"There are more than {MAX_LABELS} lines.", remedy="Draw a sample.")
    given = rows[0][1].get("evalConfig")
    if not isinstance(given, dict | str):
        raise BadInput(
            "The first line of the labels holds no evalConfig.", remedy='Begin with {"evalConfig": {…the config…}}.'
        )
    config = parse_eval_config((given if isinstance(given, str) else json.dumps(given)).encode())
    schema, untyped = compile_schema(config)
    if untyped:
        raise BadInput(
            f"The config leaves the type of {', '.join(untyped)} to a model, so vectors cannot be read.",
            remedy="Type every feature; `clara-eval config rehearse --write` does it.",
        )
    pairs = tuple(_parse_label(number, row, schema) for number, row in rows[1:])
    if not pairs:
        raise BadInput("The labels hold no pair.", remedy="Add lines with first, second and winner.")
    return Labels(config, schema, pairs)


def _parse_label(number: int, body: dict[str, object], schema: FeatureSchema) -> Label:
    winner, lengths = body.get("winner"), body.get("lengths")
    if winner not in SIDES:
        raise _bad_line(number, f"winner is {winner!r}, not first, second or tie")
    vectors = []
    for side in SIDES[:2]:
        values = body.get(side)
        if not isinstance(values, dict):
            raise _bad_line(number, f"{side} is not an object of feature values")
        if unknown := sorted(set(values) - {feature.name for feature in schema.features}):
            raise _bad_line(number, f"{side} has the feature {unknown[0]!r}, which the config does not name")
        try:
            vectors.append(make_vector(schema, values))
        except BadInput as bad:
            raise _bad_line(number, f"{side}: {bad.message}") from None
    if lengths is None:
        return Label(vectors[0], vectors[1], winner, None)
    if not isinstance(lengths, list) or len(lengths) != 2 or any(type(n) not in (int, float) or n < 0 for n in lengths):
        raise _bad_line(number, "lengths is not a list of two non-negative numbers")
    return Label(vectors[0], vectors[1], winner, (float(lengths[0]), float(lengths[1])))


def _bad_line(number: int, reason: str) -> BadInput:
    return BadInput(f"Line {number} of the labels cannot be used: {reason}.", remedy="Correct or remove that line.")


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """People's verdict on a pair, and the judge's in both orders; None if it gave none."""

    human: Side
    shown_first: Side | None  # the verdict when `first` was shown first
    shown_second: Side | None  # the verdict when `first` was shown second
    lengths: tuple[float, float] | None = None

    @property
    def verdict(self) -> Side | None:
        """Return the side that both orders name, else a tie; None if an order has no verdict."""
        if self.shown_first is None or self.shown_second is None:
            return None
        return self.shown_first if self.shown_first == self.shown_second else "tie"

    @property
    def longer(self) -> int:
        """Return 1 if the first side is longer, -1 if the second is, 0 if equal or unknown."""
        first, second = self.lengths or (0, 0)
        return (first > second) - (first < second)


def measure(judge: str, prompt: str, work: str, pairs: Sequence[JudgedPair], floor: float = gate.FLOOR) -> Calibration:
    decided = [pair for pair in pairs if pair.verdict is not None]
    clear = [pair for pair in decided if pair.verdict != "tie" and pair.human != "tie"]
    leads = [(pair.human, *_leader(pair.shown_first or "tie", pair.shown_second or "tie")) for pair in decided]
    # For each verdict that names a side: its probability in the model of a round, and whether people disagree.
    judged = [(chance, human not in {better, "tie"}) for human, better, chance in leads if chance > 0.5]
    return Calibration(
        judge,
        prompt,
        work,
        len(pairs),
        len(pairs) - len(decided),
        proportion(sum(pair.verdict == pair.human for pair in decided), len(decided)),
        max(Counter(pair.human for pair in pairs).values(), default=0) / max(1, len(pairs)),
        _kappa(decided),
        proportion(sum(pair.verdict == pair.human for pair in clear), len(clear)),
        mean([(_SIGN[pair.shown_first] - _SIGN[pair.shown_second]) / 2 for pair in decided]),
        mean([(_SIGN[pair.verdict] - _SIGN[pair.human]) * pair.longer / 2 for pair in decided if pair.longer]),
        gate.guarantee(judged, len(pairs), round(1 - floor, 6)),
    )


@cache
def _leader(shown_first: Side, shown_second: Side) -> tuple[str, float]:
    """Return the side that leads after these two verdicts, and the probability that it is better."""
    swapped: dict[Side, Side] = {"first": "second", "second": "first", "tie": "tie"}
    games = [Result("first", "second", shown_first), Result("second", "first", swapped[shown_second])]
    margin = rank(tally(("first", "second"), games), seed=b"", winner_count=1).margin
    return margin.item, margin.probability


def proportion(hits: int, count: int) -> Measured:
    if not count:
        return Measured(None, None, None, 0)
    low, high = wilson(hits, count)
    return Measured(round(hits / count, 6), round(low, 6), round(high, 6), count)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a proportion."""
    share = hits / count
    middle = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean(values: Sequence[float]) -> Measured:
    """Return the mean with a 95 % normal interval, at least 1/n wide on either side."""
    count = len(values)
    if count < 2:
        return Measured(values[0] if values else None, None, None, count)
    middle = math.fsum(values) / count
    variance = math.fsum((value - middle) ** 2 for value in values) / (count - 1)
    half = max(Z * math.sqrt(variance / count), 1 / count)
    return Measured(round(middle, 6), round(middle - half, 6), round(middle + half, 6), count)


def _kappa(decided: Sequence[JudgedPair]) -> float | None:
    """Return Cohen's kappa; None if chance alone would always agree."""
    count = len(decided)
    if not count:
        return None
    judge, human = Counter(pair.verdict for pair in decided), Counter(pair.human for pair in decided)
    chance = math.fsum(judge[side] * human[side] for side in SIDES) / (count * count)
    agreed = sum(pair.verdict == pair.human for pair in decided) / count
    return None if chance == 1 else round((agreed - chance) / (1 - chance), 6)


async def calibrate_labels(text: str, settings: Settings, judges: str) -> list[tuple[Calibration, str | None]]:
    """Return each judge's agreement with people, and why it may not post alone; None if it may."""
    labels = read_labels(text)
    async with open_jury(settings, judges) as (askers, store):
        floor = settings.calibration_floor
        found = await calibrate(labels, askers, store, settings.network.chain_id, floor)
    return [(one, gate.why_not_alone((one.judge,), (one,), "known", floor)) for one in found]


async def calibrate(
    labels: Labels,
    askers: Mapping[str, StructuredLlm | None],
    store: PublicKeys,
    chain_id: int,
    floor: float = gate.FLOOR,
) -> list[Calibration]:
    """Calibrate each judge and store the result; an asker of None means rules."""
    found = []
    for name, asker in askers.items():
        pairs = await judge_pairs(_make_judge(asker, labels.config, labels.schema), labels.pairs)
        calibration = measure(name, gate.prompt_hash(), labels.work, pairs, floor)
        await keep_calibration(store, chain_id, calibration)
        found.append(calibration)
    return found


def _make_judge(asker: StructuredLlm | None, config: EvalConfig, schema: FeatureSchema) -> ModelJudge | RulesJudge:
    return RulesJudge(schema) if asker is None else ModelJudge(asker, config.criteria, schema)


async def judge_pairs(judge: ModelJudge | RulesJudge, labels: Sequence[Label]) -> list[JudgedPair]:
    async def judge_pair(label: Label) -> JudgedPair:
        straight = (await _compare_or_raise(judge, label.first, label.second)).value
        swapped = (await _compare_or_raise(judge, label.second, label.first)).value
        shown_first = _STRAIGHT[straight.winner] if straight else None
        return JudgedPair(label.winner, shown_first, _SWAPPED[swapped.winner] if swapped else None, label.lengths)

    return list(await gather_or_raise(judge_pair(label) for label in labels))


async def _compare_or_raise(judge: ModelJudge | RulesJudge, first: JudgeVector, second: JudgeVector) -> Decision:
    decision = await judge.compare(first, second)
    if decision.outage:
        raise Temporary(f"{judge.name} did not answer: {decision.reason}", remedy="Ask again: paid answers are kept.")
    return decision


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated cost; `micro_usd` is None if the judge has no known price."""

    judge: str
    calls: int
    micro_usd: int | None


@dataclass(frozen=True, slots=True)
class Rejudged:
    judge: str
    seed: str  # the hash of the block after the post
    block_number: int
    decided: int  # comparisons of the trace with a verdict, from which the sample is drawn
    drawn: int
    unanswered: int
    otherwise: tuple[Comparison, ...]  # recorded comparisons that the judge now decides differently
    disagreement: Measured  # their share, with a 95 % interval for the whole round
    cost: CostEstimate


def draw(seed: str, count: int, wanted: int) -> list[int]:
    """Draw distinct numbers below `count`, by a shuffle from SHA-256 of the seed and a counter."""
    numbers = list(range(count))
    for place in range(min(wanted, count)):
        digest = hashlib.sha256(bytes.fromhex(seed.removeprefix("0x")) + place.to_bytes(8)).digest()
        other = place + int.from_bytes(digest) % (count - place)
        numbers[place], numbers[other] = numbers[other], numbers[place]
    return numbers[:wanted]


async def rejudge(
    checked: Checked,
    settings: Settings,
    *,
    judge: str,
    wanted: int,
    rpc: str | None,
    on_estimate: Callable[[CostEstimate], None],
) -> Rejudged:
    """Ask `wanted` comparisons again; `on_estimate` receives the cost first and may raise to stop."""
    if rpc is None or checked.posted is None:
        raise BadInput(
            "What is asked again is drawn by the block after the post.", path="rpc", remedy="Give --rpc URL."
        )
    number = checked.posted.block_number + 1
    async with open_chain_of(checked.challenge.chain_id, settings, rpc) as chain:
        seed = (await chain.blocks.block_at(number)).hash
    games = checked.result.comparisons
    # Comparisons by rules are computed on access and always have a verdict: do not compute all of them here.
    is_ruled = isinstance(games, RuledComparisons)
    decided = range(len(games)) if is_ruled else [place for place, one in enumerate(games) if one.winner is not None]
    chosen = [games[decided[place]] for place in draw(seed, len(decided), wanted)]
    cost = _estimate_cost(checked, settings, judge, chosen)
    on_estimate(cost)
    async with open_jury(settings, judge) as (askers, _store):
        asked = _make_judge(askers[judge], checked.result.given.config, checked.result.schema)
        decisions = await gather_or_raise(_compare_or_raise(asked, *_vectors(checked, one)) for one in chosen)
    winners = [compared(before.pairing, after).winner for before, after in zip(chosen, decisions, strict=True)]
    answered = [(before, winner) for before, winner in zip(chosen, winners, strict=True) if winner is not None]
    otherwise = tuple(before for before, winner in answered if before.winner != winner)
    return Rejudged(
        judge, seed, number, len(decided), len(chosen), len(chosen) - len(answered), otherwise,
        proportion(len(otherwise), len(answered)), cost,
    )  # fmt: skip


def _vectors(checked: Checked, one: Comparison) -> tuple[JudgeVector, JudgeVector]:
    facts = checked.result.features
    return facts[Address(one.first)].vector, facts[Address(one.second)].vector


def _estimate_cost(checked: Checked, settings: Settings, judge: str, chosen: list[Comparison]) -> CostEstimate:
    (named,) = parse_jury(judge)
    card = price_cards(settings, [named]).get(named.text)
    if named.text == "rules":
        return CostEstimate(judge, 0, 0)
    criteria, schema = checked.result.given.config.criteria, checked.result.schema
    prompts = [comparison_prompt(criteria, schema, *_vectors(checked, one)) for one in chosen]
    counts = [estimated_tokens(prompt.system + prompt.user) for prompt in prompts]
    cost = None if card is None else sum(card.price(count, ANSWER_TOKENS) for count in counts)
    return CostEstimate(judge, len(prompts), cost)
