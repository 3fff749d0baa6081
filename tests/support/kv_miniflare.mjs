// A real Cloudflare KV on this machine: miniflare's, in a folder.
//
// `node kv_miniflare.mjs serve FOLDER NAMESPACE TOKEN` serves the API's endpoints that write (bulk) and read metadata by
// a Worker over the KV binding, and prints its URL. `node kv_miniflare.mjs dump FOLDER NAMESPACE` is a client of its own:
// it opens the same folder without that Worker and prints every key with its value as one JSON document.

import { Miniflare } from "miniflare";

const [mode, folder, namespace, token] = process.argv.slice(2);

const worker = `
export default {
  async fetch(request, env) {
    const path = decodeURIComponent(new URL(request.url).pathname);
    const answer = (status, result, errors = []) =>
      Response.json({ success: status === 200, errors, messages: [], result }, { status });
    if (request.headers.get("Authorization") !== "Bearer ${token}")
      return answer(403, null, [{ code: 10000, message: "Authentication error" }]);
    const where = path.split("/storage/kv/namespaces/${namespace}/")[1];
    if (request.method === "PUT" && where === "bulk") {
      const pairs = await request.json();
      for (const { key, value, metadata } of pairs) await env.KV.put(key, value, { metadata });
      return answer(200, { successful_key_count: pairs.length, unsuccessful_keys: [] });
    }
    if (request.method === "GET" && where?.startsWith("metadata/")) {
      const { value, metadata } = await env.KV.getWithMetadata(where.slice(9));
      return value === null ? answer(404, null, [{ code: 10009, message: "key not found" }]) : answer(200, metadata);
    }
    return answer(404, null, [{ code: 7003, message: "no such route" }]);
  },
};`;
const empty = "export default { fetch() { return new Response(null, { status: 404 }); } };";

const miniflare = new Miniflare({
  host: "127.0.0.1",
  port: 0,
  cf: false, // ask nobody about this machine
  modules: true,
  script: mode === "serve" ? worker : empty,
  kvNamespaces: { KV: namespace },
  kvPersist: folder,
});

const url = await miniflare.ready;
if (mode === "serve") {
  process.stdout.write(`${url.origin}\n`);
  process.stdin.on("end", async () => {
    await miniflare.dispose();
    process.exit(0);
  });
  process.stdin.resume();
} else {
  const kv = await miniflare.getKVNamespace("KV");
  const found = {};
  let cursor;
  do {
    const page = await kv.list({ cursor });
    for (const { name } of page.keys) found[name] = await kv.get(name);
    cursor = page.list_complete ? undefined : page.cursor;
  } while (cursor);
  process.stdout.write(JSON.stringify(found));
  await miniflare.dispose();
}
