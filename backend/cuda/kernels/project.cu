// Products with unpacked weights.
#include "tile.cuh"

// Rows is an unpacked float32 matrix of any strides.
struct Rows {
  const View &w;
  int k;
  __device__ __forceinline__ void load(float *out, int n, int k8) const {
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = n < w.rows && k8 * 8 + i < k ? w.flat(n)[k8 * 8 + i] : 0.0f;
  }
};

KERNEL __launch_bounds__(64) project(View dst, View x, View w, int k) {
  gemm<32, 64, 4, 8, false>(dst, x, Rows{w, k}, w.rows, k);
}
