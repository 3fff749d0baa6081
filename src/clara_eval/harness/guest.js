// Runs inside the sandbox, in the submission's instance and in the harness's: `(host, role) => { begin, send, answer }`.
// The two instances share nothing but JSON texts. What the harness gets from the submission is a copy of a plain value,
// or a stand-in: for what the submission exports (it can be called), for an object that the harness built with `new` (it
// can be used), or for an object that was given where plain data belongs (it can only be read).
// Beside the submission nothing here can be changed: every function is taken before the submission loads, and no
// prototype is asked for anything after that (no methods, no iteration, no property that may be missing).
(host, role) => {
  "use strict";
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const { getPrototypeOf, keys, prototype: objectPrototype, defineProperty } = Object;
  const { apply, construct } = Reflect;
  const [PromiseClass, later, Text, Big, Numeric] = [Promise, Promise.prototype.then, String, BigInt, Number];
  const [Failure, WrongType, WrongRange, Mirror] = [Error, TypeError, RangeError, Proxy];
  const { get: found_in, set: put_into } = WeakMap.prototype;
  const numbers = new WeakMap(); // an object, and the number by which the other instance knows it
  const kept = [null];
  let count = 1;
  const DEPTH = 32;
  const REMEDY = "Take plain data, or build the object in the harness: with new, or asObject(...).";

  const put = (on, key, value) =>
    defineProperty(on, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });

  const tagged = (tag, text) => '{"$":"' + tag + '","v":' + text + "}";

  const encode = (value, depth) => {
    if (depth > DEPTH) throw new WrongRange("The value is nested too deeply.");
    switch (typeof value) {
      case "undefined": return '{"$":"undefined"}';
      case "string": return stringify(value);
      case "boolean": return value ? "true" : "false";
      case "bigint": return tagged("bigint", '"' + value + '"');
      case "number": return value - value === 0 ? "" + value : tagged("number", '"' + value + '"');
      case "symbol": throw new WrongType("A symbol cannot be handed over.");
    }
    if (value === null) return "null";
    const known = apply(found_in, numbers, [value]);
    if (known !== undefined) return tagged("ref", "" + known);
    let text = "";
    if (isArray(value)) {
      const { length } = value;
      for (let i = 0; i < length; i++) text += (i ? "," : "") + encode(value[i], depth + 1);
      return tagged("list", "[" + text + "]");
    }
    const prototype = typeof value === "object" ? getPrototypeOf(value) : undefined;
    if (prototype === objectPrototype || prototype === null) {
      const names = keys(value);
      const { length } = names;
      for (let i = 0; i < length; i++) {
        text += (i ? "," : "") + "[" + stringify(names[i]) + "," + encode(value[names[i]], depth + 1) + "]";
      }
      return tagged("map", "[" + text + "]");
    }
    if (role === "harness") throw new WrongType("Only plain values can be handed to the submission.");
    put(kept, count, value);
    apply(put_into, numbers, [value, count]);
    return tagged("ref", "" + count++);
  };

  // In place: what was parsed has every index as its own, so that no prototype is asked. `wrap` makes a stand-in.
  const decode = (found, wrap) => {
    if (found === null || typeof found !== "object") return found;
    if (found.$ === "undefined") return undefined;
    const { v } = found;
    switch (found.$) {
      case "bigint": return Big(v);
      case "number": return Numeric(v);
      case "list": return decodeAll(v, wrap);
      case "map": {
        const made = {};
        const { length } = v;
        for (let i = 0; i < length; i++) put(made, v[i][0], decode(v[i][1], wrap));
        return made;
      }
      default: return wrap(v);
    }
  };
  const decodeAll = (list, wrap) => {
    const { length } = list;
    for (let i = 0; i < length; i++) list[i] = decode(list[i], wrap);
    return list;
  };
  const own = (number) => kept[number];

  const failed = (error) => {
    const is = error !== null && typeof error === "object";
    const name = stringify(is ? Text(error.name) : "thrown"), message = stringify(is ? Text(error.message) : Text(error));
    return '{"error":{"name":' + name + ',"message":' + message + "}}";
  };

  let module, answer;
  const settle = (make) => {
    answer = '{"pending":true}';
    const good = (value) => { try { answer = '{"value":' + encode(value, 0) + "}"; } catch (error) { bad(error); } };
    const bad = (error) => { try { answer = failed(error); } catch { answer = '{"error":{"name":"thrown","message":""}}'; } };
    try {
      const value = make();
      if (value !== null && typeof value === "object" && value instanceof PromiseClass) apply(later, value, [good, bad]);
      else good(value);
    } catch (error) { bad(error); }
  };

  const show = (...items) => {
    let line = "";
    for (let i = 0; i < items.length; i++) {
      let text;
      try { text = typeof items[i] === "string" ? items[i] : stringify(items[i]) ?? Text(items[i]); } catch { text = Text(items[i]); }
      line += (i ? " " : "") + text;
    }
    host("print", line);
  };
  globalThis.console = { log: show, info: show, warn: show, error: show, debug: show };

  const use = (m) => {
    const on = m.ref === 0 ? module : kept[m.ref];
    switch (m.op) {
      case "get": {
        const value = on[m.name];
        return typeof value === "function" && m.ref !== 0 ? (...args) => apply(value, on, args) : value;
      }
      case "set": return void (on[m.name] = decode(m.value, own));
      case "has": return m.name in on;
      case "call": return apply(on, decode(m.self, own), decodeAll(m.args, own));
      default: return construct(on, decodeAll(m.args, own));
    }
  };

  // From here on: the harness's side.
  const built = new Set();
  const ask = (op, ref, rest, wrap) => {
    const found = parse(host("ask", '{"do":"use","op":"' + op + '","ref":' + ref + rest + "}"));
    if (found.error === undefined) return decode(found.value, (number) => (built.has(number) ? objectOf(number) : wrap(number)));
    const error = new Failure(found.error.message);
    error.name = found.error.name;
    throw error;
  };
  const named = (name) => ',"name":' + stringify(Text(name));
  const passed = (list) => {
    let text = "";
    for (let i = 0; i < list.length; i++) text += (i ? "," : "") + encode(list[i], 0);
    return ',"args":[' + text + "]";
  };
  const refuse = (what) => () => { throw new WrongType(what + " " + REMEDY); };
  const none = refuse("An object of the submission is no plain value.");
  const standIn = (number, { get, ...more }) => {
    const made = new Mirror(function () {}, {
      get: (_, name) => {
        if (name === Symbol.toPrimitive) return none;
        if (name === "toJSON") none();
        return typeof name === "symbol" || name === "then" ? undefined : get(name);
      },
      set: (_, name, value) => (ask("set", number, named(name) + ',"value":' + encode(value, 0), given), true),
      has: none,
      ownKeys: none,
      getOwnPropertyDescriptor: none,
      getPrototypeOf: none,
      apply: refuse("What the submission gave is not called."),
      construct: refuse("What the submission gave is not called."),
      ...more,
    });
    numbers.set(made, number);
    return made;
  };
  // An object that was given: its properties are read.
  const given = (number) => standIn(number, { get: (name) => ask("get", number, named(name), given) });
  // What can be called; `inner` makes its own properties.
  const part = (number, inner) => standIn(number, {
    get: (name) => ask("get", number, named(name), inner),
    has: (_, name) => ask("has", number, named(name), given),
    apply: (_, self, list) => ask("call", number, ',"self":' + encode(self, 0) + passed(list), given),
    construct: (_, list) => ask("new", number, passed(list), objectOf),
  });
  const method = (number) => part(number, given);
  const objectOf = (number) => (built.add(number), part(number, method));
  const submission = () => standIn(0, {
    get: (name) => ask("get", 0, named(name), (number) => part(number, name === "default" || /^\p{Lu}/u.test(name) ? method : given)),
    has: (_, name) => ask("has", 0, named(name), given),
  });
  if (role === "harness") globalThis.asObject = (value) => (numbers.has(value) ? objectOf(numbers.get(value)) : value);

  return {
    begin: (namespace) => { module = namespace; },
    send: (text) => {
      const m = parse(text);
      if (m.do === "loaded") return settle(() => keys(module));
      if (m.do === "run") return settle(() => module[m.name](submission(), m.seed));
      return settle(() => use(m));
    },
    answer: () => answer,
  };
};
