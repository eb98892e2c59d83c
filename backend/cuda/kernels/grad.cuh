// What the kernels of gradients share (docs/numerics.md 10).
#pragma once
#include "canon.cuh"

// Rows [lo, hi) of a pass: one chain of the gradient of a weight.
struct Block {
  int lo, hi;
};

// Elementwise kernels have a thread per column and walk over the rows.
#define EACH(cols, rows)                         \
  int c = blockIdx.x * blockDim.x + threadIdx.x; \
  if (c >= (cols)) return;                       \
  _Pragma("unroll 1") for (int r = blockIdx.y; r < (rows); r += gridDim.y)

// Kernels that reduce rows have a CTA of (32, W) threads per row.
#define ALONG(n) _Pragma("unroll 1") for (int i = threadIdx.y * 32 + threadIdx.x; i < (n); i += 32 * blockDim.y)

// raise is d += t.
DEV void raise(float *d, float t) { *d = add(*d, t); }

// sumCTA is RSUM of f(0), …, f(n-1) by all warps of a CTA of (32, W) threads, for
// every thread, as rsumCTA. part has room for W floats.
template <class F, class G> DEV float sumCTA(int n, float *part, const G &f) {
  int warps = blockDim.y, w = threadIdx.y;
  float total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 1024 * warps) {
    int from = b + 1024 * w, to = min(from + 1024, n);
    float lane = 0.0f;
#pragma unroll 1
    for (int i = from + threadIdx.x; i < to; i += 32) lane = F::step(f(i), lane);
    lane = tree(lane);
    if (threadIdx.x == 0) part[w] = lane;
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < warps; i++) total = add(total, part[i]); // +0 of those that had no block
    __syncthreads();
  }
  return total;
}

// slope is that of SiLU at x with a = silu(x).
DEV float slope(float x, float a) {
  float sg = sigmoid(x);
  return fma32(a, sub(1.0f, sg), sg);
}
