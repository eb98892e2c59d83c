// Products of many rows (docs/numerics.md 2): tiles in shared memory, two buffers,
// TM x TN outputs per thread. Every output is one chain per 128 inputs; after
// eight tiles of 16 the chains are added to the totals.
#pragma once
#include "canon.cuh"

enum { BK = 16 };

// gemm: grid (N / BN, rows / BM), (BM/TM)·(BN/TN) threads. WIDE reads x in 16
// bytes: its rows begin at multiples of 16 bytes and K is a multiple of 4.
template <int BM, int BN, int TM, int TN, bool WIDE, class B>
DEV void gemm(const View &dst, const View &x, const B &right, int N, int K) {
  const int threads = (BM / TM) * (BN / TN), LA = BM + 4, LB = BN + 4;
  const int na = WIDE ? BM * BK / 4 / threads : BM * BK / threads, nb = BN * BK / 8 / threads;
  __shared__ __align__(16) float sa[2][BK][LA], sb[2][BK][LB];
  u32 tid = threadIdx.x;
  int tx = tid % (BN / TN), ty = tid / (BN / TN), m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  float4 wide[WIDE ? na : 1];
  float narrow[WIDE ? 1 : na], w[nb][8];
  float acc[TM][TN], total[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) acc[i][j] = total[i][j] = 0.0f;

  auto fetch = [&](int k0) {
#pragma unroll
    for (int i = 0; i < na; i++) {
      u32 e = tid + i * threads;
      int k = k0 + (WIDE ? e % 4 * 4 : e % BK), m = m0 + (WIDE ? e / 4 : e / BK);
      bool in = m < x.rows && k < K;
      if (WIDE)
        wide[i] = in ? *(const float4 *)(x.flat(m) + k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      else
        narrow[i] = in ? x.flat(m)[k] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < nb; i++) {
      u32 e = tid + i * threads;
      right.load(w[i], n0 + e % BN, (k0 >> 3) + e / BN);
    }
  };
  auto store = [&](int buf) {
#pragma unroll
    for (int i = 0; i < na; i++) {
      u32 e = tid + i * threads;
      if (WIDE) {
        int k = e % 4 * 4, m = e / 4;
        sa[buf][k][m] = wide[i].x;
        sa[buf][k + 1][m] = wide[i].y;
        sa[buf][k + 2][m] = wide[i].z;
        sa[buf][k + 3][m] = wide[i].w;
      } else {
        sa[buf][e % BK][e / BK] = narrow[i];
      }
    }
#pragma unroll
    for (int i = 0; i < nb; i++) {
      u32 e = tid + i * threads;
#pragma unroll
      for (int j = 0; j < 8; j++) sb[buf][e / BN * 8 + j][e % BN] = w[i][j];
    }
  };

  int tiles = (K + BK - 1) >> 4;
#pragma unroll 1
  for (int t = -1; t < tiles; t++) { // a tile is fetched while the one before is multiplied
    int buf = t & 1;
    if (t + 1 < tiles) fetch((t + 1) * BK);
    if (t >= 0) {
#pragma unroll 8
      for (int k = 0; k < BK; k++) {
        float a[TM], b[TN];
#pragma unroll
        for (int i = 0; i < TM; i += 4) *(float4 *)&a[i] = *(const float4 *)&sa[buf][k][i / 4 * (BM * 4 / TM) + ty * 4];
#pragma unroll
        for (int j = 0; j < TN; j += 4) *(float4 *)&b[j] = *(const float4 *)&sb[buf][k][j / 4 * (BN * 4 / TN) + tx * 4];
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) acc[i][j] = fma32(a[i], b[j], acc[i][j]);
      }
      if ((t & 7) == 7 || t + 1 == tiles) {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) {
            total[i][j] = add(total[i][j], acc[i][j]);
            acc[i][j] = 0.0f;
          }
      }
    }
    if (t + 1 < tiles) {
      store(buf ^ 1);
      __syncthreads();
    }
  }
#pragma unroll
  for (int i = 0; i < TM; i++) {
    int m = m0 + i / 4 * (BM * 4 / TM) + ty * 4 + i % 4;
    if (m >= dst.rows) continue;
    float *d = dst.flat(m);
#pragma unroll
    for (int j = 0; j < TN; j++) {
      int n = n0 + j / 4 * (BN * 4 / TN) + tx * 4 + j % 4;
      if (n < N) d[n] = total[i][j];
    }
  }
}
