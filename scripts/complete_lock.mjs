// Name the packages of other platforms in package-lock.json.
//
// npm drops an optional package from the lock when the registry at hand does not offer it, and `npm ci` then refuses
// the lock everywhere. This adds each missing one with its version and platform, as npm itself would write it, so
// that it is skipped on every other platform. Only the integrity, which cannot be known here, is left out.
// Run through `npm run lock`.

import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const file = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "package-lock.json");
const systems = ["android", "darwin", "freebsd", "linux", "openharmony", "win32"];
const processors = { amd64: "x64", x64: "x64", arm64: "arm64", arm: "arm", ppc64: "ppc64", s390x: "s390x", wasm32: "wasm32" };
const libraries = { gnu: "glibc", musl: "musl" };

function platformEntry(name, version) {
  const words = name.split("/").at(-1).split("-");
  const os = words.find((word) => systems.includes(word));
  const cpu = words.find((word) => word in processors);
  const libc = os === "linux" ? words.find((word) => word in libraries) : undefined;
  if (cpu === undefined) {
    console.error(`${name}: no platform in its name. Add its entry to package-lock.json by hand.`);
    process.exit(1);
  }
  return {
    version,
    cpu: [processors[cpu]],
    dev: true,
    ...(libc && { libc: [libraries[libc]] }),
    optional: true,
    ...(os && { os: [os] }),
  };
}

const lock = JSON.parse(readFileSync(file, "utf8"));
const known = Object.keys(lock.packages);
const added = {};
for (const entry of Object.values(lock.packages)) {
  for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
    const place = `node_modules/${name}`;
    if (!known.some((key) => key.endsWith(place))) added[place] = platformEntry(name, version);
  }
}
lock.packages = Object.fromEntries(
  Object.entries({ ...lock.packages, ...added }).sort(([left], [right]) => left.localeCompare(right, "en")),
);
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
console.log(`${Object.keys(added).length} packages of other platforms named in the lock`);
