// What the archive ops share (docs/numerics.md 16): the windows and archives of the
// sequences of a pass, and reductions by a thread or a warp.
#pragma once
#include "pages.cuh"

// Parts of a bank, in the order of backend.ArchiveBank.
enum { NUM, DEN, LAST, LAND_KEY, LAND_VALUE, LAND_SCORE, TABLE_KEY, TABLE_VALUE, TABLE_SCORE, TABLE_AGE, TABLE_NEXT, READ_QUERY, READ_VALUE, READ_MARK, BANK };

// Archive belongs to a segment: first page slot of the pass, first plane of
// addresses, first of its pages in the list, and per part the floats of a layer and
// where it lies.
struct Archive {
  int slot, raw, pages, pad;
  int len[16];
  const float *in[BANK];
  float *out[BANK];
};

// Vec is a vector of a page or of other memory: runs of 2^shift components, step
// floats apart.
struct Vec {
  const float *p;
  int shift, step;
  __device__ __forceinline__ float operator[](int c) const { return p[(c >> shift) * step + (c & ((1 << shift) - 1))]; }
};

DEV Vec straight(const float *p) { return Vec{p, 2, 4}; }

// Column is one of a matrix.
struct Column {
  const float *p;
  int step;
  __device__ __forceinline__ float operator[](int k) const { return p[(i64)k * step]; }
};

// windowCell is component 0 of a slot in a plane of a window page, whose planes of
// odd number lie as values and the others as keys do (pages.cuh).
DEV Vec windowCell(float *page, int plane, int heads, int h, int j, int d) {
  const float *at = page + ((i64)plane * heads + h) * 64 * d;
  if (plane & 1) return Vec{at + j * d, 2, 4};
  return d & 3 ? Vec{at + j, 0, 64} : Vec{at + j * 4, 2, 256};
}

// Past is what every kernel gets of a pass: its windows and archives in a layer, and
// which rows are taken, [row0, row0 + rows). Scratch memory is of those.
struct Past {
  const Seg *segs;
  const int *segOf; // of a row of the pass
  const Archive *archives;
  float *const *windows;
  int layer, heads, d, window, sinks, row0, rows, hq;

  __device__ __forceinline__ int slot(int r) const {
    const Seg &s = segs[segOf[r]];
    return s.slot + r - s.row;
  }
  // events is the number of events up to row r.
  __device__ __forceinline__ int events(int r) const { return max(0, slot(r) + 1 - window - sinks); }
  // begin and end are the rows of a segment that are taken.
  __device__ __forceinline__ int begin(int seg) const { return max(segs[seg].row, row0); }
  __device__ __forceinline__ int end(int seg) const { return min(segs[seg].row + segs[seg].rows, row0 + rows); }
  // out is a layer's part of the bank that this pass changes.
  __device__ __forceinline__ float *out(int seg, int part) const {
    const Archive &a = archives[seg];
    return global(a.out[part]) + (i64)layer * a.len[part];
  }
  // at is what a plane of a segment's window holds of key head h at page slot j.
  __device__ __forceinline__ Vec at(int seg, int plane, int h, int j) const {
    return windowCell(global(windows[archives[seg].pages + (j >> 6)]), plane, heads, h, j & 63, d);
  }
  // Of the event of row r: its slot, key, value and address.
  __device__ __forceinline__ int event(int seg, int r) const { return archives[seg].slot + r - segs[seg].row - window; }
  __device__ __forceinline__ Vec key(int seg, int h, int r) const { return at(seg, 2 * layer, h, event(seg, r)); }
  __device__ __forceinline__ Vec content(int seg, int h, int r) const { return at(seg, 2 * layer + 1, h, event(seg, r)); }
  __device__ __forceinline__ Vec address(int seg, int h, int r) const {
    int raw = archives[seg].raw;
    return at(seg, raw > 0 ? raw + layer : 2 * layer, h, event(seg, r));
  }
};

// greater and less let a NaN of x stay.
DEV float greater(float x, float y) { return x < y ? y : x; }
DEV float less(float x, float y) { return x > y ? y : x; }

// dot is DOT of numerics.md 2, by one thread.
template <class X, class Y> DEV float dot(const X &x, const Y &y, int n) {
  float total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 128) {
    float acc = 0.0f;
#pragma unroll 4
    for (int k = b; k < min(b + 128, n); k++) acc = fma32(x[k], y[k], acc);
    total = add(total, acc);
  }
  return total;
}

// fold adds 2·H lanes as RSUM does, in registers.
template <int H> DEV float fold(float *lane) {
#pragma unroll
  for (int i = 0; i < H; i++) lane[i] = add(lane[i], lane[i + H]);
  if constexpr (H > 1) fold<H / 2>(lane);
  return lane[0];
}

// rsum is RSUM by one thread.
template <class F, class X> DEV float rsum(const X &x, int n) {
  float total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 1024) {
    float lane[32];
#pragma unroll
    for (int i = 0; i < 32; i++) lane[i] = 0.0f;
#pragma unroll 1
    for (int k = b; k < min(b + 1024, n); k += 32)
#pragma unroll
      for (int i = 0; i < 32; i++)
        if (k + i < n) lane[i] = F::step(x[k + i], lane[i]);
    total = add(total, fold<16>(lane));
  }
  return total;
}

DEV float length(float squares) { return __fsqrt_rn(squares); }

// cosine is that of numerics.md 5, by one thread.
template <class X, class Y> DEV float cosine(const X &x, const Y &y, int n) {
  float d = dot(x, y, n), a = length(rsum<Squares>(x, n)), b = length(rsum<Squares>(y, n));
  return quo(d, greater(mul(a, b), 1e-12f));
}

// highest is the largest value of a warp that is no NaN.
DEV float highest(float m) {
#pragma unroll
  for (int h = 16; h >= 1; h /= 2) {
    float v = __shfl_xor_sync(0xffffffffu, m, h);
    m = v > m ? v : m;
  }
  return m;
}

// softmaxWarp is a softmax of n values in memory, by the threads of a warp.
DEV void softmaxWarp(float *x, int n) {
  float m = minusInf();
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 32) m = greater(m, x[i]);
  m = highest(m);
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 32) x[i] = exp32(sub(x[i], m));
  float k = quo(1.0f, rsumWarp<Sum>(x, n));
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 32) x[i] = mul(x[i], k);
  __syncwarp();
}

enum { NONE, PERSISTENT, PREFIX, PAIR };

// Landmark names the events whose key and value a slot holds after a row, as rows from
// 1, or 0 for those from before.
struct Landmark {
  int key, value;
  float score;
};

// place moves slot m on by the e-th event, of row own, whose scores are given.
DEV void place(Landmark &x, int own, int e, int m, int M, int mode, int gated, float threshold, const float *score) {
  if (mode == PERSISTENT && score[m] > x.score && !(gated && score[m] < threshold)) x = Landmark{own, own, score[m]};
  if (mode < PREFIX || e > M) return;
  if (m == e - 1) {
    x = Landmark{own, own, minusInf()};
#pragma unroll 1
    for (int i = 0; i < M; i++) x.score = greater(x.score, score[i]);
  }
  if (mode == PAIR && m + 2 == e) x.value = own;
}

// Scores are the shared memory of attend.
struct Scores {
  float p[64], m[2];
  u32 live[2];
};

// attend is attention (numerics.md 7) by a CTA of (32, 2) threads over the slots in
// some key blocks that seen says are visible. It returns the log mass.
template <class S, class K, class V> DEV float attend(Scores &s, float *dst, const float *q, int d, float scale, int blocks, const S &seen, const K &key, const V &value) {
  int lane = threadIdx.x, w = threadIdx.y, j = w * 32 + lane;
  float top = minusInf(), sum = 0.0f;
  bool any = false;
#pragma unroll 1
  for (int c = j; c < d; c += 64) dst[c] = 0.0f;
#pragma unroll 1
  for (int b = 0; b < blocks; b++) {
    bool visible = seen(b * 64 + j);
    float score = visible ? mul(dot(q, key(b * 64 + j), d), scale) : minusInf();
    u32 live = __ballot_sync(0xffffffffu, visible);
    float m = highest(score == score ? score : minusInf()); // the sum lets a NaN through
    if (lane == 0) {
      s.m[w] = m;
      s.live[w] = live;
    }
    __syncthreads();
    m = s.m[1] > s.m[0] ? s.m[1] : s.m[0];
    s.p[j] = visible ? exp32(sub(score, m)) : 0.0f;
    __syncthreads();
    if (s.live[0] | s.live[1]) {
      any = true;
      float l = tree(add(s.p[lane], s.p[lane + 32])), next = greater(top, m), al = exp32(sub(top, next)), be = exp32(sub(m, next));
      sum = fma32(l, be, mul(sum, al));
      top = next;
#pragma unroll 1
      for (int c = j; c < d; c += 64) {
        float acc = 0.0f;
#pragma unroll 1
        for (int half = 0; half < 2; half++)
#pragma unroll 1
          for (u32 left = s.live[half]; left; left &= left - 1) {
            int i = half * 32 + __ffs(left) - 1;
            acc = fma32(s.p[i], value(b * 64 + i)[c], acc);
          }
        dst[c] = fma32(add(0.0f, acc), be, mul(dst[c], al)); // a chain may end at -0
      }
    }
    __syncthreads();
  }
  if (!any) return top;
  float k = quo(1.0f, sum);
#pragma unroll 1
  for (int c = j; c < d; c += 64) dst[c] = mul(dst[c], k);
  return add(top, log32(sum));
}
