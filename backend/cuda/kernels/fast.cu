// Products of many rows with packed weights of one TYPE on tensor cores: x and the
// weights are rounded to bfloat16. Not bit-exact (docs/cuda.md 8).
#include "matrix.cuh"
#include "weights.cuh"

// unit is eight values of an output as bfloat16.
template <int T> DEV uint4 unit(const char *panel, int lane, int k8) {
  if (T == BF16) return __ldg((const uint4 *)panel + k8 * 32 + lane);
  float v[8];
  load8<T>(v, panel, lane, k8);
  return pack8(v);
}

// fast: grid (N / BN, rows / BM), a warp per WM x WN outputs. Tiles of 32 inputs
// lie in shared memory, two buffers.
template <int T, int BM, int BN, int WM, int WN> DEV void fast(const View &dst, const View &x, const Weight &w) {
  const int across = BN / WN, threads = BM / WM * across * 32;
  const int na = BM * 4 / threads, nb = BN * 4 / threads;
  // The gaps of two rows spread the units that a store writes over all banks.
  __shared__ uint4 sa[2][4][BM + 2], sb[2][4][BN];
  int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, wm = warp / across * WM, wn = warp % across * WN;
  bool wide = x.wide();
  float a[na][8], acc[WM / 16][WN / 8][4];
  uint4 b[nb];
#pragma unroll
  for (int i = 0; i < WM / 16; i++)
#pragma unroll
    for (int j = 0; j < WN / 8; j++)
#pragma unroll
      for (int c = 0; c < 4; c++) acc[i][j][c] = 0.0f;

  auto fetch = [&](int k0) {
#pragma unroll
    for (int i = 0; i < na; i++) {
      int e = tid + i * threads, k = k0 + e % 4 * 8, m = m0 + e / 4;
      const float *p = x.flat(m) + k;
      if (wide && m < x.rows && k + 8 <= w.k) {
        *(float4 *)&a[i][0] = *(const float4 *)p;
        *(float4 *)&a[i][4] = *(const float4 *)(p + 4);
      } else {
#pragma unroll
        for (int c = 0; c < 8; c++) a[i][c] = m < x.rows && k + c < w.k ? p[c] : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < nb; i++) {
      int e = tid + i * threads, n = n0 + e % BN, k8 = k0 / 8 + e / BN;
      b[i] = make_uint4(0, 0, 0, 0);
      if (n < (w.n + 31) / 32 * 32 && k8 * 8 < w.k) b[i] = unit<T>(w.p + (i64)(n >> 5) * w.panel, n & 31, k8);
    }
  };
  auto store = [&](int buf) {
#pragma unroll
    for (int i = 0; i < na; i++) {
      int e = tid + i * threads;
      sa[buf][e % 4][e / 4] = pack8(a[i]);
    }
#pragma unroll
    for (int i = 0; i < nb; i++) {
      int e = tid + i * threads;
      sb[buf][e / BN][e % BN] = b[i];
    }
  };

  fetch(0);
  store(0);
  __syncthreads();
  int tiles = (w.k + 31) / 32;
#pragma unroll 1
  for (int t = 0; t < tiles; t++) {
    int buf = t & 1;
    if (t + 1 < tiles) fetch((t + 1) * 32);
#pragma unroll
    for (int k = 0; k < 4; k += 2) { // units of a step of 16
      u32 fa[WM / 16][4], fb[WN / 8][2];
#pragma unroll
      for (int i = 0; i < WM / 16; i++) load4(fa[i], &sa[buf][k + lane / 16][wm + i * 16 + lane % 16]);
#pragma unroll
      for (int j = 0; j < WN / 8; j += 2) load4(fb[j], &sb[buf][k + lane / 8 % 2][wn + j * 8 + lane / 16 * 8 + lane % 8]);
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++) mma(acc[i][j], fa[i], fb[j]);
    }
    if (t + 1 < tiles) {
      store(buf ^ 1);
      __syncthreads();
    }
  }
#pragma unroll
  for (int i = 0; i < WM / 16; i++)
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      int m = m0 + wm + i * 16 + lane / 4 + c / 2 * 8;
      if (m >= dst.rows) continue;
      float *d = dst.flat(m);
#pragma unroll
      for (int j = 0; j < WN / 8; j++) {
        int n = n0 + wn + j * 8 + lane % 4 * 2;
        if (n < w.n) d[n] = acc[i][j][c];
        if (n + 1 < w.n) d[n + 1] = acc[i][j][c + 1];
      }
    }
}

#define FAST(T)                                                                                                                \
  KERNEL __launch_bounds__(128) fastSmall_##T(View dst, View x, Weight w) { fast<T, 32, 64, 16, 32>(dst, x, w); }   \
  KERNEL __launch_bounds__(256) fastLarge_##T(View dst, View x, Weight w) { fast<T, 128, 128, 64, 32>(dst, x, w); }
#define EXPAND(T) FAST(T)
EXPAND(TYPE)
