"""The arithmetic of docs/trace-format.md in plain Python, written only from that page.

Input: the entries of a trace by key. Output: what follows from them, for the worked examples of the page and the test
that compares the page with real traces. Invariant: no code of the product is used; only Keccak and algebra libraries.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
import zipfile
from fractions import Fraction
from itertools import groupby
from math import ceil, copysign, fsum, log1p
from struct import pack
from typing import Any

import numpy as np
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
    voices = judges(bodies)
    half = {"first": 2, "tie": 1, "second": 0}
    return sorted(
        (
            items.index(g["first"]),
            items.index(g["second"]),
            voices.index((g["judge"], bool(g["group"]))),
            half[g["winner"]],
        )
        for g in played
    )


def judges(bodies: Bodies) -> list[tuple[str, bool]]:
    """Section 9: judges by name, each followed by the pairs from its orders."""
    if "verdicts" in bodies:
        return [("rules", False)]
    played = [body for key, body in bodies.items() if key.startswith("comparison/") and body["winner"]]
    return sorted({(game["judge"], bool(game["group"])) for game in played})


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
    """Split entries into classes of equal records: equal points, and equal meetings with each class."""
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
    solution = bodies[f"solution/{account}"]
    sent = base64.b64decode(solution.get("linked", solution["received"])["content"])
    return archived_code(sent, solution) if "files" in solution else sent


def archived_code(sent: bytes, solution: Any) -> bytes:
    """Section 4: the measured text of an archive with code in one folder."""
    if sent.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(sent)) as packed:
            files = {name.partition("/")[2]: packed.read(name) for name in packed.namelist()}
    else:
        with tarfile.open(fileobj=io.BytesIO(sent)) as tar:
            files = {m.name.partition("/")[2]: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    assert [(sha(files[one["path"]]), len(files)) for one in solution["files"]] == [
        (one["sha256"], len(solution["files"])) for one in solution["files"]
    ]
    code = [one["path"] for one in solution["files"] if one["kind"] == "code"]
    mark = b"# " if solution["language"] == "python" else b"// "
    ended = {
        path: files[path].rstrip(b"\n") + b"\n" if not files[path].endswith(b"\n") else files[path] for path in code
    }
    joined = b"".join(mark + b"=== " + path.encode() + b" ===\n" + ended[path] for path in code)
    return files[code[0]] if len(code) == 1 else joined


class Fit:
    """Section 9: the mode of the model, and draws from its posterior."""

    def __init__(self, bodies: Bodies) -> None:
        self.items = canonical_order(bodies)
        self.voices = judges(bodies)
        self.games = results(bodies, self.items)
        rows = np.array(self.games, dtype=int).reshape(-1, 4)
        self.first, self.second, self.judge, points = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] / 2
        self.points = points
        size = len(self.items)
        self.parts = ((self.first, 1.0), (self.second, -1.0), (size + self.judge, 1.0))  # columns and coefficients
        self.count = np.array([0.64 if group else 1.0 for _, group in self.voices])[self.judge] if len(rows) else points
        self._fit(size)

    def _fit(self, size: int) -> None:
        shown = np.zeros((size, size))
        np.add.at(shown, (self.first, self.second), 1.0)
        n, m = shown[self.first, self.second], shown[self.second, self.first]
        s, pair, same, v = 1.5, 0.3, 0.6, np.full(len(self.points), 0.25)
        at = np.zeros(size + max(1, len(self.voices)))
        for number in range(8):
            prior = np.array([s**-2] * size + [4.0] * (len(at) - size))
            w = self.count / (1 + v * ((n - 1) * same + m * pair))
            at, c = self._mode(at, w, prior)
            p = self._expected(at)
            if number == 7:
                break
            v = p * (1 - p)
            known = max(0.0, size - np.trace(c[:size, :size]) / s**2)
            s = float(((at[:size] @ at[:size] + 3 * 1.5**2) / (known + 3)) ** 0.5)
            pair, same = self._shared(self.points - p, v, c)
        self.theta, self.side, self.covariance = at[:size], at[size:], c

    def _expected(self, at: Any) -> Any:
        return 1 / (1 + np.exp(-sum(sign * at[column] for column, sign in self.parts)))

    def _mode(self, at: Any, w: Any, prior: Any) -> tuple[Any, Any]:
        for _ in range(100):
            p = self._expected(at)
            slope, curvature, size = -prior * at, np.diag(prior), len(at)
            for column, sign in self.parts:
                slope += np.bincount(column, sign * w * (self.points - p), size)
                for other, turned in self.parts:
                    sums = np.bincount(column * size + other, sign * turned * w * p * (1 - p), size * size)
                    curvature += sums.reshape(size, size)
            step = np.linalg.solve(curvature, slope)
            at = at + step / max(1.0, float(np.abs(step).max()))
            if float(np.abs(step).max()) < 1e-7:
                break
        return at, np.linalg.inv(curvature)

    def _shared(self, r: Any, v: Any, c: Any) -> tuple[float, float]:
        found, most = [2.4 * 0.3, 2.4 * 0.6], [2.4, 2.4]
        looks: dict[tuple[int, int], list[int]] = {}
        for number, (a, b) in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True)):
            looks.setdefault((min(a, b), max(a, b)), []).append(number)
        for (a, b), numbers in looks.items():
            u = c[a, a] + c[b, b] - 2 * c[a, b]
            for place, one in enumerate(numbers):
                for other in numbers[:place]:
                    is_same = int(self.first[one] == self.first[other])
                    sign = 1 if is_same else -1
                    found[is_same] += sign * r[one] * r[other] + u * v[one] * v[other]
                    most[is_same] += v[one] * v[other]
        return min(max(found[0] / most[0], 0.0), 2.2), min(max(found[1] / most[1], 0.0), 4.0)

    def draws(self, theta: Any, covariance: Any) -> Any:
        size = len(self.items)
        count = 1000 * size
        stream = hashlib.shake_256(b"clara-eval normals draws").digest(16 * ((count + 1) // 2))
        words = [int.from_bytes(stream[k : k + 8], "little") for k in range(0, len(stream), 8)]
        numbers = np.array([((word >> 11) + 0.5) / 2**53 for word in words])
        u, t = np.split(numbers, 2)
        radius = np.sqrt(-2 * np.log(u))
        n = np.concatenate((radius * np.cos(2 * np.pi * t), radius * np.sin(2 * np.pi * t)))[:count].reshape(1000, size)
        half = n @ np.linalg.cholesky(covariance).T
        return np.concatenate((theta + half, theta - half))


def estimates(bodies: Bodies) -> dict[str, Any]:
    """Section 9: every estimate of `ranking`, with standings in the order of `standings`."""
    fit, ranked = Fit(bodies), bodies["ranking"]
    size, paid = len(fit.items), ranked["winnerCount"]
    theta, covariance = fit.theta, fit.covariance[:size, :size]
    verdicts = consistency(fit)
    if is_exact(bodies, verdicts):
        theta, covariance = np.array(_levelled(fit.games, [round(t, 6) for t in theta])), 1e-18 * np.eye(size)
    draws = fit.draws(theta, covariance)
    places = np.argsort(np.argsort(-draws, axis=1, kind="stable"), axis=1)
    best, worst = np.sort(places, axis=0)[[100, 1899]]
    order = [fit.items.index(row["item"]) for row in ranked["standings"]]
    elo = sorted((row["elo"] for row in ranked["standings"]), reverse=True)
    strengths = np.sort(theta - theta.mean())[::-1]
    rows = [
        {
            "theta": theta[i] - theta.mean(),
            "thetaLow": min(theta[i] - theta.mean(), strengths[worst[i]]),
            "thetaHigh": max(theta[i] - theta.mean(), strengths[best[i]]),
            "low": min(row["elo"], elo[worst[i]]),
            "high": max(row["elo"], elo[best[i]]),
            "pTop": np.mean(places[:, i] < paid),
            "pRank": [np.mean(places[:, i] == place) for place in range(min(size, paid + 2))],
            "rankLow": best[i] + 1,
            "rankHigh": worst[i] + 1,
        }
        for i, row in zip(order, ranked["standings"], strict=True)
    ]
    due = np.array([*ranked["payoutBps"], *[0] * size])[:size]
    share = np.zeros(size)
    share[order] = due
    misplaced = np.abs(due[places] - share).sum(axis=1).mean() / 2 / 10_000
    margins = [_margin(ranked, order, draws, places, place) for place in range(1, paid + 1)]
    return {
        "standings": rows,
        "margins": margins,
        "misallocation": misplaced,
        "consistency": verdicts,
        "decidingVerdicts": deciding(bodies, fit, order),
    }


def deciding(bodies: Bodies, fit: Fit, order: list[int]) -> int | None:
    """Section 9: the fewest verdicts found whose reversal changes who is paid."""
    paid, size, found = bodies["ranking"]["winnerCount"], len(fit.items), []
    if size <= paid or size * len(fit.games) > 20_000:
        return None
    now = _paid(bodies, fit, fit.games)
    for one, other in ((paid - 1, paid), (paid - 1, paid + 1), (paid - 2, paid)):
        if one < 0 or other >= size:
            continue
        above, below, games = order[one], order[other], list(fit.games)
        wins = [(a == below and h < 2) or (b == below and h > 0) for a, b, _, h in games]
        loses = [(a == above and h > 0) or (b == above and h < 2) for a, b, _, h in games]
        rows = [k for k in range(len(games)) if wins[k] and loses[k]]
        rows += [k for k in range(len(games)) if wins[k] != loses[k]]
        for count, row in enumerate(rows[:12], 1):
            a, b, judge, _ = games[row]
            games[row] = (a, b, judge, 0 if a == above or b == below else 2)
            if _paid(bodies, fit, games) != now:
                found.append(count)
                break
    return min(found, default=None)


def _paid(bodies: Bodies, fit: Fit, games: list[tuple[int, int, int, int]]) -> set[str]:
    challenge = bodies["challenge"]
    rated = ratings(games, len(fit.items), f"{challenge['chainId']}:{challenge['address']}".encode())
    at = {s["submitter"]: s["submittedAt"] for s in challenge["submissions"]}
    order = sorted(range(len(fit.items)), key=lambda i: (-rated[i], at[fit.items[i]], fit.items[i]))
    return {fit.items[i] for i in order[: bodies["ranking"]["winnerCount"]]}


def _margin(ranked: Any, order: list[int], draws: Any, places: Any, place: int) -> dict[str, Any]:
    if place >= len(order):
        return {"place": place, "probability": 1.0, "setChance": 1.0, "word": "clear", "tied": False}
    here, there = ranked["standings"][place - 1], ranked["standings"][place]
    tied = here["elo"] == there["elo"]
    ahead = 0.5 if tied else float(np.mean(places[:, order[place - 1]] < places[:, order[place]]))
    chance = float(np.mean(np.max(places[:, order[:place]], axis=1) < place))
    apart = np.abs(draws[:, order[place - 1]] - draws[:, order[place]])
    if chance >= 0.9 and ahead >= 0.6:
        word = "clear"
    elif np.mean(apart < 1) >= 0.9:
        word = "about equal"
    else:
        word = "toss-up" if ahead < 0.6 else "uncertain"
    return {"place": place, "probability": ahead, "setChance": chance, "word": word, "tied": tied}


def is_exact(bodies: Bodies, verdicts: dict[str, Any]) -> bool:
    """Section 2, `ranking`: judged by rules on measured facts, all pairs compared, no contradictions."""
    measured = all(f["source"] == "measured" for f in bodies["schema"]["features"] if f["type"] != "text")
    by_rules = {judge for judge, _ in judges(bodies)} <= {"rules"}
    return measured and by_rules and verdicts["coverage"] == 1.0 and not verdicts["cycles"]


def consistency(fit: Fit) -> dict[str, Any]:
    """Section 2: counts over all results, and per judge."""
    size = len(fit.items)
    lead, net = np.zeros((size, size)), {}
    for a, b, judge, half in fit.games:
        lead[a, b] += half - 1
        lead[b, a] -= half - 1
        net[judge, a, b] = net.get((judge, a, b), 0) + half - 1
    met = {frozenset((a, b)) for a, b, *_ in fit.games}
    wins = lead > 0
    triples = [(i, j, k) for i in range(size) for j in range(i) for k in range(j)] if size <= 30 else []
    decided = [t for t in triples if all(lead[a, b] for a, b in ((t[0], t[1]), (t[1], t[2]), (t[0], t[2])))]
    cycles = [t for t in decided if len({sum(wins[a, b] for b in t) for a in t}) == 1]
    sign = {key: (value > 0) - (value < 0) for key, value in net.items()}
    swaps = [key for key in sign if key[1] < key[2] and (key[0], key[2], key[1]) in sign]
    kept = [key for key in swaps if sign[key] == -sign[key[0], key[2], key[1]]]
    found: dict[str, Any] = (
        {"cycles": len(cycles), "decidedTriples": len(decided)} if triples or size < 3 else {"cycles": 0}
    )
    found["coverage"] = round(len(met) / max(1, size * (size - 1) // 2), 4)
    found["swaps"], found["swapConsistency"] = len(swaps), round(len(kept) / len(swaps), 4) if swaps else None
    found["judges"] = [_judge(fit, number, sign) for number in range(len(fit.voices))]
    return found


def _judge(fit: Fit, number: int, sign: dict[tuple[int, int, int], int]) -> dict[str, Any]:
    size, mine = len(fit.items), fit.judge == number
    shared = [
        sign[number, a, b] == verdict
        for (judge, a, b), verdict in sign.items()
        if judge != number and (number, a, b) in sign
    ]
    return {
        "games": int(mine.sum()),
        "agreement": round(sum(shared) / len(shared), 4) if shared else None,
        "compared": len(shared),
        "positionBias": fit.side[number],
        "positionBiasSd": fit.covariance[size + number, size + number] ** 0.5,
        "firstShare": fit.points[mine].mean(),
    }
