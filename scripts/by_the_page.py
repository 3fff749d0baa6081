"""The arithmetic of docs/trace-format.md in plain Python, written from that page alone: nothing of the product is used.

In: the entries of a trace as a map from key to body. Out: what the page says follows from them, for the worked examples
of the page and for the test that holds the page to real traces. Only Keccak comes from a package.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from fractions import Fraction
from itertools import groupby
from math import ceil, copysign, fsum, log1p
from struct import pack
from typing import Any

from eth_hash.auto import keccak

Bodies = dict[str, Any]


def plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sha(data: bytes) -> str:
    return "0x" + hashlib.sha256(data).hexdigest()


def raw(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def text_features(content: bytes) -> dict[str, int]:
    """Section 5: bytes, lines, words."""
    text = content.decode()
    lines = text.replace("\r\n", "\n").split("\n")
    return {
        "bytes": len(content),
        "lines": len(lines) - (lines[-1] == ""),
        "words": len(re.findall(r"\w+(?:['’]\w+)?", text)),
    }


def merit(schema: Any, vector: Any) -> float:
    """Section 7."""
    judged = [f for f in schema["features"] if f["type"] != "text"]
    total = fsum(f["weight"] for f in judged)
    return fsum(f["weight"] * goodness(f, vector[f["name"]]) for f in judged) / total


def goodness(feature: Any, value: Any) -> float:
    if value is None:
        return 0.0
    low, high = feature["min"], 1e12 if feature["max"] is None else feature["max"]
    if isinstance(value, bool):
        share = float(value)
    elif isinstance(value, str):
        share = feature["values"].index(value) / max(1, len(feature["values"]) - 1)
    elif low is None:
        share = 0.5 + copysign(log1p(abs(value)) / log1p(1e12), value) / 2
    elif high - low <= 100:
        share = (value - low) / (high - low)
    else:
        share = log1p(max(0, value - low)) / log1p(high - low)
    share = min(1.0, max(0.0, share))
    return 0.05 + 0.95 * (share if feature["better"] == "higher" else 1 - share)


def rules_verdict(schema: Any, first: Any, second: Any) -> tuple[str, float]:
    gap = merit(schema, first) - merit(schema, second)
    if abs(gap) <= 0.0001:
        return "tie", 0.5
    return "first" if gap > 0 else "second", round(0.5 + 0.5 * min(1, abs(gap) / 0.5), 3)


def rules_rows(bodies: Bodies, items: list[str]) -> list[tuple[int, int, int]]:
    """Section 7: (first, second, half points) of every comparison of a large round by rules, for `both`."""
    merits = [merit(bodies["schema"], bodies[f"features/{item}"]["features"]) for item in items]
    gaps = {(a, b): merits[a] - merits[b] for a in range(len(items)) for b in range(len(items)) if a != b}
    return [(a, b, 1 if abs(gap) <= 0.0001 else 2 * (gap > 0)) for (a, b), gap in gaps.items()]


def rules_hash(bodies: Bodies) -> str:
    """Section 7: the hash of all verdicts."""
    return sha(b"".join(pack("<IIB", *row) for row in rules_rows(bodies, canonical_order(bodies))))


def comparison_request(bodies: Bodies, judge: str, first: str, second: str, attempt: int = 0) -> str:
    """Section 6, for configs whose words are plain ASCII without markup."""
    prompts, config = bodies["prompts"], json.loads(bodies["metadata"]["evalConfig"])
    features = [f for f in bodies["schema"]["features"] if f["type"] != "text"]
    system = prompts["compare.system"]["text"].replace("{{features}}", "\n".join(map(feature_line, features)))
    vectors = [plain(bodies[f"features/{account}"]["features"]) for account in (first, second)]
    user = prompts["compare.user"]["text"].replace("{{first}}", vectors[0]).replace("{{second}}", vectors[1])
    if attempt:
        user += f"\nAsked again ({attempt}): return ONLY the JSON object, complete, with exactly the stated fields.\n"
    properties = {
        "winner": {"type": "string", "enum": ["A", "B", "tie"]},
        "confidence": {"type": "number", "description": "From 0.0 to 1.0."},
        "reason": {"type": "string", "description": "One brief sentence."},
    }
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    request = {
        "llm": judge,
        "purpose": "comparison",
        "system": system.replace("{{criteria}}", config["criteria"]),
        "user": user,
        "schema": plain(schema),
        "maxTokens": 400,
        "attempt": attempt,
    }
    return sha(plain(request).encode())


def feature_line(f: Any) -> str:
    kind = {"enum": f"one of {', '.join(f['values'])}", "boolean": "true or false"}.get(f["type"], f["type"])
    span = f" from {f['min']:g} to {f['max']:g}" if None not in (f["min"], f["max"]) else ""
    better = f"; {f['better']} is better" if f["better"] else ""
    weight = f"; weight {f['weight']:g}" if f["weight"] != 1 else ""
    anchors = "".join(f"\n    {int(f['min']) + n}: {anchor}" for n, anchor in enumerate(f["anchors"]))
    return f"- {f['name']} ({kind}{span}{better}{weight}): {f['description']}{anchors}"


def canonical_order(bodies: Bodies) -> list[str]:
    """Section 8."""
    rejected = {entry["account"] for entry in bodies["rejected"]}
    ranked = [key.split("/")[1] for key in bodies if key.startswith("features/") and key[9:] not in rejected]
    challenge = raw(bodies["challenge"]["address"])
    key = {a: keccak(challenge + raw(bodies[f"solution/{a}"]["keccak"])) for a in ranked}
    return sorted(ranked, key=lambda a: (key[a], a))


def results(bodies: Bodies, items: list[str]) -> list[tuple[int, int, int, int]]:
    """Section 9: sorted (first, second, judge, half points)."""
    if "verdicts" in bodies:
        return [(a, b, 0, half) for a, b, half in rules_rows(bodies, items)]
    played = [body for key, body in bodies.items() if key.startswith("comparison/") and body["winner"]]
    judges = sorted({game["judge"] for game in played})
    half = {"first": 2, "tie": 1, "second": 0}
    return sorted(
        (items.index(g["first"]), items.index(g["second"]), judges.index(g["judge"]), half[g["winner"]]) for g in played
    )


def shuffle(count: int, seed: bytes, label: str) -> list[int]:
    stream = hashlib.shake_256(seed + b"\x00" + label.encode()).digest(8 * count)
    words = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(count)]
    return sorted(range(count), key=lambda i: (words[i], i))


def deal(games: list[tuple[int, int, int, int]], seed: bytes) -> list[list[int]]:
    rounds: list[list[int]] = []
    busy: list[set[int]] = []
    for position in shuffle(len(games), seed, "results"):
        pair = set(games[position][:2])
        free = next((n for n, taken in enumerate(busy) if not taken & pair), len(rounds))
        if free == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[free].append(position)
        busy[free] |= pair
    if not rounds:
        return []
    width = min(max(map(len, rounds)), ceil(2 * len(games) / len(rounds)))
    return [played[start : start + width] for played in rounds for start in range(0, len(played), width)]


def expectation(difference: float) -> float:
    x = min(64.0, max(-64.0, difference * -0.008304820237218406))
    k = round(x * 64)
    x = (x - k / 64) * 0.6931471805599453
    t = ((((x * (1 / 24)) + 1 / 6) * x + 1 / 2) * x + 1.0) * x + 1.0
    return 1.0 / (t * (2.0 ** (k // 64) * 2.0 ** (k % 64 / 64)) + 1.0)


def ratings(games: list[tuple[int, int, int, int]], size: int, seed: bytes) -> list[float]:
    rows = deal(games, seed)
    ended: list[list[float]] = []
    for number in range(100):
        order = shuffle(len(rows), seed, f"permutation {number // 2}")
        now = [1500.0] * size
        for row in reversed(order) if number % 2 else order:
            for position in rows[row]:
                a, b, _, half = games[position]
                change = 32.0 * (half / 2 - expectation(now[a] - now[b]))
                now[a] += change
                now[b] -= change
        ended.append(now)
    return _levelled(games, [_mean([now[i] for now in ended]) for i in range(size)])


def _levelled(games: list[tuple[int, int, int, int]], rated: list[float]) -> list[float]:
    """Equal records: the coarsest split by points and by meetings with each class."""
    size = len(rated)
    classes: list[Any] = [sum(h * (a == i) + (2 - h) * (b == i) for a, b, _, h in games) for i in range(size)]
    while True:
        met = [sorted(classes[b if a == i else a] for a, b, *_ in games if i in (a, b)) for i in range(size)]
        keys = [(classes[i], met[i]) for i in range(size)]
        finer = [sorted(keys).index(key) for key in keys]
        if len(set(finer)) == len(set(classes)):
            break
        classes = finer
    return [_mean([rated[j] for j in range(size) if classes[j] == classes[i]]) for i in range(size)]


def _mean(values: list[float]) -> float:
    return round(fsum(values) / len(values), 6)


def score(elo: float) -> int:
    return round(10_000 / (1 + 10 ** ((1500 - elo) / 400)))


def standings(bodies: Bodies) -> list[tuple[str, float, int]]:
    """Section 9: (address, elo, score), best first."""
    challenge = bodies["challenge"]
    items = canonical_order(bodies)
    seed = f"{challenge['chainId']}:{challenge['address']}".encode()
    rated = dict(zip(items, ratings(results(bodies, items), len(items), seed), strict=True))
    at = {s["submitter"]: s["submittedAt"] for s in challenge["submissions"]}
    return [(a, rated[a], score(rated[a])) for a in sorted(items, key=lambda a: (-rated[a], at[a], a))]


def prizes(bodies: Bodies) -> list[str]:
    """Section 10."""
    pool = int(bodies["challenge"]["prizePool"])
    shares = [int(Fraction(pool * bps, 10_000)) for bps in bodies["challenge"]["payoutBps"]]
    return [str(share) for share in (*shares[:-1], pool - sum(shares[:-1]))]


def calldata(bodies: Bodies) -> str:
    """Section 10."""
    winners = bodies["winners"]
    words = [0x20, len(winners)]
    for winner in winners:
        words += [int(winner["account"], 16), int(winner["agentId"]), winner["score"], int(winner["prizeAmount"])]
    return "0xb3318b93" + "".join(f"{word:064x}" for word in words)


def looks(bodies: Bodies) -> set[tuple[str, str]]:
    """Section 8: the ordered pairs of `both` without a limit."""
    items = canonical_order(bodies)
    return {(a, b) for a in items for b in items if a != b}


def ties(found: list[tuple[str, float, int]]) -> list[list[str]]:
    groups = ([row[0] for row in group] for _, group in groupby(found, key=lambda row: row[1]))
    return [group for group in groups if len(group) > 1]


def solution_bytes(bodies: Bodies, account: str) -> bytes:
    return base64.b64decode(bodies[f"solution/{account}"]["received"]["content"])
