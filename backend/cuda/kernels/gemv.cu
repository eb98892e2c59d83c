// Products of few rows with weights of one TYPE (docs/numerics.md 2). A warp follows the chains of 32
// outputs through one block of 128 inputs; the warps of a CTA take neighbouring
// blocks, whose sums are then added in ascending order.
#include "weights.cuh"

template <int T, int R> DEV void chain(float *acc, const float *sx, const char *panel, int lane, int k8, int n8) {
  const int ahead = T <= F16 ? 16 : 4; // values read together, times 8
  if (T >= Q2_K || n8 == 16) { // blocks of 256 values are never cut
#pragma unroll 1
    for (int j0 = 0; j0 < 16; j0 += ahead) {
#pragma unroll
      for (int j = j0; j < j0 + ahead; j++) {
        float w[8];
        load8<T>(w, panel, lane, k8 + j);
#pragma unroll
        for (int r = 0; r < R; r++) {
          float4 a = *(const float4 *)&sx[r * 128 + j * 8], b = *(const float4 *)&sx[r * 128 + j * 8 + 4];
          acc[r] = fma32(a.x, w[0], acc[r]);
          acc[r] = fma32(a.y, w[1], acc[r]);
          acc[r] = fma32(a.z, w[2], acc[r]);
          acc[r] = fma32(a.w, w[3], acc[r]);
          acc[r] = fma32(b.x, w[4], acc[r]);
          acc[r] = fma32(b.y, w[5], acc[r]);
          acc[r] = fma32(b.z, w[6], acc[r]);
          acc[r] = fma32(b.w, w[7], acc[r]);
        }
      }
    }
    return;
  }
  if constexpr (T < Q2_K) {
#pragma unroll 1
    for (int j = 0; j < n8; j++) {
      float w[8];
      load8<T>(w, panel, lane, k8 + j);
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int i = 0; i < 8; i++) acc[r] = fma32(sx[r * 128 + j * 8 + i], w[i], acc[r]);
    }
  }
}

// gemv: grid (panels, rows / R), block (32, W), R <= W; dynamic shared memory of
// W·R·(128 + 32) floats.
template <int T, int R> DEV void gemv(const View &dst, const View &x, const Weight &w) {
  extern __shared__ float4 shared[];
  int lane = threadIdx.x, wy = threadIdx.y, warps = blockDim.y, r0 = blockIdx.y * R;
  float *sx = (float *)shared + wy * R * 128, *part = (float *)shared + warps * R * 128;
  const char *panel = w.p + blockIdx.x * w.panel;
  int blocks = (w.k + 127) / 128, groups = (w.k + 7) / 8;
  float total = 0.0f; // of row r0 + wy
#pragma unroll 1
  for (int first = 0; first < blocks; first += warps) {
    int b = first + wy;
    if (b < blocks) {
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int i = lane; i < 128; i += 32) {
          int k = b * 128 + i;
          sx[r * 128 + i] = k < w.k && r0 + r < x.rows ? x.flat(r0 + r)[k] : 0.0f;
        }
      __syncwarp();
      float acc[R];
#pragma unroll
      for (int r = 0; r < R; r++) acc[r] = 0.0f;
      chain<T, R>(acc, sx, panel, lane, b * 16, min(16, groups - b * 16));
#pragma unroll
      for (int r = 0; r < R; r++) part[(wy * R + r) * 32 + lane] = acc[r];
    }
    __syncthreads();
    if (wy < R) {
      int used = min(warps, blocks - first);
#pragma unroll 1
      for (int i = 0; i < used; i++) total = add(total, part[(i * R + wy) * 32 + lane]);
    }
    __syncthreads();
  }
  int n = blockIdx.x * 32 + lane;
  if (wy < R && r0 + wy < dst.rows && n < w.n) dst.flat(r0 + wy)[n] = total;
}

#define GEMV(T)                                                                                     \
  KERNEL __launch_bounds__(512, 1) gemv1_##T(View dst, View x, Weight w) { gemv<T, 1>(dst, x, w); } \
  KERNEL __launch_bounds__(512, 1) gemv4_##T(View dst, View x, Weight w) { gemv<T, 4>(dst, x, w); }
#define EXPAND(T) GEMV(T)
EXPAND(TYPE)
