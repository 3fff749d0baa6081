// The times of the last events of each key, oldest first.
export class Limiter {
  constructor(limit, windowMs) {
    this.limit = limit;
    this.windowMs = windowMs;
    this.times = new Map();
  }

  allow(key, nowMs) {
    const recent = (this.times.get(key) ?? []).filter((time) => nowMs - time < this.windowMs);
    const allowed = recent.length < this.limit;
    if (allowed) recent.push(nowMs);
    this.times.set(key, recent);
    return allowed;
  }
}
