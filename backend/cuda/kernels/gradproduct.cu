// Products that add to gradients (docs/numerics.md 10): tiles in shared memory as in
// tile.cuh, but the reduction has runs of up to 128 steps of any length, each of
// which is one chain that is added to what was there. No step is padded: the sign of
// a zero would show.
#include "grad.cuh"
#include "weights.cuh"

enum { BK = 16 };

// Outputs are the runs of the gradient of rows: blocks of 128 outputs.
struct Outputs {
  int n;
  __device__ __forceinline__ int count() const { return (n + 127) >> 7; }
  __device__ __forceinline__ Block run(int i) const { return Block{i * 128, min(i * 128 + 128, n)}; }
};

// Listed are those of the gradient of a weight: blocks of rows.
struct Listed {
  const Block *blocks;
  int n;
  __device__ __forceinline__ int count() const { return n; }
  __device__ __forceinline__ Block run(int i) const { return blocks[i]; }
};

// product adds to c, of n columns, the runs of Σ a(k, m)·b[k, n]: a is [m, k] if
// TURNED, else [k, m]. grid (n / BN, rows of c / BM), (BM/TM)·(BN/TN) threads. WIDE
// reads both in 16 bytes: rows begin at multiples of them, and what their columns
// count is a multiple of 4, up to `wide` for b.
template <int BM, int BN, int TM, int TN, bool TURNED, bool WIDE, class R>
DEV void product(const View &c, const View &a, const View &b, int n, int wide, const R &runs) {
  const int threads = (BM / TM) * (BN / TN), LA = BM + 4, LB = BN + 4, V = WIDE ? 4 : 1;
  const int na = BM * BK / V / threads, nb = BN * BK / V / threads;
  __shared__ __align__(16) float sa[2][BK][LA], sb[2][BK][LB];
  u32 tid = threadIdx.x;
  int tx = tid % (BN / TN), ty = tid / (BN / TN), m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  float fa[na][V], fb[nb][V], acc[TM][TN], total[TM][TN];

  // Where output (i, j) of this thread lies, and whether it is one. Rows and columns
  // that are read four at a time end together.
  auto row = [&](int i) { return m0 + i / 4 * (BM * 4 / TM) + ty * 4 + i % 4; };
  auto col = [&](int j) { return n0 + j / 4 * (BN * 4 / TN) + tx * 4 + j % 4; };
  auto rowIn = [&](int i) { return row(WIDE && !TURNED ? i & -4 : i) < c.rows; };
  auto colIn = [&](int j) { return col(WIDE && !TURNED ? j & -4 : j) < n; };
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      acc[i][j] = 0.0f;
      total[i][j] = rowIn(i) && colIn(j) ? c.flat(row(i))[col(j)] : 0.0f;
    }

  auto get = [&](float *f, const float *p, bool in) {
    if (WIDE) {
      float4 x = in ? *(const float4 *)p : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      f[0] = x.x, f[1] = x.y, f[2] = x.z, f[3] = x.w;
    } else {
      f[0] = in ? *p : 0.0f;
    }
  };
  auto fetch = [&](int k0, int steps) {
#pragma unroll
    for (int i = 0; i < na; i++) {
      u32 e = tid + i * threads;
      if (TURNED) {
        int k = e % (BK / V) * V, m = m0 + e / (BK / V);
        get(fa[i], a.flat(m) + k0 + k, m < c.rows && k < steps);
      } else {
        int m = m0 + e % (BM / V) * V, k = e / (BM / V);
        get(fa[i], a.flat(k0 + k) + m, m < c.rows && k < steps);
      }
    }
#pragma unroll
    for (int i = 0; i < nb; i++) {
      u32 e = tid + i * threads;
      int j = n0 + e % (BN / V) * V, k = e / (BN / V);
      get(fb[i], b.flat(k0 + k) + j, j < wide && k < steps);
    }
  };
  auto store = [&](int buf) {
#pragma unroll
    for (int i = 0; i < na; i++) {
      u32 e = tid + i * threads;
      if (TURNED) {
#pragma unroll
        for (int v = 0; v < V; v++) sa[buf][e % (BK / V) * V + v][e / (BK / V)] = fa[i][v];
      } else {
        float *to = &sa[buf][e / (BM / V)][e % (BM / V) * V];
        if (WIDE)
          *(float4 *)to = make_float4(fa[i][0], fa[i][V - 3], fa[i][V - 2], fa[i][V - 1]);
        else
          *to = fa[i][0];
      }
    }
#pragma unroll
    for (int i = 0; i < nb; i++) {
      u32 e = tid + i * threads;
      float *to = &sb[buf][e / (BN / V)][e % (BN / V) * V];
      if (WIDE)
        *(float4 *)to = make_float4(fb[i][0], fb[i][V - 3], fb[i][V - 2], fb[i][V - 1]);
      else
        *to = fb[i][0];
    }
  };

  auto step = [&](int buf, int k) {
    float x[TM], y[TN];
#pragma unroll
    for (int i = 0; i < TM; i += 4) *(float4 *)&x[i] = *(const float4 *)&sa[buf][k][i / 4 * (BM * 4 / TM) + ty * 4];
#pragma unroll
    for (int j = 0; j < TN; j += 4) *(float4 *)&y[j] = *(const float4 *)&sb[buf][k][j / 4 * (BN * 4 / TN) + tx * 4];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++) acc[i][j] = fma32(x[i], y[j], acc[i][j]);
  };

  int left = runs.count(), i = 0, buf = 0;
  Block now = runs.run(0);
  fetch(0, min(BK, now.hi)); // the first run begins at 0
  store(0);
  __syncthreads();
#pragma unroll 1
  while (left > 0) { // a tile is fetched while the one before is multiplied
    int steps = min(BK, now.hi - now.lo);
    bool ends = now.lo + BK >= now.hi;
    now.lo += BK;
    if (ends && --left > 0) now = runs.run(++i);
    if (left > 0) fetch(now.lo, min(BK, now.hi - now.lo));
    if (steps == BK) {
#pragma unroll 8
      for (int k = 0; k < BK; k++) step(buf, k);
    } else {
#pragma unroll 1
      for (int k = 0; k < steps; k++) step(buf, k);
    }
    if (ends) {
#pragma unroll
      for (int p = 0; p < TM; p++)
#pragma unroll
        for (int q = 0; q < TN; q++) {
          total[p][q] = add(total[p][q], acc[p][q]);
          acc[p][q] = 0.0f;
        }
    }
    buf ^= 1;
    if (left > 0) {
      store(buf);
      __syncthreads();
    }
  }
#pragma unroll
  for (int p = 0; p < TM; p++) {
    if (!rowIn(p)) continue;
    float *d = c.flat(row(p));
#pragma unroll
    for (int q = 0; q < TN; q++)
      if (colIn(q)) d[col(q)] = total[p][q];
  }
}

KERNEL __launch_bounds__(64, 4) rowsGradSmall(View c, View a, View b, int n, int wide, Outputs runs) { product<32, 64, 4, 8, true, false>(c, a, b, n, wide, runs); }
KERNEL __launch_bounds__(256) rowsGradLarge(View c, View a, View b, int n, int wide, Outputs runs) { product<128, 128, 8, 8, true, true>(c, a, b, n, wide, runs); }
KERNEL __launch_bounds__(64, 4) weightGradSmall(View c, View a, View b, int n, int wide, Listed runs) { product<32, 64, 4, 8, false, false>(c, a, b, n, wide, runs); }
KERNEL __launch_bounds__(256) weightGradLarge(View c, View a, View b, int n, int wide, Listed runs) { product<128, 128, 8, 8, false, true>(c, a, b, n, wide, runs); }

// expand writes outputs [first, first + rows) of a packed weight as rows of floats,
// [rows, stride], stride K rounded up to 8. first is that of a panel.
// grid (stride / 64, panels), block (32, 8).
KERNEL __launch_bounds__(256) expand(float *dst, int stride, int rows, Weight w, int first) {
  __shared__ float t[32][65];
  int lane = threadIdx.x, wy = threadIdx.y, k0 = blockIdx.x * 64, r0 = blockIdx.y * 32;
  if (k0 + wy * 8 < stride) {
    float v[8];
    loadAny(v, w.type, w.p + (i64)((first + r0) >> 5) * w.panel, lane, k0 / 8 + wy);
#pragma unroll
    for (int i = 0; i < 8; i++) t[lane][wy * 8 + i] = v[i];
  }
  __syncthreads();
#pragma unroll 1
  for (int e = wy * 32 + lane; e < 32 * 64; e += 256) {
    int r = e / 64, k = e % 64;
    if (r0 + r < rows && k0 + k < stride) dst[(i64)(r0 + r) * stride + k0 + k] = t[r][k];
  }
}

// repack lays float32 values [N, K] out in the panels of a weight.
// grid (K / 32, panels), block (32, 8).
KERNEL __launch_bounds__(256) repack(Weight w, const float *values) {
  __shared__ float t[32][33];
  int lane = threadIdx.x, wy = threadIdx.y, k0 = blockIdx.x * 32, n0 = blockIdx.y * 32;
#pragma unroll
  for (int i = 0; i < 32; i += 8) {
    int n = n0 + i + wy, k = k0 + lane;
    t[i + wy][lane] = n < w.n && k < w.k ? values[(i64)n * w.k + k] : 0.0f;
  }
  __syncthreads();
  if (k0 + wy * 4 >= ((w.k + 7) & -8)) return;
  const float *f = &t[lane][wy * 4];
  ((float4 *)(w.p + (i64)blockIdx.y * w.panel))[(k0 / 4 + wy) * 32 + lane] = make_float4(f[0], f[1], f[2], f[3]);
}
