// The npm package `solc`, loaded once: answers standard-JSON inputs, one line each, until its standard input ends.
// Out, first: {"port", "version"} in one line. A connection sends one line and reads the compiler's answer.
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { setFlagsFromString } from "node:v8";

setFlagsFromString("--liftoff-only"); // as the product does: the module runs for a moment
const solc = createRequire(import.meta.url)(process.argv[2]);
const server = createServer((line) => {
  let asked = "";
  line.setEncoding("utf8");
  line.on("error", () => line.destroy());
  line.on("data", (part) => {
    asked += part;
    if (part.endsWith("\n")) line.end(solc.compile(asked));
  });
});
server.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ port: server.address().port, version: solc.version() }));
});
process.stdin.resume().on("end", () => process.exit(0));
