// Compile one or two standard-JSON inputs with the npm package `solc`; stop at the first that has errors.
// In: {"solc": path, "inputs": [...]} on standard input. Out: {"version", "outputs": [...]} on standard output.
// No import callback is given, so the compiler reads nothing but the sources it is handed.
"use strict";
const fs = require("node:fs");
// The compiler is a large WebAssembly module that runs for a second: optimising it costs more than it saves.
require("node:v8").setFlagsFromString("--liftoff-only");
const job = JSON.parse(fs.readFileSync(0, "utf8"));
const solc = require(job.solc);
const outputs = [];
for (const input of job.inputs) {
  const output = JSON.parse(solc.compile(JSON.stringify(input)));
  outputs.push(output);
  if ((output.errors || []).some((error) => error.severity === "error")) break;
}
fs.writeSync(1, JSON.stringify({ version: solc.version(), outputs }));
