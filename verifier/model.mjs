// Section 9 of docs/trace-format.md, written from that page alone: the model of a round, and draws from it.
import { createHash } from "node:crypto";
function inverted(m) {
  // of a positive definite matrix
  const n = m.length,
    a = m.map((row, i) => {
      const both = new Float64Array(2 * n);
      both.set(row);
      both[n + i] = 1;
      return both;
    });
  for (let i = 0; i < n; i++) {
    const from = a[i],
      pivot = from[i];
    for (let j = i; j <= n + i; j++) from[j] /= pivot; // beyond are zeros
    for (let k = 0; k < n; k++) {
      const to = a[k],
        f = to[i];
      if (k !== i && f) for (let j = i; j <= n + i; j++) to[j] -= f * from[j];
    }
  }
  return a.map((row) => row.slice(n));
}
export function fit(results, size, isOrder) {
  // the model: strengths, side effects, their covariance
  const total = size + isOrder.length,
    table = () => new Float64Array(size * size),
    n = table();
  for (const [a, b] of results) n[a * size + b]++;
  let at = Array(total).fill(0),
    v = results.map(() => 0.25),
    s = 1.5,
    P = 0.3,
    L = 0.6,
    C,
    p;
  for (let round = 0; ; round++) {
    const w = results.map(
        ([a, b, j], i) => (isOrder[j] ? 0.64 : 1) / (1 + v[i] * ((n[a * size + b] - 1) * L + n[b * size + a] * P)),
      ),
      prior = (k) => (k < size ? s ** -2 : 4);
    for (let step = 0; step < 60; step++) {
      const slope = at.map((t, k) => -prior(k) * t),
        H = at.map((_, k) => Float64Array.from(at, (_, l) => (k === l ? prior(k) : 0)));
      p = results.map(([a, b, j]) => 1 / (1 + Math.exp(at[b] - at[a] - at[size + j])));
      results.forEach(([a, b, j, half], i) => {
        const who = [a, b, size + j],
          bend = w[i] * p[i] * (1 - p[i]);
        for (let k = 0; k < 3; k++) {
          const e = k === 1 ? -1 : 1,
            row = H[who[k]];
          slope[who[k]] += e * w[i] * (half / 2 - p[i]);
          for (let l = 0; l < 3; l++) row[who[l]] += e * (l === 1 ? -1 : 1) * bend;
        }
      });
      C = inverted(H);
      const move = C.map((row) => row.reduce((sum, c, k) => sum + c * slope[k], 0)),
        longest = Math.max(0, ...move.map(Math.abs));
      at = at.map((t, k) => t + move[k] / Math.max(1, longest));
      if (longest < 1e-7) break;
    }
    if (round === 7) return { theta: at.slice(0, size), side: at.slice(size), C, same: L };
    const known = C.slice(0, size).reduce((sum, row, k) => sum - row[k] / s ** 2, size),
      r = table(),
      rr = table(),
      V = table(),
      VV = table(),
      found = [0.72, 1.44],
      most = [2.4, 2.4];
    s = Math.sqrt((at.slice(0, size).reduce((sum, t) => sum + t * t, 0) + 6.75) / (Math.max(0, known) + 3));
    v = p.map((q) => q * (1 - q));
    results.forEach(([a, b, , half], i) => {
      const k = a * size + b,
        rest = half / 2 - p[i];
      r[k] += rest;
      rr[k] += rest * rest;
      V[k] += v[i];
      VV[k] += v[i] * v[i];
    });
    for (let a = 0; a < size; a++)
      for (let b = 0; b < size; b++) {
        const k = a * size + b,
          l = b * size + a,
          u = C[a][a] + C[b][b] - 2 * C[a][b],
          same = (V[k] ** 2 - VV[k]) / 2,
          other = (V[k] * V[l]) / 2;
        found[1] += (r[k] ** 2 - rr[k]) / 2 + u * same;
        most[1] += same;
        found[0] += u * other - (r[k] * r[l]) / 2;
        most[0] += other;
      }
    [P, L] = found.map((sum, k) => Math.min(Math.max(sum / most[k], 0), [2.2, 4][k]));
  }
}
export function drawn(theta, C) {
  // 2000 draws of the strengths, from fixed normals
  const size = theta.length,
    half = Math.ceil((1000 * size) / 2),
    bytes = createHash("shake256", { outputLength: 16 * half })
      .update("clara-eval normals draws")
      .digest(),
    word = (k) => (Number(bytes.readBigUInt64LE(8 * k) >> 11n) + 0.5) / 2 ** 53;
  const normal = (k) =>
      Math.sqrt(-2 * Math.log(word(k % half))) *
      (k < half ? Math.cos(2 * Math.PI * word(half + k)) : Math.sin(2 * Math.PI * word(k))),
    A = []; // Cholesky
  for (let i = 0; i < size; i++) {
    A.push(new Float64Array(size));
    for (let j = 0; j <= i; j++) {
      let sum = C[i][j];
      for (let k = 0; k < j; k++) sum -= A[i][k] * A[j][k];
      A[i][j] = i === j ? Math.sqrt(sum) : sum / A[j][j];
    }
  }
  const moves = Array.from({ length: 1000 }, (_, row) => {
    const n = Float64Array.from(theta, (_, k) => normal(row * size + k));
    return theta.map((_, i) => {
      let sum = 0;
      for (let k = 0; k <= i; k++) sum += A[i][k] * n[k];
      return sum;
    });
  });
  return [1, -1].flatMap((sign) => moves.map((move) => theta.map((t, i) => t + sign * move[i])));
}
