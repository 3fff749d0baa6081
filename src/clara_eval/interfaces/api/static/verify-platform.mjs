// What the second verifier (verifier/verify.mjs, served as it is) takes from Node, for a browser: Buffer, hashes, inflate.
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export class Buffer extends Uint8Array {
  static from(value, encoding = "utf8") {
    if (typeof value !== "string") return super.from(value);
    if (encoding === "utf8") return new Buffer(new TextEncoder().encode(value));
    if (encoding === "latin1") return super.from(value, (char) => char.charCodeAt(0));
    if (encoding === "hex") return super.from(value.match(/[0-9a-fA-F]{2}/g) ?? [], (pair) => parseInt(pair, 16));
    const six = [...value.replace(/=.*$/s, "")].map((char) => ALPHABET.indexOf({ "-": "+", _: "/" }[char] ?? char)).filter((n) => n >= 0);
    const found = new Buffer(Math.floor((six.length * 3) / 4));
    for (let i = 0; i < found.length; i++) {
      const at = Math.floor((i * 4) / 3), shift = 2 * ((i % 3) + 1);
      found[i] = (six[at] << shift) | (six[at + 1] >> (6 - shift));
    }
    return found;
  }
  static alloc(size) { return new Buffer(size); }
  static concat(parts) {
    const whole = new Buffer(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) { whole.set(part, at); at += part.length; }
    return whole;
  }
  static compare(a, b) {
    for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
    return Math.sign(a.length - b.length);
  }
  toString(encoding = "utf8", start = 0, end = this.length) {
    const part = this.subarray(start, end);
    if (encoding === "utf8") return new TextDecoder("utf-8", { ignoreBOM: true }).decode(part);
    if (encoding === "hex") return Array.from(part, (byte) => byte.toString(16).padStart(2, "0")).join("");
    let text = "";
    for (let i = 0; i < part.length; i += 8192) text += String.fromCharCode(...part.subarray(i, i + 8192));
    if (encoding === "latin1") return text;
    return encoding === "base64" ? btoa(text) : btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
  }
  lastIndexOf(value, from, encoding) {
    return typeof value === "string" ? this.toString("latin1").lastIndexOf(value, from) : super.lastIndexOf(value, from ?? this.length);
  }
  view() { return new DataView(this.buffer, this.byteOffset, this.byteLength); }
  readUInt16LE(at) { return this.view().getUint16(at, true); }
  readUInt32LE(at) { return this.view().getUint32(at, true); }
  writeUInt32LE(value, at) { this.view().setUint32(at, value, true); }
  readBigUInt64LE(at) { return this.view().getBigUint64(at, true); }
}

// ---- SHA-256 ----
const root = (n, power) => Math.floor((n ** power % 1) * 2 ** 32), PRIMES = [];
for (let n = 2; PRIMES.length < 64; n++) if (PRIMES.every((prime) => n % prime)) PRIMES.push(n);
const CONSTANTS = Uint32Array.from(PRIMES, (prime) => root(prime, 1 / 3)), turn = (x, n) => (x >>> n) | (x << (32 - n));

function sha256(message) {
  const size = message.length, padded = new Uint8Array(((size + 72) >> 6) << 6), view = new DataView(padded.buffer);
  padded.set(message);
  padded[size] = 0x80;
  view.setBigUint64(padded.length - 8, BigInt(size) * 8n);
  const state = Uint32Array.from(PRIMES.slice(0, 8), (prime) => root(prime, 1 / 2)), w = new Uint32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let i = 0; i < 64; i++) {
      if (i < 16) { w[i] = view.getUint32(block + 4 * i); continue; }
      const a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + CONSTANTS[i] + w[i]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] += word; });
  }
  const found = new Buffer(32);
  state.forEach((word, i) => found.view().setUint32(4 * i, word));
  return found;
}

// ---- Keccak-f[1600], each lane as two words of 32 bits: the low one, then the high one ----
const OFFSETS = Array(25).fill(0), MOVES = [], ROUNDS = [];
for (let x = 1, y = 0, t = 0; t < 24; t++) {
  OFFSETS[x + 5 * y] = (((t + 1) * (t + 2)) / 2) % 64;
  [x, y] = [y, (2 * x + 3 * y) % 5];
}
for (let x = 0; x < 5; x++) for (let y = 0; y < 5; y++) MOVES[x + 5 * y] = y + 5 * ((2 * x + 3 * y) % 5);
for (let round = 0, lfsr = 1; round < 24; round++) {
  ROUNDS[round] = [0, 0];
  for (let j = 0; j < 7; j++) {
    if (lfsr & 1) ROUNDS[round][j === 6 ? 1 : 0] |= 1 << ((2 ** j - 1) % 32);
    lfsr = lfsr & 0x80 ? (lfsr << 1) ^ 0x171 : lfsr << 1;
  }
}
function permute(a) {
  const b = new Int32Array(50), c = new Int32Array(10);
  for (const [low, high] of ROUNDS) {
    for (let i = 0; i < 10; i++) c[i] = a[i] ^ a[i + 10] ^ a[i + 20] ^ a[i + 30] ^ a[i + 40];
    for (let x = 0; x < 5; x++) {
      const before = 2 * ((x + 4) % 5), after = 2 * ((x + 1) % 5);
      const dLow = c[before] ^ ((c[after] << 1) | (c[after + 1] >>> 31)), dHigh = c[before + 1] ^ ((c[after + 1] << 1) | (c[after] >>> 31));
      for (let i = 2 * x; i < 50; i += 10) { a[i] ^= dLow; a[i + 1] ^= dHigh; }
    }
    for (let i = 0; i < 25; i++) {
      const n = OFFSETS[i] % 32, swap = OFFSETS[i] >> 5, one = a[2 * i + swap], other = a[2 * i + 1 - swap], to = 2 * MOVES[i];
      b[to] = n ? (one << n) | (other >>> (32 - n)) : one;
      b[to + 1] = n ? (other << n) | (one >>> (32 - n)) : other;
    }
    for (let y = 0; y < 50; y += 10) for (let x = 0; x < 10; x++) a[y + x] = b[y + x] ^ (~b[y + ((x + 2) % 10)] & b[y + ((x + 4) % 10)]);
    a[0] ^= low;
    a[1] ^= high;
  }
}
function sponge(message, suffix, length) {
  const rate = 136, state = new Int32Array(50), padded = new Buffer((Math.floor(message.length / rate) + 1) * rate);
  padded.set(message);
  padded[message.length] ^= suffix;
  padded[padded.length - 1] ^= 0x80;
  const view = padded.view();
  for (let at = 0; at < padded.length; at += rate) {
    for (let i = 0; i < rate / 4; i++) state[i] ^= view.getInt32(at + 4 * i, true);
    permute(state);
  }
  const found = new Buffer(Math.ceil(length / rate) * rate), out = found.view();
  for (let at = 0; at < found.length; at += rate) {
    if (at) permute(state);
    for (let i = 0; i < rate / 4; i++) out.setInt32(at + 4 * i, state[i], true);
  }
  return found.subarray(0, length);
}
const bytesOf = (data) => (typeof data === "string" ? Buffer.from(data) : data);
export default { keccak256: (data) => sponge(bytesOf(data), 1, 32).toString("hex") };

export function createHash(name, { outputLength = 32 } = {}) {
  const parts = [], digest = () => (name === "sha256" ? sha256(Buffer.concat(parts)) : sponge(Buffer.concat(parts), 0x1f, outputLength));
  const hash = { update: (data) => { parts.push(bytesOf(data)); return hash; }, digest: (encoding) => (encoding ? digest().toString(encoding) : digest()) };
  return hash;
}
export const NOT_HERE = "receipts signed with Ed25519 are not checked in a browser: use `clara-eval verify`";
export const createPublicKey = (key) => key;
export function verify() { throw new Error(NOT_HERE); }

// ---- inflate (RFC 1951) and gunzip ----
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
function table(lengths) { // the codes of a Huffman tree: length and value to symbol
  const codes = new Map();
  for (let size = 1, code = 0; size < 16; size++, code <<= 1) lengths.forEach((length, symbol) => { if (length === size) codes.set((size << 16) | code++, symbol); });
  return codes;
}
export function inflateRawSync(data, { maxOutputLength = Infinity } = {}) {
  let at = 0, out = new Buffer(1 << 16), size = 0, last;
  const bits = (count) => { let value = 0; for (let i = 0; i < count; i++, at++) { if (at >> 3 >= data.length) throw new Error("cut"); value |= ((data[at >> 3] >> (at & 7)) & 1) << i; } return value; };
  const symbol = (codes) => { for (let length = 1, code = 0; length < 16; length++) { code = (code << 1) | bits(1); const found = codes.get((length << 16) | code); if (found !== undefined) return found; } throw new Error("no code"); };
  const put = (byte) => {
    if (size >= maxOutputLength) throw new Error("too long");
    if (size === out.length) { const more = new Buffer(2 * size); more.set(out); out = more; }
    out[size++] = byte;
  };
  do {
    last = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      at = (at + 7) & ~7;
      const count = bits(16);
      bits(16);
      for (let i = 0; i < count; i++) put(bits(8));
      continue;
    }
    if (kind === 3) throw new Error("no block");
    let lengths = Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)), distances = Array(30).fill(5);
    if (kind === 2) {
      const literals = bits(5) + 257, far = bits(5) + 1, first = Array(19).fill(0), all = [];
      for (let i = 0, count = bits(4) + 4; i < count; i++) first[ORDER[i]] = bits(3);
      const codes = table(first);
      while (all.length < literals + far) {
        const found = symbol(codes), repeated = found === 16 ? 3 + bits(2) : found === 17 ? 3 + bits(3) : found === 18 ? 11 + bits(7) : 1, value = found === 16 ? all.at(-1) : found > 16 ? 0 : found;
        for (let i = 0; i < repeated; i++) all.push(value);
      }
      [lengths, distances] = [all.slice(0, literals), all.slice(literals)];
    }
    const codes = table(lengths), farCodes = table(distances);
    for (let found; (found = symbol(codes)) !== 256;) {
      if (found < 256) { put(found); continue; }
      const step = found - 257, extra = step < 8 || step === 28 ? 0 : (step >> 2) - 1, length = step === 28 ? 258 : step < 8 ? step + 3 : ((4 + (step & 3)) << extra) + 3 + bits(extra);
      const code = symbol(farCodes), more = code < 4 ? 0 : (code >> 1) - 1, distance = code < 4 ? code + 1 : ((2 + (code & 1)) << more) + 1 + bits(more);
      if (distance > size) throw new Error("too far");
      for (let i = 0; i < length; i++) put(out[size - distance]);
    }
  } while (!last);
  return out.subarray(0, size);
}
export function gunzipSync(data, limit) {
  let at = 10;
  const flags = data[3];
  if (flags & 4) at += 2 + data.readUInt16LE(at);
  for (const flag of [8, 16]) if (flags & flag) { while (data[at++]); }
  return inflateRawSync(data.subarray(at + (flags & 2 ? 2 : 0)), limit);
}

export const readFileSync = (name) => globalThis.traces.get(name);
globalThis.Buffer = Buffer;
