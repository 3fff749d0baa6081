// One run of the second verifier: it says what it would print, and whether all of it holds.
import { Buffer, NOT_HERE } from "./verify-platform.mjs";

const lines = [];
console.log = (...words) => lines.push(words.join(" "));
self.onmessage = async ({ data: { bytes, address, node } }) => {
  try {
    if (!bytes) {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(`${new URL(address).host} answered ${answer.status}.`);
      bytes = await answer.arrayBuffer();
    }
    globalThis.trace = new Buffer(bytes);
    globalThis.process = { argv: ["node", "verify.mjs", "trace.json", ...(node ? ["--rpc", node] : [])], exit: () => {} };
    await import("/verifier/verify.mjs");
    const isOpen = lines.some((line) => line.includes(NOT_HERE));
    self.postMessage({ lines, holds: !process.exitCode, isOpen });
  } catch (bad) {
    self.postMessage({ problem: String(bad.message || bad) });
  }
};
