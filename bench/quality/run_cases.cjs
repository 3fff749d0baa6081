// Runs our own JavaScript programs on the cases of their task: how many each passes.
const assert = require("node:assert");

function passes(source, call, [args, wanted]) {
  const module_ = { exports: {} };
  new Function("module", "require", source)(module_, require);
  try {
    assert.deepStrictEqual(JSON.parse(JSON.stringify(module_.exports[call](...args))), wanted);
    return true;
  } catch (error) {
    return wanted === "error" && (error instanceof RangeError || error instanceof TypeError);
  }
}

const jobs = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const found = jobs.map(({ name, source, call, cases }) => [
  name,
  [cases.filter((one) => passes(source, call, one)).length, cases.length],
]);
process.stdout.write(JSON.stringify(Object.fromEntries(found)));
