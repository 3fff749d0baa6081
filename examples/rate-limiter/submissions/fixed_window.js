// Counts anew in every full window: simple, quick, and wrong at the seam of two windows.
export class Limiter {
  constructor(limit, windowMs) {
    Object.assign(this, { limit, windowMs, counts: new Map() });
  }

  allow(key, nowMs) {
    const window = Math.floor(nowMs / this.windowMs);
    const held = this.counts.get(key);
    const count = held && held.window === window ? held.count : 0;
    if (count >= this.limit) return false;
    this.counts.set(key, { window, count: count + 1 });
    return true;
  }
}
