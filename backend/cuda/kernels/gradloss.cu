// Losses with their gradients, and the optimiser's step (docs/numerics.md 10). A loss
// has a CTA of (32, W) threads per row; its gradient is left out where dx.p is 0.
#include "grad.cuh"

#define FIRST if (threadIdx.x == 0 && threadIdx.y == 0)

// Loss is what all losses get; without weights they are 1.
struct Loss {
  View dx, x;
  float *loss;
  const float *weights;
  float scale;
  int cols;
  __device__ __forceinline__ float weight() const { return weights ? weights[blockIdx.x] : 1.0f; }
};

// logSumExp gives 1/RSUM(e) with e = exp(f - m), the maximum m and lse.
template <class G> DEV void logSumExp(int n, float *part, const G &f, float &m, float &inv, float &lse) {
  m = maxCTA(n, part, f);
  float top = m, s = sumCTA<Sum>(n, part, [&](int i) { return exp32(sub(f(i), top)); });
  inv = quo(1.0f, s);
  lse = add(m, log32(s));
}

KERNEL crossEntropy(Loss a, const int *targets, Status *st, u32 op) {
  __shared__ float part[32];
  int r = blockIdx.x, t = targets[r];
  if (t < 0) {
    FIRST a.loss[r] = 0.0f;
    return;
  }
  if (t >= a.cols) {
    FIRST fail(st, op, t, r, a.cols);
    return;
  }
  const float *x = a.x.flat(r);
  float m, inv, lse, w = a.weight(), c = mul(w, a.scale);
  logSumExp(a.cols, part, [&](int i) { return x[i]; }, m, inv, lse);
  if (a.dx.p) {
    float *d = a.dx.flat(r);
    ALONG(a.cols) {
      float p = mul(exp32(sub(x[i], m)), inv);
      raise(d + i, mul(i == t ? sub(p, 1.0f) : p, c));
    }
  }
  FIRST a.loss[r] = mul(sub(lse, x[t]), w);
}

KERNEL distillKL(Loss a, View y, float t) {
  __shared__ float part[32];
  int r = blockIdx.x;
  const float *x = a.x.flat(r), *z = y.flat(r);
  float ma, ia, la, mb, ib, lb, w = a.weight(), c = mul(mul(t, w), a.scale);
  logSumExp(a.cols, part, [&](int i) { return quo(z[i], t); }, ma, ia, la);
  logSumExp(a.cols, part, [&](int i) { return quo(x[i], t); }, mb, ib, lb);
  float s = sumCTA<Sum>(a.cols, part, [&](int i) {
    float u = quo(z[i], t);
    return mul(mul(exp32(sub(u, ma)), ia), sub(sub(u, la), sub(quo(x[i], t), lb)));
  });
  if (a.dx.p) {
    float *d = a.dx.flat(r);
    ALONG(a.cols) {
      float p = mul(exp32(sub(quo(z[i], t), ma)), ia), q = mul(exp32(sub(quo(x[i], t), mb)), ib);
      raise(d + i, mul(sub(q, p), c));
    }
  }
  FIRST a.loss[r] = mul(mul(s, mul(t, t)), w);
}

KERNEL squaredError(Loss a, View y) {
  __shared__ float part[32];
  int r = blockIdx.x;
  const float *x = a.x.flat(r), *z = y.flat(r);
  float n = (float)a.cols, w = a.weight(), c = mul(mul(quo(2.0f, n), w), a.scale);
  float s = sumCTA<Squares>(a.cols, part, [&](int i) { return sub(x[i], z[i]); });
  if (a.dx.p) {
    float *d = a.dx.flat(r);
    ALONG(a.cols) raise(d + i, mul(sub(x[i], z[i]), c));
  }
  FIRST a.loss[r] = mul(quo(s, n), w);
}

// dotCTA is DOT of two rows, a thread per block of 128. chain has room for a float
// per thread.
DEV float dotCTA(const float *x, const float *y, int n, float *chain) {
  int tid = threadIdx.y * 32 + threadIdx.x, threads = 32 * blockDim.y;
  float total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 128 * threads) {
    float acc = 0.0f;
    int from = b + 128 * tid;
#pragma unroll 4
    for (int i = from; i < min(from + 128, n); i++) acc = fma32(x[i], y[i], acc);
    chain[tid] = acc;
    __syncthreads();
    int used = min(threads, (n - b + 127) >> 7);
#pragma unroll 4
    for (int i = 0; i < used; i++) total = add(total, chain[i]);
    __syncthreads();
  }
  return total;
}

KERNEL cosineError(Loss a, View y) {
  __shared__ float part[32], chain[1024];
  int r = blockIdx.x;
  const float *x = a.x.flat(r), *z = y.flat(r);
  float xx = sumCTA<Squares>(a.cols, part, [&](int i) { return x[i]; }), yy = sumCTA<Squares>(a.cols, part, [&](int i) { return z[i]; });
  float den = mul(__fsqrt_rn(xx), __fsqrt_rn(yy)), least = bits(0x2b8cbccc); // 1e-12
  bool fixed = !(den > least);
  if (fixed) den = least;
  float cos = quo(dotCTA(x, z, a.cols, chain), den), inv = quo(1.0f, den), b = fixed ? 0.0f : quo(cos, xx), w = a.weight(), c = mul(w, a.scale);
  if (a.dx.p) {
    float *d = a.dx.flat(r);
    ALONG(a.cols) raise(d + i, mul(fma32(b, x[i], -mul(z[i], inv)), c));
  }
  FIRST a.loss[r] = mul(sub(1.0f, cos), w);
}

// squareBlocks: a warp per block of 1024 elements. addBlocks: one warp adds the sums
// of blocks in order.
KERNEL squareBlocks(float *part, const float *x, u64 n, u32 blocks) {
  u32 b = blockIdx.x * blockDim.y + threadIdx.y;
  if (b >= blocks) return;
  u64 from = (u64)b * 1024;
  float v = rsumBlock<Squares>(x + from, n - from < 1024 ? (int)(n - from) : 1024);
  if (threadIdx.x == 0) part[b] = v;
}

KERNEL addBlocks(float *dst, const float *part, u32 n) {
  float total = 0.0f;
#pragma unroll 1
  for (u32 b = 0; b < n; b += 32) {
    float v = b + threadIdx.x < n ? part[b + threadIdx.x] : 0.0f;
    u32 used = min(32u, n - b);
#pragma unroll 4
    for (u32 i = 0; i < used; i++) total = add(total, __shfl_sync(0xffffffffu, v, i));
  }
  if (threadIdx.x == 0) *dst = total;
}

// Step is backend.AdamWStep.
struct Step {
  float beta1, rest1, beta2, rest2, scale2, rate, decay, eps, clip;
};

KERNEL adamW(float *w, float *m, float *v, const float *g, u64 n, Step s) {
#pragma unroll 1
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    float x = mul(g[i], s.clip), mi = add(mul(m[i], s.beta1), mul(x, s.rest1)), vi = add(mul(v[i], s.beta2), mul(mul(x, x), s.rest2));
    m[i] = mi;
    v[i] = vi;
    w[i] = sub(mul(w[i], s.decay), mul(quo(mi, add(__fsqrt_rn(mul(vi, s.scale2)), s.eps)), s.rate));
  }
}
