export function primes(n) {
  const found = [];
  for (let p = n; p < n + 80; p++) { let d = 2; while (d < 96 && p % d) d++; if (d === p || d === 96) found.push(p); }
  return found;
}
export const count = (n) => primes(n).length;
export const later = async (n) => primes(n);
export class Bag {
  constructor() { this.items = []; }
  add(item) { this.items.push(item); }
  has(item) { return this.items.includes(item); }
  size() { return this.items.length; }
}
