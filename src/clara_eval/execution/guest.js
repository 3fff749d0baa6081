// Runs inside the sandbox, in the submission's instance and in the harness's: `(host, role) => exchange`.
// `exchange(text)` takes one JSON message and gives one JSON answer. The two instances share nothing but these texts:
// what the harness gets from the submission is a copy of a plain value, or a stand-in for an object that stays there.
(host, role) => {
  "use strict";
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const kept = [];
  const stands = new WeakMap();
  const DEPTH = 32;

  const encode = (value, depth = 0) => {
    if (depth > DEPTH) throw new RangeError("The value is nested too deeply.");
    if (value === undefined) return { $: "undefined" };
    if (typeof value === "bigint") return { $: "bigint", v: String(value) };
    if (typeof value === "number" && !Number.isFinite(value)) return { $: "number", v: String(value) };
    if (value === null || ["number", "string", "boolean"].includes(typeof value)) return value;
    if (stands.has(value)) return { $: "ref", v: stands.get(value) };
    if (isArray(value)) return { $: "list", v: Array.from(value, (item) => encode(item, depth + 1)) };
    const plain = typeof value === "object" && [Object.prototype, null].includes(Object.getPrototypeOf(value));
    if (plain) return { $: "map", v: Object.keys(value).map((key) => [key, encode(value[key], depth + 1)]) };
    if (role === "harness") throw new TypeError("Only plain values can be handed to the submission.");
    if (typeof value === "symbol") throw new TypeError("A symbol cannot be handed to the harness.");
    return { $: "ref", v: kept.push(value) - 1, call: typeof value === "function" };
  };

  const decode = (found) => {
    if (found === null || typeof found !== "object") return found;
    switch (found.$) {
      case "undefined": return undefined;
      case "bigint": return BigInt(found.v);
      case "number": return Number(found.v);
      case "list": return found.v.map(decode);
      case "map": return Object.fromEntries(found.v.map(([key, item]) => [key, decode(item)]));
      default: return role === "harness" ? standIn(found) : kept[found.v];
    }
  };

  const ask = (message) => {
    const answer = parse(host("ask", stringify(message)));
    if (answer.error === undefined) return decode(answer.value);
    const error = new Error(answer.error.message);
    error.name = answer.error.name;
    throw error;
  };

  const standIn = (found) => {
    const args = (list) => Array.from(list, (item) => encode(item));
    const made = new Proxy(function () {}, {
      get: (_, name) => (typeof name === "symbol" || name === "then" ? undefined : ask({ op: "get", ref: found.v, name })),
      set: (_, name, value) => (ask({ op: "set", ref: found.v, name: String(name), value: encode(value) }), true),
      has: (_, name) => ask({ op: "has", ref: found.v, name: String(name) }),
      apply: (_, self, list) => ask({ op: "call", ref: found.v, self: self === undefined ? undefined : encode(self), args: args(list) }),
      construct: (_, list) => ask({ op: "new", ref: found.v, args: args(list) }),
    });
    stands.set(made, found.v);
    return made;
  };

  const operations = {
    get: (on, m) => { const v = on[m.name]; return typeof v === "function" && m.ref !== 0 ? bound(on, v) : v; },
    set: (on, m) => { on[m.name] = decode(m.value); },
    has: (on, m) => m.name in on,
    call: (on, m) => on.apply(m.self === undefined ? undefined : decode(m.self), m.args.map(decode)),
    new: (on, m) => new on(...m.args.map(decode)),
  };
  const bound = (on, method) => (...args) => method.apply(on, args);

  const failed = (error) => {
    const is = error !== null && typeof error === "object";
    return { error: { name: is ? String(error.name) : "thrown", message: is ? String(error.message) : String(error) } };
  };

  let module, answer;
  const settle = (make) => {
    answer = { pending: true };
    const good = (value) => { try { answer = { value: encode(value) }; } catch (error) { answer = failed(error); } };
    const bad = (error) => { try { answer = failed(error); } catch { answer = { error: { name: "thrown", message: "" } }; } };
    let value;
    try { value = make(); } catch (error) { return bad(error); }
    if (value instanceof Promise) value.then(good, bad); else good(value);
  };

  const messages = {
    loaded: () => (settle(() => Object.keys(module)), undefined),
    use: (m) => settle(() => operations[m.op](m.ref === 0 ? module : kept[m.ref], m)),
    run: (m) => settle(() => module[m.name](standIn({ v: 0 }))),
  };
  kept.push(null);

  const show = (...items) => host("print", items.map((item) => {
    try { return typeof item === "string" ? item : stringify(item) ?? String(item); } catch { return String(item); }
  }).join(" "));
  globalThis.console = { log: show, info: show, warn: show, error: show, debug: show };

  return {
    begin: (namespace) => { module = namespace; },
    send: (text) => { const m = parse(text); (messages[m.do] ?? messages.use)(m); },
    answer: () => stringify(answer),
  };
};
