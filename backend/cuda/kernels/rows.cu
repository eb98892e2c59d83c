// Ops that work on rows by themselves (docs/numerics.md 5 and 8). Elementwise
// kernels have one thread per column and walk over the rows; kernels that reduce
// have one warp, or one CTA of (32, W) threads, per row.
#include "canon.cuh"

// probe runs the primitive steps that a device may get wrong: FMA, mul, add and div
// of values from memory, four words per case and result (numerics.md 1).
KERNEL probe(u32 *v, int n) {
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    float a = bits(v[4 * i]), b = bits(v[4 * i + 1]), c = bits(v[4 * i + 2]);
    v[4 * i] = __float_as_uint(fma32(a, b, c));
    v[4 * i + 1] = __float_as_uint(mul(a, b));
    v[4 * i + 2] = __float_as_uint(add(mul(a, b), c));
    v[4 * i + 3] = __float_as_uint(quo(a, b));
  }
}

#define EACH(cols)                                                   \
  int c = blockIdx.x * blockDim.x + threadIdx.x;                     \
  if (c >= (cols)) return;                                           \
  _Pragma("unroll 1") for (int r = blockIdx.y; r < dst.rows; r += gridDim.y)

KERNEL addBias(View dst, View x, const float *b, int cols) {
  EACH(cols) dst.flat(r)[c] = add(x.flat(r)[c], b[c]);
}

KERNEL addRows(View dst, View a, View b, int cols) {
  EACH(cols) dst.flat(r)[c] = add(a.flat(r)[c], b.flat(r)[c]);
}

KERNEL swiGLU(View dst, View gate, View up, int cols) {
  EACH(cols) dst.flat(r)[c] = mul(silu(gate.flat(r)[c]), up.flat(r)[c]);
}

KERNEL sigmoidMul(View dst, View x, View gate, int cols) {
  EACH(cols) dst.row(r)[c] = mul(x.row(r)[c], sigmoid(gate.row(r)[c]));
}

KERNEL addGated(View dst, View y, View x, View gate, int cols) {
  EACH(cols) dst.flat(r)[c] = fma32(sigmoid(gate.flat(r)[0]), x.flat(r)[c], y.flat(r)[c]);
}

KERNEL gather(View dst, View x, const int *ids, int cols, Status *st, u32 op) {
  EACH(cols) {
    int id = ids[r];
    if (id < 0 || id >= x.rows) {
      fail(st, op, id, r, x.rows);
      return;
    }
    dst.flat(r)[c] = x.flat(id)[c];
  }
}

// Box is a tensor of up to four axes; strides count elements.
struct Box {
  char *p;
  i64 stride[4];
};

// copyBox moves elements of 1, 2 or 4 bytes between strided tensors.
template <class E> DEV void copyBox(Box dst, Box src, u32 d1, u32 d2, u32 d3, u32 n) {
#pragma unroll 1
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    u32 k3 = i % d3, q = i / d3, k2 = q % d2, q2 = q / d2, k1 = q2 % d1, k0 = q2 / d1;
    ((E *)dst.p)[k0 * dst.stride[0] + k1 * dst.stride[1] + k2 * dst.stride[2] + k3 * dst.stride[3]] =
        ((const E *)src.p)[k0 * src.stride[0] + k1 * src.stride[1] + k2 * src.stride[2] + k3 * src.stride[3]];
  }
}
KERNEL copy1(Box dst, Box src, u32 d1, u32 d2, u32 d3, u32 n) { copyBox<u8>(dst, src, d1, d2, d3, n); }
KERNEL copy2(Box dst, Box src, u32 d1, u32 d2, u32 d3, u32 n) { copyBox<u16>(dst, src, d1, d2, d3, n); }
KERNEL copy4(Box dst, Box src, u32 d1, u32 d2, u32 d3, u32 n) { copyBox<u32>(dst, src, d1, d2, d3, n); }

// rmsNorm: one CTA per row.
KERNEL rmsNorm(View dst, View x, const float *w, int cols, float eps) {
  __shared__ float part[32];
  const float *xr = x.flat(blockIdx.x);
  float *d = dst.flat(blockIdx.x);
  float s = rsqrt32(add(quo(rsumCTA<Squares>(xr, cols, part), (float)cols), eps));
#pragma unroll 1
  for (int i = threadIdx.y * 32 + threadIdx.x; i < cols; i += 32 * blockDim.y) d[i] = mul(mul(xr[i], s), w[i]);
}

KERNEL layerNorm(View dst, View x, const float *w, const float *b, int cols, float eps) {
  __shared__ float part[32];
  const float *xr = x.flat(blockIdx.x);
  float *d = dst.flat(blockIdx.x);
  int first = threadIdx.y * 32 + threadIdx.x, step = 32 * blockDim.y;
  float mu = quo(rsumCTA<Sum>(xr, cols, part), (float)cols);
#pragma unroll 1
  for (int i = first; i < cols; i += step) d[i] = sub(xr[i], mu);
  __syncthreads();
  float s = rsqrt32(add(quo(rsumCTA<Squares>(d, cols, part), (float)cols), eps));
#pragma unroll 1
  for (int i = first; i < cols; i += step) d[i] = add(mul(mul(d[i], s), w[i]), b[i]);
}

DEV void softmaxRow(float *d, const float *x, int n, float *part) {
  int first = threadIdx.y * 32 + threadIdx.x, step = 32 * blockDim.y;
  float m = maxCTA(n, part, [&](int i) { return x[i]; });
#pragma unroll 1
  for (int i = first; i < n; i += step) d[i] = exp32(sub(x[i], m));
  __syncthreads();
  float r = quo(1.0f, rsumCTA<Sum>(d, n, part));
#pragma unroll 1
  for (int i = first; i < n; i += step) d[i] = mul(d[i], r);
}

KERNEL softmax(View dst, View x, int cols) {
  __shared__ float part[32];
  softmaxRow(dst.flat(blockIdx.x), x.flat(blockIdx.x), cols, part);
}

// Best is a candidate of arg max: larger value first, then lower index; index -1
// is none.
struct Best {
  float v;
  int i;
};
DEV void better(Best &a, float v, int i) {
  if (i >= 0 && v == v && (a.i < 0 || v > a.v || (v == a.v && i < a.i))) {
    a.v = v;
    a.i = i;
  }
}
DEV void bestOfWarp(Best &b) {
#pragma unroll
  for (int h = 16; h >= 1; h /= 2) {
    float v = __shfl_xor_sync(0xffffffffu, b.v, h);
    int i = __shfl_xor_sync(0xffffffffu, b.i, h);
    better(b, v, i);
  }
}

KERNEL argMax(int *dst, View x, int cols) {
  __shared__ float pv[32];
  __shared__ int pi[32];
  const float *xr = x.flat(blockIdx.x);
  Best b = {0.0f, -1};
#pragma unroll 1
  for (int i = threadIdx.y * 32 + threadIdx.x; i < cols; i += 32 * blockDim.y) better(b, xr[i], i);
  bestOfWarp(b);
  if (threadIdx.x == 0) {
    pv[threadIdx.y] = b.v;
    pi[threadIdx.y] = b.i;
  }
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
#pragma unroll 1
    for (int i = 1; i < blockDim.y; i++) better(b, pv[i], pi[i]);
    dst[blockIdx.x] = b.i;
  }
}

// The kernels of heads have a warp per row, blockDim.y rows per CTA.
#define HEAD                                             \
  int r = blockIdx.x * blockDim.y + threadIdx.y;         \
  if (r >= dst.rows) return;

KERNEL l2Norm(View dst, View x, int cols, float eps, float scale) {
  HEAD
  const float *xr = x.row(r);
  float *d = dst.row(r);
  float s = rsqrt32(add(rsumWarp<Squares>(xr, cols), eps));
#pragma unroll 1
  for (int i = threadIdx.x; i < cols; i += 32) {
    float y = mul(xr[i], s);
    d[i] = scale == 1.0f ? y : mul(y, scale);
  }
}

KERNEL gatedRMSNorm(View dst, View x, View z, const float *w, int cols, float eps) {
  HEAD
  const float *xr = x.row(r), *zr = z.row(r);
  float *d = dst.row(r);
  float s = rsqrt32(add(quo(rsumWarp<Squares>(xr, cols), (float)cols), eps));
#pragma unroll 1
  for (int i = threadIdx.x; i < cols; i += 32) d[i] = mul(mul(mul(xr[i], s), w[i]), silu(zr[i]));
}

// normRoPE: angles holds cosines and sines, [R, 2, half], of the pass's rows.
KERNEL normRoPE(View dst, View x, const float *w, int cols, float eps, const float *angles, int half) {
  HEAD
  const float *xr = x.row(r);
  float *d = dst.row(r);
  float s = 1.0f;
  if (w) s = rsqrt32(add(quo(rsumWarp<Squares>(xr, cols), (float)cols), eps));
  const float *cs = angles + (i64)(r / dst.heads) * 2 * half;
#pragma unroll 1
  for (int i = threadIdx.x; i < cols; i += 32) {
    if (i >= half && i < 2 * half) continue; // the other half of a pair
    float a = xr[i];
    if (w) a = mul(mul(a, s), w[i]);
    if (i >= 2 * half) {
      d[i] = a;
      continue;
    }
    float b = xr[i + half], co = cs[i], si = cs[half + i];
    if (w) b = mul(mul(b, s), w[i + half]);
    d[i] = fma32(a, co, -mul(b, si));
    d[i + half] = fma32(b, co, mul(a, si));
  }
}

// route: one CTA per row. p holds the probabilities, picked the choice in the
// order of choosing; both are scratch.
KERNEL route(int *experts, View weights, View logits, float *p, int *picked, int n, int k, int renorm, Status *st, u32 op) {
  __shared__ float part[32];
  int r = blockIdx.x;
  float *pr = p + (i64)r * n;
  int *pick = picked + (i64)r * k;
  float *out = weights.flat(r);
  softmaxRow(pr, logits.flat(r), n, part);
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll 1
  for (int j = 0; j < k; j++) {
    Best b = {0.0f, -1};
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += 32) {
      bool taken = false;
#pragma unroll 1
      for (int q = 0; q < j; q++) taken = taken || pick[q] == i;
      if (!taken) better(b, pr[i], i);
    }
    bestOfWarp(b);
    if (b.i < 0) {
      if (threadIdx.x == 0) fail(st, op, r, 0, 0);
      return;
    }
    if (threadIdx.x == 0) pick[j] = b.i;
    __syncwarp();
  }
#pragma unroll 1
  for (int j = threadIdx.x; j < k; j += 32) {
    int e = pick[j], rank = 0;
#pragma unroll 1
    for (int q = 0; q < k; q++) rank += pick[q] < e;
    experts[(i64)r * k + rank] = e;
    out[rank] = pr[e];
  }
  if (!renorm) return;
  __syncwarp();
  float s = quo(1.0f, rsumWarp<Sum>(out, k));
  __syncwarp();
#pragma unroll 1
  for (int j = threadIdx.x; j < k; j += 32) out[j] = mul(out[j], s);
}
