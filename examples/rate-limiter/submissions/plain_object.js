// Keys of a plain object: "__proto__" is one of them, and refused events push the window on.
export class Limiter {
  constructor(limit, windowMs) {
    this.limit = limit;
    this.windowMs = windowMs;
    this.seen = {};
  }

  allow(key, nowMs) {
    const list = this.seen[key] || (this.seen[key] = []);
    list.push(nowMs);
    while (list.length > 0 && nowMs - list[0] >= this.windowMs) list.shift();
    return list.length <= this.limit;
  }
}
