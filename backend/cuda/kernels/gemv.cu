// Products of few rows with weights of one TYPE (docs/numerics.md 2). A warp follows the chains of 32
// outputs through one block of 128 inputs; the warps of a CTA take neighbouring
// blocks, whose sums are then added in ascending order.
#include "weights.cuh"

// eight takes a group of eight weights to the chains of R rows.
template <int R> DEV void eight(float *acc, const float *sx, const float *w) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    float4 a = *(const float4 *)&sx[r * 128], b = *(const float4 *)&sx[r * 128 + 4];
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

// chain follows n8 groups from k8 on, a multiple of 16; sx holds their inputs.
template <int T, int R> DEV void chain(float *acc, const float *sx, const char *panel, int lane, u32 k8, u32 n8) {
  if constexpr (T <= F16) {
    if (n8 == 16) { // all weights are asked for before the first is used
#pragma unroll
      for (int j = 0; j < 16; j++) {
        float w[8];
        load8<T>(w, panel, lane, k8 + j);
        eight<R>(acc, sx + j * 8, w);
      }
      return;
    }
#pragma unroll 1
    for (u32 j = 0; j < n8; j++) {
      float w[8];
      load8<T>(w, panel, lane, k8 + j);
      eight<R>(acc, sx + j * 8, w);
    }
  } else if constexpr (T == Q4_K || T == Q5_K) { // half a unit: its scales are unpacked together
    const u32 *u = unitOf<T>(panel, lane, k8);
    u32 half = k8 / 16 & 1, dm = at(u, 0), sc, mn;
    sixes(u, half, sc, mn);
    float low = lowHalf(dm), high = highHalf(dm);
#pragma unroll
    for (int b = 0; b < 4; b++) {
      u32 p = 2 * half + b / 2;
      float d = mul(low, whole(sc, b, 0)), m = mul(high, whole(mn, b, 0));
      if (T == Q4_K && b % 2) d = mul(d, 0.0625f);
#pragma unroll
      for (int g = 0; g < 4; g++) {
        float w[8];
        if (T == Q4_K && b % 2)
          upper(w, u, p, g, d, m);
        else
          group<T>(w, u, p, b % 2, g, d, m);
        eight<R>(acc, sx + (4 * b + g) * 8, w);
      }
    }
  } else { // whole blocks; scales are unpacked once, words with codes of two blocks read once
    const int step = Layout<T>::pairs ? 4 : 8;
#pragma unroll 1
    for (u32 s = 0; s < (Layout<T>::pairs ? n8 / step : 16 / step); s++, sx += step * 8) {
      u32 first = k8 / step + s, p = step == 8 ? first % 4 : 0, c = step == 8 ? 0 : first & 1;
      const u32 *u = unitOf<T>(panel, lane, first * step);
      float d, m;
#pragma unroll
      for (int j = 0; j < step; j++) {
        if (j % Layout<T>::run == 0) scales<T>(u, p, c + j / 4, j % 4, d, m);
        float w[8];
        group<T>(w, u, p, c + j / 4, j % 4, d, m);
        eight<R>(acc, sx + j * 8, w);
      }
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
  int blocks = (w.k + 127) >> 7, groups = (w.k + 7) >> 3;
  float total = 0.0f; // of row r0 + wy
  bool wide = x.wide() && (T >= Q2_K || w.k % 128 == 0); // whole blocks of aligned rows
#pragma unroll 1
  for (int first = 0; first < blocks; first += warps) {
    int b = first + wy;
    if (b < blocks) {
#pragma unroll
      for (int r = 0; r < R; r++) {
        const float *from = x.flat(r0 + r) + b * 128;
        if (wide) {
          ((float4 *)(sx + r * 128))[lane] = r0 + r < x.rows ? ((const float4 *)from)[lane] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          continue;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
          int i = 32 * j + lane;
          sx[r * 128 + i] = (T >= Q2_K || T > F16 && j == 0 || b * 128 + i < w.k) && r0 + r < x.rows ? from[i] : 0.0f;
        }
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
