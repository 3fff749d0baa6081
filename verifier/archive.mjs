// The files of a tar, tar.gz or zip, and the texts that are made of them: written from docs/trace-format.md, section 4, alone.
import { gunzipSync, inflateRawSync } from "node:zlib";
const MOST = 4 * 1024 * 1024,
  limit = { maxOutputLength: MOST + 1024 * 1020 },
  zeros = (at) => at.every((byte) => !byte),
  text = (bytes) => bytes.toString("latin1").split("\0")[0];
export const isArchive = (content) =>
  /^(504b0304|504b0506|1f8b)/.test(content.toString("hex", 0, 4)) || content.toString("latin1", 257, 262) === "ustar";
function* tar(raw) {
  let name = null;
  for (let at = 0; at < raw.length;) {
    const head = raw.subarray(at, at + 512);
    if (zeros(head)) return;
    if (head.toString("latin1", 257, 262) !== "ustar") throw new Error("no tar");
    const size = parseInt(text(head.subarray(124, 136)).trim() || "0", 8),
      body = raw.subarray(at + 512, at + 512 + size),
      kind = String.fromCharCode(head[156]);
    at += 512 + Math.ceil(size / 512) * 512;
    if (body.length !== size) throw new Error("cut");
    if (kind === "L") {
      name = body.subarray(0, body.indexOf(0) < 0 ? size : body.indexOf(0));
      continue;
    }
    if (kind === "x") {
      name = pax(body) ?? name;
      continue;
    }
    if (kind === "g") continue;
    const own = head.subarray(0, 100),
      folder = head.toString("latin1", 257, 263) === "ustar\0" ? text(head.subarray(345, 500)) : "",
      path = name ?? Buffer.from((folder ? `${folder}/` : "") + text(own), "latin1");
    name = null;
    if (kind === "5") continue;
    if (kind !== "0" && kind !== "\0") throw new Error("no plain file");
    yield [path, body];
  }
  throw new Error("no end");
}
function pax(body) {
  let found = null;
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(32, at),
      length = +body.toString("latin1", at, space),
      record = body.subarray(space + 1, at + length - 1),
      is = record.indexOf(61);
    if (record.toString("latin1", 0, is) === "path") found = record.subarray(is + 1);
    if (!(length > 4)) throw new Error("no header");
    at += length;
  }
  return found;
}
function* zip(raw) {
  const end = raw.lastIndexOf("PK\x05\x06", raw.length, "latin1");
  let at = raw.readUInt32LE(end + 16);
  for (let left = raw.readUInt16LE(end + 10); left--;) {
    const method = raw.readUInt16LE(at + 10),
      packed = raw.readUInt32LE(at + 20),
      size = raw.readUInt32LE(at + 24),
      named = raw.readUInt16LE(at + 28),
      offset = raw.readUInt32LE(at + 42),
      name = raw.subarray(at + 46, at + 46 + named);
    at += 46 + named + raw.readUInt16LE(at + 30) + raw.readUInt16LE(at + 32);
    if (name.at(-1) === 47) continue;
    const from = offset + 30 + raw.readUInt16LE(offset + 26) + raw.readUInt16LE(offset + 28),
      data = raw.subarray(from, from + packed),
      body = method ? inflateRawSync(data, limit) : data;
    if (body.length !== size) throw new Error("cut");
    yield [name, body];
  }
}
export function unpack(content) {
  // [path, bytes] in order of the paths' bytes; null where it cannot be read
  try {
    const packed = content[0] === 0x50,
      raw = packed || content[0] !== 0x1f ? content : gunzipSync(content, limit);
    let found = [...(packed ? zip(raw) : tar(raw))].map(([name, body]) => [
      name.toString("utf8").replace(/^\.\//, ""),
      body,
    ]);
    if (
      found.some(([path]) => path.split("/").some((part) => ["", ".", ".."].includes(part))) ||
      found.length > 1000 ||
      found.reduce((sum, [, body]) => sum + body.length, 0) > MOST
    )
      return null;
    const tops = new Set(found.map(([path]) => path.split("/")[0]));
    if (tops.size === 1 && found.every(([path]) => path.includes("/")))
      found = found.map(([path, body]) => [path.slice(path.indexOf("/") + 1), body]);
    return found.sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  } catch {
    return null;
  }
}
const NAMES = {
  py: "python",
  js: "javascript",
  mjs: "javascript",
  jsx: "javascript",
  ts: "typescript",
  tsx: "typescript",
  sol: "solidity",
  rs: "rust",
  go: "go",
};
export function kindsOf(files, language, isBinary, cost) {
  // code first, each in order of its path: what fits into 80,000 tokens is shown
  let left = 80000;
  const isCode = files.map(
      ([path]) => /\./.test(path) && NAMES[path.split(".").at(-1).toLowerCase()] === language && language !== null,
    ),
    kinds = files.map(([, body]) => (isBinary(body) ? "binary" : null));
  for (const turn of [true, false])
    files.forEach(([, body], i) => {
      if (kinds[i] || isCode[i] !== turn) return;
      const price = cost(body.toString("utf8"));
      kinds[i] = price > left ? "omitted" : turn ? "code" : "text";
      if (price <= left) left -= price;
    });
  return kinds;
}
const ended = (body) => body.toString("utf8").replace(/(?<!\n)$(?![\s\S])/, "\n"),
  section =
    (mark) =>
    ([path, body]) =>
      `${mark}=== ${path} ===\n${ended(body)}`;
export function texts(files, told, language) {
  // what readers are shown, what is measured, and whether there is anything to judge in it
  const of = (kind) => files.filter((_, i) => told[i].kind === kind),
    rows = files.map(
      ([path, body], i) =>
        `${path}: ${body.length} bytes, ${told[i].kind}${told[i].kind === "binary" ? `, sha256 ${told[i].sha256}` : ""}\n`,
    ),
    code = of("code"),
    shown = [...code, ...of("text")];
  const document = `=== ${files.length} files ===\n${rows.join("")}${shown.map(section("")).join("")}`;
  return {
    document,
    body: shown.map(([, one]) => one.toString("utf8")).join(""),
    code: !code.length
      ? document
      : code.length === 1
        ? code[0][1].toString("utf8")
        : code.map(section(language === "python" ? "# " : "// ")).join(""),
  };
}
