// Compile standard-JSON inputs with the npm package `solc`, one after the other; stop at the first that has errors.
// In: {"solc": path, "inputs": [...], "memory": bytes, "output": bytes} on standard input. Out: {"version", "outputs"}.
// No import callback is given, so the compiler reads nothing but the sources it is handed.
"use strict";
const fs = require("node:fs");
// The compiler is a large WebAssembly module that runs for a second: optimising it costs more than it saves.
require("node:v8").setFlagsFromString("--liftoff-only");
const job = JSON.parse(fs.readFileSync(0, "utf8"));
const solc = require(job.solc);
const version = solc.version();
// The memory of the compiler is that of its module: the same on every machine for the same text.
const grow = WebAssembly.Memory.prototype.grow;
WebAssembly.Memory.prototype.grow = function (pages) {
  if (this.buffer.byteLength + pages * 65536 > job.memory) throw new RangeError("memory");
  return grow.call(this, pages);
};
const failed = (message) => ({ errors: [{ severity: "error", type: "Limit", message }] });
const outputs = [];
for (const input of job.inputs) {
  let output;
  try {
    const text = solc.compile(JSON.stringify(input));
    output = text.length > job.output ? failed("The compiler writes too much for it.") : JSON.parse(text);
  } catch (broke) {
    output = failed(`The compiler cannot take it: ${String(broke).slice(0, 100)}`);
  }
  outputs.push(output);
  if ((output.errors || []).some((error) => error.severity === "error")) break;
}
fs.writeSync(1, JSON.stringify({ version, outputs }));
