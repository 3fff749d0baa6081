// Runs beside a JavaScript submission of several files, before them: `(host, files) => { resolve, source }`.
// The engine loads ES modules itself: it asks `resolve` for the path of each import and `source` for its text. A CommonJS
// file is a function that is run when it is first asked for; its text is then a module with the names that it exported.
// `require` of an ES module loads that at once. What throws, throws in words to the file that asked.
// All of it belongs to the submission: it gives nothing that the submission's own files do not have.
(host, given) => {
  "use strict";
  const { parse, stringify } = JSON;
  const { assign, defineProperty, keys } = Object;
  const { apply } = Reflect;
  const { includes, isWellFormed, slice } = String.prototype;
  const { then: later } = Promise.prototype;
  const [Failure, WrongSyntax, settled] = [Error, SyntaxError, Promise.resolve()];
  const LONGEST = 1000;
  const DEPTH = 100; // of files that require each other: beyond it the engine's parser has too little stack to say why it fails
  const NESTED = 16; // of `require`s that load an ES module: each takes some of the host's own stack

  const texts = assign({ __proto__: null }, parse(given));
  const made = { __proto__: null }; // by path: what a CommonJS file exported, or an ES module that was required; null: not yet
  const imports = { __proto__: null }; // by path: what the file asked for, as the keys of an object
  const finished = { __proto__: null }; // by path: an ES module that has run
  const begun = { __proto__: null }; // by number: an ES module that was given to the engine
  let [count, done, depth, nested, requirer] = [0, 0, 0, 0, ""];
  // For the modules that stand for CommonJS files.
  defineProperty(globalThis, "$files", { __proto__: null, value: made });

  const fail = (words) => { throw new Failure(words); };
  const until = (path, end) => apply(slice, path, [0, end]);

  const parent = (path) => {
    let end = path.length;
    while (end > 0 && path[--end] !== "/");
    return until(path, end);
  };

  // A path without `.`, `..` and empty parts; null if it leads outside.
  const clean = (path) => {
    let found = "", part = "";
    for (let i = 0; i <= path.length; i++) {
      if (i < path.length && path[i] !== "/") {
        part += path[i];
        continue;
      }
      if (part === ".." && found === "") return null;
      if (part === "..") found = parent(found);
      else if (part !== "" && part !== ".") found += (found && "/") + part;
      part = "";
    }
    return found;
  };

  const find = (base, name) => {
    const isOwn = name === "." || name === ".." || until(name, 2) === "./" || until(name, 3) === "../";
    const place = isOwn && name.length <= LONGEST ? clean(parent(base) + "/" + name) : null;
    const shown = "'" + until(name, 100) + "'";
    if (place === null) fail("could not load module " + shown + ": " + base + " can only import files of the submission, by ./ or ../");
    const inside = (place && place + "/") + "index.js";
    const found = place in texts ? place : place + ".js" in texts ? place + ".js" : inside;
    if (!(found in texts)) fail(base + " asks for " + shown + ", which is no JavaScript file of the submission.");
    (imports[base] ??= { __proto__: null })[found] = true;
    return found;
  };

  // Whether a file needs one that has not run to its end: then the engine cannot run it now.
  const leads = (path, to, seen = { __proto__: null }) => {
    if (path === to) return true;
    if (finished[path] || seen[path]) return false;
    seen[path] = true;
    for (const next in imports[path]) if (leads(next, to, seen)) return true;
    return false;
  };

  // Called by the engine.
  const resolve = (base, name) => {
    const path = find(base, name);
    if (requirer && leads(path, requirer)) {
      fail(requirer + " requires an ES module that needs " + requirer + " itself, through " + path + ": `import` it there.");
    }
    return path;
  };

  const load = (path, from) => {
    if (nested === NESTED) fail("More than " + NESTED + " ES modules are required, one in another: `import` " + path + ".");
    const before = [requirer, count];
    nested++;
    requirer = from;
    try {
      const name = stringify(path);
      host("module require", "import * as exports from " + stringify("./" + path) + ";\n$files[" + name + "] = { exports };");
      for (let i = before[1]; i < count; i++) finished[begun[i]] = true;
    } finally {
      nested--;
      requirer = before[0];
    }
    return made[path] ?? fail(path + " waits for something while it loads: `import` it.");
  };

  // A CommonJS file as a function; null for any other file.
  const compiled = (path) => {
    const text = texts[path];
    const has = (word) => apply(includes, text, [word]);
    if (apply(slice, path, [-4]) === ".mjs" || !(has("exports") || has("module") || has("require"))) return null;
    try {
      return host("script " + path, "(function (exports, require, module) {" + text + "\n})");
    } catch (error) {
      if (error instanceof WrongSyntax) return null;
      throw error;
    }
  };

  const run = (path) => {
    if (made[path] !== undefined) return made[path];
    const body = compiled(path);
    if (body === null) return (made[path] = null);
    const module = (made[path] = { exports: {} });
    const require = (name) => {
      const wanted = find(path, "" + name);
      return (run(wanted) ?? load(wanted, path)).exports;
    };
    try {
      if (++depth > DEPTH) fail("Maximum call stack size exceeded: more than " + DEPTH + " files require each other in turn.");
      apply(body, module.exports, [module.exports, require, module]);
    } catch (error) {
      made[path] = undefined;
      throw error;
    } finally {
      depth--;
    }
    return module;
  };

  // What was given to the engine has run when this job is over.
  const begin = (path) => {
    if (done === count) {
      apply(later, settled, [() => { for (; done < count; done++) finished[begun[done]] = true; }]);
    }
    begun[count++] = path;
    return texts[path];
  };

  // Called by the engine: a file as an ES module.
  const source = (path) => {
    const module = run(path);
    if (module === null) return begin(path);
    const { exports } = module;
    const names = exports === null || exports === undefined ? [] : keys(exports);
    let text = "const { exports } = $files[" + stringify(path) + "];\nexport { exports as default };\n";
    for (let i = 0; i < names.length; i++) {
      const name = stringify(names[i]);
      if (names[i] === "default" || !apply(isWellFormed, names[i], [])) continue;
      text += "const $" + i + " = exports[" + name + "];\nexport { $" + i + " as " + name + " };\n";
    }
    return text;
  };

  return { resolve, source };
};
