"""Both verifiers give the same answer about every spelling of a trace: one is right, and they refuse all others."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.large_round import (
    PLAN_BY_RULES,
    answers_challenge,
    archives_challenge,
    large_challenge,
    large_lines,
    run_large,
    trace_entries,
)
from tests.support.verifiers import node_refusals, refusal_of

from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.core.version import RULES
from clara_eval.devnet.demo.round import CONFIG, PROBLEM, TITLE
from clara_eval.evaluation.trace import OPENING, START, Approval, Notes, read_entries, render

Spell = Callable[[str], str]
"""From the right text of an entry to another one."""
HUGE = "9" * 100_000
DIGITS = re.compile(r'"seq":(\d+)')


def document(spell: dict[str, Spell] | None = None, *, of: list[tuple[str, Any]] | None = None) -> str:
    """The trace with some entries spelled otherwise, every hash being that of the bytes as they stand."""
    previous, lines = START, []
    for seq, (key, body) in enumerate(of or honest()):
        text = plain_json({"seq": seq, "key": key, "body": body, "prev": previous})
        text = (spell or {}).get(key, str)(text)
        previous = sha256_hex(text.encode("utf-8", "surrogatepass"))
        lines.append(f'{{"hash":"{previous}","entry":{text}}}')
    return "".join(render(lines, previous))


@cache
def honest() -> list[tuple[str, Any]]:
    """Keys and bodies of a small round by rules; its header has text that is escaped in several ways."""
    found = [(entry.key, entry.body) for entry in read_entries(large_lines(4))]
    assert isinstance(found[0][1], dict)
    return [(found[0][0], {**found[0][1], "software": SOFTWARE}), *found[1:]]


SOFTWARE = 'clara/\u00e9\u2028\U0001f600\x7f\b\x01"\\'
ESCAPED = plain_json(SOFTWARE)


def swap(old: str, new: str) -> Spell:
    def spell(text: str) -> str:
        assert old in text, (old, text[:200])
        return text.replace(old, new, 1)

    return spell


def valued(name: str, form: str) -> Spell:
    """Another value of every field of this name, as JSON text; `{0}` stands for the right one."""
    pattern = re.compile(rf'"{name}":("[^"]*"|[-+0-9.e]+)')
    return lambda text: pattern.sub(lambda found: f'"{name}":{form.replace("{0}", found[1])}', text)


def software(text: str) -> dict[str, Spell]:
    """The header with another value, given as JSON text, in the one field that nothing is computed from."""
    return {"header": swap(ESCAPED, text)}


SPELLINGS: dict[str, dict[str, Spell]] = {
    "a key of the envelope twice": {"plan": swap('"key":"plan"', '"key":"plan","key":"plan"')},
    "another body before the body": {"plan": swap('{"body":', '{"body":{},"body":')},
    "another body after the body": {"plan": lambda text: text[:-1] + ',"body":{}}'},
    "a key of a body twice": {"plan": swap('"maxGames":', '"maxGames":1,"maxGames":')},
    "a key deep in a body twice": {"challenge": swap('"number":', '"number":0,"number":')},
    "an escaped key twice": {"plan": swap('"maxGames":', '"max\\u0047ames":1,"maxGames":')},
    "an unknown field in the envelope": {"plan": lambda text: text[:-1] + ',"zone":1}'},
    "a missing field in the envelope": {"plan": lambda text: DIGITS.sub('"sea":2', text)},
    "an escaped letter": software(ESCAPED.replace("clara", "\\u0063lara")),
    "an escaped key": {"plan": swap('"maxGames"', '"\\u006daxGames"')},
    "upper-case hex in an escape": software(ESCAPED.replace("\\u00e9", "\\u00E9")),
    "an escaped slash": software(ESCAPED.replace("/", "\\/")),
    "a literal letter that is escaped": software(ESCAPED.replace("\\u00e9", "\u00e9")),
    "a literal emoji": software(ESCAPED.replace("\\ud83d\\ude00", "\U0001f600")),
    "a literal line separator": software(ESCAPED.replace("\\u2028", "\u2028")),
    "a literal delete": software(ESCAPED.replace("\\u007f", "\x7f")),
    "a long escape of a short one": software(ESCAPED.replace("\\b", "\\u0008")),
    "an escaped quote as hex": software(ESCAPED.replace('\\"', "\\u0022")),
    "a literal control character": software(ESCAPED.replace("\\u0001", "\x01")),
    "an unknown escape": software(ESCAPED.replace("\\u0001", "\\x01")),
    "half of a surrogate pair": software('"\\ud83d"'),
    "the other half": software('"\\ude00"'),
    "halves in the wrong order": software('"\\ude00\\ud83d"'),
    "half of a pair in a key": {"prompts": swap('"compare.system":', '"\\ud800":')},
    "half of a pair as an entry's key": {"families": swap('"key":"families"', '"key":"\\ud800"')},
    "a space after a colon": {"plan": swap('":', '": ')},
    "a space after a comma": {"plan": swap(",", ", ")},
    "a space before the entry": {"plan": lambda text: " " + text},
    "a space after the entry": {"plan": lambda text: text + " "},
    "a tab": {"plan": swap(":", ":\t")},
    "a carriage return": {"plan": swap(":", ":\r")},
    "a line feed": {"plan": swap(":", ":\n")},
    "a no-break space": {"plan": swap(":", ":\u00a0")},
    "a byte order mark inside": {"plan": lambda text: "\ufeff" + text},
    "keys out of order": {"plan": swap('"maxGames":null,"reader":null', '"reader":null,"maxGames":null')},
    "fields of the envelope out of order": {
        "plan": lambda text: '{"seq":2,' + DIGITS.sub("", text)[1:-1].rstrip(",") + "}"
    },
    "a comma too many": {"plan": lambda text: text[:-1] + ",}"},
    "a comment": {"plan": swap(":", ":/**/")},
    "a bare word": software("software"),
    "single quotes": software("'x'"),
    "two values": {"plan": lambda text: text + text},
    "a list around it": {"plan": lambda text: f"[{text}]"},
    "nothing": {"plan": lambda _: ""},
    "null": {"plan": lambda _: "null"},
    "a number as the key": {"plan": swap('"key":"plan"', '"key":2')},
    "null as prev": {"plan": lambda text: re.sub(r'"prev":"[^"]*"', '"prev":null', text)},
    "a string as seq": {"plan": lambda text: DIGITS.sub(r'"seq":"\1"', text)},
    "another seq": {"plan": lambda text: DIGITS.sub('"seq":7', text)},
    "a prototype beside the fields": {"plan": swap('{"body":{', '{"body":{"__proto__":{},')},
    "a prototype in the place of a field": {"plan": swap('"maxGames":', '"__proto__":')},
    "a constructor beside the fields": {"plan": swap('{"body":{', '{"body":{"constructor":1,')},
}
NUMBERS = ["7.0", "7e0", "7E0", "70e-1", "0.7e1", "07", "+7", "-0", "0x7", "7.", ".7", "7n", "7_0", "NaN", "Infinity"]
NUMBERS += ["-Infinity", "1e400", "-1e400", "9007199254740993", "-9007199254740993", HUGE, f"-{HUGE}", f"7.{HUGE}"]
NUMBERS += [f"0.{'0' * 100_000}7", f"1e{HUGE}", f"1e-{HUGE}", "1e999999999", "true", "٧"]
for number in NUMBERS:
    SPELLINGS[f"seq as {number[:20]}"] = {"plan": valued("seq", number)}
    SPELLINGS[f"games as {number[:20]}"] = {"schedule": valued("games", number)}
    SPELLINGS[f"block as {number[:20]}"] = {"challenge": valued("number", number)}
    SPELLINGS[f"software as {number[:20]}"] = software(number)
for form in ("{0}0", "{0}e0", "{0}E+00", "0{0}", "+{0}", "{0}000000000000000000001", "1{0}", "-{0}", "{0}e400"):
    SPELLINGS[f"elo as {form}"] = {"ranking": valued("elo", form)}
COUNTS = ("games", "winnerCount", "submissionCount", "number", "decimals", "submittedAt", "version", "rules", "chainId")
for name in (*COUNTS, "results", "count", "rank", "score", "wins"):
    for number in ("9007199254740992", "-9007199254740992", "4294967295", "1e+308"):
        SPELLINGS[f"every {name} as {number}"] = {key: valued(name, number) for key, _ in honest()}
for name in ("prizePool", "posterBond", "deadline", "scoringDeadline", "maxParticipants", "agentId"):
    for number in (HUGE, "-1", "01", "1.0", "1e3", " 1", "", "\\u0661", str(2**256), str(2**256 - 1)):
        SPELLINGS[f"{name} as {number[:9]!r}, {len(number)}, {number[-1:]}"] = {
            "challenge": valued(name, f'"{number}"')
        }
for depth in (40, 63, 65, 900, 5_000, 200_000):
    for begin, end in (("[", "]"), ('{"a":', "}")):
        nested = begin * depth + "1" + end * depth
        SPELLINGS[f"software as {depth} times {begin}"] = software(nested)
        SPELLINGS[f"software as {depth} times {begin}, open"] = software(begin * depth)
SPELLINGS["software of two megabytes"] = software(json.dumps("x" * 2_000_000))
SPELLINGS["a string that never ends"] = software('"' + '\\"' * 200_000)
SPELLINGS["a list of a million"] = software("[" + "1," * 999_999 + "1]")

HELD = {"software of two megabytes"}
HELD |= {f"every {name} as {2**53}" for name in ("submissionCount", "number", "decimals", "submittedAt", "version")}
HELD |= {f"every {name} as {2**32 - 1}" for name in ("submissionCount", "number", "decimals", "submittedAt", "version")}
HELD |= {f"{name} as '115792089', 78, 5" for name in ("posterBond", "deadline", "scoringDeadline", "maxParticipants")}
"""What is right, or what only the chain can tell: nothing else in a trace follows from it."""

FILES: dict[str, Callable[[str], bytes]] = {
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "no line feed at the end": lambda text: text[:-1].encode(),
    "two line feeds at the end": lambda text: text.encode() + b"\n",
    "a space at the end": lambda text: text.encode() + b" ",
    "a zero byte at the end": lambda text: text.encode() + b"\0",
    "another document at the end": lambda text: (text + text).encode(),
    "an empty line": lambda text: text.replace("\n", "\n\n", 1).encode(),
    "a space in the first line": lambda text: text.replace('","entries', '", "entries', 1).encode(),
    "a space before the first line": lambda text: b" " + text.encode(),
    "another format": lambda text: text.replace("trace/2", "trace/3", 1).encode(),
    "no comma between two entries": lambda text: text.replace("},\n", "}\n", 1).encode(),
    "two commas": lambda text: text.replace("},\n", "},,\n", 1).encode(),
    "a comma after the last entry": lambda text: text.replace("}\n]", "},\n]").encode(),
    "an unknown field beside the digest": lambda text: text.replace('"}\n', '","more":1}\n').encode(),
    "the digest twice": lambda text: re.sub(r'("digest":"0x\w+")', r"\1,\1", text).encode(),
    "no digest": lambda text: re.sub(r',"digest":"0x\w+"', "", text).encode(),
    "a digest in upper case": lambda text: re.sub(r'(?<="digest":"0x)\w+', lambda d: d[0].upper(), text).encode(),
    "a hash in upper case": lambda text: re.sub(r'(?<="hash":"0x)\w+', lambda d: d[0].upper(), text, count=1).encode(),
    "an unknown field beside a hash": lambda text: text.replace('"entry":', '"more":1,"entry":', 1).encode(),
    "an unknown field after an entry": lambda text: text.replace("}},\n", '},"more":1},\n', 1).encode(),
    "a byte that is no UTF-8": lambda text: text.replace("header", "head\udcff", 1).encode("utf-8", "surrogateescape"),
    "an overlong byte": lambda text: text.encode().replace(b"header", b"head\xc0\xaf", 1),
    "half of a pair in UTF-8": lambda text: text.encode().replace(b"header", b"head\xed\xa0\x80", 1),
    "nothing": lambda _: b"",
    "the first line alone": lambda text: text.encode().split(b"\n")[0] + b"\n",
    "no entries": lambda _: f'{OPENING}\n],"digest":"{START}"}}\n'.encode(),
    "the end cut off": lambda text: text.encode()[:-40],
    "approvals that are none": lambda text: text.replace('"}\n', '","approvals":[]}\n').encode(),
}


def _approved(*changes: tuple[str, object]) -> bytes:
    """An approval with right hashes and some other values."""
    *lines, last = document().splitlines(keepends=True)
    digest = json.loads("{" + last[2:])["digest"]
    values: dict[str, Any] = {"of": digest, "at": 1_700_000_000, "by": "Ada", "note": "looked", **dict(changes)}
    return "".join([*lines, list(render([], digest, Notes([Approval(**values)])))[-1]]).encode()


WRONG_APPROVALS: dict[str, tuple[object, ...]] = {
    "at": (True, "1", 1.0, None, 2**53 + 1, -1, -1.5, [1]),
    "by": (1, None, "\ud800", ["Ada"]),
    "note": (1, None, "\udfff", {}),
    "of": ("0x" + "11" * 32, None, ""),
}
APPROVALS = {
    f"an approval with {name} {value!r}": (name, value) for name, wrong in WRONG_APPROVALS.items() for value in wrong
}


def _restarted(*changes: tuple[str, object]) -> bytes:
    """A restart with some other values."""
    *lines, last = document().splitlines(keepends=True)
    bodies = dict(honest())
    begun, version = bodies["challenge"]["block"]["timestamp"], f"{bodies['header']['software']} rules {RULES} x"
    values = {"answers": 0, "at": begun, "begunBy": "0.1.0", "finishedBy": version, **dict(changes)}
    ending = plain_json({**json.loads("{" + last[2:]), "restarts": [values]}).removeprefix("{")
    return "".join([*lines, f"],{ending}\n"]).encode("utf-8", "surrogatepass")


WRONG_RESTARTS: dict[str, tuple[object, ...]] = {
    "at": (True, "1", 1.0, None, 2**53 + 1, -1, 1, [1]),
    "answers": (True, None, 1, -1, "0", 0.0),
    "begunBy": (1, None, "\ud800", []),
    "finishedBy": (1, None, "", "0.1.0 rules 7 x", "\udfff"),
    "unheardOf": (0,),
}
RESTARTS = {
    f"a restart with {name} {value!r}": (name, value) for name, wrong in WRONG_RESTARTS.items() for value in wrong
}


def _arranged() -> dict[str, list[tuple[str, Any]]]:
    """Entries that are unknown, missing, twice or in another order."""
    known = honest()
    keys = [key for key, _ in known]
    stranger, body = "0x" + "77" * 20, dict(known)
    of_kind = {key.split("/")[0]: key for key in keys}
    found: dict[str, list[tuple[str, Any]]] = {}
    unknown = {
        "unheardOf": 1,
        "": 1,
        "approval": {},
        "accepted": {},
        "__proto__": {},
        "constructor": {},
        "verdicts": {},
    }
    unknown |= {f"{kind}/{stranger}": body[of_kind[kind]] for kind in ("solution", "features")}
    unknown |= {"comparison/9999999": body["comparison/0000000"], "comparison/x": body["comparison/0000000"]}
    unknown |= {"comparison/00000000": body["comparison/0000000"], "header/": body["header"], "execution": {}}
    unknown |= {f"executed/{stranger}": {}, "answer/" + "0x" + "11" * 32: {}, "objections": {}, "attestation": []}
    for key, value in unknown.items():
        for name, place in (("first", 0), ("in the middle", len(known) // 2), ("last", len(known))):
            found[f"unknown entry {key} {name}"] = [*known[:place], (key, value), *known[place:]]
    dots = base64.b64encode(b"." * 200_000 + b"x").decode()
    who = of_kind["features"].split("/")[1]
    slow = {**body[f"solution/{who}"], "language": None}
    slow["received"] = {**slow["received"], "content": dots}
    found["a text of dots"] = list({**body, f"solution/{who}": slow}.items())
    for kind, key in of_kind.items():
        at = keys.index(key)
        found[f"no entry {kind}"] = [*known[:at], *known[at + 1 :]]
        found[f"entry {kind} twice"] = [*known[: at + 1], *known[at:]]
        found[f"entry {kind} again at the end"] = [*known, known[at]]
        if at:
            found[f"entry {kind} before the one before"] = [
                *known[: at - 1],
                known[at],
                known[at - 1],
                *known[at + 1 :],
            ]
    return found


@pytest.mark.xdist_group("verifier")
async def test_both_verifiers_read_one_spelling(tmp_path: Path) -> None:
    """Of hundreds of spellings of one trace with right hashes both verifiers hold the same few, and refuse the rest."""
    traces = {name: document(spell).encode("utf-8", "surrogatepass") for name, spell in SPELLINGS.items()}
    traces |= {f"file: {name}": change(document()) for name, change in FILES.items()}
    traces |= {name: document(of=arranged).encode() for name, arranged in _arranged().items()}
    traces |= {name: _approved(change) for name, change in APPROVALS.items()}
    traces |= {name: _restarted(change) for name, change in RESTARTS.items()}
    traces |= {"as it is": document().encode(), "an approval": _approved(), "a restart": _restarted()}
    ours = {name for name, trace in traces.items() if not await refusal_of(trace)}
    theirs = {name for name, refusal in node_refusals(traces, tmp_path).items() if not refusal}
    assert ours == theirs == {"as it is", "an approval", "a restart", *HELD}


async def _walked_by(config: dict[str, Any]) -> list[tuple[str, Any]]:
    """The entries of the small round under another config."""
    text = json.dumps(config)
    uri = build_metadata(title=TITLE, problem_statement=PROBLEM, skills=("python",), config_text=text)
    challenge = replace(large_challenge(4), challenge_uri=uri, eval_config_hash=config_hash(text.encode()))
    return list(trace_entries(challenge, PLAN_BY_RULES, await run_large(challenge)))


@pytest.mark.xdist_group("verifier")
async def test_a_result_by_other_weights_is_refused_by_both(tmp_path: Path) -> None:
    """A trace that is consistent in itself, but weighs otherwise than the committed config says, holds in neither."""
    features: Any = CONFIG["features"]
    right = await _walked_by({**CONFIG, "features": features})
    traces = {"right": document(of=right).encode()}
    changes = {"weight": 9, "better": "higher", "max": 50}
    for name, value in changes.items():
        other = [features[0], {**features[1], name: value}, *features[2:]]
        wrong = await _walked_by({**CONFIG, "features": other})
        grafted = {**dict(wrong), **{key: body for key, body in right if key in {"challenge", "metadata"}}}
        traces[f"another {name}"] = document(of=list(grafted.items())).encode()
    ours = {name for name, trace in traces.items() if not await refusal_of(trace)}
    theirs = {name for name, refusal in node_refusals(traces, tmp_path).items() if not refusal}
    assert ours == theirs == {"right"}


@pytest.mark.xdist_group("verifier")
async def test_archives_are_read_alike_by_both(tmp_path: Path) -> None:
    """A round of archives, one of them refused, holds in both; other sizes, kinds or names of files hold in neither."""
    challenge = archives_challenge()
    submissions = challenge.submissions
    right = list(trace_entries(challenge, PLAN_BY_RULES, await run_large(challenge)))
    bodies: dict[str, Any] = dict(right)
    solutions = [bodies[f"solution/{one.submitter}"] for one in submissions]
    assert [one.get("code") for one in solutions] == [None] * 4 + ["bad_archive"]
    assert [one["kind"] for one in solutions[2]["files"]] == ["text", "binary", "text", "code", "code", "code"]
    traces, key = {"right": document(of=right).encode()}, f"solution/{submissions[0].submitter}"
    for name, value in {"bytes": 7, "sha256": "0x" + "11" * 32, "path": "other.py", "kind": "omitted"}.items():
        files = solutions[0]["files"]
        wrong = {**solutions[0], "files": [*files[:-1], {**files[-1], name: value}]}
        traces[name] = document(of=[(one, wrong if one == key else body) for one, body in right]).encode()
    without = {name: value for name, value in solutions[0].items() if name != "files"}
    traces["none"] = document(of=[(one, without if one == key else body) for one, body in right]).encode()
    ours = {name for name, trace in traces.items() if not await refusal_of(trace)}
    theirs = node_refusals(traces, tmp_path)
    assert ours == {"right"}
    assert [name for name, refusal in theirs.items() if not refusal] == ["right"], theirs


@pytest.mark.xdist_group("verifier")
async def test_a_format_is_held_by_both(tmp_path: Path) -> None:
    """Short answers in JSON are ranked and what is not JSON is refused, in both; another verdict holds in neither."""
    challenge = answers_challenge()
    right = list(trace_entries(challenge, PLAN_BY_RULES, await run_large(challenge)))
    bodies: dict[str, Any] = dict(right)
    codes = [bodies[f"solution/{one.submitter}"].get("code") for one in challenge.submissions]
    assert codes == [None, None, "not_json", None, "not_json"]
    key = f"solution/{challenge.submissions[2].submitter}"
    wrong = {**bodies[key], "code": "empty"}
    forged = [(one, wrong if one == key else body) for one, body in right]
    traces = {"right": document(of=right).encode(), "another code": document(of=forged).encode()}
    ours = {name for name, trace in traces.items() if not await refusal_of(trace)}
    theirs = {name for name, refusal in node_refusals(traces, tmp_path).items() if not refusal}
    assert ours == theirs == {"right"}
