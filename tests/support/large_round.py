"""A challenge with as many entries as asked for, without a chain: for what has to hold, and be fast, in large fields.

In: a number of entries and a seed. Out: the `Challenge`, and the evidence of its round in the form of a trace, from
which `TraceSources` walks it. Every entry is a program of its own: functions, branches and words are drawn anew for
each, so that none is a copy of another. The same seed gives the same bytes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from io import BytesIO
from typing import Any

from clara_eval.chain.model import Block, Challenge, ChallengeStatus, PrizeToken
from clara_eval.challenges.venue import ChallengeVenue, round_of
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.hashing import keccak_hex, sha256_hex
from clara_eval.core.model import Submission
from clara_eval.devnet.demo.round import CONFIG, PROBLEM, TITLE, data_uri
from clara_eval.evaluation.result import Entry, EvaluationResult, entries
from clara_eval.evaluation.round import EvaluationPlan, Round, Stage
from clara_eval.evaluation.run import evaluate_round
from clara_eval.evaluation.sources import Received, TraceSources
from clara_eval.evaluation.trace import TraceWriter, render
from clara_eval.submissions.model import Fetched, read_data_uri

PLAN_BY_RULES = EvaluationPlan(("rules",))
CONFIG_BY_MODELS = {
    **{key: value for key, value in CONFIG.items() if key != "judge"},
    "features": [
        "novelty",
        "code_readability",
        {"name": "clients", "type": "integer", "min": 0, "max": 100_000, "better": "higher"},
    ],
}
START = 1_800_000_000
_WORDS = tuple(
    re.findall(
        r"\w+",
        """
        window bucket event limit quota burst rate clock tick store shard queue entry slot cost share token lease key
        age count total spare floor ceiling drift delay step group client tenant peer batch frame probe sample weight
        """,
    )
)
_CALLS = ("len", "max", "min", "sum", "sorted", "abs", "round", "int", "float", "list", "tuple", "set", "any", "all")


def no_listener(stage: Stage, done: int, total: int) -> None:
    """Ignore the progress of a run."""


def large_challenge(count: int, seed: int = 1, *, by_models: bool = False) -> Challenge:
    """A closed challenge whose submissions are `data:` URIs; nobody has posted scores."""
    config = json.dumps(CONFIG_BY_MODELS if by_models else CONFIG)
    deadline = START + count + 60
    return Challenge(
        chain_id=31337,
        address=_address(f"challenge {seed}"),
        block=Block(count + 10, sha256_hex(f"block {seed}".encode()), deadline + 1),
        poster=_address("poster"),
        evaluator=_address("evaluator"),
        token=PrizeToken(_address("token"), "USDC", 6),
        prize_pool=500_000_000,
        poster_bond=0,
        deadline=deadline,
        scoring_deadline=deadline + 7 * 86_400,
        challenge_uri=build_metadata(title=TITLE, problem_statement=PROBLEM, skills=("python",), config_text=config),
        eval_config_hash=config_hash(config.encode()),
        private_set_hash="0x" + "0" * 64,
        winner_count=3,
        payout_bps=(6000, 2500, 1500),
        identity_registry=_address("registry"),
        max_participants=0,
        status=ChallengeStatus.SCORING,
        submission_count=count,
        score_posted_at=0,
        submissions=tuple(sorted((_submission(number, seed) for number in range(count)), key=lambda s: s.submitter)),
        read_at=Block(count + 400, sha256_hex(f"later {seed}".encode()), deadline + 900),
    )


def _packed(number: int, kind: str) -> bytes:
    """An archive of a few files, among them a program, prose and a binary."""
    files = {f"work/part_{n}.py": program(10 * number + n).encode() for n in range(1 + number % 3)}
    files |= {"work/README.md": f"# Work {number}\n\nWhat it does.\r\n".encode(), "work/logo.png": b"\x89PNG\x00"}
    out = BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, body in files.items():
                archive.writestr(name, body)
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, body in {**files, "work/" + "long/" * 8 + "ä" * 90 + ".txt": b"A long name.\n"}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, BytesIO(body))
    return out.getvalue()


def archives_challenge() -> Challenge:
    """Five archives, by rules over their text and code; the last one is cut off."""
    packed = [_packed(n, "zip" if n % 2 else "tar") for n in range(4)] + [_packed(4, "zip")[:-30]]
    return _handed_in(packed, {**CONFIG, "features": _lower("lines", "words", "bytes", "max_complexity")})


def answers_challenge() -> Challenge:
    """Short answers in JSON, and two that are none."""
    answers = [
        b'{"answer": 42}',
        b"42",
        b"This is no JSON.",
        b'{"answers": [{"value": 1}, 2]}',
        b"[" * 65 + b"1]",
    ]
    features = _lower("lines", "words", "json_keys", "json_depth")
    config = {key: value for key, value in CONFIG.items() if key != "language"}
    return _handed_in(answers, {**config, "features": features, "submissionFormat": "json"})


def links_challenge() -> Challenge:
    """URLs, one of which leads nowhere, and one entry that is none."""
    sent = [*(b" https://works.example/%d\n" % n for n in range(3)), b"https://works.example/none", b"Words, no URL."]
    features = _lower("lines", "words", "bytes", "max_complexity")
    return _handed_in(sent, {**CONFIG, "features": features, "submissionFormat": "url"})


def _behind(sent: bytes) -> dict[str, object]:
    """What a URL of `links_challenge` leads to, as a trace has it."""
    found = re.fullmatch(rb"\s*https://works.example/(\w+)\s*", sent)
    if found is None:
        return {}
    if not found[1].isdigit():
        return {"linked": to_camel_json(Received(None, code="not_found", reason="Nothing is there."))}
    return {"linked": to_camel_json(Received.of(Fetched(program(int(found[1])).encode(), "", immutable=False)))}


def _lower(*names: str) -> list[dict[str, str]]:
    return [{"name": one, "better": "lower"} for one in names]


def _handed_in(contents: list[bytes], config: dict[str, Any]) -> Challenge:
    challenge, text = large_challenge(len(contents)), json.dumps(config)
    submissions = [
        replace(
            one,
            solution_uri="data:application/octet-stream;base64," + base64.b64encode(content).decode(),
            solution_hash=keccak_hex(content),
        )
        for one, content in zip(challenge.submissions, contents, strict=True)
    ]
    uri = build_metadata(title=TITLE, problem_statement=PROBLEM, skills=("python",), config_text=text)
    return replace(
        challenge, submissions=tuple(submissions), challenge_uri=uri, eval_config_hash=config_hash(text.encode())
    )


def evidence_of(challenge: Challenge) -> dict[str, Any]:
    """What a trace of this round holds of the world: the metadata and every submission as it came."""
    metadata = Received.of(read_data_uri(challenge.challenge_uri, len(challenge.challenge_uri)))
    found: dict[str, Any] = {"metadata": {"content": metadata.content}, "rulings": []}
    for submission in challenge.submissions:
        came = read_data_uri(submission.solution_uri, len(submission.solution_uri))
        received = to_camel_json(Received.of(came))
        found[f"solution/{submission.submitter}"] = {"received": received, **_behind(came.content)}
    return found


def round_of_large(challenge: Challenge) -> Round:
    return round_of(challenge, read_data_uri(challenge.challenge_uri, len(challenge.challenge_uri)).content)


async def run_large(challenge: Challenge, plan: EvaluationPlan = PLAN_BY_RULES) -> EvaluationResult:
    """The round run by rules, from its own evidence."""
    sources = TraceSources(evidence_of(challenge))
    return await evaluate_round(round_of_large(challenge), plan, sources, no_listener)


def trace_entries(challenge: Challenge, plan: EvaluationPlan, result: EvaluationResult) -> Iterator[Entry]:
    """Every entry of the trace of this challenge."""
    return entries(plan, result, ChallengeVenue(challenge, result.given).records(result))


@cache
def large_lines(count: int, plan: EvaluationPlan = PLAN_BY_RULES) -> list[str]:
    """The lines of its trace file."""
    return lines_of_round(large_challenge(count), plan)


def lines_of_round(challenge: Challenge, plan: EvaluationPlan = PLAN_BY_RULES) -> list[str]:
    with ThreadPoolExecutor(1) as pool:  # a loop of its own, whoever asks
        walked = pool.submit(asyncio.run, run_large(challenge, plan)).result()
    writer = TraceWriter()
    lines = [writer.line(key, body) for key, body in trace_entries(challenge, plan, walked)]
    return "".join(render(lines, writer.digest)).splitlines(keepends=True)


def program(number: int, seed: int = 1) -> str:
    """Python source of some fifty lines, unlike any other number's."""
    rng = random.Random(seed * 1_000_003 + number)
    parts = [f'"""{" ".join(rng.sample(_WORDS, 5)).capitalize()}."""', "", "from __future__ import annotations", ""]
    for place in range(rng.randint(2, 4)):
        parts += ["", *_function(rng, f"{rng.choice(_WORDS)}_{rng.choice(_WORDS)}_{place}"), ""]
    for place in range(rng.randint(0, 4)):
        name, call, word = rng.choice(_WORDS), rng.choice(_CALLS), rng.choice(_WORDS)
        parts += ["", f"def test_{name}_{place}():", f"    assert {call}([{rng.randint(1, 99)}]), {word!r}", ""]
    return "\n".join(parts)


def _function(rng: random.Random, name: str) -> list[str]:
    arguments = rng.sample(_WORDS, rng.randint(1, 4))
    lines = [f"def {name}({', '.join(arguments)}):"]
    if rng.random() < 0.5:
        lines.append(f'    """{" ".join(rng.sample(_WORDS, 4)).capitalize()}."""')
    known = list(arguments)
    for _ in range(rng.randint(2, 6)):
        lines += ["    " + line for line in _statement(rng, known, 0)]
    return [*lines, f"    return {_value(rng, known, 2)}"]


def _statement(rng: random.Random, known: list[str], depth: int) -> list[str]:
    kind = rng.choice(("set", "set", "add", "if", "for", "while", "raise") if depth < 3 else ("set", "add"))
    if kind == "set":
        name = rng.choice(_WORDS)
        line = f"{name} = {_value(rng, known, 3)}"
        known.append(name)
        return [line]
    if kind == "add":
        return [f"{rng.choice(known)} {rng.choice(('+=', '-=', '*='))} {_value(rng, known, 2)}"]
    if kind == "raise":
        word, bound = rng.choice(_WORDS), rng.randint(1, 999)
        return [f"if {rng.choice(known)} > {bound}:", f'    raise ValueError("{word} above {bound}")']
    inner = [line for _ in range(rng.randint(1, 3)) for line in _statement(rng, known, depth + 1)]
    heads = {
        "if": f"if {_value(rng, known, 1)} {rng.choice(('<', '>', '==', '>=', '!='))} {_value(rng, known, 2)}:",
        "for": f"for {rng.choice(_WORDS)} in range({_value(rng, known, 1)}):",
        "while": f"while {rng.choice(known)} < {rng.randint(2, 500)}:",
    }
    return [heads[kind], *("    " + line for line in inner)]


def _value(rng: random.Random, known: list[str], depth: int) -> str:
    kind = rng.randint(0, 5) if depth else rng.randint(0, 1)
    if kind == 0:
        return str(rng.randint(0, 9999))
    if kind == 1:
        return rng.choice(known)
    if kind == 2:
        return f"{rng.choice(_CALLS)}({_value(rng, known, depth - 1)})"
    if kind == 3:
        return f"[{_value(rng, known, depth - 1)}, {_value(rng, known, depth - 1)}]"
    return f"({_value(rng, known, depth - 1)} {rng.choice('+-*/%')} {_value(rng, known, depth - 1)})"


def _submission(number: int, seed: int) -> Submission:
    content = program(number, seed).encode()
    return Submission(
        submitter=_address(f"agent {seed} {number}"),
        agent_id=number + 1,
        solution_uri=data_uri(content),
        solution_hash=keccak_hex(content),
        submitted_at=START + number,
        version=1,
    )


def _address(name: str) -> Address:
    return to_address(keccak_hex(name.encode())[:42])
