const drawn = (seed, count) => {
  let state = Number(BigInt(seed) % 2147483647n) + 1;
  return Array.from({ length: count }, () => (state = Number((BigInt(state) * 48271n) % 2147483647n), 2 + (state % 9000)));
};
const wanted = (n) => {
  const found = [];
  for (let p = n; p < n + 80; p++) { let d = 2; while (d < 96 && p % d) d++; if (d === p || d === 96) found.push(p); }
  return found;
};
const check = (fine) => { if (!fine) throw new Error("wrong"); };

export const setUp = (s) => { new s.Bag(); };

export const test_json = (s, seed) => {
  for (const n of drawn(seed, 3)) check(JSON.stringify(s.primes(n)) === JSON.stringify(wanted(n)));
};
export const test_includes = (s, seed) => {
  const n = drawn(seed, 4)[3];
  check(s.primes(n).includes(wanted(n).at(-1)) && s.primes(n).includes(wanted(n)[0]));
};
export const test_every = (s, seed) => {
  const n = drawn(seed, 5)[4], found = s.primes(n);
  check(found.length === wanted(n).length && found.every((p, i) => p === wanted(n)[i]));
};
export const test_indexes = (s, seed) => {
  const n = drawn(seed, 6)[5], found = s.primes(n);
  check(found.length === wanted(n).length && wanted(n).every((p, i) => found[i] === p));
};
export const test_text = (s, seed) => {
  const n = drawn(seed, 7)[6];
  check(`${s.primes(n)}` === `${wanted(n)}` && s.primes(n).join() == wanted(n).join());
};
export const test_number = (s, seed) => {
  const n = drawn(seed, 8)[7];
  check(s.count(n) == wanted(n).length && s.count(n) + 1 > wanted(n).length && s.count(n) - 1 < wanted(n).length);
};
export const test_later = async (s, seed) => {
  const n = drawn(seed, 9)[8];
  check((await s.later(n)).length === wanted(n).length && JSON.stringify(await s.later(n)) === JSON.stringify(wanted(n)));
};
export const test_object = (s, seed) => {
  const bag = new s.Bag(), n = drawn(seed, 2)[1];
  bag.add(n);
  check(bag.has(n) && !bag.has(n + 1) && bag.size() === 1);
};
export const metric_work = (s, seed) => {
  let total = 0;
  for (const n of drawn(seed, 6)) {
    const found = s.primes(n);
    check(JSON.stringify(found) === JSON.stringify(wanted(n)));
    total += found.length;
  }
  return total;
};
