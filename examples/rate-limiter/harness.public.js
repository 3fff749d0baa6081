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

export function metric_burst(submission) {
  const limiter = new submission.Limiter(20, 1000);
  let allowed = 0;
  for (let t = 0; t < 60; t++) allowed += limiter.allow(`key${t % 3}`, t) ? 1 : 0;
  return allowed;
}
