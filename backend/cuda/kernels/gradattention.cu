// The gradient of attention over whole sequences (docs/numerics.md 10). Queries and
// keys meet in tiles of 64 x 64 of a CTA of 256 threads, each with 4 x 4 pairs:
// weights and slopes are made anew for the gradient of the queries and for that of
// keys and values, and never leave the CTA. What a chain gives is added to the
// gradient in memory, which belongs to one thread: any width of heads will do.
#include "grad.cuh"

enum { T = 64, CH = 32, LD = T + 4, THREADS = 256 };

// Part is a block of 64 rows of a sequence: its first row and rows, and the block.
struct Part {
  int row, rows, block, pad;
  __device__ __forceinline__ int size(int b) const { return min(T, rows - b * T); }
};

// Pass is what all kernels get. stats holds, for every row and query head, the
// logarithm of its sum of exponentials and DOT(dy, y).
struct Pass {
  View q, k, v, dy;
  float2 *stats;
  const Part *parts;
  float scale;
  int window, d, group;
  // first is the first block of keys that a query of block a sees.
  __device__ __forceinline__ int first(int a) const { return window > 0 ? max(0, a * T - window + 1) / T : 0; }
  __device__ __forceinline__ bool sees(int i, int j) const { return j <= i && (window <= 0 || j > i - window); }
};

// Tiles are the shared memory of a CTA: two operands of a product, CH components of
// 64 rows each, or one of 64 components, and the pairs.
struct Tiles {
  float in[2 * CH][LD], pairs[T][LD];
};

// rowOf is a head of a row.
DEV const float *rowOf(const View &x, int r, int h) { return x.p + r * x.stride + h * x.stride2; }

// dots are the 4 x 4 products DOT(a_i, b_j) of a thread: rows ty·4 + i of na, rows
// tx·4 + j of nb.
DEV void dots(float (*total)[4], Tiles &s, const float *a, i64 as, int na, const float *b, i64 bs, int nb, int d) {
  u32 tid = threadIdx.x;
  int tx = tid & 15, ty = tid >> 4;
  float acc[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) acc[i][j] = total[i][j] = 0.0f;
#pragma unroll 1
  for (int c0 = 0; c0 < d; c0 += CH) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T * CH / THREADS; i++) {
      u32 e = tid + i * THREADS;
      int c = e % CH, r = e / CH;
      s.in[c][r] = r < na && c0 + c < d ? a[r * as + c0 + c] : 0.0f;
      s.in[CH + c][r] = r < nb && c0 + c < d ? b[r * bs + c0 + c] : 0.0f;
    }
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < CH; c++) {
      float4 x = *(const float4 *)&s.in[c][ty * 4], y = *(const float4 *)&s.in[CH + c][tx * 4];
      float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = fma32(xs[i], ys[j], acc[i][j]);
    }
    if ((c0 & 127) == 128 - CH || c0 + CH >= d) {
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          total[i][j] = add(total[i][j], acc[i][j]);
          acc[i][j] = 0.0f;
        }
    }
  }
}

// pairsOf are the weights p and slopes ds of the pairs of query block a and key
// block b of a head; they are +0 where a query does not see a key.
DEV void pairsOf(float (*p)[4], float (*ds)[4], Tiles &s, const Pass &x, const Part &t, int a, int b, int h) {
  int tx = threadIdx.x & 15, ty = threadIdx.x >> 4, hk = h / x.group, q0 = t.row + a * T, k0 = t.row + b * T, nq = t.size(a), nk = t.size(b);
  dots(p, s, rowOf(x.q, q0, h), x.q.stride, nq, rowOf(x.k, k0, hk), x.k.stride, nk, x.d);
  dots(ds, s, rowOf(x.dy, q0, h), x.dy.stride, nq, rowOf(x.v, k0, hk), x.v.stride, nk, x.d);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int r = ty * 4 + i;
    float2 st = r < nq ? x.stats[(i64)(q0 + r) * x.q.heads + h] : make_float2(0.0f, 0.0f);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      bool see = r < nq && x.sees(a * T + r, b * T + tx * 4 + j);
      p[i][j] = see ? exp32(sub(mul(p[i][j], x.scale), st.x)) : 0.0f;
      ds[i][j] = see ? mul(mul(p[i][j], sub(ds[i][j], st.y)), x.scale) : 0.0f;
    }
  }
}

// chains adds to the rows ty·4 + i of n of dst the chains over the m rows of x of
// FMA(pairs[row of x][row of dst], x, acc).
DEV void chains(float *dst, i64 ds, int n, Tiles &s, const float *x, i64 xs, int m, int d) {
  u32 tid = threadIdx.x;
  int tx = tid & 15, ty = tid >> 4;
#pragma unroll 1
  for (int c0 = 0; c0 < d; c0 += T) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T * T / THREADS; i++) {
      u32 e = tid + i * THREADS;
      int c = e % T, r = e / T;
      s.in[r][c] = r < m && c0 + c < d ? x[r * xs + c0 + c] : 0.0f;
    }
    __syncthreads();
    float acc[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) acc[i][j] = 0.0f;
#pragma unroll 4
    for (int r = 0; r < m; r++) {
      float4 a = *(const float4 *)&s.pairs[r][ty * 4], b = *(const float4 *)&s.in[r][tx * 4];
      float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = fma32(as[i], bs[j], acc[i][j]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int r = ty * 4 + i, c = c0 + tx * 4 + j;
        if (r < n && c < d) raise(dst + r * ds + c, acc[i][j]);
      }
  }
}

// attnStats: grid (parts, hq).
KERNEL __launch_bounds__(256) attnStats(Pass x, View y) {
  __shared__ __align__(16) Tiles s;
  Part t = x.parts[blockIdx.x];
  int tid = threadIdx.x, lane = tid & 31, wy = tid >> 5, tx = tid & 15, ty = tid >> 4, a = t.block, h = blockIdx.y;
  int q0 = t.row + a * T, nq = t.size(a);
  float m = minusInf(), l = 0.0f; // of row wy·8 + lane, of the first eight lanes
#pragma unroll 1
  for (int b = x.first(a); b <= a; b++) {
    float p[4][4];
    dots(p, s, rowOf(x.q, q0, h), x.q.stride, nq, rowOf(x.k, t.row + b * T, h / x.group), x.k.stride, t.size(b), x.d);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) s.pairs[ty * 4 + i][tx * 4 + j] = mul(p[i][j], x.scale);
    __syncthreads();
    float mb = minusInf(), lb = 0.0f;
    bool any = false;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
      int r = wy * 8 + i, own = a * T + r;
      if (r >= nq) break;
      bool see0 = x.sees(own, b * T + lane), see1 = x.sees(own, b * T + lane + 32);
      float s0 = s.pairs[r][lane], s1 = s.pairs[r][lane + 32], top = minusInf();
      if (see0 && s0 > top) top = s0;
      if (see1 && s1 > top) top = s1;
#pragma unroll
      for (int k = 16; k >= 1; k /= 2) {
        float v = __shfl_xor_sync(0xffffffffu, top, k);
        top = v > top ? v : top;
      }
      float sum = tree(add(see0 ? exp32(sub(s0, top)) : 0.0f, see1 ? exp32(sub(s1, top)) : 0.0f));
      bool some = __any_sync(0xffffffffu, see0 || see1);
      if (lane == i) mb = top, lb = sum, any = some;
    }
    if (any) {
      float top = mb > m ? mb : m;
      l = fma32(lb, exp32(sub(mb, top)), mul(l, exp32(sub(m, top))));
      m = top;
    }
  }
  int r = wy * 8 + lane;
  if (lane >= 8 || r >= nq) return;
  const float *g = rowOf(x.dy, q0 + r, h), *f = rowOf(y, q0 + r, h);
  float c = 0.0f;
#pragma unroll 1
  for (int b = 0; b < x.d; b += 128) {
    float acc = 0.0f;
#pragma unroll 4
    for (int i = b; i < min(b + 128, x.d); i++) acc = fma32(g[i], f[i], acc);
    c = add(c, acc);
  }
  x.stats[(i64)(q0 + r) * x.q.heads + h] = make_float2(add(m, log32(l)), c);
}

// attnGradQ: grid (parts, hq); a CTA adds the key blocks in order.
KERNEL __launch_bounds__(256) attnGradQ(Pass x, View dq) {
  __shared__ __align__(16) Tiles s;
  Part t = x.parts[blockIdx.x];
  int tx = threadIdx.x & 15, ty = threadIdx.x >> 4, a = t.block, h = blockIdx.y;
#pragma unroll 1
  for (int b = x.first(a); b <= a; b++) {
    float p[4][4], ds[4][4];
    pairsOf(p, ds, s, x, t, a, b, h);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) s.pairs[tx * 4 + j][ty * 4 + i] = ds[i][j];
    chains(dq.p + (t.row + a * T) * dq.stride + h * dq.stride2, dq.stride, t.size(a), s, rowOf(x.k, t.row + b * T, h / x.group), x.k.stride, t.size(b), x.d);
  }
}

// attnGradKV: grid (parts, hkv); a CTA adds the query blocks in order, of each the
// heads of the group.
KERNEL __launch_bounds__(256) attnGradKV(Pass x, View dk, View dv) {
  __shared__ __align__(16) Tiles s;
  Part t = x.parts[blockIdx.x];
  int tx = threadIdx.x & 15, ty = threadIdx.x >> 4, b = t.block, hk = blockIdx.y, n = t.size(b);
  float *k = dk.p + (t.row + b * T) * dk.stride + hk * dk.stride2, *v = dv.p + (t.row + b * T) * dv.stride + hk * dv.stride2;
#pragma unroll 1
  for (int a = b; a * T < t.rows && x.first(a) <= b; a++) {
#pragma unroll 1
    for (int h = hk * x.group; h < (hk + 1) * x.group; h++) {
      float p[4][4], ds[4][4];
      pairsOf(p, ds, s, x, t, a, b, h);
      auto put = [&](float (*w)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) s.pairs[ty * 4 + i][tx * 4 + j] = w[i][j];
      };
      int q0 = t.row + a * T, m = t.size(a);
      put(ds);
      chains(k, dk.stride, n, s, rowOf(x.q, q0, h), x.q.stride, m, x.d);
      __syncthreads();
      put(p);
      chains(v, dv.stride, n, s, rowOf(x.dy, q0, h), x.dy.stride, m, x.d);
    }
  }
}
