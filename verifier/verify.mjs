// Checks a trace without any of Clara Eval's code: written from docs/trace-format.md alone.
//   node verify.mjs TRACE.json… [--rpc URL]      exit 0: all of it holds; 1: what does not is named by its entry; 2: usage
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import sha3 from "js-sha3";
import { isArchive, kindsOf, texts, unpack } from "./archive.mjs";
import { drawn, fit } from "./model.mjs";
const ZERO = "0x" + "0".repeat(64),
  RULES = 12,
  K = 32;
const sha256 = (data) => "0x" + createHash("sha256").update(data).digest("hex"),
  keccak = (data) => "0x" + sha3.keccak256(data),
  utf8 = (text) => Buffer.from(text, "utf8");
let problems = [];
const fail = (entry, reason) => {
    problems.push({ entry, reason });
    return false;
  },
  hold = (condition, entry, reason) => condition || fail(entry, reason);
// ---- JSON whose numbers keep their text: 1 and 1.0 are different bytes ----
class Num {
  constructor(text) {
    this.text = text;
  }
  valueOf() {
    return Number(this.text);
  }
}
class Unreadable extends Error {}
const MOST_DEEP = 64,
  LARGEST = 2n ** 53n,
  NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
function parse(text, isStrict = false) {
  // numbers keep their text; strict: no key twice, no half of a surrogate pair, no number beyond a double or 2^53
  let at = 0;
  const wrong = (why) => {
    throw new Unreadable(`not JSON: ${why} at ${at}`);
  };
  const next = () => {
      while (" \t\n\r".includes(text[at] ?? "x")) at++;
      return text[at];
    },
    expect = (sign) => (next() === sign ? at++ : wrong(`no ${sign}`));
  const string = () => {
    const from = at++;
    for (let c; (c = text.charCodeAt(at)) !== 34; at += c === 92 ? 2 : 1)
      if (!(c >= 32)) wrong("a string does not end");
    try {
      const found = JSON.parse(text.slice(from, ++at));
      if (!isStrict || !/\p{Cs}/u.test(found)) return found;
    } catch {}
    return wrong("a string is not text");
  };
  const number = () => {
    NUMBER.lastIndex = at;
    const [found] = NUMBER.exec(text) ?? wrong("no value");
    at += found.length;
    const digits = found.replace("-", "");
    return isStrict &&
      (/^[0-9]+$/.test(digits) ? digits.length > 16 || BigInt(digits) > LARGEST : !Number.isFinite(Number(found)))
      ? wrong("a number is too large")
      : new Num(found);
  };
  const many = (open, close, one) => {
    at++;
    if (next() === close) return void at++;
    for (;;) {
      one();
      if (next() === close) return void at++;
      expect(",");
    }
  };
  const value = (deep) => {
    const sign = next();
    if (deep > MOST_DEEP) wrong("it is nested too deep");
    if (sign === '"') return string();
    if (sign === "[") {
      const list = [];
      many("[", "]", () => list.push(value(deep + 1)));
      return list;
    }
    if (sign === "{") {
      const found = Object.create(null);
      many("{", "}", () => {
        if (next() !== '"') wrong("no key");
        const key = string();
        if (isStrict && key in found) wrong("a key occurs twice");
        expect(":");
        found[key] = value(deep + 1);
      });
      return found;
    }
    for (const [word, told] of [
      ["true", true],
      ["false", false],
      ["null", null],
    ])
      if (text.startsWith(word, at)) {
        at += word.length;
        return told;
      }
    return number();
  };
  const found = value(0);
  return next() === undefined ? found : wrong("more than one value");
}
const byPoint = (a, b) => {
  const x = [...a],
    y = [...b];
  for (let i = 0; i < Math.min(x.length, y.length); i++)
    if (x[i] !== y[i]) return x[i].codePointAt(0) - y[i].codePointAt(0);
  return x.length - y.length;
};
const quoted = (text) =>
  JSON.stringify(text).replace(/[\x7f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
function double(v) {
  // the shortest text that reads back, always with a point or an exponent
  const [digits, power] = v.toExponential().split("e");
  if (!Number.isFinite(v)) return String(v);
  if (power < -4 || power >= 16) return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  return Object.is(v, -0) ? "-0.0" : Number.isInteger(v) ? `${v}.0` : String(v);
}
const isWhole = (number) => /^-?[0-9]+$/.test(number.text),
  numeral = (number) => (!isWhole(number) ? double(+number) : number.text === "-0" ? "0" : number.text);
function written(value, number, string, order) {
  const again = (item) => written(item, number, string, order);
  if (value instanceof Num) return number(value);
  if (typeof value === "string") return string(value);
  if (Array.isArray(value)) return `[${value.map(again).join(",")}]`;
  if (value === null || typeof value !== "object") return String(value);
  return `{${Object.keys(value)
    .sort(order)
    .map((key) => `${string(key)}:${again(value[key])}`)
    .join(",")}}`;
}
const plain = (value) => written(value, numeral, quoted, byPoint);
const jcs = (value) => written(value, (number) => JSON.stringify(Number(number.text)), JSON.stringify); // RFC 8785
const isNumber = (value) => value instanceof Num;
// ---- exact numbers ----
function rounded(value, digits) {
  // to so many decimals, a half to the even neighbour, of the exact binary value
  const scaled = BigInt(Math.abs(value).toFixed(60).replace(".", "")),
    unit = 10n ** BigInt(60 - digits);
  let whole = scaled / unit;
  const rest = 2n * (scaled % unit);
  if (rest > unit || (rest === unit && whole % 2n)) whole++;
  return Math.sign(value) * Number(`${whole}e${-digits}`) || 0;
}
const significant = (value, digits) =>
  value === 0
    ? 0
    : Math.abs(value) < 1e-20
      ? Number(value.toPrecision(digits)) // so small a double is never half way
      : rounded(value, digits - 1 - Number(Math.abs(value).toExponential(20).split("e")[1]));
function exactSum(numbers) {
  // Shewchuk's partial sums: rounded once
  const partials = [];
  for (let x of numbers) {
    let i = 0;
    for (let y of partials) {
      if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
      const high = x + y,
        low = y - (high - x);
      if (low) partials[i++] = low;
      x = high;
    }
    partials.length = i;
    partials.push(x);
  }
  return partials.reduceRight((sum, part) => sum + part, 0);
}
// ---- who signed a text: EIP-191, secp256k1 ----
const P = 2n ** 256n - 2n ** 32n - 977n,
  N = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n,
  mod = (a, m) => ((a % m) + m) % m;
const G = [
  0x79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798n,
  0x483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8n,
];
function inverse(a, m) {
  let [x, y, u, v] = [mod(a, m), m, 1n, 0n];
  while (x > 1n) {
    const q = y / x;
    [x, y, u, v] = [y - q * x, x, v - q * u, u];
  }
  return mod(u, m);
}
function add(p, q) {
  // points of the curve; null is the neutral one
  if (!p || !q) return p ?? q;
  const [x, y] = p,
    [u, v] = q;
  if (x === u && (y + v) % P === 0n) return null;
  const slope = mod(x === u ? 3n * x * x * inverse(2n * y, P) : (v - y) * inverse(u - x, P), P),
    w = mod(slope * slope - x - u, P);
  return [w, mod(slope * (x - w) - y, P)];
}
const times = (p, k) => {
  let sum = null;
  for (; k; k >>= 1n, p = add(p, p)) if (k & 1n) sum = add(sum, p);
  return sum;
};
function signer(text, signature) {
  // the address; null where that is not a signature
  const found = /^0x([0-9a-f]{64})([0-9a-f]{64})(00|01|1b|1c)$/.exec(signature),
    message = utf8(text);
  if (!found) return null;
  const [r, s] = [BigInt("0x" + found[1]), BigInt("0x" + found[2])],
    square = mod(r ** 3n + 7n, P);
  let y = 1n;
  for (let e = (P + 1n) / 4n, b = square; e; e >>= 1n, b = (b * b) % P) if (e & 1n) y = (y * b) % P;
  if (!r || !s || r >= N || s >= N || (y * y) % P !== square) return null;
  if (Number(y & 1n) !== parseInt(found[3], 16) % 27) y = P - y;
  const hash = BigInt(keccak(Buffer.concat([utf8(`\x19Ethereum Signed Message:\n${message.length}`), message]))),
    back = inverse(r, N),
    key = add(times([r, y], mod(s * back, N)), times(G, mod(-hash * back, N)));
  return key && "0x" + keccak(Buffer.from(key.map((c) => c.toString(16).padStart(64, "0")).join(""), "hex")).slice(-40);
}
// ---- 1. the file ----
const notes = (line) => {
  try {
    const { approvals = [], restarts = [] } = parse(`{${line.slice(2)}`, true);
    return { approved: approvals.map(({ approval: { of, at, by, note } }) => ({ of, at, by, note })), restarts };
  } catch {
    return { approved: [], restarts: [] };
  }
};
function lastLine(digest, { approved, restarts }) {
  // chained from the digest on, which each of them names
  let prev = digest;
  const links = approved.map((one, seq) => {
    const text = plain({ ...one, of: digest, prev, seq: new Num(String(seq)) });
    prev = sha256(utf8(text));
    return `{"hash":"${prev}","approval":${text}}`;
  });
  const again = restarts.length ? `,"restarts":${plain(restarts)}` : "";
  return `],"digest":"${digest}"${links.length ? `,"approvals":[${links.join(",")}]` : ""}${again}}`;
}
function readFile(path) {
  const bytes = readFileSync(path),
    text = bytes.toString("utf8"),
    lines = text.split("\n");
  if (Buffer.compare(utf8(text), bytes) || lines.pop() !== "")
    throw new Unreadable("the file is not UTF-8, or does not end with a line feed");
  if (lines.shift() !== '{"format":"clara-eval-trace/2","entries":[')
    throw new Unreadable("the first line is not that of clara-eval-trace/2");
  const ending = lines.pop(),
    bodies = new Map();
  let previous = ZERO;
  lines.forEach((line, seq) => {
    const found = /^\{"hash":"(0x[0-9a-f]{64})","entry":(.*)\}(,?)$/s.exec(line);
    if (!found || found[3] !== (seq < lines.length - 1 ? "," : ""))
      throw new Unreadable(`line ${seq + 2} is not an entry`);
    if (sha256(utf8(found[2])) !== found[1]) throw new Unreadable(`#${seq} was changed: its bytes have another hash`);
    const entry = parse(found[2], true),
      name = `#${seq} ${String(entry.key).slice(0, 120)}`;
    if (plain(entry) !== found[2]) throw new Unreadable(`${name} is not in the plain JSON form`);
    if (
      Object.keys(entry).sort().join() !== "body,key,prev,seq" ||
      typeof entry.key !== "string" ||
      entry.prev !== previous ||
      entry.seq.text !== String(seq)
    )
      throw new Unreadable(`${name} does not follow the entry before`);
    if (bodies.has(entry.key)) throw new Unreadable(`${name} occurs twice`);
    previous = found[1];
    bodies.set(entry.key, entry.body);
  });
  const said = notes(ending);
  if (
    ending !== lastLine(previous, said) ||
    said.approved.some((one) => misshapen(one, SHAPES.approval)) ||
    said.restarts.some((one) => misshapen(one, SHAPES.restart))
  )
    throw new Unreadable("the digest is not the hash of the last entry, or what follows it has another shape");
  return { bodies, digest: previous, restarts: said.restarts };
}
// ---- 2. entries: each has exactly these fields; s string, b boolean, i integer, n number, f number with a fraction, d decimal, a address, h hash, x hex, e base64, ? null, = one of these words ----
const TYPES = {
  s: (v) => typeof v === "string",
  b: (v) => typeof v === "boolean",
  n: isNumber,
  i: (v) => isNumber(v) && isWhole(v) && v.text[0] !== "-",
  f: (v) => isNumber(v) && !isWhole(v),
  "?": (v) => v === null,
  d: (v) => /^(0|[1-9][0-9]{0,77})$/.test(v) && BigInt(v) < 2n ** 256n,
  a: (v) => /^0x[0-9a-f]{40}$/.test(v),
  h: (v) => /^0x[0-9a-f]{64}$/.test(v),
  x: (v) => /^0x([0-9a-f]{2})*$/.test(v),
  e: (v) => typeof v === "string" && Buffer.from(v, "base64").toString("base64") === v,
};
const FLAG = (at) =>
    `${at}[].code:s ${at}[].severity:=info|warn|review ${at}[].sentence:s ${at}[].account:a? ${at}[].evidence.*:nbs?`,
  MARGIN = (at) =>
    `${at}.place:i ${at}.probability:f ${at}.word:s ${at}.item:s ${at}.nextItem:s ${at}.setChance:f ${at}.tied:b`;
const RECEIVED = `${["received", "linked"].map((at) => `${at}.content:e? ${at}.mediaType:s ${at}.immutable:b ${at}.note:s ${at}.code:s ${at}.reason:s ${at}.isOutage:b`).join(" ")} solutionHash:h accepted:b`;
const ANSWERED =
  "llm:s purpose:=schema|features|comparison answer.text:s answer.model:s answer.stop:=end|max_tokens|refusal answer.inputTokens:i answer.outputTokens:i answer.cachedTokens:i answer.cacheWriteTokens:i answer.sampling:s";
const SHAPES = Object.fromEntries(
  Object.entries({
    approval: "of:h at:i by:s note:s",
    restart: "at:i begunBy:s finishedBy:s answers:i",
    header: "software:s rules:i chainId:i challenge:a",
    folderHeader: "software:s rules:i folder:a",
    folder:
      "evalConfigHash:h winnerCount:i payoutBps[]:i entries[].id:s entries[].account:a entries[].solutionUri:s entries[].solutionHash:h entries[].submittedAt:i",
    challenge:
      "chainId:i address:a block.number:i block.hash:h block.timestamp:i poster:a evaluator:a token.address:a token.symbol:s token.decimals:i token.isKnown:b prizePool:d posterBond:d deadline:d scoringDeadline:d challengeUri:s evalConfigHash:h privateSetHash:h winnerCount:i payoutBps[]:i identityRegistry:a maxParticipants:d status:i submissionCount:i scorePostedAt:i submissions[].submitter:a submissions[].agentId:d submissions[].solutionUri:s submissions[].solutionHash:h submissions[].submittedAt:i submissions[].version:i replaced[].submitter:a replaced[].solutionHash:h replaced[].submittedAt:i replaced[].version:i contractVersion:s readAt.number:i readAt.hash:h readAt.timestamp:i",
    plan: "judges[]:s schedule:s maxGames:i? reader:s? tokens.thinking:i tokens.most:i tokens.growth:i reading.microUsd:i reading.input:i reading.output:i reading.answerTokens:i elo:=literal jury:=in-turn",
    rulings:
      "[].kind:=exclude|original|judge|default [].of:h [].at:i [].account:a? [].judge:s? [].stage:=reading|comparing|? [].note:s [].by:s",
    objections:
      "of:h at:i places[].address:a places[].rank:i places[].score:i places[].status:s raised[].submitter:a raised[].about:s raised[].reason:s raised[].signature:x judge:s?",
    metadata:
      "content:e evalConfig:s evalConfigHash:h hashKind:=string|canonical adapted[].path:s adapted[].written:s adapted[].taken:s adapted[].reason:s title:s",
    schema:
      "features[].name:s features[].type:=number|integer|boolean|enum|text features[].min:n? features[].max:n? features[].values[]:s features[].better:=higher|lower|? features[].weight:n features[].source:=measured|llm features[].description:s features[].anchors[]:s typedByModel[]:s",
    prompts: "*.text:s *.sha256:h",
    accepted: `${RECEIVED} keccak:h sha256:h hashKind:=content|uri pinned:b language:s? files[].path:s files[].bytes:i files[].sha256:h files[].kind:=code|text|binary|omitted`,
    refused: `${RECEIVED} code:s reason:s`,
    rejected: "[].account:a [].code:s [].reason:s [].isOutage:b",
    similar: "[].earlier:a [].later:a [].kind:=tokens|renamed|statements|minified [].share:n [].contested:b",
    families: "*:a",
    execution: "harness:s language:s? reason:s hidden:b reveal:e? machine.*:snb",
    executed:
      "language:s outcome:s withHarness:b calls[].name:s calls[].kind:=setUp|test|metric calls[].outcome:s calls[].used:i calls[].value:sn? facts.*:nb?",
    features: `features.*:nbs? text.*:s measured.*:nb? claimed.*:nbs? ${FLAG("flags")} requests[]:h secondView:=read|same|missing|none unsupported[]:s`,
    attestation: "[].run:s [].judge:s [].key:s [].report:s [].collateral:s [].fetchedAt:i",
    answers: "count:i",
    answer: ANSWERED,
    signed: `${ANSWERED} signed.interface:=near|aci signed.key:s signed.request:e signed.response:e signed.proof:s`,
    unanswered: "*:s",
    schedule: "name:s reason:s games:i",
    verdicts: "judge:s items[]:a count:i sha256:h",
    comparison: "first:a second:a judge:s winner:=first|second|tie|? confidence:f? reason:s requests[]:h group[]:a",
    ranking: `standings[].item:a standings[].rank:i standings[].elo:f standings[].score:i standings[].low:f standings[].high:f standings[].pTop:f standings[].wins:i standings[].losses:i standings[].ties:i standings[].theta:f standings[].thetaLow:f standings[].thetaHigh:f standings[].rankLow:i standings[].rankHigh:i standings[].pRank[]:f winnerCount:i payoutBps[]:i ${MARGIN("margin")} ${MARGIN("margins[]")} misallocation:f decidingVerdicts:i? positionBias:f consistency.cycles:i consistency.decidedTriples:i consistency.cyclicShare:f? consistency.coverage:f consistency.swapConsistency:f? consistency.swaps:i consistency.judges[].judge:s consistency.judges[].games:i consistency.judges[].agreement:f? consistency.judges[].compared:i consistency.judges[].positionBias:f consistency.judges[].positionBiasSd:f consistency.judges[].firstShare:f consistency.groups:i consistency.unplayed[]:a consistency.pivotalItems[]:a consistency.pivotalClusters[]:a ${FLAG("flags")} results:i literal:b ties[][]:a orderedBy:s`,
    placed: "[].account:a [].score:i",
    flags: FLAG(""),
    winners: "[].account:a [].agentId:d [].score:i [].prizeAmount:d",
    calldata: ":x",
  }).map(([kind, told]) => [kind, shapeOf(told)]),
);
function shapeOf(told) {
  // a tree: the names of an object, * for any name, [] for each of a list; under "" the types of a value
  const root = {};
  for (const field of told.split(" ")) {
    const [path, types] = field.split(":");
    let at = root;
    for (const step of path.match(/\[\]|[^.[\]]+/g) ?? []) at = at[step] ??= {};
    at[""] = types;
  }
  return root;
}
function misshapen(value, shape, path = "") {
  // the first place that has another shape; null where there is none
  const first = (places) => {
    for (const [key, part, inner] of places) {
      const found = misshapen(part, inner, `${path}.${key}`);
      if (found) return found;
    }
    return null;
  };
  const told = shape[""];
  if (told?.[0] === "=")
    return told
      .slice(1)
      .split("|")
      .includes(value === null ? "?" : value)
      ? null
      : path;
  if (told !== undefined) return [...told].some((type) => TYPES[type](value)) ? null : path || "the body";
  if (shape["[]"])
    return Array.isArray(value) ? first(value.map((one, i) => [i, one, shape["[]"]])) : path || "the body";
  if (value === null || typeof value !== "object" || Array.isArray(value) || isNumber(value)) return path || "the body";
  const names = Object.keys(value);
  if (shape["*"]) return first(names.map((name) => [name, value[name], shape["*"]]));
  const odd =
    names.find((name) => !Object.hasOwn(shape, name)) ??
    Object.keys(shape).find(
      (name) =>
        !names.includes(name) &&
        !["tokens", "reading", "readAt", "elo", "jury", "files", "linked", "sampling"].includes(name),
    );
  return odd === undefined ? first(names.map((name) => [name, value[name], shape[name]])) : `${path}.${odd}`;
}
function checkEntries(bodies) {
  // all that section 2 names, in its order, and nothing else
  for (const [key, body] of bodies) {
    const kind = key.split("/")[0],
      name =
        kind === "solution"
          ? body?.accepted === true
            ? "accepted"
            : "refused"
          : kind === "answer" && body?.signed !== undefined
            ? "signed"
            : key === "header" && body?.folder !== undefined
              ? "folderHeader"
              : kind,
      odd =
        !Object.hasOwn(SHAPES, name) || ["approval", "accepted", "refused", "signed", "folderHeader"].includes(kind)
          ? "its name"
          : key === "ranking" && body === null
            ? null
            : misshapen(body, SHAPES[name]);
    if (odd)
      throw new Unreadable(`${key.slice(0, 120)} has another shape than rules ${RULES} say, at ${odd.slice(0, 120)}`);
  }
  const isFolder = bodies.get("header").folder !== undefined,
    submissions = submissionsOf(bodies),
    known = new Set(submissions.map((s) => s.submitter)),
    keys = [...bodies.keys()],
    having = (...wanted) => wanted.filter((key) => bodies.has(key)),
    of = (kind, isOne) => keys.filter((key) => key.startsWith(`${kind}/`) && isOne(key.slice(kind.length + 1))).sort(),
    own = (who) => known.has(who);
  const order = [
    "header",
    isFolder ? "folder" : "challenge",
    "plan",
    "rulings",
    ...(isFolder ? [] : having("objections")),
    "metadata",
    "schema",
    "prompts",
    ...submissions.map((s) => `solution/${s.submitter}`),
    "rejected",
    "similar",
    "families",
    ...having("execution"),
    ...of("executed", own),
    ...of("features", own),
    ...having("attestation"),
    "answers",
    ...of("answer", TYPES.h),
    "unanswered",
    "schedule",
    ...having("verdicts"),
    ...of("comparison", (n) => /^[0-9]{7}$/.test(n)),
    "ranking",
    "placed",
    "flags",
    ...(isFolder ? [] : ["winners", "calldata"]),
  ];
  const at = order.findIndex((key, i) => key !== keys[i]),
    odd = at < 0 ? order.length : at;
  if (keys.length !== order.length || at >= 0)
    throw new Unreadable(`#${odd} ${String(keys[odd]).slice(0, 120)} stands where ${order[odd] ?? "the end"} belongs`);
}
const submissionsOf = (bodies) =>
  bodies.get("challenge")?.submissions ??
  bodies.get("folder").entries.map((one) => ({ ...one, submitter: one.account }));
function roundOf(bodies) {
  // section 13: a folder, as the challenge that the rest checks
  const challenge = bodies.get("challenge"),
    folder = bodies.get("folder"),
    header = bodies.get("header"),
    short = (bytes) => "0x" + keccak(bytes).slice(-40);
  if (challenge) {
    hold(
      +header.chainId === +challenge.chainId && header.challenge === challenge.address,
      "header",
      "it is about another challenge",
    );
    return { ...challenge, run: `${+challenge.chainId}:${challenge.address}` };
  }
  const address = short(utf8(plain(folder))),
    { entries } = folder;
  hold(header.folder === address, "header", "it is about another folder");
  hold(entries.length > 1 && +folder.winnerCount > 0, "folder", "there are too few entries or winners");
  hold(
    entries.every(
      (one, i) =>
        one.account === short(utf8(`clara-eval entry\n${one.id}`)) && (!i || entries[i - 1].account < one.account),
    ),
    "folder",
    "the accounts are not those of the ids, in order",
  );
  return {
    ...folder,
    isFolder: true,
    address,
    run: `folder:${address}`,
    challengeUri: "",
    privateSetHash: ZERO,
    submissions: submissionsOf(bodies),
  };
}
// ---- objections ----
function checkObjections({ of, at, raised, judge }, rulings, challenge) {
  const who = new Set(challenge.submissions.map((s) => s.submitter));
  hold(
    raised.length > 0 && raised.every((one, i) => !i || raised[i - 1].submitter < one.submitter),
    "objections",
    "nobody objected, or they are not in order",
  );
  for (const { submitter, about, reason, signature } of raised) {
    const text = `Clara Eval: object to a draft result\nchain: ${+challenge.chainId}\nchallenge: ${challenge.address}\ntraceDigest: ${of}\nabout: ${about}\nreason: ${reason}`,
      isLow = /^0x[0-9a-f]{128}1[bc]$/.test(signature) && BigInt("0x" + signature.slice(66, 130)) <= N / 2n;
    hold(
      who.has(submitter) && isLow && signer(text, signature) === submitter,
      "objections",
      `the objection of ${submitter} is not signed by that submitter`,
    );
    const stage = { feature: "reading", game: "comparing" }[about.split(":")[0]];
    if (!stage || judge === null) continue;
    hold(
      rulings.some(
        (r) =>
          r.kind === "judge" &&
          r.of === of &&
          +r.at === +at &&
          r.stage === stage &&
          r.judge === judge &&
          r.account === null &&
          r.note === "A submitter objected to the draft.",
      ),
      "objections",
      "what was objected to was not done again as it says",
    );
  }
}
// ---- 3. the config ----
const STRANGE = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\ufe00-\ufe0f\u{e0100}-\u{e01ef}\u180b-\u180f\u034f]/gu;
function shown(text) {
  let now = text.replace(/^\ufeff/, "").replace(/\r\n|\r|\u2028|\u2029/g, "\n"),
    before;
  const without = (t) => t.replace(STRANGE, (c) => (c === "\n" || c === "\t" ? c : ""));
  do {
    before = now;
    now = without(without(now).normalize("NFKC"));
  } while (now !== before);
  return now.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
function checkConfig(body, challenge) {
  const content = Buffer.from(body.content, "base64");
  hold(
    keccak(utf8(body.evalConfig)) === challenge.evalConfigHash && body.evalConfigHash === challenge.evalConfigHash,
    "metadata",
    "the config's Keccak is not the committed evalConfigHash",
  );
  const uri = /^data:/i.test(challenge.challengeUri) ? dataUri(challenge.challengeUri) : null;
  if (uri)
    hold(uri.bytes && !Buffer.compare(uri.bytes, content), "metadata", "the content is not what challengeUri holds");
  const told = parse(content.toString("utf8"), true),
    config = told.evalConfig;
  hold(
    (body.hashKind === "string" ? config : jcs(config)) === body.evalConfig,
    "metadata",
    "evalConfig is not the member of the metadata",
  );
  hold(
    body.title === (typeof told.title === "string" ? told.title : ""),
    "metadata",
    "the title is not the metadata's",
  );
  return parse(body.evalConfig, true);
}
function checkSchema(config, features, adapted) {
  // as the config says, field by field; a weight that it does not give is 1
  if (adapted.some((change) => change.path.startsWith("$.features"))) return;
  const same = (given, value) =>
      isNumber(given) && isNumber(value) ? +given === +value : plain(given) === plain(value),
    given = config.features.map((one) => (typeof one === "string" ? { name: one } : one));
  if (
    !hold(
      given.map((one) => one.name).join("\n") === features.map((one) => one.name).join("\n"),
      "schema",
      "its features are not those of the config, in its order",
    )
  )
    return;
  given.forEach((one, i) =>
    hold(
      Object.keys(one).every((name) => same(one[name], features[i][name])) &&
        (one.weight !== undefined || +features[i].weight === 1),
      "schema",
      `${one.name} is not as the config says`,
    ),
  );
}
// ---- 4. submissions ----
function dataUri(uri) {
  const rest = uri.slice(5),
    comma = rest.indexOf(",");
  if (comma < 0 || comma > 256) return { bytes: null };
  const parts = rest
    .slice(0, comma)
    .split(";")
    .map((part) => part.trim());
  let payload = rest.slice(comma + 1),
    bytes;
  const type = parts[0].toLowerCase(),
    mediaType = /^[a-z0-9!#$&^_.+-]{1,64}\/[a-z0-9!#$&^_.+-]{1,64}$/.test(type) ? type : "text/plain";
  if (parts.length > 1 && parts.at(-1).toLowerCase() === "base64") {
    if (payload.includes("%")) {
      const decoded = percent(payload);
      if (!decoded) return { bytes: null, mediaType };
      payload = decoded.toString("latin1");
    }
    bytes = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(payload)
      ? Buffer.from(payload, "base64")
      : null;
  } else bytes = percent(payload);
  return { bytes, mediaType };
}
function percent(text) {
  if (/%(?![0-9a-fA-F]{2})/.test(text) || /[#\x00-\x1f\x7f]/.test(text)) return null;
  return Buffer.concat(
    text
      .split(/(%[0-9a-fA-F]{2})/)
      .map((part) => (/^%[0-9a-fA-F]{2}$/.test(part) ? Buffer.from(part.slice(1), "hex") : utf8(part))),
  );
}
const MAGIC = ["89504e47", "ffd8ff", "47494638", "255044462d", "504b0304", "1f8b", "7f454c46", "0061736d", "52494646"];
const estimate = (text) => {
  let ascii = 0,
    other = 0;
  for (const c of text) c < "\x80" ? ascii++ : (other += utf8(c).length);
  return Math.ceil(ascii / 3) + other;
};
const LINK = /^[ \t\r\n]*(https?|ipfs):\/\/[!-~]{1,2000}[ \t\r\n]*$/i,
  judgedFirst = (content, { solutionUri, solutionHash }, form) =>
    content.length > 262144
      ? "too_large"
      : ![keccak(content), keccak(utf8(solutionUri))].includes(solutionHash)
        ? "wrong_hash"
        : form === "url" && !LINK.test(content.toString("latin1"))
          ? "not_url"
          : null;
function judged(content, body, form) {
  // the first check that fails, or null
  if (content.length > 262144) return "too_large";
  if (isArchive(content)) return judgedFiles(content, body, form);
  const hex = content.toString("hex", 0, 8),
    text = content.toString("utf8");
  if (content.includes(0) || MAGIC.some((start) => hex.startsWith(start))) return "binary";
  return Buffer.compare(utf8(text), content)
    ? "not_utf8"
    : isControlled(text)
      ? "binary"
      : judgedText(text, text, form);
}
const isControlled = (text) =>
    (text.match(/[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]/g) ?? []).length > [...text].length / 100,
  cost = (text) => Math.max(estimate(text), estimate(text.normalize("NFKC")));
const isBinary = (body) =>
  body.includes(0) ||
  MAGIC.some((start) => body.toString("hex", 0, 8).startsWith(start)) ||
  Buffer.compare(utf8(body.toString("utf8")), body) !== 0 ||
  isControlled(body.toString("utf8"));
const isShort = (form) => ["text", "json"].includes(form),
  isJson = (text) => {
    let deep = 0;
    for (const sign of text.replace(/"(?:[^"\\]|\\.)*"/gs, "").match(/[[{}\]]/g) ?? [])
      if ((deep += "[{".includes(sign) ? 1 : -1) > 64) return false;
    try {
      JSON.parse(text);
      return true;
    } catch {
      return false;
    }
  };
const judgedText = (text, all, form) =>
  (text.match(/[\p{L}\p{N}]/gu) ?? []).length < (isShort(form) ? 1 : 8) ||
  (text.match(/[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu) ?? []).length < (isShort(form) ? 1 : 4)
    ? "empty"
    : form === "json" && !isJson(all)
      ? "not_json"
      : cost(all) > 100000
        ? "too_large"
        : null;
function judgedFiles(content, { accepted, code, files: told = [], language }, form) {
  // of a refused archive only that the code is one of archives
  if (!accepted) return ["bad_archive", "too_large", "empty", "not_json"].includes(code) ? code : "bad_archive";
  const files = unpack(content);
  if (!files) return "bad_archive";
  if (
    files.length !== told.length ||
    files.some(
      ([path, body], i) => path !== told[i].path || body.length !== +told[i].bytes || sha256(body) !== told[i].sha256,
    )
  )
    return "other files";
  if (kindsOf(files, language, isBinary, cost).some((kind, i) => kind !== told[i].kind)) return "other kinds of files";
  const { body, document } = texts(files, told, language);
  return judgedText(body, document, form);
}
const decoded = ({ content }) => (content === null ? null : Buffer.from(content, "base64")),
  sentBy = ({ received, linked }) => decoded(linked ?? received);
function checkSolution(submission, body, form) {
  const key = `solution/${submission.submitter}`,
    { received, linked } = body,
    content = decoded(received),
    work = sentBy(body),
    first = content ? judgedFirst(content, submission, form) : received.code;
  hold(body.solutionHash === submission.solutionHash, key, "solutionHash is not the chain's");
  if (/^data:/i.test(submission.solutionUri)) {
    const uri = dataUri(submission.solutionUri);
    if (content)
      hold(
        uri.bytes &&
          !Buffer.compare(uri.bytes, content) &&
          received.mediaType === uri.mediaType &&
          received.immutable === true &&
          received.note === "",
        key,
        "what was received is not what the data: URI holds",
      );
    else
      hold(
        uri.bytes === null
          ? ["bad_data_uri", "too_large"].includes(received.code)
          : uri.bytes.length > 262144 && received.code === "too_large",
        key,
        "the data: URI holds content that was not received",
      );
  }
  hold(!!linked === (form === "url" && first === null), key, "what its URL leads to is missing, or there is no URL");
  const code = first ?? (work ? judged(work, body, form) : linked.code);
  hold(body.accepted === !code, key, `the checks give ${code || "accepted"}`);
  if (!body.accepted)
    return hold(
      body.code === code && (content || body.reason === received.reason),
      key,
      `the checks give the code ${code}`,
    );
  const kind = submission.solutionHash === keccak(content) ? "content" : "uri";
  hold(body.keccak === keccak(work) && body.sha256 === sha256(work), key, "the hashes are not those of the content");
  hold(
    body.hashKind === kind &&
      body.pinned === ((kind === "content" || received.immutable) && linked?.immutable !== false),
    key,
    "hashKind or pinned is wrong",
  );
}
function checkRejected(bodies, submissions) {
  const rejected = bodies.get("rejected"),
    at = new Map(submissions.map((s) => [s.submitter, Number(s.submittedAt)]));
  const order = [...rejected].sort((a, b) => at.get(a.account) - at.get(b.account) || (a.account < b.account ? -1 : 1));
  hold(
    rejected.every((row, i) => row === order[i]) && new Set(rejected.map((r) => r.account)).size === rejected.length,
    "rejected",
    "they are not in order, or twice",
  );
  const named = new Map(rejected.map((row) => [row.account, row]));
  for (const { submitter } of submissions) {
    const body = bodies.get(`solution/${submitter}`),
      row = named.get(submitter);
    if (!body.accepted && row?.code !== "excluded")
      hold(
        row && row.code === body.code && row.reason === body.reason,
        "rejected",
        `${submitter} was not accepted and does not stand here as such`,
      );
    else if (row)
      hold(
        ["copy", "unevaluable", "excluded"].includes(row.code),
        "rejected",
        `${submitter} was accepted: only a copy, an unevaluable or an excluded one may stand here`,
      );
    hold(
      (row?.code === "excluded") ===
        bodies.get("rulings").some((ruling) => ruling.kind === "exclude" && ruling.account === submitter),
      "rejected",
      `${submitter} is excluded exactly where a ruling says so`,
    );
    const facts = bodies.get(`features/${submitter}`);
    hold(!facts === (!!row && row.code !== "unevaluable"), "rejected", `${submitter} is either ranked or rejected`);
    if (facts)
      hold(
        Object.values(facts.features).every((value) => value === null) === (row?.code === "unevaluable"),
        "rejected",
        `${submitter} is unevaluable exactly where nothing is known about it`,
      );
  }
  hold(
    rejected.every((row) => at.has(row.account)),
    "rejected",
    "somebody did not submit",
  );
}
// ---- 5. facts ----
const WORD = /[\p{L}\p{N}_]+(?:['’][\p{L}\p{N}_]+)?/gu;
function textFeatures(content, isProse) {
  const text = content.toString("utf8"),
    lines = text.replaceAll("\r\n", "\n").split("\n");
  if (lines.at(-1) === "") lines.pop();
  const words = text.match(WORD) ?? [],
    share = (n) => (lines.length ? n / lines.length : null);
  const found = {
    bytes: content.length,
    lines: lines.length,
    words: words.length,
    blank_share: share(lines.filter((line) => !line.trim()).length),
    long_lines_share: share(lines.filter((line) => [...line].length > 120).length),
    todo_count: (text.match(/(?<![\p{L}\p{N}_])(?:TODO|FIXME|XXX|HACK)(?![\p{L}\p{N}_])/gu) ?? []).length,
  };
  if (isProse)
    found.sentences = text
      .split(/(?<![.!?…。！？])[.!?…。！？]+(?=\s|$)|\n\s*\n/u)
      .filter((part) => part.match(WORD)).length;
  return found;
}
function quantised(feature, value) {
  if (!isNumber(value)) return value;
  const { min: low, max: high } = feature,
    bounded = low !== null && high !== null,
    clamped = Math.min(Math.max(+value, low === null ? -1e12 : +low), high === null ? 1e12 : +high);
  if (feature.type === "integer")
    return rounded(
      feature.source !== "measured" && bounded && high - low > 1000 ? significant(clamped, 3) : clamped,
      0,
    );
  if (!bounded || (feature.source === "measured" && high - low > 1000))
    return significant(clamped, feature.source === "measured" ? 4 : 3);
  const step = (high - low) / 1000;
  return significant(+low + rounded((clamped - low) / step, 0) * step, 6);
}
const fits = (feature, value) =>
  value !== undefined &&
  value !== null &&
  (feature.type === "boolean"
    ? typeof value === "boolean"
    : feature.type === "enum"
      ? feature.values.includes(value)
      : isNumber(value));
const featureName = (name) =>
    name
      .toLowerCase()
      .replace(/[^a-z0-9_]/g, "_")
      .slice(0, 40),
  within = (value) => (value === null ? null : Math.min(Math.max(+value, -1e12), 1e12));
function runFeatures(run) {
  const tests = run.calls.filter((call) => call.kind === "test"),
    passed = (call) => call.outcome === "passed",
    runs =
      run.calls.length > 0 && run.calls.every((call) => ["passed", "failed", "not_a_number"].includes(call.outcome));
  const found = run.outcome === "infrastructure" ? {} : { ...run.facts },
    share = tests.length ? tests.filter(passed).length / tests.length : runs ? null : 0;
  if (run.outcome === "infrastructure" || !run.withHarness) return found;
  const ofCall = (call) => [
    [featureName(call.name), call.kind === "test" ? passed(call) : within(call.value)],
    [
      featureName(`${run.language === "solidity" ? "gas" : "fuel"}_${call.name.replace(/^[^_]*_/, "")}`),
      passed(call) ? call.used : null,
    ],
  ];
  return {
    ...found,
    runs,
    tests_passed: share,
    ...Object.fromEntries(run.calls.filter((call) => call.kind !== "setUp").flatMap(ofCall)),
  };
}
function checkFeatures(key, body, schema, solution, run) {
  const sent = sentBy(solution),
    content = solution.files ? utf8(texts(unpack(sent) ?? [], solution.files, solution.language).code) : sent,
    asNumber = (value) => (typeof value === "boolean" ? value : +value);
  if (run)
    for (const [name, value] of Object.entries(runFeatures(run)))
      if (name in body.measured)
        hold(
          value === null
            ? body.measured[name] === null
            : body.measured[name] !== null && asNumber(body.measured[name]) === asNumber(value),
          key,
          `measured ${name} is not what running it gave`,
        );
  for (const [name, value] of Object.entries(textFeatures(content, [null, "text", "json"].includes(solution.language))))
    if (name in body.measured)
      hold(
        value === null
          ? body.measured[name] === null
          : isNumber(body.measured[name]) &&
              body.measured[name].text === (name.endsWith("_share") ? double(value) : String(value)),
        key,
        `measured ${name} is ${value}`,
      );
  hold(
    Object.keys(body.features).sort().join() ===
      schema
        .map((f) => f.name)
        .sort()
        .join(),
    key,
    "the vector has other names than the schema",
  );
  for (const feature of schema) {
    const { name } = feature,
      measured = body.measured[name],
      claimed = body.claimed[name];
    const value = fits(feature, measured)
      ? measured
      : feature.source === "llm" && fits(feature, claimed)
        ? claimed
        : null;
    const got = body.features[name],
      wanted = quantised(feature, value),
      place = (v) => (feature.type === "enum" ? feature.values.indexOf(v) : +v),
      sign = { higher: 1, lower: -1 }[feature.better];
    if (
      body.unsupported.includes(name) &&
      value === claimed &&
      (got === null || (sign && fits(feature, got) && sign * place(got) < sign * place(wanted)))
    )
      continue; // a claim without support may count for less
    hold(
      isNumber(got) ? +got === wanted && /^-?\d+$/.test(got.text) === (feature.type === "integer") : got === wanted,
      key,
      `${name} is ${plain(got ?? null)}, its evidence gives ${wanted}`,
    );
  }
}
// ---- 6. requests of comparisons ----
const general = (value) => {
  const v = +value;
  if (v === 0) return "0";
  const e = Number(v.toExponential(5).split("e")[1]);
  if (e >= -4 && e < 6) return String(Number(v.toPrecision(6)));
  const [m, x] = v.toExponential(5).split("e");
  return `${Number(m)}e${x[0]}${x.slice(1).padStart(2, "0")}`;
};
function featureLine(feature) {
  const kind =
    { enum: `one of ${feature.values.map(shown).join(", ")}`, boolean: "true or false" }[feature.type] ?? feature.type;
  const span =
    !["enum", "boolean"].includes(feature.type) && feature.min !== null && feature.max !== null
      ? ` from ${general(feature.min)} to ${general(feature.max)}`
      : "";
  const better = feature.better ? `; ${feature.better} is better` : "",
    weight = +feature.weight === 1 ? "" : `; weight ${general(feature.weight)}`;
  const anchors = feature.anchors
    .map((anchor, i) => `\n    ${+(feature.min ?? 0) + i}: ${shown(anchor).replaceAll("\n", " ")}`)
    .join("");
  const words = shown(feature.description).replaceAll("\n", " ");
  return `- ${feature.name} (${kind}${span}${better}${weight}): ${words}${anchors}`;
}
const ANSWER = plain(
  parse(
    '{"type":"object","properties":{"winner":{"type":"string","enum":["A","B","tie"]},"confidence":{"type":"number","description":"From 0.0 to 1.0."},"reason":{"type":"string","description":"One brief sentence."}},"required":["winner","confidence","reason"],"additionalProperties":false}',
  ),
);
const ORDER = plain(
  parse(
    '{"type":"object","properties":{"order":{"type":"array","items":{"type":"string","enum":["A","B","C","D"]},"description":"Every letter once, best first."},"reason":{"type":"string","description":"One brief sentence."}},"required":["order","reason"],"additionalProperties":false}',
  ),
);
const filled = (text, places) => text.replace(/\{\{(\w+)\}\}/g, (whole, name) => places[name] ?? whole);
const BARE = 400; // tokens of a verdict without thinking
function comparisonRequest(bodies, config, schema, { first, second, group, judge }, attempt, limit) {
  // about two, or about the four of a group
  const prompts = bodies.get("prompts"),
    name = group.length ? "order" : "compare",
    vectors = (group.length ? group : [first, second]).map((who) => plain(bodies.get(`features/${who}`).features));
  const system = filled(prompts[`${name}.system`].text, {
      criteria: shown(config.criteria),
      features: schema.map(featureLine).join("\n"),
    }),
    again = attempt
      ? `\nAsked again (${attempt}): return ONLY the JSON object, complete, with exactly the stated fields.\n`
      : "";
  const user =
    filled(
      prompts[`${name}.user`].text,
      Object.fromEntries(["first", "second", "third", "fourth"].map((place, i) => [place, vectors[i]])),
    ) + again;
  return sha256(
    utf8(
      plain({
        llm: judge,
        purpose: "comparison",
        system,
        user,
        schema: group.length ? ORDER : ANSWER,
        maxTokens: new Num(String(limit)),
        attempt: new Num(String(attempt)),
      }),
    ),
  );
}
function readVerdict(answer, isOrder) {
  // null where it cannot be used
  const bare = answer.text.slice(answer.text.indexOf("{"), answer.text.lastIndexOf("}") + 1);
  if (answer.stop !== "end" || bare.length > 16384) return null; // words around the object do not count
  try {
    const told = parse(bare, true),
      names = Object.keys(told).sort(),
      isRight =
        utf8(bare).length <= 16384 &&
        names.join() === (isOrder ? "order,reason" : "confidence,reason,winner") &&
        typeof told.reason === "string" &&
        (isOrder
          ? Array.isArray(told.order) && told.order.length === 4 && [...told.order].sort().join() === "A,B,C,D"
          : ["A", "B", "tie"].includes(told.winner) &&
            isNumber(told.confidence) &&
            told.confidence >= 0 &&
            told.confidence <= 1);
    return isRight ? told : null;
  } catch {
    return null;
  }
}
function withoutThinking(text) {
  // what follows the thinking that stands before an answer
  if (/^[ \t\r\n]*(?:\{|```)/.test(text)) return text;
  const ends = [
    ...text.matchAll(/<\/(?:think|thinking|thought|reasoning)>|\[\/THINK\]|<\|channel\|>final<\|message\|>/gi),
  ];
  return ends.length
    ? text.slice(ends.at(-1).index + ends.at(-1)[0].length)
    : /^[ \t\r\n]*(?:<(?:think|thinking|thought|reasoning)>|\[THINK\]|<\|channel\|>)/i.test(text)
      ? ""
      : text;
}
function nextLimit(tokens, limit, wasCut, { stop, text, outputTokens }) {
  // what follows an answer that its limit ended: a limit, null at the bound, undefined where it ended by itself
  if (stop === "max_tokens" || (stop === "end" && /^[ \t\r\n]*$/.test(withoutThinking(text)))) {
    const larger = Math.min(limit * tokens.growth, +tokens.most);
    return larger > limit ? larger : null;
  }
  return stop === "refusal" && +outputTokens === 0 && (wasCut || limit > BARE) ? (wasCut ? null : BARE) : undefined;
}
function checkModelVerdict(key, bodies, config, schema, comparison) {
  const { group } = comparison,
    [a, b, ...four] = [comparison.first, comparison.second, ...group].map((who) =>
      plain(bodies.get(`features/${who}`).features),
    ),
    isOrder = four.length > 0;
  if (isOrder ? four.every((vector) => vector === a) : a === b)
    return hold(
      comparison.winner === "tie" &&
        (isOrder ? comparison.confidence === null : +comparison.confidence === 1) &&
        comparison.requests.length === 0,
      key,
      "equal facts are a tie that nobody is asked about",
    );
  const verdict = (told) =>
    !isOrder
      ? { A: "first", B: "second", tie: "tie" }[told.winner]
      : a === b
        ? "tie"
        : told.order.indexOf("ABCD"[group.indexOf(comparison.first)]) <
            told.order.indexOf("ABCD"[group.indexOf(comparison.second)])
          ? "first"
          : "second";
  const { tokens } = bodies.get("plan"),
    first = tokens ? Math.max(BARE, Math.min(BARE + +tokens.thinking, +tokens.most)) : BARE;
  let attempt = 0,
    limit = first,
    wasCut = false;
  comparison.requests.forEach((request, number) => {
    const answer = bodies.get(`answer/${request}`);
    if (
      !hold(
        limit !== null && request === comparisonRequest(bodies, config, schema, comparison, attempt, limit),
        key,
        `request ${number} is not the hash of this question`,
      )
    )
      return;
    if (
      !hold(
        answer && answer.llm === comparison.judge && answer.purpose === "comparison",
        key,
        `the answer to request ${number} is missing`,
      )
    )
      return;
    const isLast = number === comparison.requests.length - 1,
      next = tokens && nextLimit(tokens, limit, wasCut, answer.answer);
    if (next !== undefined) {
      hold(!isLast || comparison.winner === null, key, "there is a verdict, although the answer was cut");
      limit = next;
      wasCut ||= answer.answer.stop !== "refusal";
      return;
    }
    const told = readVerdict(
      tokens ? { ...answer.answer, text: withoutThinking(answer.answer.text) } : answer.answer,
      isOrder,
    );
    attempt++;
    limit = first;
    wasCut = false;
    if (!isLast || comparison.winner === null)
      return hold(told === null, key, `the answer to request ${number} can be used`);
    hold(
      told &&
        verdict(told) === comparison.winner &&
        (isOrder ? comparison.confidence === null : +told.confidence === +comparison.confidence),
      key,
      "the verdict is not what the answer says",
    );
  });
  if (comparison.winner === null && attempt < 3 && limit !== null)
    hold(Object.keys(bodies.get("unanswered")).length > 0, key, "no verdict, although nothing stayed unanswered");
}
// ---- 7. rules ----
function goodness(feature, value) {
  if (value === null) return 0;
  let s;
  if (feature.type === "boolean") s = value ? 1 : 0;
  else if (feature.type === "enum") s = feature.values.indexOf(value) / Math.max(1, feature.values.length - 1);
  else if (feature.min === null) s = 0.5 + Math.sign(+value) * (Math.log1p(Math.abs(+value)) / Math.log1p(1e12) / 2);
  else {
    const low = +feature.min,
      high = feature.max === null ? 1e12 : +feature.max;
    s =
      high - low <= 100 ? (value - low) / (high - low) : Math.log1p(Math.max(0, value - low)) / Math.log1p(high - low);
  }
  s = Math.min(1, Math.max(0, s));
  return 0.05 + 0.95 * (feature.better === "lower" ? 1 - s : s);
}
const merit = (schema, vector) =>
  exactSum(schema.map((f) => +f.weight * goodness(f, vector[f.name]))) / exactSum(schema.map((f) => +f.weight));
function checkRulesVerdict(key, bodies, schema, c) {
  const [a, b] = [c.first, c.second].map((who) => bodies.get(`features/${who}`).features),
    gap = merit(schema, a) - merit(schema, b);
  const winner = Math.abs(gap) <= 0.0001 ? "tie" : gap > 0 ? "first" : "second",
    confidence = winner === "tie" ? 0.5 : rounded(0.5 + 0.5 * Math.min(1, Math.abs(gap) / 0.5), 3);
  hold(
    c.winner === winner && Math.abs(+c.confidence - confidence) < 1e-9 && c.requests.length === 0,
    key,
    `rules say ${winner} with confidence ${confidence}`,
  );
  if (winner === "tie") return;
  const [won, lost] = winner === "first" ? [a, b] : [b, a];
  const gains = schema
    .map((f) => [+f.weight * (goodness(f, won[f.name]) - goodness(f, lost[f.name])), f.name])
    .filter(([gain]) => gain > 1e-12)
    .sort((x, y) => y[0] - x[0] || byPoint(x[1], y[1]))
    .slice(0, 3);
  const show = (v) => (isNumber(v) ? v.text : v === null ? "unknown" : String(v));
  hold(
    gains.every(([, name]) => c.reason.includes(`${name} ${show(won[name])} against ${show(lost[name])}`)),
    key,
    "the reason names other facts",
  );
}
function looks(name, count, most, judges) {
  // all that full or both show
  const once = [];
  for (let i = 0; i < count; i++) for (let j = i + 1; j < count; j++) once.push((i + j) % 2 ? [i, j] : [j, i]);
  return (name === "both" ? once.concat(once.map(([a, b]) => [b, a])) : once).slice(
    0,
    most === null ? undefined : Math.floor(Math.max(0, +most) / judges),
  );
}
function checkVerdicts(bodies, items, schema, name, games) {
  // a large round by rules: all verdicts behind one hash
  const body = bodies.get("verdicts"),
    merits = items.map((who) => merit(schema, bodies.get(`features/${who}`).features)),
    all = looks(name, items.length, bodies.get("plan").maxGames, 1).sort((x, y) => x[0] - y[0] || x[1] - y[1]),
    bytes = Buffer.alloc(9 * all.length);
  const half = all.map(([a, b]) => {
    const gap = merits[a] - merits[b];
    return Math.abs(gap) <= 0.0001 ? 1 : gap > 0 ? 2 : 0;
  });
  all.forEach(([a, b], i) => {
    bytes.writeUInt32LE(a, 9 * i);
    bytes.writeUInt32LE(b, 9 * i + 4);
    bytes[9 * i + 8] = half[i];
  });
  hold(
    body.judge === "rules" &&
      plain(body.items) === plain(items) &&
      +body.count === all.length &&
      +games === all.length &&
      !bodies.has("comparison/0000000"),
    "verdicts",
    "its judge, its items or their number are wrong",
  );
  hold(body.sha256 === sha256(bytes), "verdicts", "the hash is not that of what the rules say");
  return all.map(([a, b], i) => ({
    first: items[a],
    second: items[b],
    judge: "rules",
    winner: ["second", "tie", "first"][half[i]],
  }));
}
// ---- 8. which comparisons ----
function checkComparisons(bodies, items, judges, config, schema) {
  const { name, games } = bodies.get("schedule"),
    all = [],
    seen = new Set(),
    place = new Map(items.map((item, i) => [item, i]));
  const isLarge = judges.join() === "rules" && items.length > 100 && ["full", "both"].includes(name);
  if (
    !hold(
      bodies.has("verdicts") === isLarge,
      "verdicts",
      "they stand behind one hash exactly in a large round by rules",
    )
  )
    return [];
  if (isLarge) return checkVerdicts(bodies, items, schema, name, games);
  if (!hold(+games >= 0 && +games <= bodies.size, "schedule", "the number of games is wrong")) return [];
  for (let i = 0; i < games; i++)
    all.push([`comparison/${String(i).padStart(7, "0")}`, bodies.get(`comparison/${String(i).padStart(7, "0")}`)]);
  hold(
    all.every(([, c]) => c) && !bodies.has(`comparison/${String(+games).padStart(7, "0")}`),
    "schedule",
    "the number of games is wrong",
  );
  const id = (c) => [c.first, c.second, c.judge, ...c.group].join("\0"),
    asked = new Map();
  for (const [key, c] of all) {
    if (
      !hold(
        place.has(c.first) && place.has(c.second) && c.first !== c.second && judges.includes(c.judge),
        key,
        "its items or its judge do not belong here",
      )
    )
      continue;
    hold(!seen.has(id(c)), key, "it occurs twice");
    seen.add(id(c));
    const question = c.group.length ? `${c.judge}\0${c.group}` : id(c);
    asked.set(question, [...(asked.get(question) ?? []), c.requests.join()]);
    if (
      c.group.length &&
      !hold(
        name === "fours" &&
          c.judge !== "rules" &&
          c.group.length === 4 &&
          new Set(c.group).size === 4 &&
          c.group.every((who) => place.has(who)) &&
          c.group.includes(c.first) &&
          c.group.indexOf(c.second) > c.group.indexOf(c.first),
        key,
        "it is not read off an order of four",
      )
    )
      continue;
    if (c.judge === "rules") checkRulesVerdict(key, bodies, schema, c);
    else checkModelVerdict(key, bodies, config, schema, c);
  }
  hold(
    all.every(([, c], i) => !i || id(all[i - 1][1]) < id(c)),
    "comparisons",
    "they are not in order",
  );
  const most = bodies.get("plan").maxGames;
  hold(
    all.every(([, c]) => {
      const told = c.group.length && asked.get(`${c.judge}\0${c.group}`);
      return !told || (told.length === 6 && new Set(told).size === 1);
    }),
    "schedule",
    "an order of four is one question and tells about six pairs",
  );
  hold(most === null || asked.size <= +most, "schedule", "more was asked than the plan allows");
  const isInTurn = bodies.get("plan").jury === "in-turn" && judges.length > 1,
    own = isInTurn ? judges.slice(0, 1) : judges,
    count = (judge) =>
      new Set(all.filter(([, c]) => c.judge === judge).map(([, c]) => (c.group.length ? c.group.join() : id(c)))).size;
  hold(
    / questions near the paid places\.$/.test(bodies.get("schedule").reason) ===
      (isInTurn && all.some(([, c]) => c.judge !== own[0])),
    "schedule",
    "plan and reason say whether further judges were asked in turn",
  );
  hold(
    !isInTurn ||
      (all.every(([, c]) => own[0] === c.judge || !c.group.length) &&
        (most === null || judges.every((judge) => count(judge) <= Math.floor(+most / judges.length)))),
    "schedule",
    "in turn, further judges compare pairs, each within its share",
  );
  if (!["full", "both"].includes(name)) return all.map(([, c]) => c);
  const wanted = looks(name, items.length, most, judges.length).flatMap(([a, b]) =>
    own.map((judge) => [items[a], items[b], judge]),
  );
  for (const look of wanted) hold(seen.has(look.join("\0")), "schedule", `${look[0]} against ${look[1]} is missing`);
  hold(
    all.filter(([, c]) => own.includes(c.judge)).length === wanted.length,
    "schedule",
    "more games than the schedule has",
  );
  return all.map(([, c]) => c);
}
// ---- 9. ranking ----
function shuffle(count, seed, label) {
  const bytes = createHash("shake256", { outputLength: 8 * count || 1 })
    .update(Buffer.concat([seed, Buffer.from([0]), utf8(label)]))
    .digest();
  const words = Array.from({ length: count }, (_, i) => bytes.readBigUInt64LE(8 * i));
  return words.map((_, i) => i).sort((a, b) => (words[a] < words[b] ? -1 : words[a] > words[b] ? 1 : a - b));
}
function dealt(results, seed) {
  const order = shuffle(results.length, seed, "results"),
    rounds = [];
  for (let start = 0; start < order.length; start += 262144) {
    const block = [],
      busy = [];
    for (const position of order.slice(start, start + 262144)) {
      const [a, b] = results[position];
      let round = 0;
      while (round < block.length && (busy[round].has(a) || busy[round].has(b))) round++;
      if (round === block.length) {
        block.push([]);
        busy.push(new Set());
      }
      block[round].push(position);
      busy[round].add(a).add(b);
    }
    rounds.push(...block);
  }
  const width = Math.min(Math.max(...rounds.map((r) => r.length)), Math.ceil((2 * results.length) / rounds.length)),
    rows = [];
  for (const round of rounds) for (let i = 0; i < round.length; i += width) rows.push(round.slice(i, i + width));
  return rows;
}
const POWERS = Array.from({ length: 8193 }, (_, i) => 2 ** ((i % 64) / 64) * 2 ** (Math.floor(i / 64) - 64));
function expected(difference) {
  let x = Math.min(64, Math.max(-64, difference * -0.008304820237218406)),
    k = Math.floor(x * 64);
  const rest = x * 64 - k;
  if (rest > 0.5 || (rest === 0.5 && k % 2)) k++; // a half to the even neighbour
  x = (x - k / 64) * 0.6931471805599453;
  return 1 / (((((x * (1 / 24) + 1 / 6) * x + 1 / 2) * x + 1) * x + 1) * POWERS[k + 4096] + 1);
}
function classes(results, count) {
  // equal records: refined until nothing splits
  let now = Array(count).fill(0);
  for (const [a, b, , half] of results) {
    now[a] += half;
    now[b] += 2 - half;
  }
  for (let size = -1; ;) {
    const rows = now.map((own) => [own, new Map()]);
    for (const [a, b] of results)
      for (const [x, y] of [
        [a, b],
        [b, a],
      ])
        rows[x][1].set(now[y], (rows[x][1].get(now[y]) ?? 0) + 1);
    const names = rows.map(([own, seen]) => `${own}|${[...seen].sort().join(";")}`),
      known = [...new Set(names)];
    if (known.length === size) return now;
    size = known.length;
    now = names.map((name) => known.indexOf(name));
  }
}
function elo(results, count, seed) {
  const rows = results.length ? dealt(results, seed) : [],
    sums = Array.from({ length: count }, () => []);
  for (let p = 0; p < 100; p++) {
    const order = shuffle(rows.length, seed, `permutation ${p >> 1}`),
      ratings = Array(count).fill(1500);
    if (p % 2) order.reverse();
    for (const row of order)
      for (const position of rows[row]) {
        const [a, b, , half] = results[position],
          change = K * (half / 2 - expected(ratings[a] - ratings[b]));
        ratings[a] += change;
        ratings[b] -= change;
      }
    ratings.forEach((rating, i) => sums[i].push(rating));
  }
  return sums.map((all) => rounded(exactSum(all) / 100, 6));
}
const singlePass = (results, count) =>
  results
    .reduce((ratings, [a, b, , half]) => {
      const change = K * (half / 2 - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)));
      ratings[a] += change;
      ratings[b] -= change;
      return ratings;
    }, Array(count).fill(1500))
    .map((rating) => rounded(rating, 6));
const level = (own, groups) =>
  own.map((_, i) => {
    const members = own.filter((_, j) => groups[j] === groups[i]);
    return members.length > 1 ? rounded(exactSum(members) / members.length, 6) : own[i];
  });
function checkEstimates(ranking, results, model, place, isOrder, groups, isMeasured) {
  const size = place.size,
    { standings, payoutBps, winnerCount } = ranking,
    near = (a, b, what) =>
      hold(Math.abs(a - b) <= 0.02 * Math.max(1, Math.abs(b)), "ranking", `${what} is ${+b.toFixed(4)} by the model`),
    lead = Array.from({ length: size }, () => new Float64Array(size)),
    met = new Set();
  let { theta, side, C } = model,
    cycles = 0;
  for (const [a, b, , half] of results) {
    lead[a][b] += half - 1;
    lead[b][a] -= half - 1;
    met.add(Math.min(a, b) * size + Math.max(a, b));
  }
  for (let i = 0; i < size; i++)
    for (let j = 0; j < size; j++)
      if (lead[i][j] > 0) for (let k = 0; k < size; k++) if (lead[j][k] > 0 && lead[k][i] > 0) cycles++;
  hold(+ranking.consistency.cycles === cycles / 3, "ranking", `there are ${cycles / 3} cycles`);
  if (isMeasured && met.size === (size * (size - 1)) / 2 && !cycles) {
    theta = level(
      theta.map((t) => rounded(t, 6)),
      groups,
    );
    C = theta.map((_, i) => theta.map((_, j) => (i === j ? 1e-18 : 0)));
  }
  isOrder.forEach((_, j) =>
    near(+(ranking.consistency.judges[j]?.positionBias ?? 0), side[j], "the side effect of a judge"),
  );
  const draws = drawn(theta, C),
    mean = theta.reduce((sum, t) => sum + t, 0) / size,
    places = draws.map((draw) => {
      const found = [];
      draw
        .map((_, i) => i)
        .sort((i, j) => draw[j] - draw[i] || i - j)
        .forEach((i, rank) => {
          found[i] = rank;
        });
      return found;
    }),
    strengths = theta.map((t) => t - mean).sort((a, b) => b - a),
    rated = standings.map((s) => +s.elo).sort((a, b) => b - a);
  const share = (is) => places.filter(is).length / 2000,
    order = standings.map((s) => place.get(s.item)),
    due = (rank) => +(payoutBps[rank] ?? 0);
  standings.forEach((s, k) => {
    const i = order[k],
      column = (rows) => rows.map((row) => row[i]).sort((a, b) => a - b),
      ranks = column(places);
    near(+s.theta, theta[i] - mean, `the strength of ${s.item}`);
    near(+s.thetaLow, Math.min(s.theta, strengths[s.rankHigh - 1]), `thetaLow of ${s.item}`);
    near(+s.thetaHigh, Math.max(s.theta, strengths[s.rankLow - 1]), `thetaHigh of ${s.item}`);
    hold(
      Math.abs(s.low - Math.min(s.elo, rated[s.rankHigh - 1])) < 0.051 &&
        Math.abs(s.high - Math.max(s.elo, rated[s.rankLow - 1])) < 0.051,
      "ranking",
      `low and high of ${s.item} are the Elo at the ends of its ranks`,
    );
    near(
      +s.pTop,
      share((row) => row[i] < winnerCount),
      `pTop of ${s.item}`,
    );
    near(+s.rankLow, ranks[100] + 1, `rankLow of ${s.item}`);
    near(+s.rankHigh, ranks[1899] + 1, `rankHigh of ${s.item}`);
    s.pRank.forEach((chance, rank) =>
      near(
        +chance,
        share((row) => row[i] === rank),
        `pRank of ${s.item}`,
      ),
    );
  });
  near(
    +ranking.misallocation,
    places.reduce((sum, row) => sum + order.reduce((all, i, k) => all + Math.abs(due(row[i]) - due(k)), 0), 0) /
      2000 /
      2 /
      10000,
    "misallocation",
  );
  ranking.margins.forEach((m, k) => {
    if (k + 1 >= size) return;
    const tied = +standings[k].elo === +standings[k + 1].elo;
    hold(
      m.tied === tied && m.item === standings[k].item && m.nextItem === standings[k + 1].item,
      "ranking",
      `margin ${k + 1} is about others`,
    );
    near(
      +m.probability,
      tied ? 0.5 : share((row) => row[order[k]] < row[order[k + 1]]),
      `the chance of place ${k + 1}`,
    );
    near(
      +m.setChance,
      share((row) => order.slice(0, k + 1).every((i) => row[i] <= k)),
      `the set chance of place ${k + 1}`,
    );
    const close = draws.filter((draw) => Math.abs(draw[order[k]] - draw[order[k + 1]]) < 1).length / 2000,
      words = [close - 0.02, close + 0.02].map((near) =>
        m.setChance >= 0.9 && m.probability >= 0.6
          ? "clear"
          : near >= 0.9
            ? "about equal"
            : m.probability < 0.6
              ? "toss-up"
              : "uncertain",
      );
    hold(words.includes(m.word), "ranking", `the word of place ${k + 1}`);
  });
}
function deciding(results, size, paid, order, paidBy) {
  // the fewest verdicts found whose reversal pays others
  let best = 13;
  if (size <= paid || size * results.length > 20000) return null;
  const now = paidBy(results).slice(0, paid).sort().join();
  for (const [above, below] of [
    [paid - 1, paid],
    [paid - 1, paid + 1],
    [paid - 2, paid],
  ]) {
    if (above < 0 || below >= size) continue;
    const turned = results.map((r) => [...r]),
      [p, u] = [order[above], order[below]],
      open = (r, k, h) => (r[0] === k && r[3] !== h) || (r[1] === k && r[3] !== 2 - h),
      rows = [0, 1].flatMap((other) =>
        results.flatMap((r, i) =>
          (open(r, p, 0) && open(r, u, 2)) === !other && (open(r, p, 0) || open(r, u, 2)) ? [i] : [],
        ),
      );
    for (let k = 1; k < best && k <= rows.length; k++) {
      const r = turned[rows[k - 1]];
      r[3] = r[0] === p || r[1] === u ? 0 : 2;
      if (paidBy(turned).slice(0, paid).sort().join() !== now) best = k;
    }
  }
  return best > 12 ? null : best;
}
function checkRanking(bodies, items, judges, comparisons, challenge) {
  const ranking = bodies.get("ranking"),
    standings = ranking?.standings,
    place = new Map(items.map((item, i) => [item, i])),
    sorted = [...judges].sort();
  if (!items.length) return hold(ranking === null, "ranking", "nobody is ranked");
  const results = comparisons
    .filter((c) => c.winner !== null)
    .map((c) => [
      place.get(c.first),
      place.get(c.second),
      2 * sorted.indexOf(c.judge) + (c.group?.length > 0),
      { first: 2, tie: 1, second: 0 }[c.winner],
    ])
    .sort((x, y) => x[0] - y[0] || x[1] - y[1] || x[2] - y[2] || x[3] - y[3]);
  const isLiteral = bodies.get("plan").elo === "literal";
  hold(
    ranking.literal === isLiteral && (!isLiteral || bodies.get("schedule").name === "full"),
    "ranking",
    "the plan says which Elo, and the single pass takes every pair once",
  );
  if (isLiteral)
    results.sort(([a, b, j], [c, d, k]) => Math.min(a, b) - Math.min(c, d) || Math.max(a, b) - Math.max(c, d) || j - k);
  const heard = [...new Set(results.map((r) => r[2]))].sort((x, y) => x - y),
    isOrder = heard.length ? heard.map((j) => j % 2 === 1) : [false],
    model = fit(
      results.map(([a, b, j, half]) => [a, b, heard.indexOf(j), half]),
      items.length,
      isOrder,
    ),
    isRepeating = isOrder.includes(true) && model.same >= 1;
  const once = (rows) => {
    const seen = new Map(),
      asked = new Set(rows.filter((row) => row[2] % 2 === 0).map(([a, b, j]) => `${a} ${b} ${j >> 1}`));
    for (const [a, b, j, half] of rows) {
      if (j % 2 && asked.has(`${a} ${b} ${j >> 1}`)) continue;
      const key = `${a} ${b} ${j >> 1}`,
        row = seen.get(key) ?? [a, b, j >> 1, 0, 0];
      row[3] += half;
      row[4]++;
      seen.set(key, row);
    }
    return [...seen.values()]
      .map(([a, b, j, sum, count]) => [a, b, j, sum / count])
      .sort((x, y) => x[0] - y[0] || x[1] - y[1] || x[2] - y[2]);
  };
  const rate = (rows) =>
      isLiteral
        ? singlePass(rows, items.length)
        : level(elo(isRepeating ? once(rows) : rows, items.length, utf8(challenge.run)), classes(rows, items.length)),
    groups = classes(results, items.length),
    ratings = rate(results),
    at = new Map(challenge.submissions.map((s) => [s.submitter, +s.submittedAt]));
  const record = Array(3 * items.length).fill(0);
  for (const [a, b, , half] of results) {
    record[3 * a + half]++;
    record[3 * b + 2 - half]++;
  }
  const met = new Set(results.map(([a, b]) => Math.min(a, b) * items.length + Math.max(a, b))).size,
    paid = +challenge.winnerCount;
  if (
    !hold(
      standings.length === items.length &&
        standings.every((s) => place.has(s.item)) &&
        new Set(standings.map((s) => s.item)).size === items.length,
      "ranking",
      "not everybody stands in it once",
    )
  )
    return;
  const isSparse = !isLiteral && items.length >= 10 && met < (items.length * (items.length - 1)) / 2,
    [from, then] = isSparse ? [paid, ", then strength"] : [items.length, ""],
    by = (isRepeating ? "elo without repeats" : "elo") + then;
  hold(ranking.orderedBy === by, "ranking", `it is ordered by ${by}`); // from this place on by strength
  const theta = [];
  for (const s of standings) theta[place.get(s.item)] = +s.theta;
  const fitted = level(theta, groups),
    own = (s) => place.get(s.item),
    earlier = (s, o) => at.get(s.item) - at.get(o.item) || (s.item < o.item ? -1 : 1),
    order = [...standings].sort((s, o) => o.elo - s.elo || earlier(s, o)),
    isPaid = new Set(order.slice(0, from).map((s) => s.item));
  standings.forEach((s, i) => {
    const tally = (h) => record[3 * place.get(s.item) + h];
    hold(
      Math.abs(+s.elo - ratings[place.get(s.item)]) <= 2.1e-6,
      "ranking",
      `the rating of ${s.item} is ${ratings[place.get(s.item)]}`,
    );
    hold(
      +s.score === rounded(10000 / (1 + 10 ** ((1500 - s.elo) / 400)), 0),
      "ranking",
      `the score of ${s.item} does not follow from its rating`,
    );
    hold(
      +s.rank === i + 1 && +s.wins === tally(2) && +s.ties === tally(1) && +s.losses === tally(0),
      "ranking",
      `the record of ${s.item} is not that of its comparisons`,
    );
    if (i < from) return hold(s.item === order[i].item, "ranking", `place ${i + 1} belongs to ${order[i].item}`);
    const before = standings[i - 1],
      gap = i > from ? fitted[own(before)] - fitted[own(s)] : 1; // the mean that was taken off is rounded, too
    hold(
      !isPaid.has(s.item) &&
        (i > from && groups[own(before)] === groups[own(s)] ? earlier(before, s) < 0 : gap > -3e-6),
      "ranking",
      `place ${i + 1} does not belong to ${s.item}`,
    );
  });
  const isMeasured =
    judges.join() === "rules" &&
    bodies.get("schema").features.every((f) => f.type === "text" || f.source === "measured");
  checkEstimates(ranking, results, model, place, isOrder, groups, isMeasured);
  const paidBy = (rows) => {
      const rated = rate(rows);
      return items
        .map((_, i) => i)
        .sort((i, j) => rated[j] - rated[i] || at.get(items[i]) - at.get(items[j]) || (items[i] < items[j] ? -1 : 1));
    },
    fewest = deciding(
      results,
      items.length,
      paid,
      standings.map((s) => place.get(s.item)),
      paidBy,
    );
  hold(
    fewest === (ranking.decidingVerdicts === null ? null : +ranking.decidingVerdicts),
    "ranking",
    `${fewest} verdicts decide who is paid`,
  );
  hold(
    +ranking.results === results.length &&
      +ranking.winnerCount === +challenge.winnerCount &&
      plain(ranking.payoutBps) === plain(challenge.payoutBps),
    "ranking",
    "its number of results, places or shares is wrong",
  );
}
// ---- 10. winners, prizes, the call ----
function checkWinners(bodies, challenge) {
  const ranking = bodies.get("ranking"),
    placed = bodies.get("placed"),
    winners = bodies.get("winners"),
    agents = new Map(challenge.submissions.map((s) => [s.submitter, s.agentId]));
  const byClock = bodies.get("rulings").some((r) => r.kind === "default"),
    behind = new Set((bodies.get("flags") ?? []).filter((f) => f.code === "gave_way").map((f) => f.account)),
    last = (rows, is) => [...rows.filter((row) => !is(row)), ...rows.filter(is)];
  const rows = (ranking?.standings ?? []).map((s) => [s.item, +s.score]),
    first = rows.filter(([who]) => !behind.has(who));
  let low = Math.min(...first.map((row) => row[1]));
  const wanted = [
    ...first,
    ...rows.filter(([who]) => behind.has(who)).map(([who, score]) => [who, (low = Math.min(low, score))]),
    ...last(bodies.get("rejected"), (r) => byClock && !r.isOutage).map((r) => [r.account, 0]),
  ];
  hold(byClock || !behind.size, "flags", "somebody gave way although the clock did not rule");
  hold(
    placed.length === wanted.length &&
      placed.every((row, i) => row.account === wanted[i][0] && +row.score === wanted[i][1]),
    "placed",
    "it is not the ranking followed by the rejected",
  );
  if (
    !hold(
      +challenge.winnerCount === challenge.payoutBps.length && placed.length >= challenge.winnerCount,
      "winners",
      "there are more or fewer shares or entries than winners",
    ) ||
    challenge.isFolder
  )
    return;
  const pool = BigInt(challenge.prizePool),
    count = +challenge.winnerCount,
    prizes = challenge.payoutBps.map((bps) => (pool * BigInt(bps.text)) / 10000n);
  prizes[count - 1] = pool - prizes.slice(0, count - 1).reduce((sum, prize) => sum + prize, 0n);
  hold(
    winners.length === count &&
      winners.every(
        (w, i) =>
          w.account === placed[i].account &&
          w.agentId === agents.get(w.account) &&
          +w.score === +placed[i].score &&
          w.prizeAmount === String(prizes[i]),
      ),
    "winners",
    "they are not the first of placed with the contract's prizes",
  );
  const word = (value) => BigInt(value).toString(16).padStart(64, "0");
  const call =
    keccak("postScores((address,uint256,uint256,uint256)[])").slice(0, 10) +
    word(32) +
    word(winners.length) +
    winners.map((w) => word(w.account) + word(w.agentId) + word(w.score.text) + word(w.prizeAmount)).join("");
  hold(
    challenge.contractVersion === "1" && bodies.get("calldata") === call,
    "calldata",
    "it is not the call of contracts of version 1 that posts these winners",
  );
}
// ---- 11. signed answers ----
const bareHash = (hash) =>
  String(hash)
    .replace(/^0x|^sha256:/, "")
    .toLowerCase();
function receiptHolds(proof, { key, report }) {
  const { workload_keyset_b64: coded, workload_keyset: keyset } = parse(report).attestation,
    content = coded ? Buffer.from(coded, "base64") : utf8(jcs(keyset)),
    cut = key.lastIndexOf("@");
  const one = parse(content.toString("utf8")).receipt_signing_keys.find((entry) => entry.key_id === key.slice(0, cut)),
    { signature, ...bare } = proof,
    { value, ...rest } = typeof signature === "string" ? { value: signature } : signature;
  const signer = createPublicKey({
    key: { kty: "OKP", crv: "Ed25519", x: Buffer.from(bareHash(one.public_key), "hex").toString("base64url") },
    format: "jwk",
  });
  return (
    `sha256:${sha256(content).slice(2)}` === key.slice(cut + 1) &&
    [bare, { ...bare, signature: rest }].some((form) =>
      verify(null, utf8(jcs(form)), signer, Buffer.from(bareHash(value), "hex")),
    )
  );
}
function checkSigned(key, { llm, purpose, signed, answer }, keys, run) {
  const how = /#(near|aci)$/.exec(llm)?.[1];
  if (!how || !signed)
    return hold(
      how ? answer.stop === "refusal" : signed === undefined,
      key,
      "it is signed exactly where its judge's endpoint signs",
    );
  const bytes = [signed.request, signed.response].map((part) => Buffer.from(part, "base64")),
    hashes = bytes.map((part) => bareHash(sha256(part))).join(),
    [asked, said] = bytes.map((part) => parse(part.toString("utf8"))),
    proof = parse(signed.proof);
  const attested = keys.find((one) => one.judge === llm && one.key === signed.key);
  if (!hold(attested?.run === run, key, "its key is not attested for this round")) return;
  const ofEvent = (type) => {
    const event = proof.event_log.find((one) => one.type === type);
    return bareHash(event.body_hash ?? event.wire_hash);
  };
  if (how === "near")
    hold(
      proof.text.split(":").slice(-2).map(bareHash).join() === hashes &&
        signer(proof.text, proof.signature.toLowerCase()) === signed.key,
      key,
      "its key did not sign these bytes",
    );
  else
    hold(
      ["request.received", "response.returned"].map(ofEvent).join() === hashes && receiptHolds(proof, attested),
      key,
      "its receipt is not of these bytes",
    );
  const [system, user] = asked.messages.map((message) => message.content),
    [bare, told] = system.split("\n\nAnswer with one JSON object that fits this JSON Schema:\n"),
    schema = told ?? plain(asked.response_format.json_schema.schema),
    maxTokens = asked.max_tokens ?? asked.max_completion_tokens;
  hold(
    [0, 1, 2].some(
      (n) =>
        key ===
        `answer/${sha256(utf8(plain({ llm, purpose, system: bare, user, schema, maxTokens, attempt: new Num(String(n)) })))}`,
    ),
    key,
    "another question was signed",
  );
  const words = (content) =>
      Array.isArray(content)
        ? content
            .filter((part) => ["text", "output_text"].includes(part.type))
            .map((part) => words(part.text))
            .join("")
        : typeof content === "string"
          ? content
          : "",
    { message } = said.choices[0];
  hold((message.refusal || words(message.content)) === answer.text, key, "the signed response says something else");
}
async function checkChain(url, bodies, challenge, digest) {
  let id = 0;
  const ask = async (method, ...params) => {
    const reply = await (
      await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ jsonrpc: "2.0", id: ++id, method, params }),
      })
    ).json();
    if (reply.error) throw new Unreadable(`the node says ${JSON.stringify(reply.error).slice(0, 200)}`);
    return reply.result;
  };
  const hex = (n) => "0x" + n.toString(16),
    topic = keccak("ScoresPosted(address,uint256)");
  hold(
    BigInt(await ask("eth_chainId")) === BigInt(challenge.chainId.text),
    "challenge",
    "the node is on another chain",
  );
  const isThere =
    (await ask("eth_getBlockByNumber", hex(+challenge.block.number), false))?.hash === challenge.block.hash;
  const head = Number(await ask("eth_blockNumber"));
  for (let from = +challenge.block.number; from <= head; from += 10000) {
    const logs = await ask("eth_getLogs", {
      address: challenge.address,
      topics: [topic],
      fromBlock: hex(from),
      toBlock: hex(Math.min(head, from + 9999)),
    });
    if (!logs.length) continue;
    const sent = await ask("eth_getTransactionByHash", logs[0].transactionHash);
    hold(
      sent.input === bodies.get("calldata") + "434c5231" + digest.slice(2),
      "digest",
      `transaction ${sent.hash} does not commit to this trace`,
    );
    return isThere;
  }
  fail("digest", "no scores are posted");
}
function checkRestarts(restarts, header, challenge, answers) {
  // by a newer program: each follows the one before, the last is by the version of the header
  const version = `${header.software.replace(/^clara-eval /, "")} rules ${header.rules.text} `;
  let at = challenge ? +challenge.block.timestamp : 0,
    begunBy = restarts[0]?.begunBy;
  for (const one of restarts) {
    const isNext = at <= +one.at && begunBy === one.begunBy && begunBy !== one.finishedBy && +one.answers <= answers;
    hold(isNext, "restarts", "a restart does not follow the one before it, or uses more answers than there are");
    [at, begunBy] = [+one.at, one.finishedBy];
  }
  hold(!restarts.length || begunBy.startsWith(version), "restarts", "the last is of another version than the header");
}
async function main(path, url) {
  const { bodies, digest, restarts } = readFile(path),
    header = bodies.get("header");
  if (!header || !(bodies.has("challenge") || bodies.has("folder")))
    throw new Unreadable("there is no entry header, or no entry challenge or folder");
  if (header.rules?.text !== String(RULES))
    throw new Unreadable(
      `rules ${String(header.rules?.text).slice(0, 20)}: this program knows rules ${RULES}. Its hashes hold together, nothing else was checked`,
    );
  checkEntries(bodies);
  const challenge = roundOf(bodies);
  if (url && challenge.isFolder) throw new Unreadable("no chain knows this folder: check it without --rpc");
  const config = checkConfig(bodies.get("metadata"), challenge),
    schema = bodies.get("schema").features.filter((feature) => feature.type !== "text");
  checkSchema(config, bodies.get("schema").features, bodies.get("metadata").adapted);
  for (const [name, file] of Object.entries(bodies.get("prompts")))
    hold(sha256(utf8(file.text)) === file.sha256, "prompts", `${name} has another hash`);
  for (const submission of challenge.submissions)
    checkSolution(
      submission,
      bodies.get(`solution/${submission.submitter}`),
      parse(bodies.get("metadata").evalConfig).submissionFormat,
    );
  checkRejected(bodies, challenge.submissions);
  const read = challenge.submissions.map((s) => s.submitter).filter((who) => bodies.has(`features/${who}`)),
    out = new Set(bodies.get("rejected").map((row) => row.account)),
    ranked = read.filter((who) => !out.has(who));
  for (const who of read)
    checkFeatures(
      `features/${who}`,
      bodies.get(`features/${who}`),
      schema,
      bodies.get(`solution/${who}`),
      bodies.get(`executed/${who}`),
    );
  const raw = (hex) => Buffer.from(hex.slice(2), "hex"),
    rank = new Map(
      ranked.map((who) => [
        who,
        keccak(Buffer.concat([raw(challenge.address), raw(bodies.get(`solution/${who}`).keccak)])),
      ]),
    );
  const items = [...ranked].sort((a, b) =>
    rank.get(a) < rank.get(b) ? -1 : rank.get(a) > rank.get(b) ? 1 : a < b ? -1 : 1,
  );
  const judges =
    config.judge === "rules" && !bodies.get("metadata").adapted.some((change) => change.path === "$.judge")
      ? ["rules"]
      : (bodies
          .get("rulings")
          .filter((ruling) => ruling.kind === "judge" && ruling.stage === "comparing")
          .map((ruling) => [ruling.judge])
          .at(-1) ?? bodies.get("plan").judges);
  const comparisons = checkComparisons(bodies, items, judges, config, schema);
  checkRanking(bodies, items, judges, comparisons, challenge);
  checkWinners(bodies, challenge);
  const answers = [...bodies].filter(([key]) => key.startsWith("answer/")),
    ran = bodies.get("execution"),
    spec = config.harness,
    runs = [...bodies].filter(([key]) => key.startsWith("executed/")).map(([, run]) => run);
  hold(+bodies.get("answers").count === answers.length, "answers", "there are more or fewer");
  const used = new Set(
    [...bodies].filter(([key]) => /^(comparison|features)\//.test(key)).flatMap(([, body]) => body.requests),
  );
  for (const [key, { purpose }] of answers)
    hold(purpose === "schema" || used.has(key.slice(7)), key, "nothing comes from it");
  for (const request of used) hold(bodies.has(`answer/${request}`), "answers", `${request} is missing`);
  const signers = new Set(
    answers.filter(([, body]) => body.signed).map(([, body]) => `${body.llm}\0${body.signed.key}`),
  );
  hold(
    [...signers].sort().join() === (bodies.get("attestation") ?? []).map((one) => `${one.judge}\0${one.key}`).join() &&
      bodies.has("attestation") === signers.size > 0,
    "attestation",
    "it is not of the keys that signed, in their order",
  );
  if (!ran) hold(!spec && !runs.length, "execution", "submissions were run, or should have been, and it is missing");
  else
    hold(
      ran.hidden === (spec?.hidden === true) &&
        (ran.harness === "revealed"
          ? ran.hidden && keccak(Buffer.from(ran.reveal, "base64")) === challenge.privateSetHash
          : ran.reveal === null && (ran.hidden || ran.harness === (spec ? "public" : "none"))) &&
        ran.language === (ran.harness === "none" ? null : spec.language) &&
        runs.every((run) => run.withHarness === (ran.harness !== "none")),
      "execution",
      "the harness is not that of the config, or what was revealed is not what privateSetHash commits to",
    );
  checkRestarts(restarts, header, bodies.get("challenge"), answers.length);
  for (const [key, body] of answers) checkSigned(key, body, bodies.get("attestation") ?? [], challenge.run);
  if (bodies.has("objections")) checkObjections(bodies.get("objections"), bodies.get("rulings"), challenge);
  const isThere = !url || (await checkChain(url, bodies, challenge, digest));
  return {
    digest,
    entries: bodies.size,
    comparisons: comparisons.length,
    executed: runs.length,
    compared: !url
      ? "offline"
      : isThere
        ? "with the chain"
        : "with the chain, but not the block that was read: a reorg replaced it",
  };
}
const given = process.argv.slice(2),
  flag = given.indexOf("--rpc"),
  url = flag < 0 ? undefined : given.splice(flag, 2)[1];
if (!given.length || (flag >= 0 && !url) || given.some((path) => path.startsWith("--"))) {
  console.error("usage: node verify.mjs TRACE.json… [--rpc URL]");
  process.exit(2);
}
for (const path of given) {
  problems = [];
  let told;
  try {
    told = await main(path, url);
  } catch (bad) {
    fail("trace", bad instanceof Unreadable ? bad.message : `it has another shape than described (${bad.message})`);
  }
  if (given.length > 1) console.log(path);
  if (told && !problems.length) {
    const ran = told.executed
      ? `, but execution was not checked: what ${told.executed} runs gave is taken as recorded`
      : "";
    console.log(
      `holds   ${told.entries} entries, ${told.comparisons} comparisons, digest ${told.digest}, ${told.compared}${ran}`,
    );
    continue;
  }
  for (const { entry, reason } of problems.slice(0, 20)) console.log(`wrong   ${entry}: ${reason}`);
  console.log(`${problems.length} problem(s): this trace does not hold.`);
  process.exitCode = 1;
}
if (!process.exitCode)
  console.log(
    "not checked here: that unsigned models said it; quotes of enclaves (`clara-eval verify` checks them); what was fetched from mutable\naddresses; what is taken in another form than the config has it, and the defaults of its features; what was read out of models' answers about submissions, and how far a claim without support counts for less; code features measured by parsers, the shape of JSON; what running the submissions gave (`clara-eval verify` runs them again); the agents of\nthose who are not paid; that a refused archive had to be; which looks adaptive and fours choose; copies, similar work, families, flags, and of the consistency report all but cycles and side effects; that a person made the\nrecorded rulings and approvals, and what the draft was that somebody objected to" +
      (url ? "." : ";\nthat the chain holds this challenge, its submissions and this result (--rpc)."),
  );
