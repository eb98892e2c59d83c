// Landmarks of an archive, and reads that are used again (docs/numerics.md 16.1, 16.2
// and 16.5). Which event a slot holds is written down row by row; the slots themselves
// change after all rows of a part of a pass have read.
#include "archive.cuh"

// placeLandmarks goes over the rows of a segment for a slot of an archive head.
// grid (slots, archive heads, segments).
KERNEL placeLandmarks(Past p, int M, int mode, int gated, float threshold, const float *l, Landmark *marks) {
  int m = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y, A = gridDim.y, seg = blockIdx.z;
  if (m >= M) return;
  Landmark x = {0, 0, p.out(seg, LAND_SCORE)[a * M + m]};
  int end = p.end(seg);
#pragma unroll 1
  for (int r = p.begin(seg); r < end; r++) {
    int e = p.events(r), own = r - p.row0 + 1;
    i64 cell = ((i64)(r - p.row0) * A + a) * M;
    if (e > 0) place(x, own, e, m, M, mode, gated, threshold, l + cell);
    marks[cell + m] = x;
  }
}

// weighLandmarks writes the weights of the slots: a warp per row and query head.
KERNEL __launch_bounds__(128) weighLandmarks(Past p, int M, int A, float scale, float temperature, View q, const Landmark *marks, float *weights) {
  int t = blockIdx.x * 4 + threadIdx.y, r = p.row0 + t / p.hq, h = t % p.hq;
  if (t >= p.rows * p.hq || p.events(r) == 0) return;
  int a = h / (p.hq / A), seg = p.segOf[r];
  const Landmark *mark = marks + ((i64)(r - p.row0) * A + a) * M;
  const float *x = q.row(r * p.hq + h);
  float *w = weights + (i64)t * M;
#pragma unroll 1
  for (int m = threadIdx.x; m < M; m += 32) {
    Vec key = mark[m].key > 0 ? p.address(seg, a / (A / p.heads), p.row0 + mark[m].key - 1) : straight(p.out(seg, LAND_KEY) + (i64)(a * M + m) * p.d);
    float e = mul(mul(dot(x, key, p.d), scale), temperature);
    w[m] = mark[m].score != minusInf() ? e : -1e9f;
  }
  softmaxWarp(w, M);
}

// recall blends the landmarks into a response: a thread per component, rows and query
// heads on the second axis. mix [A] is 0 where the weight is 1.
KERNEL recall(Past p, int M, int A, int lexical, const int *again, const float *mix, View dst, const Landmark *marks, const float *weights) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= p.d) return;
#pragma unroll 1
  for (int t = blockIdx.y; t < p.rows * p.hq; t += gridDim.y) {
    int r = p.row0 + t / p.hq, h = t % p.hq, a = h / (p.hq / A), seg = p.segOf[r], kh = a / (A / p.heads);
    if (p.events(r) == 0 || (again && again[seg])) continue;
    const Landmark *mark = marks + ((i64)(r - p.row0) * A + a) * M;
    float y = 0.0f, w = mix ? sigmoid(mix[a]) : 1.0f;
    bool filled = false;
#pragma unroll 1
    for (int b = 0; b < M; b += 128) {
      float acc = 0.0f;
#pragma unroll 1
      for (int m = b; m < min(b + 128, M); m++) {
        int e = p.row0 + mark[m].value - 1;
        float v;
        if (mark[m].value > 0)
          v = lexical ? p.address(seg, kh, e)[c] : p.content(seg, kh, e)[c];
        else
          v = p.out(seg, LAND_VALUE)[(i64)(a * M + m) * p.d + c];
        filled = filled || mark[m].score != minusInf();
        acc = fma32(weights[(i64)t * M + m], v, acc);
      }
      y = add(y, acc);
    }
    float *d = dst.row(r * p.hq + h);
    if (filled) d[c] = fma32(w, y, mul(sub(1.0f, w), d[c]));
  }
}

// keepLandmarks moves the slots on to the last row of a segment: a thread per
// component, slots of all archive heads on the second axis.
KERNEL keepLandmarks(Past p, int M, int A, int lexical, const Landmark *marks) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, seg = blockIdx.z, end = p.end(seg);
  if (c >= p.d || p.begin(seg) >= end) return;
#pragma unroll 1
  for (int i = blockIdx.y; i < M * A; i += gridDim.y) {
    int kh = i / M / (A / p.heads);
    Landmark x = marks[(i64)(end - 1 - p.row0) * A * M + i];
    int key = p.row0 + x.key - 1, value = p.row0 + x.value - 1;
    if (x.key > 0) p.out(seg, LAND_KEY)[(i64)i * p.d + c] = p.address(seg, kh, key)[c];
    if (x.value > 0) p.out(seg, LAND_VALUE)[(i64)i * p.d + c] = lexical ? p.address(seg, kh, value)[c] : p.content(seg, kh, value)[c];
    if (c == 0) p.out(seg, LAND_SCORE)[i] = x.score;
  }
}

// findReuse decides whether the last read of a segment of one row is good enough: a
// warp per segment.
KERNEL __launch_bounds__(32) findReuse(Past p, int stride, int close, float closeness, View q, int *again) {
  int seg = blockIdx.x, r = p.segs[seg].row, slot = p.segs[seg].slot;
  bool use = p.segs[seg].rows == 1 && p.events(r) > 0 && p.out(seg, READ_MARK)[0] != 0.0f;
  if (use && slot % stride == 0) { // the same for all threads
    bool far = !close;
#pragma unroll 1
    for (int h = threadIdx.x; h < p.hq; h += 32)
      far = far || cosine(q.row(r * p.hq + h), p.out(seg, READ_QUERY) + h * p.d, p.d) < closeness;
    use = !__any_sync(0xffffffffu, far);
  }
  if (threadIdx.x == 0) again[seg] = use;
}

// keepReads keeps the read of a segment of one row, and forgets it after a pass of
// more. grid (components, query heads, segments).
KERNEL keepReads(Past p, View q, View dst, const int *again) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, seg = blockIdx.z, n = p.segs[seg].rows, r = p.segs[seg].row;
  if (c >= p.d) return;
  bool one = n == 1, read = one && p.events(r) > 0 && !again[seg];
  if (read || !one) {
    p.out(seg, READ_QUERY)[h * p.d + c] = one ? q.row(r * p.hq + h)[c] : 0.0f;
    p.out(seg, READ_VALUE)[h * p.d + c] = one ? dst.row(r * p.hq + h)[c] : 0.0f;
  }
  if (c > 0 || h > 0) return;
  float *mark = p.out(seg, READ_MARK), count = mark[1];
  if (read || !one) mark[0] = one ? 1.0f : 0.0f;
#pragma unroll 1
  for (int i = 0; i < n; i++)
    if (one ? read : p.events(r + i) > 0) count = add(count, 1.0f);
  mark[1] = count;
}
