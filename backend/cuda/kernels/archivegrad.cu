// The gradient of an archive over whole sequences (docs/numerics.md 16.6). The sums are
// formed once more from row to row, and their gradient runs backwards; what a row leaves
// for others lies in scratch memory for all rows of the pass. Rows without an archive
// leave nothing.
#include "archive.cuh"

// Sequences are the rows that bring events, and the options of the archive. Rows of a
// tensor of heads are counted head by head.
struct Sequences {
  const Seg *segs;
  const int *segOf;
  int heads, d, window, sinks, M, S, A, hq;

  // slot is that of a row: sequences are whole.
  __device__ __forceinline__ int slot(int r) const { return r - segs[segOf[r]].row; }
  // some tells the compiler that there are components, codes and scales.
  __device__ __forceinline__ void some() const { __builtin_assume(d > 0 && M > 0 && S > 0 && M * S > 0); }
  __device__ __forceinline__ int events(int r) const { return max(0, slot(r) + 1 - window - sinks); }
  // event is the row of the key and value of row r's event in tensors of key heads.
  __device__ __forceinline__ int event(int r, int a) const { return (r - window) * heads + a / (A / heads); }
};

// Powers are the decays and gains: per scale the decay to the power of 0 to n-1, then
// the gains.
struct Powers {
  const float *p;
  int n, pad;
  __device__ __forceinline__ float decay(int s) const { return p[s * n + 1]; }
  __device__ __forceinline__ const float *gains(int S) const { return p + S * n; }
};

DEV bool inside(float x) { return !(x < -20.0f) && !(x > 10.0f); }

// scoreBack has a thread per code, head and row, of archive heads with their event, or
// of query heads. It writes DOT(x, c)·scale to l and the exponent to ex; of events also
// the weight, its derivative, and the part of that which goes through the exponential.
// grid (codes, heads, rows), block (32, W).
KERNEL scoreBack(Sequences p, const float *codes, float scale, int features, int gated, float threshold, int queries, int rows, View v, float *l, float *ex, float *weight,
                 float *slope, float *hard) {
  p.some();
  int m = (blockIdx.x * blockDim.y + threadIdx.y) * 32 + threadIdx.x, h = blockIdx.y, n = gridDim.y;
#pragma unroll 1
  for (int r = blockIdx.z; r < rows; r += gridDim.z) {
    if (p.events(r) == 0) continue;
    const float *x = v.row(queries ? r * n + h : p.event(r, h));
    float squares = features ? mul(rsumWarp<Squares>(x, p.d), mul(scale, 0.5f)) : 0.0f;
    if (m >= p.M) continue;
    float score = mul(dot(x, codes + ((i64)(h / (n / p.A)) * p.M + m) * p.d, p.d), scale), y = features ? sub(score, squares) : score;
    i64 cell = ((i64)r * n + h) * p.M + m;
    l[cell] = score;
    ex[cell] = y;
    if (queries) continue;
    float w = exp32(less(greater(y, -20.0f), 10.0f));
    bool shut = gated && score < threshold;
    float through = !shut && inside(y) ? w : 0.0f, total = through;
    if (gated) {
      float g = sigmoid(mul(sub(score, threshold), 10.0f));
      total = add(total, mul(mul(w, mul(g, sub(1.0f, g))), 10.0f));
    }
    weight[cell] = shut ? 0.0f : w;
    slope[cell] = total;
    hard[cell] = through;
  }
}

// markBack goes over the rows of a segment for a landmark slot of an archive head.
// grid (slots, archive heads, segments).
KERNEL markBack(Sequences p, int mode, int gated, float threshold, const float *l, Landmark *marks) {
  p.some();
  int m = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y;
  if (m >= p.M) return;
  const Seg &s = p.segs[blockIdx.z];
  Landmark x = {0, 0, minusInf()};
#pragma unroll 1
  for (int r = s.row; r < s.row + s.rows; r++) {
    int e = p.events(r);
    if (e == 0) continue;
    i64 cell = ((i64)r * p.A + a) * p.M;
    place(x, r + 1, e, m, p.M, mode, gated, threshold, l + cell);
    marks[cell + m] = x;
  }
}

// recallBack takes the blend with landmarks of a row's query head back, a warp for each:
// it writes the gradient of the response to resp [rows, hq, d], and of the scores with
// the landmarks' keys to scores. land takes whether there are any, and DOT(dy, recalled).
// mix is 0 where the weight is 1.
KERNEL __launch_bounds__(128) recallBack(Sequences p, int rows, float scale, float temperature, const float *mix, View q, View dy, View k, View v, const Landmark *marks,
                                         float *weights, float *scores, float *resp, float *land) {
  p.some();
  int t = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x, r = t / p.hq, M = p.M, d = p.d;
  if (t >= rows * p.hq || p.events(r) == 0) return;
  int a = t % p.hq / (p.hq / p.A);
  const Landmark *slot = marks + ((i64)r * p.A + a) * M;
  float *w = weights + (i64)t * M, *g = scores + (i64)t * M, *out = resp + (i64)t * d;
  const float *x = q.row(t), *y = dy.row(t);
  bool any = false;
#pragma unroll 1
  for (int m = lane; m < M; m += 32) {
    bool filled = slot[m].score != minusInf();
    w[m] = filled ? mul(mul(dot(x, k.row(p.event(slot[m].key - 1, a)), d), scale), temperature) : -1e9f;
    g[m] = 0.0f;
    any = any || filled;
  }
  any = __any_sync(0xffffffffu, any);
  if (lane == 0) land[2 * t] = any ? 1.0f : 0.0f;
  if (!any) {
#pragma unroll 1
    for (int c = lane; c < d; c += 32) out[c] = y[c];
    return;
  }
  softmaxWarp(w, M);
  auto value = [&](int m, int c) { return slot[m].value > 0 ? v.row(p.event(slot[m].value - 1, a))[c] : 0.0f; };
#pragma unroll 1
  for (int c = lane; c < d; c += 32) { // what was recalled, for a while
    float total = 0.0f;
#pragma unroll 1
    for (int b = 0; b < M; b += 128) {
      float acc = 0.0f;
#pragma unroll 1
      for (int m = b; m < min(b + 128, M); m++) acc = fma32(w[m], value(m, c), acc);
      total = add(total, acc);
    }
    out[c] = total;
  }
  __syncwarp();
  float recalled = dot(y, out, d), blend = mix ? sigmoid(mix[a]) : 1.0f;
  if (lane == 0) land[2 * t + 1] = recalled;
#pragma unroll 1
  for (int m = lane; m < M; m += 32) {
    float total = 0.0f;
#pragma unroll 1
    for (int b = 0; b < d; b += 128) {
      float acc = 0.0f;
#pragma unroll 1
      for (int c = b; c < min(b + 128, d); c++) acc = fma32(y[c], value(m, c), acc);
      total = add(total, acc);
    }
    g[m] = total;
  }
  __syncwarp();
  float top = dot(w, g, M);
  __syncwarp();
#pragma unroll 1
  for (int m = lane; m < M; m += 32) g[m] = mul(mul(mul(mul(sub(g[m], top), w[m]), blend), temperature), scale);
#pragma unroll 1
  for (int c = lane; c < d; c += 32) out[c] = mul(y[c], sub(1.0f, blend));
}

// sumsForward goes over the rows of a segment for a code and scale of an archive head,
// whose numerators lie in num [segments, A, d, M·S], and writes the denominators and
// DOT(resp, num) of every query. grid (M·S, archive heads, segments).
KERNEL sumsForward(Sequences p, View v, View resp, Powers w, const float *weight, float *num, float *den, float *b) {
  p.some();
  int N = p.M * p.S, i = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y, group = p.hq / p.A, s = i % p.S;
  if (i >= N) return;
  const Seg &seg = p.segs[blockIdx.z];
  float *n = num + ((i64)blockIdx.z * p.A + a) * N * p.d + i, decay = w.decay(s), gain = w.gains(p.S)[s], sum = 0.0f;
#pragma unroll 1
  for (int c = 0; c < p.d; c++) n[(i64)c * N] = 0.0f;
#pragma unroll 1
  for (int r = seg.row; r < seg.row + seg.rows; r++) {
    if (p.events(r) == 0) continue;
    const float *x = v.row(p.event(r, a));
    i64 cell = (i64)r * p.A + a;
    float t = mul(weight[cell * p.M + i / p.S], gain);
    sum = add(mul(sum, decay), t);
#pragma unroll 4
    for (int c = 0; c < p.d; c++) n[(i64)c * N] = fma32(t, x[c], mul(n[(i64)c * N], decay));
    den[cell * N + i] = sum;
#pragma unroll 1
    for (int h = r * p.hq + a * group; h < r * p.hq + (a + 1) * group; h++) b[(i64)h * N + i] = dot(resp.row(h), Column{n, N}, p.d);
  }
}

// Back is what readBack reads and writes. land is 0 without landmarks, blend if their
// weight is no parameter; mix is that of every row if each is set.
struct Back {
  View resp;
  const float *u, *c, *blend, *l, *ex, *z, *mix, *den, *land;
  float *b, *phi, *p, *numBack, *denBack, *logit, *score, *scales, *dz, *lands;
  float scale;
  int rows, rank, perCode, each, pad;
};

// readBack takes the read of a row's query head back, a warp for each. b becomes the
// gradient of the mixed values.
KERNEL __launch_bounds__(128) readBack(Sequences p, Back o) {
  p.some();
  int t = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x, r = t / p.hq, M = p.M, S = p.S, N = M * S;
  if (t >= o.rows * p.hq || p.events(r) == 0) return;
  int h = t % p.hq, a = h / (p.hq / p.A);
  const float *x = o.mix + (i64)(o.each ? t : h) * N, *d = o.den + ((i64)r * p.A + a) * N, *ex = o.ex + (i64)t * M, *l = o.l + (i64)t * M;
  float *y = o.b + (i64)t * N, *w = o.phi + (i64)t * M, *pm = o.p + (i64)t * M, *nb = o.numBack + (i64)t * N, *db = o.denBack + (i64)t * N, *lg = o.logit + (i64)t * N,
        *sc = o.score + (i64)t * M, value = 0.0f;
  // mixed writes DOT over the scales of x and v to pm.
  auto mixed = [&](const float *v) {
    __syncwarp();
#pragma unroll 1
    for (int m = lane; m < M; m += 32) pm[m] = dot(x + m * S, v + m * S, S);
    __syncwarp();
  };
#pragma unroll 1
  for (int m = lane; m < M; m += 32) w[m] = o.perCode ? l[m] : exp32(less(greater(ex[m], -20.0f), 10.0f));
  if (o.perCode) {
    softmaxWarp(w, M);
#pragma unroll 1
    for (int i = lane; i < N; i += 32) {
      float inv = quo(1.0f, greater(d[i], 1e-8f)), v = mul(y[i], inv), f = mul(mul(x[i], w[i / S]), inv);
      y[i] = v;
      nb[i] = f;
      db[i] = d[i] < 1e-8f ? 0.0f : -mul(f, v);
    }
  } else {
    mixed(y);
    value = dot(w, pm, M);
    mixed(d);
    float mass = dot(w, pm, M), inv = quo(1.0f, greater(mass, 1e-8f)), back = 0.0f;
    value = mul(value, inv);
    if (!(mass < 1e-8f)) back = -mul(value, inv);
#pragma unroll 1
    for (int i = lane; i < N; i += 32) {
      float f = mul(x[i], w[i / S]);
      y[i] = fma32(y[i], inv, mul(back, d[i]));
      nb[i] = mul(f, inv);
      db[i] = mul(f, back);
    }
  }
  mixed(y);
#pragma unroll 1
  for (int i = lane; i < N; i += 32) lg[i] = mul(sub(y[i], pm[i / S]), mul(x[i], w[i / S]));
  if (o.perCode) value = dot(w, pm, M);
#pragma unroll 1
  for (int m = lane; m < M; m += 32) {
    if (o.perCode)
      sc[m] = mul(mul(sub(pm[m], value), w[m]), o.scale);
    else
      sc[m] = inside(ex[m]) ? mul(mul(pm[m], w[m]), o.scale) : 0.0f;
  }
  __syncwarp();
  float corrected = 0.0f;
  if (o.rank > 0) {
    float *g = o.scales + (i64)t * S, *dz = o.dz + (i64)t * o.rank;
    const float *z = o.z + (i64)t * o.rank, *e = o.resp.row(t);
#pragma unroll 1
    for (int s = lane; s < S; s += 32) {
      float total = 0.0f;
#pragma unroll 1
      for (int b = 0; b < M; b += 128) {
        float acc = 0.0f;
#pragma unroll 1
        for (int m = b; m < min(b + 128, M); m++) acc = add(lg[m * S + s], acc);
        total = add(total, acc);
      }
      g[s] = total;
    }
#pragma unroll 1
    for (int j = lane; j < o.rank; j += 32) dz[j] = dot(e, o.u + ((i64)a * o.rank + j) * p.d, p.d);
    __syncwarp();
    corrected = dot(z, dz, o.rank);
    __syncwarp();
#pragma unroll 1
    for (int j = lane; j < o.rank; j += 32) dz[j] = add(dz[j], dot(g, o.c + ((i64)a * o.rank + j) * S, S));
  }
  if (!o.blend || lane > 0) return;
  float k = sigmoid(o.blend[a]);
  value = add(value, corrected);
  o.lands[t] = o.land && o.land[2 * t] != 0.0f ? mul(sub(mul(sub(1.0f, k), o.land[2 * t + 1]), value), k) : 0.0f;
}

// codeBack is component c of the gradient of x through its scores with the codes, and
// with features through |x|² by the part power of them, whose sum is n.
DEV float codeBack(const float *score, float n, int M, const float *codes, int d, int c, int features, float x) {
  float t = dot(score, Column{codes + c, d}, M);
  return features ? fma32(-n, x, t) : t;
}

// queryBack adds to dq: a warp per 32 components, rows and query heads on the second
// axis. land is 0 without landmarks.
KERNEL queryBack(Sequences p, int rows, int rank, int features, View dq, View q, const float *codes, const float *v, View k, const float *score, const float *dz,
                 const Landmark *marks, const float *land, const float *scores) {
  p.some();
  int c = blockIdx.x * 32 + threadIdx.x, M = p.M;
#pragma unroll 1
  for (int t = blockIdx.y; t < rows * p.hq; t += gridDim.y) {
    int r = t / p.hq, a = t % p.hq / (p.hq / p.A);
    if (p.events(r) == 0) continue;
    const float *sc = score + (i64)t * M;
    float n = features ? rsumWarp<Sum>(sc, M) : 0.0f;
    if (c >= p.d) continue;
    float *to = dq.row(t) + c, total = *to;
    if (land && land[2 * t] != 0.0f) {
      const Landmark *slot = marks + ((i64)r * p.A + a) * M;
      float y = 0.0f;
#pragma unroll 1
      for (int b = 0; b < M; b += 128) {
        float acc = 0.0f;
#pragma unroll 1
        for (int m = b; m < min(b + 128, M); m++) acc = fma32(scores[(i64)t * M + m], slot[m].key > 0 ? k.row(p.event(slot[m].key - 1, a))[c] : 0.0f, acc);
        y = add(y, acc);
      }
      total = add(total, y);
    }
    total = add(total, codeBack(sc, n, M, codes + (i64)a * M * p.d, p.d, c, features, q.row(t)[c]));
    if (rank > 0) total = add(total, dot(dz + (i64)t * rank, v + ((i64)a * p.d + c) * rank, rank));
    *to = total;
  }
}

// sumsBack goes backwards over the rows of a segment for a code and scale of an archive
// head: it writes DOT(gradient of num, v) + that of den. num lies as in sumsForward.
KERNEL sumsBack(Sequences p, View v, View resp, Powers w, float *num, const float *numBack, const float *denBack, float *g) {
  p.some();
  int N = p.M * p.S, i = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y, group = p.hq / p.A;
  if (i >= N) return;
  const Seg &seg = p.segs[blockIdx.z];
  float *n = num + ((i64)blockIdx.z * p.A + a) * N * p.d + i, decay = w.decay(i % p.S), den = 0.0f;
#pragma unroll 1
  for (int c = 0; c < p.d; c++) n[(i64)c * N] = 0.0f;
#pragma unroll 1
  for (int r = seg.row + seg.rows - 1; r >= seg.row; r--) {
    if (p.events(r) == 0) continue;
    den = mul(den, decay);
#pragma unroll 4
    for (int c = 0; c < p.d; c++) n[(i64)c * N] = mul(n[(i64)c * N], decay);
#pragma unroll 1
    for (int h = r * p.hq + a * group; h < r * p.hq + (a + 1) * group; h++) {
      const float *e = resp.row(h);
      float f = numBack[(i64)h * N + i];
      den = add(den, denBack[(i64)h * N + i]);
#pragma unroll 4
      for (int c = 0; c < p.d; c++) n[(i64)c * N] = fma32(f, e[c], n[(i64)c * N]);
    }
    g[((i64)r * p.A + a) * N + i] = add(dot(Column{n, N}, v.row(p.event(r, a)), p.d), den);
  }
}

// valueBack does the same for a component of all codes and scales, and writes the
// gradient of the events' values. num is [segments, A, M·S, d].
KERNEL valueBack(Sequences p, View resp, Powers w, const float *weight, float *num, const float *numBack, float *dv) {
  p.some();
  int M = p.M, S = p.S, N = M * S, c = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y, group = p.hq / p.A;
  if (c >= p.d) return;
  const Seg &seg = p.segs[blockIdx.z];
  float *n = num + ((i64)blockIdx.z * p.A + a) * N * p.d + c;
  const float *gains = w.gains(S);
#pragma unroll 1
  for (int i = 0; i < N; i++) n[(i64)i * p.d] = 0.0f;
#pragma unroll 1
  for (int r = seg.row + seg.rows - 1; r >= seg.row; r--) {
    if (p.events(r) == 0) continue;
#pragma unroll 1
    for (int i = 0; i < N; i++) {
      float x = mul(n[(i64)i * p.d], w.decay(i % S));
#pragma unroll 1
      for (int h = r * p.hq + a * group; h < r * p.hq + (a + 1) * group; h++) x = fma32(numBack[(i64)h * N + i], resp.row(h)[c], x);
      n[(i64)i * p.d] = x;
    }
    i64 cell = (i64)r * p.A + a;
    float total = 0.0f;
#pragma unroll 1
    for (int b = 0; b < N; b += 128) {
      float acc = 0.0f;
#pragma unroll 1
      for (int j = b; j < min(b + 128, N); j++) { // the codes of a scale side by side
        int m = j % M, s = j / M;
        acc = fma32(mul(weight[cell * M + m], gains[s]), n[(i64)(m * S + s) * p.d], acc);
      }
      total = add(total, acc);
    }
    dv[cell * p.d + c] = total;
  }
}

// weightBack writes the gradients of an event's scores. grid (codes, archive heads, rows).
KERNEL weightBack(Sequences p, int rows, float scale, Powers w, const float *slope, const float *hard, const float *g, float *score, float *through) {
  p.some();
  int m = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y;
  if (m >= p.M) return;
#pragma unroll 1
  for (int r = blockIdx.z; r < rows; r += gridDim.z) {
    if (p.events(r) == 0) continue;
    i64 cell = ((i64)r * p.A + a) * p.M + m;
    float dw = dot(w.gains(p.S), g + cell * p.S, p.S);
    score[cell] = mul(mul(dw, slope[cell]), scale);
    through[cell] = mul(mul(dw, hard[cell]), scale);
  }
}

// eventBack adds to dk and dv, which may be one: a warp per 32 components, key head and
// row, which is an event where a row that far behind it has an archive.
KERNEL eventBack(Sequences p, int rows, int features, View dk, View dv, View k, const float *codes, const float *vals, const float *score, const float *through) {
  p.some();
  int c = blockIdx.x * 32 + threadIdx.x, kh = blockIdx.y, M = p.M;
#pragma unroll 1
  for (int j = blockIdx.z; j < rows; j += gridDim.z) {
    const Seg &seg = p.segs[p.segOf[j]];
    int slot = p.slot(j), r = j + p.window;
    if (slot < p.sinks || slot >= seg.rows - p.window) continue;
#pragma unroll 1
    for (int a = kh * (p.A / p.heads); a < (kh + 1) * (p.A / p.heads); a++) {
      i64 cell = (i64)r * p.A + a;
      float n = features ? rsumWarp<Sum>(through + cell * M, M) : 0.0f;
      if (c >= p.d) continue;
      float *pk = dk.row(j * p.heads + kh) + c, *pv = dv.row(j * p.heads + kh) + c;
      *pv = add(*pv, vals[cell * p.d + c]);
      *pk = add(*pk, codeBack(score + cell * M, n, M, codes + (i64)a * M * p.d, p.d, c, features, k.row(j * p.heads + kh)[c]));
    }
  }
}
