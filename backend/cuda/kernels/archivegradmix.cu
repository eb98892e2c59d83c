// Gradients of the ops beside an archive (docs/numerics.md 16.6): attention over a
// window and sinks, mixing, GELU, and the sums over rows of an archive's parameters.
#include "archive.cuh"
#include "grad.cuh"

// Pairs are the operands of attention over whole sequences, whose keys and values are
// rows of the pass; stats [rows, hq] holds the log masses and DOT(dy, y).
struct Pairs {
  const Seg *segs;
  const int *segOf;
  View q, k, v, dy;
  float2 *stats;
  float scale;
  int window, sinks, d, group, rows;

  __device__ __forceinline__ int span(int own) const { return window > 0 ? max(0, own + 1 - window) : 0; }
  // onward is the first block from b on that may hold a slot in sight, from slot lo on
  // or below sinks.
  __device__ __forceinline__ int onward(int b, int lo) const { return b * 64 < sinks ? b : max(b, lo >> 6); }
};

// Three kernels have a CTA of (32, 2) threads per head and row; a thread has the slot of
// a block, or components.

KERNEL __launch_bounds__(64) windowStats(Pairs x, View y) {
  __shared__ float p[64], top[2];
  int lane = threadIdx.x, w = threadIdx.y, j = w * 32 + lane, h = blockIdx.x, hq = gridDim.x, kh = h / x.group, hkv = hq / x.group;
#pragma unroll 1
  for (int r = blockIdx.y; r < x.rows; r += gridDim.y) {
    int first = x.segs[x.segOf[r]].row, own = r - first, lo = x.span(own);
    const float *q = x.q.row(r * hq + h);
    float m = minusInf(), l = 0.0f;
#pragma unroll 1
    for (int b = x.onward(0, lo); b <= own >> 6; b = x.onward(b + 1, lo)) {
      int i = b * 64 + j;
      bool visible = (i >= lo || i < x.sinks) && i <= own;
      float score = visible ? mul(dot(q, x.k.row((first + i) * hkv + kh), x.d), x.scale) : minusInf();
      float mb = highest(score == score ? score : minusInf());
      if (lane == 0) top[w] = mb;
      __syncthreads();
      mb = top[1] > top[0] ? top[1] : top[0];
      p[j] = visible ? exp32(sub(score, mb)) : 0.0f;
      __syncthreads();
      float sum = tree(add(p[lane], p[lane + 32])), mm = mb > m ? mb : m;
      l = fma32(sum, exp32(sub(mb, mm)), mul(l, exp32(sub(m, mm))));
      m = mm;
      __syncthreads();
    }
    if (j == 0) x.stats[(i64)r * hq + h] = make_float2(add(m, log32(l)), dot(x.dy.row(r * hq + h), y.row(r * hq + h), x.d));
  }
}

// windowGradQ adds to dq the chains over key blocks ascending. Of its own blocks a row
// takes those that any row of its query block sees: what it does not see itself counts
// +0 there.
KERNEL __launch_bounds__(64) windowGradQ(Pairs x, View dq) {
  __shared__ float ds[64];
  int j = threadIdx.y * 32 + threadIdx.x, h = blockIdx.x, hq = gridDim.x, kh = h / x.group, hkv = hq / x.group;
#pragma unroll 1
  for (int r = blockIdx.y; r < x.rows; r += gridDim.y) {
    const Seg &s = x.segs[x.segOf[r]];
    int first = s.row, own = r - first, lo = x.span(own), least = x.span(own & ~63);
    const float *q = x.q.row(r * hq + h), *g = x.dy.row(r * hq + h);
    float *to = dq.row(r * hq + h);
    float2 st = x.stats[(i64)r * hq + h];
#pragma unroll 1
    for (int b = x.onward(0, least); b <= own >> 6; b = x.onward(b + 1, least)) {
      int i = b * 64 + j, n = min(64, s.rows - b * 64);
      float slope = 0.0f;
      if ((i >= lo || i < x.sinks) && i <= own) {
        float p = exp32(sub(mul(dot(q, x.k.row((first + i) * hkv + kh), x.d), x.scale), st.x));
        slope = mul(mul(p, sub(dot(g, x.v.row((first + i) * hkv + kh), x.d), st.y)), x.scale);
      }
      __syncthreads();
      ds[j] = slope;
      __syncthreads();
#pragma unroll 1
      for (int c = j; c < x.d; c += 64) {
        float acc = 0.0f;
#pragma unroll 4
        for (int t = 0; t < n; t++) acc = fma32(ds[t], x.k.row((first + b * 64 + t) * hkv + kh)[c], acc);
        raise(to + c, acc);
      }
    }
  }
}

// windowGradKV adds to dk and dv the chains over query blocks and the heads of the
// group, ascending.
KERNEL __launch_bounds__(64) windowGradKV(Pairs x, View dk, View dv) {
  __shared__ float p[64], ds[64];
  int j = threadIdx.y * 32 + threadIdx.x, kh = blockIdx.x, hkv = gridDim.x, hq = hkv * x.group;
#pragma unroll 1
  for (int r = blockIdx.y; r < x.rows; r += gridDim.y) {
    const Seg &s = x.segs[x.segOf[r]];
    int first = s.row, own = r - first, rows = s.rows, block = own >> 6, last = (rows - 1) >> 6;
    if (x.window > 0 && block * 64 >= x.sinks) last = min(last, (block * 64 + 62 + x.window) >> 6);
    const float *k = x.k.row(r * hkv + kh), *v = x.v.row(r * hkv + kh);
    float *tk = dk.row(r * hkv + kh), *tv = dv.row(r * hkv + kh);
#pragma unroll 1
    for (int b = block; b <= last; b++)
#pragma unroll 1
      for (int h = kh * x.group; h < (kh + 1) * x.group; h++) {
        int i = b * 64 + j, n = min(64, rows - b * 64);
        float w = 0.0f, slope = 0.0f;
        if (i < rows && own <= i && (own >= x.span(i) || own < x.sinks)) {
          int at = (first + i) * hq + h;
          float2 st = x.stats[at];
          w = exp32(sub(mul(dot(x.q.row(at), k, x.d), x.scale), st.x));
          slope = mul(mul(w, sub(dot(x.dy.row(at), v, x.d), st.y)), x.scale);
        }
        __syncthreads();
        p[j] = w;
        ds[j] = slope;
        __syncthreads();
#pragma unroll 1
        for (int c = j; c < x.d; c += 64) {
          float a = 0.0f, av = 0.0f;
#pragma unroll 4
          for (int t = 0; t < n; t++) {
            int to = (first + b * 64 + t) * hq + h;
            a = fma32(ds[t], x.q.row(to)[c], a);
            av = fma32(p[t], x.dy.row(to)[c], av);
          }
          raise(tk + c, a);
          raise(tv + c, av);
        }
      }
  }
}

KERNEL geluGrad(View dx, View dy, View x, int cols) {
  EACH(cols, dx.rows) {
    float v = x.flat(r)[c], density = mul(exp32(mul(mul(v, v), -0.5f)), bits(0x3ecc422a));
    raise(dx.flat(r) + c, mul(dy.flat(r)[c], add(mul(0.5f, add(1.0f, erf32(mul(v, bits(0x3f3504f3))))), mul(v, density))));
  }
}

// latentGrad is the gradient of a query's latent values, a thread per rank: u [A, rank, d].
KERNEL latentGrad(float *dz, View dy, const float *u, int rank, int d, int group) {
  EACH(rank, dy.rows) dz[(i64)r * rank + c] = dot(dy.row(r), u + ((i64)(r % dy.heads / group) * rank + c) * d, d);
}

// correctGrad adds dy and what comes through the latent values: v [A, d, rank].
KERNEL correctGrad(View dq, View dy, const float *dz, const float *v, int rank, int d, int group) {
  EACH(d, dq.rows) {
    raise(dq.row(r) + c, dy.row(r)[c]);
    raise(dq.row(r) + c, dot(dz + (i64)r * rank, v + ((i64)(r % dq.heads / group) * d + c) * rank, rank));
  }
}

// spreadDot is DOT of dy with x - y.
DEV float spreadDot(const float *dy, const float *x, const float *y, int n) {
  float total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 128) {
    float acc = 0.0f;
#pragma unroll 4
    for (int i = b; i < min(b + 128, n); i++) acc = fma32(dy[i], sub(x[i], y[i]), acc);
    total = add(total, acc);
  }
  return total;
}

// gateMixGrad: a warp per head of a row, as gateMix.
KERNEL __launch_bounds__(128) gateMixGrad(const Seg *segs, const int *segOf, View dlocal, View dremote, View dyv, View local, View remote, View gate, View dgate, int from,
                                          float constant, int norm, int cols) {
  int r = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
  if (r >= dyv.rows) return;
  int t = r / dyv.heads, h = r % dyv.heads;
  const Seg &s = segs[segOf[t]];
  float *dl = dlocal.row(r), *dr = dremote.row(r);
  const float *dy = dyv.row(r), *x = local.row(r), *y = remote.row(r);
  if (s.slot + t - s.row < from) {
#pragma unroll 1
    for (int i = lane; i < cols; i += 32) raise(dl + i, dy[i]);
    return;
  }
  float g = gate.p ? sigmoid(gate.flat(t)[h]) : constant, toward, away, back = 0.0f;
  if (!gate.p && norm) g = sub(1.0f, g);
  float slope = mul(g, sub(1.0f, g)), cx = 0.0f, cy = 0.0f;
  bool putX = false, putY = false;
  if (norm) {
    float xx = rsumWarp<Squares>(x, cols), yy = rsumWarp<Squares>(y, cols), nx = length(quo(xx, (float)cols)), ny = length(quo(yy, (float)cols));
    float qx = quo(nx, greater(ny, 1e-6f)), qy = quo(ny, greater(nx, 1e-6f)), agree = less(greater(less(qx, qy), 0.0f), 1.0f), dw = spreadDot(dy, y, x, cols);
    away = mul(sub(1.0f, g), agree);
    toward = sub(1.0f, away);
    float len = mul(mul(dw, sub(1.0f, g)), agree);
    back = -mul(mul(dw, agree), slope);
    bool mine = qx <= qy; // whose length is the smaller one
    cx = quo(len, xx);
    cy = quo(len, yy);
    if (mine)
      cy = -cy;
    else
      cx = -cx;
    putX = mine ? xx > 0.0f : !(nx < 1e-6f);
    putY = mine ? !(ny < 1e-6f) : yy > 0.0f;
  } else if (gate.p) {
    toward = g;
    away = sub(1.0f, g);
    back = mul(spreadDot(dy, x, y, cols), slope);
  } else {
    away = g;
    toward = sub(1.0f, g);
  }
#pragma unroll 1
  for (int i = lane; i < cols; i += 32) {
    float a = add(dl[i], mul(dy[i], toward)), b = add(dr[i], mul(dy[i], away));
    dl[i] = putX ? add(a, mul(cx, x[i])) : a;
    dr[i] = putY ? add(b, mul(cy, y[i])) : b;
  }
  if (gate.p && lane == 0) raise(dgate.flat(t) + h, back);
}

// PairSums is a sum over rows and query heads of products x[i]·y[j], the gradient of a
// parameter [A, nx, ny] of archive heads with group query heads each; without y of x
// alone. Rows at slots below from are left out. The event of a row, if there is one,
// follows its heads: e[i] of the archive head with k[j] of window rows before, of whose
// heads each belongs to per archive heads.
struct PairSums {
  const Seg *segs;
  const int *segOf;
  const Block *blocks;
  float *d;
  View x, y, e, k;
  int n, nx, ny, group, from, window, per, pad;
};

// pairSums: a thread per pair and archive head.
KERNEL pairSums(PairSums o) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y, A = gridDim.y;
  if (c >= o.nx * o.ny) return;
  int i = c / o.ny, j = c % o.ny;
  float *d = o.d + (i64)a * o.nx * o.ny + c, total = *d;
#pragma unroll 1
  for (int b = 0; b < o.n; b++) {
    float acc = 0.0f;
#pragma unroll 1
    for (int r = o.blocks[b].lo; r < o.blocks[b].hi; r++) {
      const Seg &s = o.segs[o.segOf[r]];
      if (s.slot + r - s.row < o.from) continue;
#pragma unroll 1
      for (int h = (r * A + a) * o.group; h < (r * A + a + 1) * o.group; h++) {
        float x = o.x.row(h)[i];
        acc = o.y.p ? fma32(x, o.y.row(h)[j], acc) : add(x, acc);
      }
      if (o.e.p) acc = fma32(o.e.row(r * A + a)[i], o.k.row((r - o.window) * (A / o.per) + a / o.per)[j], acc);
    }
    total = add(total, acc);
  }
  *d = total;
}
