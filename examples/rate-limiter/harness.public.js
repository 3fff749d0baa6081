// What everybody may know: the shape of a limiter, and the two plainest tests.
// A submission exports `class Limiter { constructor(limit, windowMs); allow(key, nowMs) }`.

const same = (found, wanted) => {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);
};

export function test_allows_up_to_the_limit(submission) {
  const limiter = new submission.Limiter(3, 1000);
  same([0, 1, 2, 3].map((t) => limiter.allow("a", t)), [true, true, true, false]);
}

export function test_allows_again_later(submission) {
  const limiter = new submission.Limiter(1, 1000);
  same([limiter.allow("a", 0), limiter.allow("a", 5000)], [true, true]);
}

// A metric checks what it measured: about half of this burst must be refused, and every answer is looked at.
// Keys and times are drawn from the seed of the round, so that no table of answers is worth anything.
export function metric_burst(submission, seed) {
  const limiter = new submission.Limiter(5, 30);
  const passed = { a: [], b: [], c: [] };
  for (let i = 0, t = 0; i < 60; i++) {
    const drawn = parseInt(seed[2 + i], 16);
    const times = passed["abc"[drawn % 3]];
    const allowed = times.filter((time) => t - time < 30).length < 5;
    if (allowed) times.push(t);
    same(limiter.allow("abc"[drawn % 3], t), allowed);
    t += drawn % 2;
  }
  return 60;
}
