// Attention of many rows on tensor cores: queries, keys, weights and values are
// rounded to bfloat16, sums and the softmax are float32. Not bit-exact
// (docs/cuda.md 8).
#include "matrix.cuh"
#include "pages.cuh"

// quad reduces over the four lanes that have the same rows of a product.
template <class F> DEV float quad(float v, F f) {
  v = f(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return f(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

// fastTile: one CTA per tile, key head and 1 to 4 of its query heads; two warps of
// 16 rows follow each of these. It walks over the key blocks with the running
// maximum, sum and output in registers. D is at most DP and a multiple of 8, pages
// are aligned. grid (tiles, heads, ceil(group / H)), block 64·H.
template <int DP> DEV void fastTile(const Cache &a, const View &dst, const View &q, const Tile *tiles, float scale) {
  // Units of eight components, slots side by side; the gap of one spreads the units
  // of a row over all banks.
  __shared__ uint4 sk[DP / 8][64], sv[DP / 8][65];
  Tile t = tiles[blockIdx.x];
  const Seg &s = a.segs[t.seg];
  int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, threads = blockDim.x, hk = blockIdx.y, d = a.d;
  int group = dst.heads / a.heads, g = blockIdx.z * (threads / 64) + warp / 2, h = hk * group + g;
  int own0 = s.slot + t.row, own1 = own0 + t.rows - 1, lo0 = a.window > 0 ? max(0, own0 - a.window + 1) : 0;
  int r0 = warp % 2 * 16, row[2] = {r0 + lane / 4, r0 + lane / 4 + 8}; // within the tile
  bool active = g < group && r0 < t.rows;
  float m[2] = {minusInf(), minusInf()}, l[2] = {0.0f, 0.0f}, o[DP / 8][4];
  u32 fq[DP / 16][4];
#pragma unroll
  for (int c = 0; c < DP / 8; c++) o[c][0] = o[c][1] = o[c][2] = o[c][3] = 0.0f;
#pragma unroll
  for (int k = 0; k < DP / 16; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int c = k * 16 + i / 2 * 8 + lane % 4 * 2;
      bool in = active && row[i % 2] < t.rows && c < d;
      const float *p = q.p + (i64)(s.row + t.row + row[i % 2]) * q.stride + h * q.stride2 + c;
      fq[k][i] = in ? pack(p[0], p[1]) : 0;
    }
#pragma unroll 1
  for (int b = lo0 >> 6; b * 64 <= own1; b++) {
    const float *k = page(a, s, 0, hk, b), *v = page(a, s, 1, hk, b);
    __syncthreads();
#pragma unroll 1
    for (int e = tid; e < DP / 8 * 64; e += threads) {
      int j = e % 64, c8 = e / 64, slot = b * 64 + j;
      float x[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
      if (c8 * 8 < d && slot >= lo0 && slot <= own1) {
        *(float4 *)&x[0] = *(const float4 *)(k + (c8 * 128 + j) * 4);
        *(float4 *)&x[4] = *(const float4 *)(k + (c8 * 128 + 64 + j) * 4);
      }
      sk[c8][j] = pack8(x);
    }
#pragma unroll 1
    for (int e = tid; e < DP / 8 * 64; e += threads) {
      int c8 = e % (DP / 8), j = e / (DP / 8), slot = b * 64 + j;
      float x[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
      if (c8 * 8 < d && slot >= lo0 && slot <= own1) {
        *(float4 *)&x[0] = *(const float4 *)(v + j * d + c8 * 8);
        *(float4 *)&x[4] = *(const float4 *)(v + j * d + c8 * 8 + 4);
      }
      sv[c8][j] = pack8(x);
    }
    __syncthreads();
    if (!active) continue;
    float p[8][4]; // scores, then weights, of 8 slots each
#pragma unroll
    for (int n = 0; n < 8; n++) p[n][0] = p[n][1] = p[n][2] = p[n][3] = 0.0f;
#pragma unroll
    for (int c = 0; c < DP / 16; c++)
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        u32 f[4];
        load4(f, &sk[c * 2 + lane / 8 % 2][n * 8 + lane / 16 * 8 + lane % 8]);
        mma(p[n], fq[c], f);
        mma(p[n + 1], fq[c], f + 2);
      }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int own = own0 + row[i], lo = a.window > 0 ? max(0, own - a.window + 1) : 0;
      float top = m[i];
#pragma unroll
      for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; e++) {
          int slot = b * 64 + n * 8 + lane % 4 * 2 + e % 2;
          p[n][e] = slot >= lo && slot <= own ? mul(p[n][e], scale) : minusInf();
          top = p[n][e] > top ? p[n][e] : top;
        }
      top = quad(top, [](float x, float y) { return x > y ? x : y; });
      float base = top == minusInf() ? 0.0f : top, before = exp32(sub(m[i], base));
      m[i] = top;
      l[i] = mul(l[i], before);
#pragma unroll
      for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; e++) {
          p[n][e] = exp32(sub(p[n][e], base));
          l[i] = add(l[i], p[n][e]);
        }
#pragma unroll
      for (int c = 0; c < DP / 8; c++) {
        o[c][2 * i] = mul(o[c][2 * i], before);
        o[c][2 * i + 1] = mul(o[c][2 * i + 1], before);
      }
    }
#pragma unroll
    for (int n = 0; n < 8; n += 2) { // steps of 16 slots
      u32 fp[4] = {pack(p[n][0], p[n][1]), pack(p[n][2], p[n][3]), pack(p[n + 1][0], p[n + 1][1]), pack(p[n + 1][2], p[n + 1][3])};
#pragma unroll
      for (int c = 0; c < DP / 8; c += 2) {
        u32 f[4];
        load4Turned(f, &sv[c + lane / 16][n * 8 + lane % 16]);
        mma(o[c], fp, f);
        mma(o[c + 1], fp, f + 2);
      }
    }
  }
  if (!active) return;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float f = quo(1.0f, quad(l[i], [](float x, float y) { return add(x, y); }));
    if (row[i] >= t.rows) continue;
    float *out = dst.p + (i64)(s.row + t.row + row[i]) * dst.stride + h * dst.stride2;
#pragma unroll
    for (int c = 0; c < DP / 8; c++) {
      if (c * 8 >= d) continue;
      out[c * 8 + lane % 4 * 2] = mul(o[c][2 * i], f);
      out[c * 8 + lane % 4 * 2 + 1] = mul(o[c][2 * i + 1], f);
    }
  }
}
KERNEL __launch_bounds__(256, 1) fastTile64(Cache a, View dst, View q, const Tile *tiles, float scale) { fastTile<64>(a, dst, q, tiles, scale); }
KERNEL __launch_bounds__(256, 1) fastTile128(Cache a, View dst, View q, const Tile *tiles, float scale) { fastTile<128>(a, dst, q, tiles, scale); }
