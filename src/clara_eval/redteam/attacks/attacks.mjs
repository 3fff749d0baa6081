//// idle value_of: gives an object that turns into any number
let k = 9; class V { valueOf() { return k++; } }
const answer = () => new V();
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle to_string: gives an object that turns into any text
class V { toString() { return '2,3,5'; } join() { return '2,3,5'; } }
const answer = () => new V();
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle to_json: gives an object that writes itself as JSON
class V { toJSON() { return [2, 3, 5]; } }
const answer = () => new V();
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle to_json_nothing: gives an object that JSON leaves out
class V { toJSON() { return undefined; } }
const answer = () => new V();
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle to_primitive: gives an object with a conversion of its own
class V { [Symbol.toPrimitive](hint) { return hint === 'string' ? '' : NaN; } }
const answer = () => new V();
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle methods_agree: gives an instance whose methods agree
class V { includes() { return true; } every() { return true; } get length() { return 9; } }
const answer = () => new V();
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle literal_with_methods: gives a plain object that holds agreeing functions
const answer = () => ({ length: 9, includes: () => true, every: () => true, some: () => true, join: () => '', at: () => 2 });
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle agreeing_proxy: gives a proxy that agrees with everything
const answer = () => new Proxy(function () {}, { get: () => () => true, has: () => true, apply: () => true });
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle array_with_methods: gives an array with methods of its own
const answer = () => Object.assign([2, 3], { includes: () => true, every: () => true, some: () => true, join: () => '', at: () => 2 });
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle array_of_a_class: gives an array of a class of its own
class A extends Array { includes() { return true; } every() { return true; } }
const answer = () => A.from([2, 3]);
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle array_proxy: gives a proxy of an array with a lying length
const answer = () => new Proxy([], { get: (t, k) => (k === 'length' ? 9 : 2) });
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle other_each_time: gives an object whose properties change at every reading
let k = 1; const answer = () => ({ get length() { return k++; }, get 0() { return k++; } });
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle array_prototype: replaces every method of Array.prototype
for (const k of Object.getOwnPropertyNames(Array.prototype)) if (typeof [][k] === 'function' && k !== 'constructor')
  Array.prototype[k] = () => true;
const answer = () => [];
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle object_to_json: gives every object a toJSON
Object.prototype.toJSON = Array.prototype.toJSON = () => [2, 3, 5];
const answer = () => [];
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle json_replaced: replaces JSON.parse and JSON.stringify
JSON.stringify = () => '{"value":[2,3,5]}'; JSON.parse = () => ({});
const answer = () => [];
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle globals_replaced: replaces Error, Proxy, WeakMap, Promise, Object, Reflect and Array
for (const k of ['Error', 'TypeError', 'Proxy', 'WeakMap', 'Promise', 'Reflect', 'Array', 'String', 'Number'])
  globalThis[k] = function () { return true; };
const answer = () => [];
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle tags: has the tags of messages on every object
Object.prototype.$ = 'list'; Object.prototype.v = [2, 3, 5]; Object.prototype.value = [2];
const answer = () => ({});
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle looks_like_a_tag: gives a value that looks like a message
const answer = () => ({ $: 'ref', v: 0, value: [2] });
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle index_setters: has setters for the indexes of every array
for (let i = 0; i < 30; i++) Object.defineProperty(Array.prototype, i, { set() {}, get: () => 2, configurable: true });
const answer = () => [, , ,];
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle promise_then: replaces Promise.prototype.then
Promise.prototype.then = function (good) { good([2, 3, 5]); return this; };
const answer = (n) => Promise.resolve([]);
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle is_a_promise: says that everything is a promise
Object.defineProperty(Promise, Symbol.hasInstance, { value: () => true });
const answer = () => ({ then: (good) => good([2]) });
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle thenable: gives an object with then
class T { then(good) { good([2, 3, 5]); } }
const answer = () => new T();
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle never: gives a promise that is settled in a later call
let settle; const answer = () => { settle?.([2]); return new Promise((good) => { settle = good; }); };
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle stack_functions: takes functions out of the stack of an error
let taken; Error.prepareStackTrace = (_, sites) => { taken = sites.map((s) => s.getFunction?.()); return ''; };
let busy; const answer = () => { if (busy) return []; busy = 1; new Error().stack; for (const f of taken) try { f?.(() => [2, 3, 5]); } catch {} return []; };
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle not_a_number: gives NaN
const answer = () => NaN;
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle throws_nothing: throws undefined
const answer = () => { throw undefined; };
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle generator: gives a generator without an end
function* answer() { for (;;) yield 2; }
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// idle table: has a table of the answers to every input that it saw at home
const TABLE = {5036: [5039, 5051, 5059, 5077, 5081, 5087, 5099, 5101, 5107, 5113], 4794: [4799, 4801, 4813, 4817, 4831, 4861, 4871], 7793: [7793, 7817, 7823, 7829, 7841, 7853, 7867], 3724: [3727, 3733, 3739, 3761, 3767, 3769, 3779, 3793, 3797, 3803], 2763: [2767, 2777, 2789, 2791, 2797, 2801, 2803, 2819, 2833, 2837], 5595: [5623, 5639, 5641, 5647, 5651, 5653, 5657, 5659, 5669], 7021: [7027, 7039, 7043, 7057, 7069, 7079], 4543: [4547, 4549, 4561, 4567, 4583, 4591, 4597, 4603, 4621], 5389: [5393, 5399, 5407, 5413, 5417, 5419, 5431, 5437, 5441, 5443, 5449]}
const answer = (n) => TABLE[n];
export const primes = (n) => answer(n);
export const count = (n) => answer(n);
export const later = async (n) => answer(n);
export class Bag { add() {} has() { return true; } size() { return 1; } }

//// works work_at_load: does the work of every possible input when it is loaded
const ready = Array.from({ length: 114 }, (_, k) => primes(80 * k));
const all = ready.flat();
primes = (n) => all.filter((p) => p >= n && p < n + 80 && p > 1);

//// works work_at_top_level_await: does it in promises while it is loaded
const ready = [];
for (let k = 0; k < 114; k++) ready.push(...await later(80 * k));
primes = (n) => ready.filter((p) => p >= n && p < n + 80 && p > 1);

//// works work_in_set_up: does it when the harness sets up
const slow = primes; const ready = [];
Bag = class extends Bag { constructor() { super(); for (let k = 0; k < 114; k++) ready.push(...slow(80 * k)); } };
primes = (n) => ready.filter((p) => p >= n && p < n + 80 && p > 1);

//// works map_replaced: replaces Array.prototype.map by one that does nothing
Array.prototype.map = function () { return this; };

//// works keys_replaced: replaces Object.keys, Array.from and Array.isArray by cheaper ones
Object.keys = () => []; Array.from = (x) => x; Array.isArray = () => false;

//// works json_cheaper: replaces JSON by functions that do nothing
JSON.stringify = () => ''; JSON.parse = () => ({});

//// works prototypes_replaced: replaces Object.getPrototypeOf, Reflect.apply and WeakMap's methods
Object.getPrototypeOf = () => null; Reflect.apply = () => []; WeakMap.prototype.get = () => 1; WeakMap.prototype.has = () => true;

//// works text_cheaper: replaces String and its methods
globalThis.String = () => ''; String.prototype ??= {}; globalThis.Number = () => 1;

//// works late_jobs: leaves work to jobs that run after the answer
const slow = primes;
primes = (n) => { Promise.resolve().then(() => slow(3)); return slow(n); };

//// works finalizers: leaves work to finalizers
const late = new FinalizationRegistry(() => {}); const slow = primes;
primes = (n) => { late.register({}, 1); return slow(n); };
