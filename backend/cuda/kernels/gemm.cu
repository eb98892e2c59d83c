// Products of many rows with packed weights of one TYPE.
#include "tile.cuh"
#include "weights.cuh"

// Panels is a packed weight as the right operand.
template <int T> struct Panels {
  const Weight &w;
  __device__ __forceinline__ void load(float *out, int n, int k8) const {
    if ((n & -32) < w.n && (T > F16 || k8 * 8 < w.k)) { // blocks are whole tiles
      load8<T>(out, w.p + (i64)(n >> 5) * w.panel, n & 31, k8);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) out[i] = 0.0f;
    }
  }
};

#define GEMM(T)                                                             \
  KERNEL __launch_bounds__(64) gemmSmall_##T(View dst, View x, Weight w) {  \
    gemm<32, 64, 4, 8, false>(dst, x, Panels<T>{w}, w.n, w.k);              \
  }                                                                         \
  KERNEL __launch_bounds__(256) gemmLarge_##T(View dst, View x, Weight w) { \
    gemm<128, 128, 8, 8, true>(dst, x, Panels<T>{w}, w.n, w.k);             \
  }
#define EXPAND(T) GEMM(T)
EXPAND(TYPE)
