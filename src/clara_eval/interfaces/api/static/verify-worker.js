// One run of the second verifier: it says what it would print, and whether all of it holds.
import { Buffer, NOT_HERE } from "./verify-platform.mjs";

const lines = [], ask = fetch;
let silent = ""; // a node or gateway that did not answer: no fault of the trace
self.fetch = async (place, options) => {
  const answer = await ask(place, options).catch(() => null);
  if (!answer?.ok) silent = `${new URL(place, location).host} ${answer ? `answered ${answer.status}` : "does not answer this browser"}.`;
  if (!answer) throw new Error(silent);
  return answer;
};
console.log = (...words) => lines.push(words.join(" "));
self.onmessage = async ({ data: { files, address, node } }) => {
  try {
    if (address) {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(silent);
      files = [["trace.json", await answer.arrayBuffer()]];
    }
    globalThis.traces = new Map(files.map(([name, bytes]) => [name, new Buffer(bytes)]));
    globalThis.process = { argv: ["node", "verify.mjs", ...traces.keys(), ...(node ? ["--rpc", node] : [])], exit: () => {} };
    await import("/verifier/verify.mjs");
    if (silent) throw new Error(`${silent} The trace was not compared with the chain.`);
    const isOpen = lines.some((line) => line.includes(NOT_HERE));
    self.postMessage({ lines, holds: !process.exitCode, isOpen });
  } catch (bad) {
    self.postMessage({ problem: String(bad.message || bad) });
  }
};
