// The hidden tests: the edges of a window, clocks that stand still, and keys that must not know of each other.

const same = (found, wanted) => {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);
};
const asked = (limiter, key, times) => times.map((t) => limiter.allow(key, t));

export function test_allows_up_to_the_limit(submission) {
  same(asked(new submission.Limiter(3, 1000), "a", [0, 1, 2, 3]), [true, true, true, false]);
}

export function test_allows_again_later(submission) {
  same(asked(new submission.Limiter(1, 1000), "a", [0, 5000]), [true, true]);
}

export function test_any_window_not_only_whole_ones(submission) {
  // A counter that starts anew at every full second lets four through within 200 ms.
  same(asked(new submission.Limiter(2, 1000), "a", [900, 950, 1050, 1100]), [true, true, false, false]);
}

export function test_the_end_of_a_window_is_free_again(submission) {
  same(asked(new submission.Limiter(1, 1000), "a", [0, 999, 1000]), [true, false, true]);
}

export function test_refused_events_do_not_count(submission) {
  same(asked(new submission.Limiter(1, 1000), "a", [0, 500, 900, 1001]), [true, false, false, true]);
}

export function test_keys_are_apart(submission) {
  const limiter = new submission.Limiter(1, 1000);
  same([limiter.allow("a", 0), limiter.allow("b", 0), limiter.allow("a", 1)], [true, true, false]);
}

export function test_a_clock_that_stands_still(submission) {
  same(asked(new submission.Limiter(2, 1000), "a", [7, 7, 7, 7]), [true, true, false, false]);
}

export function test_odd_keys(submission) {
  const limiter = new submission.Limiter(1, 1000);
  same(["__proto__", "constructor", "", "toString"].map((key) => limiter.allow(key, 0)), [true, true, true, true]);
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
