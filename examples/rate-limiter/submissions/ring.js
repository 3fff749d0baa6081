// A ring of the last `limit` events: the oldest of them decides, nothing is ever moved.
export class Limiter {
  constructor(limit, windowMs) {
    this.limit = limit;
    this.windowMs = windowMs;
    this.rings = new Map();
  }

  allow(key, nowMs) {
    let ring = this.rings.get(key);
    if (ring === undefined) {
      ring = { next: 0, times: new Array(this.limit).fill(-Infinity) };
      this.rings.set(key, ring);
    }
    if (nowMs - ring.times[ring.next] < this.windowMs) return false;
    ring.times[ring.next] = nowMs;
    ring.next = (ring.next + 1) % this.limit;
    return true;
  }
}
