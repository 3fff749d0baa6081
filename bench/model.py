"""Measure how well models read submissions, resist manipulation and compare (`make bench-model`).

See docs/quality.md. Every answer is stored in var/model/answers.jsonl, so that a later run continues. The parts are in
order of importance. `--judges` runs only the bench of judges on those endpoints, and prints its highest cost first.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.quality import judging, leading, rounds
from bench.quality.answers import KeptAnswers, append, read_lines, results
from bench.quality.reading import before, evidence_first, one_feature, question, read_one, schema_for
from bench.quality.truth import Submission, submissions

from clara_eval.config.settings import Settings
from clara_eval.judge.port import ConnectedLlm
from clara_eval.judge.provider import build_llm, parse_jury, price_cards
from clara_eval.judge.providers.local import LocalLlm

MODEL = "qwen2.5-coder-1.5b"
FOLDER = Path("var/model")
PAGE_DATA = Path("docs/quality.jsonl.gz")
PAIRS, WHOLE_PAIRS = 60, 60
INPUT_TOKENS, OUTPUT_TOKENS = {"facts": 420, "text": 800}, 60
"""Tokens per question to a judge, for the estimate of the cost."""
LED = {"honest": leading.honest, "injection": leading.injections, "trick": leading.tricks}
Step = tuple[tuple[str, str, str], Callable[[], Awaitable[list[dict[str, Any]]]]]
PARTS = (
    "base=60", "before:unseen=28", "honest=4", "injection=30", "trick=10", "round=4", "evidence=12", "unstated=12",
    "neutral=12", "single=8", "facts=30", "four=8", "text=17", "facts=60", "four=30", "text=60",
)  # fmt: skip
"""Parts that run on the local model, with their number of items."""


def spread(half: str, count: int) -> list[Submission]:
    """Return so many submissions, taking the tasks in turn."""
    chosen = [one for one in submissions().values() if half in ("", one.half)]
    place = {one.name: [o.name for o in chosen if o.task == one.task].index(one.name) for one in chosen}
    return sorted(chosen, key=lambda one: place[one.name])[:count]


def steps(reader: KeptAnswers, llm: ConnectedLlm, parts: Sequence[str]) -> Iterator[Step]:
    for part in parts:
        name, _, number = part.partition("=")
        (variant, _, half), count = name.partition(":"), int(number)
        if variant in ("facts", "text", "four"):
            yield from judge_steps(reader, {variant: count})
        elif variant in LED:
            for one in LED[variant]()[:count]:
                yield (variant, "whole", one.name), partial(led, reader, variant, one)
        elif variant == "round":
            for held in rounds.rounds()[:count]:
                yield ("round", reader.name, held.name), partial(whole, llm, held)
        else:
            for one in spread(half, count):
                yield ("read", variant, one.name), partial(read, reader, variant, one)


def judge_steps(judge: KeptAnswers, counts: dict[str, int]) -> Iterator[Step]:
    for variant in ("facts", "text"):
        for pair in judging.pairs()[: counts.get(variant, 0)]:
            key = ("judge", f"{judge.name} {variant}", pair.name)
            yield key, partial(compared, judge, pair, is_whole=variant == "text")
    for group in judging.groups()[: counts.get("four", 0)]:
        yield ("four", judge.name, " ".join(group)), partial(ordered, judge, group)


async def read(reader: KeptAnswers, variant: str, one: Submission) -> list[dict[str, Any]]:
    schema = schema_for(one)
    if variant == "single":
        return [await alone(reader, one, feature.name) for feature in schema.features]
    asked = question(one, schema, view="neutral" if variant == "neutral" else "full", stated=variant != "unstated")
    if asked is None:
        return []
    if variant == "evidence":
        asked = evidence_first(asked, schema)
    elif variant == "before":
        asked = before(asked)
    return [await read_one(reader, "read", variant, one, asked, schema)]


async def alone(reader: KeptAnswers, one: Submission, name: str) -> dict[str, Any]:
    schema = one_feature(schema_for(one), name)
    asked = question(one, schema)
    assert asked is not None
    return await read_one(reader, "read", f"single {name}", one, asked, schema)


async def led(reader: KeptAnswers, part: str, one: Submission) -> list[dict[str, Any]]:
    return [await leading.read_whole(reader, part, one)]


async def compared(judge: KeptAnswers, pair: judging.Pair, *, is_whole: bool) -> list[dict[str, Any]]:
    return [await judging.compare(judge, pair, whole=is_whole)]


async def ordered(judge: KeptAnswers, group: tuple[str, ...]) -> list[dict[str, Any]]:
    return [await judging.order(judge, group)]


async def whole(llm: ConnectedLlm, held: rounds.WholeRound) -> list[dict[str, Any]]:
    out = FOLDER / "rounds" / held.name.partition(" ")[0]
    return [await rounds.hold(held, llm, out)]


async def run(waiting: Iterator[Step], file: Path) -> None:
    done = results(read_lines(file))
    for key, work in waiting:
        if key in done or (key[1] == "single" and ("read", "single works", key[2]) in done):
            continue
        begun = time.monotonic()
        append(file, *await work())
        print(f"{time.monotonic() - begun:6.1f} s  {' | '.join(key)}", file=sys.stderr, flush=True)


@asynccontextmanager
async def opened(llm: ConnectedLlm) -> AsyncIterator[ConnectedLlm]:
    try:
        yield llm
    finally:
        await llm.close()


def cost_sentence(names: str, settings: Settings) -> str:
    """Return how many calls the bench makes to these judges, and what they may cost."""
    calls = {"facts": 2 * PAIRS + 7 * judging.GROUPS, "text": 2 * WHOLE_PAIRS}
    cards = price_cards(settings, parse_jury(names))
    sentences = []
    for name, card in cards.items():
        spent = sum(n * card.price(INPUT_TOKENS[k], OUTPUT_TOKENS) for k, n in calls.items()) if card else 0
        price = f"about ${spent / 1e6:.2f}" if card else "price unknown"
        sentences.append(f"{name}: {sum(calls.values())} calls, {price}")
    return "; ".join(sentences)


async def ask_judges(names: str, file: Path) -> None:
    for name in parse_jury(names):
        async with opened(build_llm(name, Settings.from_env())) as llm:
            counts = {"facts": PAIRS, "text": WHOLE_PAIRS, "four": judging.GROUPS}
            await run(judge_steps(KeptAnswers(name.text, file, llm), counts), file)


async def ask_local(parts: Sequence[str], file: Path) -> None:
    async with opened(LocalLlm(MODEL, reuse_prefix=True)) as llm:
        reader = KeptAnswers(llm.name, file, llm)
        await run(steps(reader, llm, parts), file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help="PART[:HALF]=COUNT; all by default")
    parser.add_argument("--judges", default="", help="as in CLARA_JUDGES: only the judge's bench, on these")
    parser.add_argument("--yes", action="store_true", help="spend what the estimate says")
    asked = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / "answers.jsonl"
    if not file.exists() and PAGE_DATA.exists():
        file.write_bytes(gzip.decompress(PAGE_DATA.read_bytes()))
    if asked.judges:
        print(cost_sentence(asked.judges, Settings.from_env()), file=sys.stderr)
        if not asked.yes:
            print("Nothing was asked. Say YES=1 (--yes) to spend that.", file=sys.stderr)
            return 1
    asyncio.run(ask_judges(asked.judges, file) if asked.judges else ask_local(asked.parts, file))
    PAGE_DATA.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
