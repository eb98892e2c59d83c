// Gradients of the ops on rows and of their weights (docs/numerics.md 10). Those of
// weights are made in two steps: chains of blocks of rows side by side, then their
// sums in order.
#include "grad.cuh"

KERNEL accumulate(View dst, View src, int cols) {
  EACH(cols, dst.rows) raise(dst.row(r) + c, src.row(r)[c]);
}

KERNEL swiGLUGrad(View dgate, View dup, View dy, View gate, View up, int cols) {
  EACH(cols, dy.rows) {
    float d = dy.flat(r)[c], g = gate.flat(r)[c], a = silu(g);
    raise(dup.flat(r) + c, mul(d, a));
    raise(dgate.flat(r) + c, mul(mul(d, up.flat(r)[c]), slope(g, a)));
  }
}

KERNEL sigmoidMulGrad(View dx, View dgate, View dy, View x, View gate, int cols) {
  EACH(cols, dy.rows) {
    float d = dy.row(r)[c], sg = sigmoid(gate.row(r)[c]);
    raise(dx.row(r) + c, mul(d, sg));
    raise(dgate.row(r) + c, mul(mul(d, x.row(r)[c]), mul(sg, sub(1.0f, sg))));
  }
}

KERNEL softmaxGrad(View dx, View dy, View y, int cols) {
  __shared__ float part[32];
  float *d = dx.flat(blockIdx.x);
  const float *g = dy.flat(blockIdx.x), *p = y.flat(blockIdx.x);
  float c = sumCTA<Sum>(cols, part, [&](int i) { return mul(g[i], p[i]); });
  ALONG(cols) raise(d + i, mul(sub(g[i], c), p[i]));
}

// normGrad adds the gradient of x·s over a row, of whose result g is the gradient;
// mean says whether s comes from the mean of the squares or their sum.
template <bool MEAN, class G> DEV void normGrad(float *d, const float *x, int n, float s, float *part, const G &g) {
  float c = sumCTA<Sum>(n, part, [&](int i) { return mul(g(i), mul(x[i], s)); });
  if (MEAN) c = quo(c, (float)n);
  ALONG(n) raise(d + i, mul(fma32(-c, mul(x[i], s), g(i)), s));
}

// rmsScale is the factor of RMSNorm of a row, which thread 0 stores for normParts.
DEV float rmsScale(const float *x, int n, float eps, float *part, float *scales) {
  float s = rsqrt32(add(quo(sumCTA<Squares>(n, part, [&](int i) { return x[i]; }), (float)n), eps));
  if (scales && threadIdx.x == 0 && threadIdx.y == 0) scales[blockIdx.x] = s;
  return s;
}

// Three ways to come to the gradient of a norm's result: it is there, it is turned
// back by the row's angles, cosines then sines, or it passes a gate. row is one of
// the norm's operand, which has heads or not.
struct Plain {
  View dy;
  __device__ __forceinline__ float at(int r, int i) const { return dy.flat(r)[i]; }
  static __device__ __forceinline__ const float *row(const View &x, int r) { return x.flat(r); }
};
struct Turned {
  View dy;
  const float *angles;
  int half, pad;
  static __device__ __forceinline__ const float *row(const View &x, int r) { return x.row(r); }
  __device__ __forceinline__ float at(int r, int i) const {
    const float *g = dy.row(r), *cs = angles + (i64)(r / dy.heads) * 2 * half;
    if (i >= 2 * half) return g[i];
    int k = i < half ? i : i - half;
    float a = g[k], b = g[k + half], co = cs[k], si = -cs[k + half];
    return i < half ? fma32(a, co, -mul(b, si)) : fma32(b, co, mul(a, si));
  }
};
struct Gated {
  View dy, z;
  static __device__ __forceinline__ const float *row(const View &x, int r) { return x.row(r); }
  __device__ __forceinline__ float at(int r, int i) const { return mul(dy.row(r)[i], silu(z.row(r)[i])); }
};

KERNEL rmsNormGrad(View dx, Plain dy, View x, const float *w, int cols, float eps, float *scales) {
  __shared__ float part[32];
  int r = blockIdx.x;
  const float *xr = x.flat(r);
  float s = rmsScale(xr, cols, eps, part, scales);
  normGrad<true>(dx.flat(r), xr, cols, s, part, [&](int i) { return mul(dy.at(r, i), w[i]); });
}

// normRoPEGrad: without w there was no norm.
KERNEL normRoPEGrad(View dx, Turned dy, View x, const float *w, int cols, float eps, float *scales) {
  __shared__ float part[32];
  int r = blockIdx.x;
  float *d = dx.row(r);
  if (!w) {
    ALONG(cols) raise(d + i, dy.at(r, i));
    return;
  }
  const float *xr = x.row(r);
  float s = rmsScale(xr, cols, eps, part, scales);
  normGrad<true>(d, xr, cols, s, part, [&](int i) { return mul(dy.at(r, i), w[i]); });
}

KERNEL gatedRMSNormGrad(View dx, View dz, Gated dy, View x, const float *w, int cols, float eps, float *scales) {
  __shared__ float part[32];
  int r = blockIdx.x;
  const float *xr = x.row(r), *zr = dy.z.row(r), *g = dy.dy.row(r);
  float *d = dz.row(r), s = rmsScale(xr, cols, eps, part, scales);
  ALONG(cols) {
    float a = silu(zr[i]);
    raise(d + i, mul(mul(g[i], mul(mul(xr[i], s), w[i])), slope(zr[i], a)));
  }
  normGrad<true>(dx.row(r), xr, cols, s, part, [&](int i) { return mul(dy.at(r, i), w[i]); });
}

KERNEL l2NormGrad(View dx, View dy, View x, int cols, float eps, float scale) {
  __shared__ float part[32];
  const float *xr = x.row(blockIdx.x), *g = dy.row(blockIdx.x);
  float s = rsqrt32(add(sumCTA<Squares>(cols, part, [&](int i) { return xr[i]; }), eps));
  normGrad<false>(dx.row(blockIdx.x), xr, cols, s, part, [&](int i) { return scale == 1.0f ? g[i] : mul(g[i], scale); });
}

// normParts follows the chains of a norm's weight over the rows of a block and the
// heads of each row: a thread per component, part [blocks, cols].
template <class G> DEV void normParts(float *part, const G &dy, const View &x, const float *scales, const Block *blocks, int n, int cols) {
  EACH(cols, n) {
    float acc = 0.0f;
#pragma unroll 4
    for (int i = blocks[r].lo * x.heads; i < blocks[r].hi * x.heads; i++) acc = fma32(dy.at(i, c), mul(G::row(x, i)[c], scales[i]), acc);
    part[(i64)r * cols + c] = acc;
  }
}
KERNEL rmsNormParts(float *part, Plain dy, View x, const float *scales, const Block *blocks, int n, int cols) { normParts(part, dy, x, scales, blocks, n, cols); }
KERNEL normRoPEParts(float *part, Turned dy, View x, const float *scales, const Block *blocks, int n, int cols) { normParts(part, dy, x, scales, blocks, n, cols); }
KERNEL gatedParts(float *part, Gated dy, View x, const float *scales, const Block *blocks, int n, int cols) { normParts(part, dy, x, scales, blocks, n, cols); }

KERNEL biasParts(float *part, View dy, const Block *blocks, int n, int cols) {
  EACH(cols, n) {
    float acc = 0.0f;
#pragma unroll 4
    for (int i = blocks[r].lo; i < blocks[r].hi; i++) acc = add(acc, dy.flat(i)[c]);
    part[(i64)r * cols + c] = acc;
  }
}

// addParts adds the chains of n blocks in order: part [n, rows of d, cols].
KERNEL addParts(View d, const float *part, int n, int cols) {
  EACH(cols, d.rows) {
    float v = d.flat(r)[c];
#pragma unroll 4
    for (int b = 0; b < n; b++) v = add(v, part[((i64)b * d.rows + r) * cols + c]);
    d.flat(r)[c] = v;
  }
}

// scatterRows adds row i of dy to row ids[i] of dst: a CTA per row of dy. The CTA of
// the first row with an id adds all rows with it in order; the others have nothing
// to do. skip passes negative ids over.
KERNEL scatterRows(View dst, View dy, const int *ids, int n, int cols, int skip, Status *st, u32 op) {
  int row = blockIdx.x, id = ids[row], lane = threadIdx.x;
  if (id < 0 && skip) return;
  if (id < 0 || id >= dst.rows) {
    if (lane == 0 && threadIdx.y == 0) fail(st, op, id, row, dst.rows);
    return;
  }
#pragma unroll 1
  for (int b = 0; b < row; b += 32)
    if (__any_sync(0xffffffffu, b + lane < row && ids[b + lane] == id)) return;
  float *d = dst.flat(id);
#pragma unroll 1
  for (int b = row; b < n; b += 32) {
    u32 same = __ballot_sync(0xffffffffu, b + lane < n && ids[b + lane] == id);
#pragma unroll 1
    for (; same; same &= same - 1) {
      const float *from = dy.flat(b + __ffs(same) - 1);
      ALONG(cols) raise(d + i, from[i]);
    }
  }
}

// layerNormGrad: as of RMSNorm, for x and the gradient of its result less their means.
// Where dw is wanted, layerNormParts gets mean and factor of each row.
KERNEL layerNormGrad(View dx, View dy, View x, const float *w, int cols, float eps, float *scales) {
  __shared__ float part[32];
  float *d = dx.flat(blockIdx.x), n = (float)cols;
  const float *xr = x.flat(blockIdx.x), *yr = dy.flat(blockIdx.x);
  float mu = quo(sumCTA<Sum>(cols, part, [&](int i) { return xr[i]; }), n);
  float s = rsqrt32(add(quo(sumCTA<Squares>(cols, part, [&](int i) { return sub(xr[i], mu); }), n), eps));
  float m = quo(sumCTA<Sum>(cols, part, [&](int i) { return mul(yr[i], w[i]); }), n);
  auto g = [&](int i) { return sub(mul(yr[i], w[i]), m); };
  auto xh = [&](int i) { return mul(sub(xr[i], mu), s); };
  float c = quo(sumCTA<Sum>(cols, part, [&](int i) { return mul(g(i), xh(i)); }), n);
  ALONG(cols) raise(d + i, mul(fma32(-c, xh(i), g(i)), s));
  if (scales && threadIdx.x == 0 && threadIdx.y == 0) scales[2 * blockIdx.x] = mu, scales[2 * blockIdx.x + 1] = s;
}

KERNEL layerNormParts(float *part, View dy, View x, const float *scales, const Block *blocks, int n, int cols) {
  EACH(cols, n) {
    float acc = 0.0f;
#pragma unroll 4
    for (int i = blocks[r].lo; i < blocks[r].hi; i++) acc = fma32(dy.flat(i)[c], mul(sub(x.flat(i)[c], scales[2 * i]), scales[2 * i + 1]), acc);
    part[(i64)r * cols + c] = acc;
  }
}
