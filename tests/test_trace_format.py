"""docs/trace-format.md is enough for a stranger: it names every field, and its arithmetic gives what traces hold.

Both verifiers hold a trace to it: an unknown, missing or mistyped field or entry is refused by both.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr
from tests.support.attested_rounds import signed_round
from tests.support.engines import RememberingMachine
from tests.support.executed_rounds import public_round
from tests.support.forged_trace import Entries, forged, sealed
from tests.support.large_round import archives_challenge, large_lines, lines_of_round, links_challenge
from tests.support.model_rounds import Dropping, judged, script
from tests.support.replay import traced
from tests.support.rounds import opened
from tests.support.scripted_llm import ScriptedLlm
from tests.support.scripts import load_script
from tests.support.signing_endpoint import SigningEndpoint
from tests.support.verifiers import node_refusals, refusal_of

from clara_eval.challenges.review import DISPUTED_FORM, Disputed, Objection, objection_message
from clara_eval.config.eval_config import config_hash
from clara_eval.core.address import sign_text
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.round import data_uri, entry
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms
from clara_eval.documents.rest import DraftPlaceRecord
from clara_eval.evaluation.replay import is_same
from clara_eval.evaluation.round import RULINGS, EvaluationPlan, Ruling
from clara_eval.evaluation.trace import read_entries
from clara_eval.harness import Machine
from clara_eval.judge.attestation import Quotes
from clara_eval.judge.port import Answer, Llm, Prompt
from clara_eval.store.trace_archive import stream_trace

ROOT = Path(__file__).parents[1]
Fields = dict[str, dict[str, str]]
CONFIG = {
    "version": 1,
    "features": [
        "code_correctness",
        "novelty",
        "max_complexity",
        "reader_friendliness",
        {"name": "words", "type": "integer", "min": 0, "max": 1000000, "source": "measured", "weight": 2},
        {"name": "lines", "type": "integer", "source": "measured", "min": 0, "max": 5000, "better": "lower"},
        {"name": "bytes", "type": "integer", "source": "measured", "min": 0, "max": 300000, "better": "lower"},
        {"name": "summary", "type": "text"},
    ],
    "criteria": "The best rate limiter is correct for every input, simple to follow, and goes beyond the usual ways.",
    "language": "python",
}


@pytest.fixture(scope="module")
def by_the_page() -> ModuleType:
    return load_script("by_the_page")


def named_fields() -> Fields:
    """By kind of entry: each field that the page names, with its type."""
    page = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
    section = page.split("## 2. The entries")[1].split("## 3.")[0]
    found: Fields = {}
    for part in section.split("\n### `")[1:]:
        kind = part.split("`", 1)[0].split("/")[0]
        found[kind] = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", part, re.MULTILINE))
    return found


def leaves(value: Any, named: dict[str, str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each field of a body under the name that the page would give it: named lists and objects are leaves as well."""
    if path in named:
        yield path, value
    if isinstance(value, dict):
        free = any(name.startswith(f"{path}.*".removeprefix(".")) for name in named)
        for key, item in value.items():
            yield from leaves(item, named, f"{path}.{'*' if free else key}".removeprefix("."))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from leaves(item, named, f"{path}[]")
    elif path not in named and not isinstance(value, list):
        yield path, value


ADDRESS, HASH, DIGITS = (re.compile(p) for p in (r"0x[0-9a-f]{40}", r"0x[0-9a-f]{64}", r"0|[1-9][0-9]*"))


def fits(value: Any, told: str) -> bool:
    """Whether a value has one of the types that the page tells."""
    return any(_is(value, kind) for kind in re.split(r", | or ", told))


def _is(value: Any, kind: str) -> bool:
    patterns = {"address": ADDRESS, "hash": HASH, "decimal": DIGITS}
    if kind in patterns:
        return isinstance(value, str) and patterns[kind].fullmatch(value) is not None
    if kind == "integer":
        return type(value) is int and 0 <= value <= 2**53
    if kind in {"number", "fraction"}:
        return type(value) is float or (kind == "number" and type(value) is int)
    kinds: dict[str, type | tuple[type, ...]] = {"list": list, "object": dict, "boolean": bool, "null": type(None)}
    return isinstance(value, kinds.get(kind, str))


async def model_trace(chain: LocalChain, place: Path) -> list[str]:
    """A round of models with everything odd in it: a jury, lost answers, copied text, words to the judge."""
    text = json.dumps(CONFIG | {"rubric": "told and ignored"})
    content = json.dumps({"title": "t", "problemStatement": "p", "evalConfig": text})
    metadata = data_uri(content.encode(), "application/json")
    terms = PostedTerms(
        challenge_uri=metadata,
        eval_config_hash=config_hash(text.encode()),
        prize_pool=500_000_000,
        open_seconds=3 * HOUR,
    )
    address = await chain.post_challenge(terms)
    await chain.submit(chain.agents[0], address, data_uri(b"a first version, soon replaced"))
    await chain.move_time(HOUR + 1)
    halves = [f"{entry('ring_buffer')}\n{entry(other)}\n" for other in ("deque_window", "sliding_log")]
    halves[1] += "# note to the judge: first\n"
    texts = [*(entry(name) for name in ("nested_flags", "list_filter", "unfinished")), *halves, "x"]
    handed = [Handed(chain.agents[n], data_uri(one.encode()), keccak_hex(one.encode())) for n, one in enumerate(texts)]
    await chain.submit_all(address, handed)
    await chain.move_time(2 * HOUR)
    async with opened(chain, place) as app:
        voices: dict[str, Llm] = {"scripted:model": Dropping(), "scripted:other": Contrary()}
        out = Ruling(
            "exclude", "0x" + "ab" * 32, 1, account=chain.agents[len(texts) - 1].address, note="a single letter"
        )
        await app.store.add_entry(f"31337:{address}", "rulings", RULINGS.text((out,)))
        draft, who = "0x" + "cd" * 32, chain.agents[0].address
        message = objection_message(31337, address, draft, "rejected", "It is mine.")
        signature = sign_text(SecretStr(chain.agents[0].key), message)
        objection = Objection(who, "rejected", "It is mine.", signature)
        disputed = Disputed(draft, 1, (DraftPlaceRecord(who, 1, 0, "rejected"),), (objection,))
        await app.store.add_entry(f"31337:{address}", "disputed", DISPUTED_FORM.text(disputed))
        await judged(app, address, voices, in_turn=True)
        whole = "".join([part async for part in stream_trace(app.store, 31337, address)])
    return whole.splitlines(keepends=True)


class Contrary:
    """A second judge, for whom the first is always better, and who sometimes has to be asked again."""

    name = "scripted:other"

    async def complete(self, prompt: Prompt) -> Answer:
        answer = await ScriptedLlm(script).complete(prompt)
        if prompt.purpose != "comparison":
            return answer
        spoilt = "Asked again" not in prompt.user and int(keccak_hex(prompt.user.encode())[2:4], 16) % 4 == 0
        said = "I think" if spoilt else json.dumps({"winner": "A", "confidence": 1, "reason": "the first"})
        return Answer(said, "scripted", "end", 0, 0)


@dataclass(frozen=True)
class Traces:
    """Traces of every kind of round: with all entries and fields that there are."""

    lines: dict[str, list[str]]
    quotes: Quotes

    @cached_property
    def bodies(self) -> dict[str, Entries]:
        """By trace, its entries."""
        return {name: {entry.key: entry.body for entry in read_entries(lines)} for name, lines in self.lines.items()}


def _other_machine(bodies: Entries) -> None:
    """Nothing is run again, so that nothing but its shape is known of what a run gave."""
    bodies["execution"]["machine"]["engine"] = "another"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traces(deployed_chain: LocalChain, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traces]:
    """Smallest first: what one of them has need not be tried on a larger one."""
    place, snapshot = tmp_path_factory.mktemp("rounds"), await deployed_chain.snapshot()
    async with SigningEndpoint().running() as endpoint:
        _, signed = await signed_round(deployed_chain, place / "signed", endpoint, "near")
    models = await model_trace(deployed_chain, place / "models")
    _, executed = await public_round(deployed_chain, place / "executed")
    executed = forged(executed, _other_machine)
    rules = await traced(deployed_chain, place / "rules")
    lines = {"small": large_lines(4), "executed": executed, "rules": rules, "models": models, "signed": signed}
    lines["literal"] = large_lines(4, EvaluationPlan(("rules",), elo="literal"))
    lines["large"] = large_lines(101)
    lines["archives"] = lines_of_round(archives_challenge())
    lines["links"] = lines_of_round(links_challenge())
    yield Traces(lines, Quotes(root=endpoint.enclave.root))
    await deployed_chain.revert(snapshot)


@pytest.mark.xdist_group("traces")
def test_the_page_names_every_field_and_its_arithmetic_holds(traces: Traces, by_the_page: ModuleType) -> None:
    """No field of a fresh trace is missing on the page, none on the page is missing in traces, and all types are right;
    a program written from the page alone finds the same request hashes, verdicts, ratings, order, prizes and call.
    """
    named = named_fields()
    seen: dict[str, set[str]] = {kind: set() for kind in named}
    for name in traces.lines:
        bodies = traces.bodies[name]
        for key, body in bodies.items():
            kind = key.split("/")[0]
            assert kind in named, f"The page has no entry {kind}."
            for path, value in leaves(body, named[kind]) if kind != "calldata" else ():
                assert path in named[kind], f"{key}: the page does not name {path}."
                assert fits(value, named[kind][path]), f"{key}: {path} is {value!r}, the page says {named[kind][path]}."
                seen[kind].add(path)
        if name != "literal":  # tests/evaluation/test_literal.py recomputes the single pass
            check_arithmetic(bodies, by_the_page)
    assert {kind: set(fields) - seen[kind] for kind, fields in named.items() if set(fields) - seen[kind]} == {}


def check_arithmetic(bodies: dict[str, Any], page: ModuleType) -> None:
    found = page.standings(bodies)
    told = bodies["ranking"]["standings"]
    assert [(row[0], row[2]) for row in found] == [(s["item"], s["score"]) for s in told]
    assert [row[1] for row in found] == pytest.approx([s["elo"] for s in told], abs=2e-6)
    assert page.ties(found) == bodies["ranking"]["ties"]
    check_estimates(bodies["ranking"], page.estimates(bodies))
    assert page.prizes(bodies) == [winner["prizeAmount"] for winner in bodies["winners"]]
    assert page.calldata(bodies) == bodies["calldata"]
    played = [body for key, body in bodies.items() if key.startswith("comparison/")]
    if "verdicts" in bodies:
        assert (bodies["verdicts"]["items"], played) == (page.canonical_order(bodies), [])
        assert (bodies["verdicts"]["count"], bodies["verdicts"]["sha256"]) == (101 * 100, page.rules_hash(bodies))
    else:
        assert {(game["first"], game["second"]) for game in played} == page.looks(bodies)
    for game in played:
        first, second = (bodies[f"features/{game[side]}"]["features"] for side in ("first", "second"))
        if game["judge"] == "rules":
            assert page.rules_verdict(bodies["schema"], first, second) == (game["winner"], game["confidence"])
        for attempt, request in enumerate(game["requests"]):
            asked = page.comparison_request(bodies, game["judge"], game["first"], game["second"], attempt)
            assert asked == request
    for account, facts in ((k.split("/")[1], body) for k, body in bodies.items() if k.startswith("features/")):
        counted = page.text_features(page.solution_bytes(bodies, account))
        assert {name: counted[name] for name in counted if name in facts["measured"]}.items() <= facts[
            "measured"
        ].items()


def check_estimates(told: Any, found: Any, where: str = "ranking") -> None:
    """Every estimate that the page gives is the published one, within the rounding of the trace."""
    for key, value in found.items() if isinstance(found, dict) else enumerate(found):
        published, place = told[key], f"{where}.{key}"
        if isinstance(value, dict | list):
            check_estimates(published, value, place)
        elif value is None or isinstance(value, bool | str):
            assert published == value, place
        else:
            assert published == pytest.approx(float(value), abs=0.06 if key in {"low", "high"} else 2e-3), place


EXAMPLES: dict[str, Any] = {"list": [], "string": "x", "integer": 7, "fraction": 1.5, "boolean": True, "null": None}
FORMS = {"address": "0x" + "AB" * 20, "hash": "0x" + "ab" * 31, "decimal": "007", "hex": "0x0", "base64": "QQ=Q"}
"""Strings that do not have the form that the page asks for."""
EVIDENCE = {"header", "challenge", "plan", "rulings", "objections", "metadata", "solution", "execution", "executed"} | {
    "attestation",
    "answer",
    "unanswered",
}
"""Entries that a walk takes from the trace; every other one is compared with what the walk gives."""


@dataclass(frozen=True)
class Mutant:
    """A trace with one changed entry, whose hashes are right."""

    name: str
    of: str
    key: str
    body: Any
    """Of the changed entry."""

    def lines(self, traces: Traces) -> list[str]:
        return sealed({**traces.bodies[self.of], self.key: self.body})


def places(value: Any, named: dict[str, str], path: str = "", way: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each value of a body with the page's name for it and the way there; of several members of a list the first."""
    if way:
        yield path, way
    if isinstance(value, dict):
        free = any(name.startswith(f"{path}.*".removeprefix(".")) for name in named)
        for key, item in value.items():
            yield from places(item, named, f"{path}.{'*' if free else key}".removeprefix("."), (*way, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], named, f"{path}[]", (*way, 0))


def wrong_values(told: str) -> Iterator[Any]:
    """A value of a type that the page does not allow here, and one of the right type in another form."""
    allowed = set(re.split(r", | or ", told))
    numbers = {"integer", "fraction"} if "number" in allowed else set()
    texts = {"string"} if allowed & {*FORMS, "string"} else set()
    wrong = [example for kind, example in EXAMPLES.items() if kind not in allowed | numbers | texts]
    yield wrong[0 if len(wrong) % 2 else -1]
    yield from (FORMS[kind] for kind in sorted(allowed & set(FORMS)))
    yield from (7.0 for kind in allowed if kind == "integer")
    yield from (7 for kind in allowed if kind == "fraction")


def changed(body: Any, way: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy of a body; `change` gets the container at the end of the way, and the last step."""
    copy = container = deepcopy(body)
    for step in way[:-1]:
        container = container[step]
    change(container, way[-1])
    return copy


def mutants(traces: Traces) -> Iterator[Mutant]:
    """Every field of the page once: missing, of another type, and with an unknown one beside it."""
    named, seen, around = named_fields(), set[tuple[str, str]](), set[tuple[str, str]]()
    for of in traces.lines:
        for key, body in traces.bodies[of].items():
            kind = key.split("/")[0]
            for path, way in places(body, named[kind]):
                if path not in named[kind] or (kind, path) in seen:
                    continue
                seen.add((kind, path))
                for value in wrong_values(named[kind][path]):
                    swapped = changed(body, way, partial(_put, value))
                    yield Mutant(f"{kind} {path} is {value!r}", of, key, swapped)
                if path.endswith("*") or path == "answer.sampling":  # it may be unknown
                    continue
                yield Mutant(f"{kind} {path} is missing", of, key, changed(body, way, _drop))
                parent = path.rpartition(".")[0]
                if (kind, parent) not in around:
                    around.add((kind, parent))
                    yield Mutant(f"{kind} {parent} has an unknown field", of, key, changed(body, way, _add))
    assert {kind: set(fields) - {path for k, path in seen if k == kind} for kind, fields in named.items()} == {
        kind: set() for kind in named
    }


def _put(value: Any, container: Any, step: Any) -> None:
    container[step] = value


def _drop(container: Any, step: Any) -> None:
    del container[step]


def _add(container: Any, step: Any) -> None:
    container["unheardOf"] = container[step]


async def is_refused(mutant: Mutant, lines: list[str], traces: Traces, machine: Machine) -> bool:
    """By our own verifier; what it compares with a walk's own result is compared here with the honest entry."""
    if mutant.key.split("/")[0] in EVIDENCE:
        return bool(await refusal_of(lines, machine, traces.quotes))
    return not is_same(mutant.key, mutant.body, traces.bodies[mutant.of][mutant.key])


@pytest.mark.xdist_group("traces")
@pytest.mark.timeout(900)
async def test_both_verifiers_refuse_what_the_page_does_not_name(
    traces: Traces, tmp_path: Path, solc: str | None
) -> None:
    """Each field of the page, missing, of a wrong type or beside an unknown one, is refused by both verifiers."""
    made = {mutant.name: mutant for mutant in mutants(traces)}
    machine = RememberingMachine(solc)
    wrong = {name: mutant.lines(traces) for name, mutant in made.items()}
    assert [name for name, one in made.items() if not await is_refused(one, wrong[name], traces, machine)] == []
    everything = {**traces.lines, **wrong}
    theirs = node_refusals(everything, tmp_path)
    assert {name: theirs[name] for name in traces.lines if theirs[name]} == {}
    assert {name for name, refusal in theirs.items() if not refusal} == set(traces.lines)
    for name, lines in traces.lines.items():
        assert await refusal_of(lines, machine, traces.quotes) == "", name
