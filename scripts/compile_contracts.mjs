// Compile solidity/*.sol with the npm compiler and write one artifact per contract.
//
//   node scripts/compile_contracts.mjs           write the artifacts
//   node scripts/compile_contracts.mjs --check   compare with the shipped ones; exit 1 if they differ
//
// Fixed settings and no metadata hash: the same sources give the same bytes on every machine.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const sourceDir = path.join(root, "solidity");
const shipped = path.join(root, "src", "clara_eval", "chain", "contracts");
const forTests = path.join(root, "tests", "support");
const contracts = [
  { name: "Challenge", source: "Challenge.sol", folder: shipped },
  { name: "ChallengeFactory", source: "ChallengeFactory.sol", folder: shipped },
  { name: "IdentityRegistry", source: "IdentityRegistry.sol", folder: shipped },
  { name: "ReputationRegistry", source: "ReputationRegistry.sol", folder: shipped },
  { name: "TestUSDC", source: "TestUSDC.sol", folder: shipped },
  { name: "SilentRegistry", source: "test/SilentRegistry.sol", folder: forTests },
  { name: "ReentrantToken", source: "test/ReentrantToken.sol", folder: forTests },
];

const settings = {
  optimizer: { enabled: true, runs: 200 },
  evmVersion: "cancun",
  metadata: { bytecodeHash: "none", appendCBOR: false },
  outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } },
};

function fail(message) {
  console.error(message);
  process.exit(1);
}

function loadCompiler() {
  try {
    return createRequire(import.meta.url)("solc");
  } catch (error) {
    return fail(`The Solidity compiler cannot be loaded (${error.message}). Run: make setup`);
  }
}

function findImport(name) {
  const candidates = [path.join(sourceDir, name), path.join(root, "node_modules", name)];
  const file = candidates.find((candidate) => existsSync(candidate));
  return file ? { contents: readFileSync(file, "utf8") } : { error: `${name} not found. Run: make setup` };
}

function compile(solc) {
  const sources = Object.fromEntries(
    contracts.map(({ source }) => [source, { content: readFileSync(path.join(sourceDir, source), "utf8") }]),
  );
  const input = { language: "Solidity", sources, settings };
  const output = JSON.parse(solc.compile(JSON.stringify(input), { import: findImport }));
  // A warning in our own sources is a defect; those of libraries are theirs.
  const problems = (output.errors ?? []).filter(
    (problem) => problem.severity === "error" || (problem.sourceLocation?.file ?? "") in sources,
  );
  if (problems.length > 0) fail(problems.map((problem) => problem.formattedMessage).join("\n"));
  return output.contracts;
}

function artifactText({ name, source }, compiled, version) {
  const { abi, evm } = compiled[source][name];
  const entries = abi.map((entry) => `    ${JSON.stringify(entry)}`).join(",\n");
  return `{
  "contractName": "${name}",
  "solc": "${version}",
  "abi": [
${entries}
  ],
  "bytecode": "0x${evm.bytecode.object}"
}
`;
}

const solc = loadCompiler();
const compiled = compile(solc);
const check = process.argv.includes("--check");
const different = [];
for (const contract of contracts) {
  const file = path.join(contract.folder, `${contract.name}.json`);
  const text = artifactText(contract, compiled, solc.version());
  if (!check) writeFileSync(file, text);
  else if (!existsSync(file) || readFileSync(file, "utf8") !== text) different.push(path.relative(root, file));
}
if (different.length > 0) {
  fail(`Not what the sources compile to: ${different.join(", ")}. Run: npm run contracts`);
}
console.log(`${contracts.length} contracts ${check ? "match their sources" : "written"} (solc ${solc.version()})`);
