// Attention over pages of 64 slots (docs/numerics.md 7).
#include "pages.cuh"

extern __shared__ float4 shared[];

// sees gives the visible slots [lo, own] of a row.
DEV int sees(const Cache &a, const Seg &s, int row, int &lo) {
  int own = s.slot + row - s.row;
  lo = a.window > 0 ? max(0, own - a.window + 1) : 0;
  return own;
}

KERNEL putKV(Cache a, View k, View v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.heads * a.d) return;
  int h = i / a.d, c = i % a.d;
#pragma unroll 1
  for (int r = blockIdx.y; r < k.rows / k.heads; r += gridDim.y) {
    const Seg &s = a.segs[a.segOf[r]];
    int slot = s.slot + r - s.row, j = slot & 63;
    page(a, s, 0, h, slot >> 6)[turned(c, j, a.d)] = k.p[r * k.stride + h * k.stride2 + c];
    page(a, s, 1, h, slot >> 6)[j * a.d + c] = v.p[r * v.stride + h * v.stride2 + c];
  }
}

// movePage copies the first n slots of a page to rows [2·layers, heads, n, D] in
// logical order, or back.
template <bool OUT> DEV void movePage(float *page, float *rows, i64 s0, i64 s1, i64 s2, int heads, int n, int d, u32 all) {
#pragma unroll 1
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += gridDim.x * blockDim.x) {
    int c = i % d, j = i / d % n, h = i / d / n % heads, part = i / d / n / heads;
    float *p = page + ((i64)part * heads + h) * 64 * d + (part & 1 ? j * d + c : turned(c, j, d));
    float *r = rows + part * s0 + h * s1 + j * s2 + c;
    if (OUT)
      *r = *p;
    else
      *p = *r;
  }
}
KERNEL getPage(float *page, float *rows, i64 s0, i64 s1, i64 s2, int heads, int n, int d, u32 all) { movePage<true>(page, rows, s0, s1, s2, heads, n, d, all); }
KERNEL putPage(float *page, float *rows, i64 s0, i64 s1, i64 s2, int heads, int n, int d, u32 all) { movePage<false>(page, rows, s0, s1, s2, heads, n, d, all); }

// scores are DOT(q, k)·scale of Q queries, D floats apart in shared memory, with
// slots j and j + 32, of which see says which are visible.
template <int Q> DEV void scores(float (*s)[2], const float *q, const float *k, int j, int d, bool wide, float scale, const bool *see) {
  float acc[Q][2];
#pragma unroll
  for (int g = 0; g < Q; g++) s[g][0] = s[g][1] = 0.0f;
#pragma unroll 1
  for (int b = 0; b < d; b += 128) {
    int end = min(b + 128, d);
#pragma unroll
    for (int g = 0; g < Q; g++) acc[g][0] = acc[g][1] = 0.0f;
    if (!wide) {
#pragma unroll 1
      for (int c = b; c < end; c++) {
        float k0 = see[0] ? k[turned(c, j, d)] : 0.0f, k1 = see[1] ? k[turned(c, j + 32, d)] : 0.0f;
#pragma unroll
        for (int g = 0; g < Q; g++) {
          acc[g][0] = fma32(q[g * d + c], k0, acc[g][0]);
          acc[g][1] = fma32(q[g * d + c], k1, acc[g][1]);
        }
      }
    } else {
      const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
      for (int c = b; c < end; c += 4) {
        float4 k0 = see[0] ? *(const float4 *)(k + c * 64 + j * 4) : zero, k1 = see[1] ? *(const float4 *)(k + c * 64 + j * 4 + 128) : zero;
#pragma unroll
        for (int g = 0; g < Q; g++) {
          float4 x = *(const float4 *)(q + g * d + c);
          acc[g][0] = fma32(x.w, k0.w, fma32(x.z, k0.z, fma32(x.y, k0.y, fma32(x.x, k0.x, acc[g][0]))));
          acc[g][1] = fma32(x.w, k1.w, fma32(x.z, k1.z, fma32(x.y, k1.y, fma32(x.x, k1.x, acc[g][1]))));
        }
      }
    }
#pragma unroll
    for (int g = 0; g < Q; g++) {
      s[g][0] = add(s[g][0], acc[g][0]);
      s[g][1] = add(s[g][1], acc[g][1]);
    }
  }
#pragma unroll
  for (int g = 0; g < Q; g++) {
    s[g][0] = mul(s[g][0], scale);
    s[g][1] = mul(s[g][1], scale);
  }
}

DEV float warpMax(float m) {
#pragma unroll
  for (int h = 16; h >= 1; h /= 2) {
    float v = __shfl_xor_sync(0xffffffffu, m, h);
    m = v > m ? v : m;
  }
  return m;
}

// blockStats turns the scores of a block into weights and gives their maximum and
// sum; lane holds slots lane and lane + 32.
DEV void blockStats(float *s, const bool *see, float &m, float &l) {
  m = minusInf();
  if (see[0] && s[0] > m) m = s[0];
  if (see[1] && s[1] > m) m = s[1];
  m = warpMax(m);
  s[0] = see[0] ? exp32(sub(s[0], m)) : 0.0f;
  s[1] = see[1] ? exp32(sub(s[1], m)) : 0.0f;
  l = tree(add(s[0], s[1]));
}

// Split has the partials of key blocks: (m, l) [items, hq, blocks] and
// o [items, hq, blocks, D], blocks counted from the first visible one.
struct Split {
  float2 *ml;
  float *o;        // 0: only the maxima and sums are wanted
  const int *rows; // of the items; 0: item i is row first + i
  int items, hq, blocks, first;
};

// attendBlocks: one CTA per key block, key head and item; a warp per Q queries of
// the group. grid (blocks, heads, items), block (32, W), dynamic shared memory of
// group·D + W·Q·64 floats, the group rounded up to W·Q.
template <int Q> DEV void attendBlocks(const Cache &a, const View &q, const Split &out, float scale) {
  int lane = threadIdx.x, wy = threadIdx.y, hk = blockIdx.y, group = out.hq / a.heads, d = a.d;
  float *qs = (float *)shared + wy * Q * d, *ps = (float *)shared + blockDim.y * Q * d + wy * Q * 64;
#pragma unroll 1
  for (int item = blockIdx.z; item < out.items; item += gridDim.z) {
    int row = out.rows ? out.rows[item] : out.first + item, lo;
    const Seg &s = a.segs[a.segOf[row]];
    int own = sees(a, s, row, lo), b = (lo >> 6) + blockIdx.x;
    if (b * 64 > own) continue;
    const float *k = page(a, s, 0, hk, b), *v = page(a, s, 1, hk, b);
    bool see[2] = {b * 64 + lane >= lo && b * 64 + lane <= own, b * 64 + lane + 32 >= lo && b * 64 + lane + 32 <= own};
#pragma unroll 1
    for (int g0 = wy * Q; g0 < group; g0 += blockDim.y * Q) {
      int n = min(Q, group - g0);
      __syncwarp();
#pragma unroll 1
      for (int g = 0; g < Q; g++)
#pragma unroll 1
        for (int c = lane; c < d; c += 32) qs[g * d + c] = g < n ? q.p[row * q.stride + (hk * group + g0 + g) * q.stride2 + c] : 0.0f;
      __syncwarp();
      float p[Q][2];
      scores<Q>(p, qs, k, lane, d, a.wide, scale, see);
      i64 at = ((i64)item * out.hq + hk * group + g0) * out.blocks + blockIdx.x;
#pragma unroll
      for (int g = 0; g < Q; g++) {
        float m, l;
        blockStats(p[g], see, m, l);
        if (lane == 0 && g < n) out.ml[at + (i64)g * out.blocks] = make_float2(m, l);
        ps[g * 64 + lane] = p[g][0];
        ps[g * 64 + lane + 32] = p[g][1];
      }
      if (!out.o) continue;
      __syncwarp();
      int first = max(lo - b * 64, 0), last = min(own - b * 64, 63);
#pragma unroll 1
      for (int c = lane; c < d; c += 32) {
        float acc[Q];
#pragma unroll
        for (int g = 0; g < Q; g++) acc[g] = 0.0f;
#pragma unroll 8
        for (int j = first; j <= last; j++) {
          float x = v[j * d + c];
#pragma unroll
          for (int g = 0; g < Q; g++) acc[g] = fma32(ps[g * 64 + j], x, acc[g]);
        }
#pragma unroll
        for (int g = 0; g < Q; g++)
          if (g < n) out.o[(at + (i64)g * out.blocks) * d + c] = add(0.0f, acc[g]);
      }
    }
  }
}
KERNEL __launch_bounds__(256, 1) attendBlocks1(Cache a, View q, Split out, float scale) { attendBlocks<1>(a, q, out, scale); }
KERNEL __launch_bounds__(256, 1) attendBlocks4(Cache a, View q, Split out, float scale) { attendBlocks<4>(a, q, out, scale); }

// mergeBlocks adds the partials in ascending order: a warp per item, head and 32
// components. Maxima and factors of 32 blocks are found together. final gets the
// last m and 1/l of every item and head. grid (chunks of D, hq, items).
KERNEL __launch_bounds__(32) mergeBlocks(Cache a, View dst, Split in, float2 *final) {
  int lane = threadIdx.x, c = blockIdx.x * 32 + lane, h = blockIdx.y, d = a.d;
#pragma unroll 1
  for (int item = blockIdx.z; item < in.items; item += gridDim.z) {
    int row = in.rows ? in.rows[item] : in.first + item, lo;
    int own = sees(a, a.segs[a.segOf[row]], row, lo), n = (own >> 6) - (lo >> 6) + 1;
    i64 at = ((i64)item * in.hq + h) * in.blocks;
    float m = minusInf(), l = 0.0f, o = 0.0f;
#pragma unroll 1
    for (int b = 0; b < n; b += 32) {
      float2 ml = b + lane < n ? in.ml[at + b + lane] : make_float2(minusInf(), 0.0f);
      float top = ml.x; // the maximum after this block
#pragma unroll
      for (int k = 1; k < 32; k *= 2) {
        float v = __shfl_up_sync(0xffffffffu, top, k);
        if (lane >= k && v > top) top = v;
      }
      if (m > top) top = m;
      float before = __shfl_up_sync(0xffffffffu, top, 1);
      if (lane == 0) before = m;
      float al = exp32(sub(before, top)), be = exp32(sub(ml.x, top));
      int used = min(32, n - b);
#pragma unroll 1
      for (int i = 0; i < used; i++) {
        float ai = __shfl_sync(0xffffffffu, al, i), bi = __shfl_sync(0xffffffffu, be, i);
        l = fma32(__shfl_sync(0xffffffffu, ml.y, i), bi, mul(l, ai));
        if (in.o && c < d) o = fma32(in.o[(at + b + i) * d + c], bi, mul(o, ai));
      }
      m = __shfl_sync(0xffffffffu, top, used - 1);
    }
    float r = quo(1.0f, l);
    if (in.o && c < d) dst.p[row * dst.stride + h * dst.stride2 + c] = mul(o, r);
    if (final && blockIdx.x == 0 && lane == 0) final[(i64)item * in.hq + h] = make_float2(m, r);
  }
}

// attnScores writes the scores of a row's slots, or with final the weights; row i
// of q is row first + i of the pass. grid (blocks of dst, hq, rows), block 32,
// dynamic shared memory of D floats.
KERNEL __launch_bounds__(32) attnScores(Cache a, View dst, View q, float scale, int slots, const float2 *final, int first) {
  float *qs = (float *)shared;
  int lane = threadIdx.x, h = blockIdx.y, d = a.d, hk = h / (q.heads / a.heads), b = blockIdx.x;
#pragma unroll 1
  for (int i = blockIdx.z; i < q.rows / q.heads; i += gridDim.z) {
    int row = first + i, lo;
    const Seg &s = a.segs[a.segOf[row]];
    int own = sees(a, s, row, lo);
    bool see[2] = {b * 64 + lane >= lo && b * 64 + lane <= own, b * 64 + lane + 32 >= lo && b * 64 + lane + 32 <= own};
    float p[1][2] = {{0.0f, 0.0f}};
    if (b * 64 <= own && b * 64 + 63 >= lo) {
      __syncwarp();
#pragma unroll 1
      for (int c = lane; c < d; c += 32) qs[c] = q.p[i * q.stride + h * q.stride2 + c];
      __syncwarp();
      scores<1>(p, qs, page(a, s, 0, hk, b), lane, d, a.wide, scale, see);
    }
    float2 f = final ? final[(i64)i * q.heads + h] : make_float2(0.0f, 0.0f);
    float *out = dst.p + i * dst.stride + h * dst.stride2;
#pragma unroll
    for (int k = 0; k < 2; k++) {
      int j = b * 64 + 32 * k + lane;
      float y = p[0][k];
      if (final)
        y = see[k] ? mul(exp32(sub(y, f.x)), f.y) : 0.0f;
      else if (!see[k])
        y = minusInf();
      if (j < slots) out[j] = y;
    }
  }
}

// moments adds rows of weights to the sums of a group of heads: a thread per
// position and three more on each side, whose means the square needs.
// grid (positions / 122, groups), block 128.
KERNEL __launch_bounds__(128) moments(float *sum, float *square, View w, int slots, int heads) {
  __shared__ float mean[128];
  int tid = threadIdx.x, p = blockIdx.x * 122 + tid - 3, g = blockIdx.y;
  bool in = p >= 0 && p < slots, mine = in && tid >= 3 && tid < 125;
  float total = mine ? sum[(i64)g * slots + p] : 0.0f, squares = mine && square ? square[(i64)g * slots + p] : 0.0f;
#pragma unroll 1
  for (int r = 0; r < w.rows / w.heads; r++) {
    float m = minusInf();
    if (in) {
      const float *x = w.p + r * w.stride + (i64)g * heads * w.stride2 + p;
      m = x[0];
#pragma unroll 1
      for (int h = 1; h < heads; h++) m = add(m, x[h * w.stride2]);
      m = quo(m, (float)heads);
    }
    mean[tid] = m;
    __syncthreads();
    if (mine) {
      total = add(total, m);
      float top = minusInf();
#pragma unroll
      for (int i = -3; i <= 3; i++) top = mean[tid + i] > top ? mean[tid + i] : top;
      float t = mul(256.0f, top);
      squares = add(squares, mul(t, t));
    }
    __syncthreads();
  }
  if (mine) {
    sum[(i64)g * slots + p] = total;
    if (square) square[(i64)g * slots + p] = squares;
  }
}

// attendTile: one CTA of 128 threads per tile and query head walks over the key
// blocks. NC chunks of 64 components; the first half of them are whole. With wide, rows of q can be read in 16 bytes,
// too. grid (tiles, hq).
template <int NC> DEV void attendTile(const Cache &a, const View &dst, const View &q, const Tile *tiles, float scale, int wide) {
  enum { TQ = 32, LQ = TQ + 4, LK = 68, CH = 32 };
  __shared__ __align__(16) float sq[CH][LQ], sk[64][LK], sp[64][LQ]; // sk holds keys [CH], then values [64]
  __shared__ float sm[TQ], sl[TQ], sal[TQ], sbe[TQ];
  Tile t = tiles[blockIdx.x];
  const Seg &s = a.segs[t.seg];
  int tid = threadIdx.x, lane = tid & 31, wy = tid >> 5, tx = tid & 15, ty = tid >> 4, h = blockIdx.y, d = a.d;
  int hk = h / (dst.heads / a.heads), own0 = s.slot + t.row, lo0 = a.window > 0 ? max(0, own0 - a.window + 1) : 0;
  int own1 = own0 + t.rows - 1, lo1 = a.window > 0 ? max(0, own1 - a.window + 1) : 0; // of the last row
  const float *qp = q.p + (i64)(s.row + t.row) * q.stride + h * q.stride2;
  const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float o[NC][4][4];
#pragma unroll
  for (int n = 0; n < NC; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) o[n][i][j] = 0.0f;
  if (tid < TQ) {
    sm[tid] = minusInf();
    sl[tid] = 0.0f;
  }
#pragma unroll 1
  for (int b = lo0 >> 6; b * 64 <= own1; b++) {
    const float *k = page(a, s, 0, hk, b), *v = page(a, s, 1, hk, b);
    float acc[4][4], total[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) acc[i][j] = total[i][j] = 0.0f;
#pragma unroll 1
    for (int c0 = 0; c0 < d; c0 += CH) {
      __syncthreads();
      if (wide) { // a lane per row: neighbouring words of shared memory
        const float *from = qp + lane * q.stride + c0;
#pragma unroll
        for (int i = 0; i < CH / 16; i++) {
          int c = wy * 4 + i * 16;
          float4 x = lane < t.rows && c0 + c < d ? *(const float4 *)(from + c) : zero;
          sq[c][lane] = x.x, sq[c + 1][lane] = x.y, sq[c + 2][lane] = x.z, sq[c + 3][lane] = x.w;
        }
      } else {
#pragma unroll
        for (int i = 0; i < TQ * CH / 128; i++) {
          u32 e = tid + i * 128;
          int c = e % CH, r = e / CH;
          sq[c][r] = r < t.rows && c0 + c < d ? qp[r * q.stride + c0 + c] : 0.0f;
        }
      }
      int j = tid & 63, slot = b * 64 + j; // of the key that a thread fetches
      bool in = slot >= lo0 && slot <= own1;
      if (a.wide) {
        const float *from = k + c0 * 64 + j * 4;
#pragma unroll
        for (int i = 0; i < CH / 8; i++) {
          int c = (tid >> 6) * 4 + i * 8;
          float4 x = in && c0 + c < d ? *(const float4 *)(from + c * 64) : zero;
          sk[c][j] = x.x, sk[c + 1][j] = x.y, sk[c + 2][j] = x.z, sk[c + 3][j] = x.w;
        }
      } else {
#pragma unroll 4
        for (int i = 0; i < CH / 2; i++) {
          int c = (tid >> 6) + i * 2;
          sk[c][j] = in && c0 + c < d ? k[turned(c0 + c, j, d)] : 0.0f;
        }
      }
      __syncthreads();
#pragma unroll 4
      for (int c = 0; c < CH; c++) {
        float4 x = *(const float4 *)&sq[c][ty * 4], y = *(const float4 *)&sk[c][tx * 4];
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
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) sp[tx * 4 + j][ty * 4 + i] = mul(total[i][j], scale);
    __syncthreads();
    // Each warp has eight rows: maximum, weights and sum of the block, then the
    // factors, a lane per row.
    float mb = minusInf(), lb = 0.0f;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
      int r = wy * 8 + i, own = own0 + r, lo = a.window > 0 ? max(0, own - a.window + 1) : 0, j = b * 64 + lane;
      bool see[2] = {r < t.rows && j >= lo && j <= own, r < t.rows && j + 32 >= lo && j + 32 <= own};
      float p[2] = {sp[lane][r], sp[lane + 32][r]}, m, l;
      blockStats(p, see, m, l);
      sp[lane][r] = p[0];
      sp[lane + 32][r] = p[1];
      if (lane == i) mb = m, lb = l;
    }
    if (lane < 8) {
      int r = wy * 8 + lane, own = own0 + r, lo = a.window > 0 ? max(0, own - a.window + 1) : 0;
      bool any = r < t.rows && max(lo, b * 64) <= min(own, b * 64 + 63);
      float m = sm[r], top = mb > m ? mb : m, al = exp32(sub(m, top)), be = exp32(sub(mb, top));
      sal[r] = al;
      sbe[r] = any ? be : -1.0f; // no factor is negative
      if (any) {
        sl[r] = fma32(lb, be, mul(sl[r], al));
        sm[r] = top;
      }
    }
#pragma unroll
    for (int n = 0; n < NC; n++) {
      __syncthreads();
      if (a.wide) {
        int c = n * 64 + tx * 4;
#pragma unroll
        for (int i = 0; i < 8; i++) {
          int j = ty + i * 8, slot = b * 64 + j;
          *(float4 *)&sk[j][tx * 4] = (n < NC / 2 || c < d) && slot >= lo0 && slot <= own1 ? *(const float4 *)(v + j * d + c) : zero;
        }
      } else {
#pragma unroll 4
        for (int i = 0; i < 64 * 64 / 128; i++) {
          u32 e = tid + i * 128;
          int c = e & 63, j = e >> 6, slot = b * 64 + j;
          sk[j][c] = (n < NC / 2 || n * 64 + c < d) && slot >= lo0 && slot <= own1 ? v[j * d + n * 64 + c] : 0.0f;
        }
      }
      __syncthreads();
      float ob[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) ob[i][j] = 0.0f;
      // some takes slots that not every row sees.
      auto some = [&](int j, int end) {
#pragma unroll 1
        for (; j < end; j++) {
          float4 x = *(const float4 *)&sp[j][ty * 4], y = *(const float4 *)&sk[j][tx * 4];
          float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
          for (int i = 0; i < 4; i++) {
            int own = own0 + ty * 4 + i, lo = a.window > 0 ? max(0, own - a.window + 1) : 0;
            bool see = b * 64 + j >= lo && b * 64 + j <= own; // 0·Inf would be NaN
#pragma unroll
            for (int c = 0; c < 4; c++) ob[i][c] = see ? fma32(xs[i], ys[c], ob[i][c]) : ob[i][c];
          }
        }
      };
      // Slots [all0, all1) are seen by every row, of those in [from, to) that some see.
      int from = max(lo0 - b * 64, 0), to = min(own1 - b * 64 + 1, 64), all0 = max(lo1 - b * 64, 0), all1 = min(own0 - b * 64 + 1, 64);
      if (all0 >= all1) all0 = all1 = to;
      some(from, all0);
#pragma unroll 4
      for (int j = all0; j < all1; j++) {
        float4 x = *(const float4 *)&sp[j][ty * 4], y = *(const float4 *)&sk[j][tx * 4];
        float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int c = 0; c < 4; c++) ob[i][c] = fma32(xs[i], ys[c], ob[i][c]);
      }
      some(all1, to);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float al = sal[ty * 4 + i], be = sbe[ty * 4 + i];
        if (be < 0.0f) continue;
#pragma unroll
        for (int c = 0; c < 4; c++) o[n][i][c] = fma32(add(0.0f, ob[i][c]), be, mul(o[n][i][c], al));
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int r = ty * 4 + i;
    if (r >= t.rows) continue;
    float f = quo(1.0f, sl[r]);
    float *out = dst.p + (i64)(s.row + t.row + r) * dst.stride + h * dst.stride2;
#pragma unroll
    for (int n = 0; n < NC; n++)
#pragma unroll
      for (int c = 0; c < 4; c++)
        if (n < NC / 2 || n * 64 + tx * 4 + c < d) out[n * 64 + tx * 4 + c] = mul(o[n][i][c], f);
  }
}
KERNEL __launch_bounds__(128) attendTile1(Cache a, View dst, View q, const Tile *tiles, float scale, int wide) { attendTile<1>(a, dst, q, tiles, scale, wide); }
KERNEL __launch_bounds__(128) attendTile2(Cache a, View dst, View q, const Tile *tiles, float scale, int wide) { attendTile<2>(a, dst, q, tiles, scale, wide); }
KERNEL __launch_bounds__(128) attendTile4(Cache a, View dst, View q, const Tile *tiles, float scale, int wide) { attendTile<4>(a, dst, q, tiles, scale, wide); }
