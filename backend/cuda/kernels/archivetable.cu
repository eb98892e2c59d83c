// The exact tier: a table of original keys and values per query head (docs/numerics.md
// 16.3). Which event a slot holds is written down row by row, so that all rows of a
// part of a pass read at once; the slots themselves change after that.
#include "archive.cuh"

// Held words [rows, hq, slots] say what a slot has after a row: twice the row of the
// part, from 1, whose event it is, or 0 for what was there before, and 1 more if it
// is filled.

DEV Vec heldKey(const Past &p, int seg, int kh, int word, int cell) {
  return word > 1 ? p.key(seg, kh, p.row0 + word / 2 - 1) : straight(p.out(seg, TABLE_KEY) + (i64)cell * p.d);
}
DEV Vec heldValue(const Past &p, int seg, int kh, int word, int cell) {
  return word > 1 ? p.content(seg, kh, p.row0 + word / 2 - 1) : straight(p.out(seg, TABLE_VALUE) + (i64)cell * p.d);
}

// admit is DOT(x/|x|, y).
DEV float admit(const Vec &x, const float *y, int d) {
  float n = quo(1.0f, greater(length(rsum<Squares>(x, d)), 1e-12f)), total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < d; b += 128) {
    float acc = 0.0f;
#pragma unroll 4
    for (int c = b; c < min(b + 128, d); c++) acc = fma32(mul(x[c], n), y[c], acc);
    total = add(total, acc);
  }
  return total;
}

// scoreEvent: a thread per head and row. bias has no memory where the score is the
// cosine of the event's key and the query.
KERNEL scoreEvent(Past p, View q, const float *admKey, const float *admValue, const float *bias, float *scores) {
  int h = blockIdx.x * blockDim.x + threadIdx.x;
  if (h >= p.hq) return;
#pragma unroll 1
  for (int t = blockIdx.y; t < p.rows; t += gridDim.y) {
    int r = p.row0 + t, seg = p.segOf[r], kh = h / (p.hq / p.heads);
    if (p.events(r) == 0) continue;
    float score;
    if (bias) {
      score = admit(p.address(seg, kh, r), admKey + h * p.d, p.d);
      score = add(add(score, admit(p.content(seg, kh, r), admValue + h * p.d, p.d)), bias[h]);
    } else {
      score = cosine(p.key(seg, kh, r), q.row(r * p.hq + h), p.d);
    }
    scores[(i64)t * p.hq + h] = score;
  }
}

// scoreSets writes the cosines with the codes of the sets, of the events' keys or of
// the queries. grid (sets, heads, rows).
KERNEL scoreSets(Past p, const float *codes, int sets, int queries, View q, float *to) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y;
  if (i >= sets) return;
#pragma unroll 1
  for (int t = blockIdx.z; t < p.rows; t += gridDim.z) {
    int r = p.row0 + t;
    if (!queries && p.events(r) == 0) continue;
    Vec x = queries ? straight(q.row(r * p.hq + h)) : p.key(p.segOf[r], h / (p.hq / p.heads), r);
    to[((i64)t * p.hq + h) * sets + i] = cosine(x, codes + ((i64)h * sets + i) * p.d, p.d);
  }
}

// Write is how events enter a table; chosen [rows, hq] are their sets, 0 if they may
// go anywhere.
struct Write {
  const float *scores;
  const int *chosen;
  int *held;
  int slots, ways, fifo;
  float threshold, admission, diversity, recency;
};

// writeTable goes over the rows of a segment: a warp per head. grid (heads, segments).
KERNEL __launch_bounds__(32) writeTable(Past p, Write o) {
  int h = blockIdx.x, seg = blockIdx.y, lane = threadIdx.x, kh = h / (p.hq / p.heads), slots = o.slots;
  float *score = p.out(seg, TABLE_SCORE) + (i64)h * slots, *age = p.out(seg, TABLE_AGE) + (i64)h * slots, *turn = p.out(seg, TABLE_NEXT) + h;
  int begin = p.begin(seg), end = p.end(seg);
#pragma unroll 1
  for (int r = begin; r < end; r++) {
    i64 t = (i64)(r - p.row0) * p.hq + h;
    int *now = o.held + t * slots;
#pragma unroll 1
    for (int i = lane; i < slots; i += 32) now[i] = r > begin ? now[i - (i64)p.hq * slots] : score[i] != minusInf() ? 1 : 0;
    __syncwarp();
    int e = p.events(r);
    if (e == 0 || !(o.scores[t] >= o.threshold)) continue;
    float step = (float)e, grade = o.scores[t];
    int to = -1;
    if (o.fifo) {
      to = max(0, min((int)*turn, slots - 1));
      __syncwarp();
      if (lane == 0) *turn = (float)((to + 1) % slots);
    } else {
      int from = o.chosen ? o.chosen[t] * o.ways : 0, behind = o.chosen ? from + o.ways : slots;
      Vec key = p.key(seg, kh, r);
      float near = minusInf(), low = 0.0f;
#pragma unroll 1
      for (int b = from; b < behind; b += 32) {
        int i = b + lane;
        bool filled = i < behind && (now[i] & 1);
        if (filled) near = greater(near, cosine(key, heldKey(p, seg, kh, now[i], h * slots + i), p.d));
        u32 empty = __ballot_sync(0xffffffffu, i < behind && !filled);
        if (to < 0 && empty) to = b + __ffs(empty) - 1;
      }
      near = highest(near);
      grade = add(mul(o.admission, grade), mul(o.diversity, near != minusInf() ? sub(1.0f, near) : 2.0f));
      if (to < 0) {
#pragma unroll 1
        for (int i = from; i < behind; i++) {
          float x = sub(score[i], quo(o.recency, add(1.0f, sub(step, age[i]))));
          if (to < 0 || x < low) to = i, low = x;
        }
        if (!(grade > low)) continue;
      }
    }
    __syncwarp();
    if (lane == 0) {
      score[to] = grade;
      age[to] = step;
      now[to] = 2 * (r - p.row0 + 1) + (grade != minusInf() ? 1 : 0);
    }
    __syncwarp();
  }
}

// Look is among which n slots a read looks: those of probe sets per row and head, or
// all if probe is 0.
struct Look {
  const int *sets, *held;
  int n, slots, ways, probe;
  __device__ __forceinline__ int slot(i64 t, int c) const { return probe > 0 ? sets[t * probe + c / ways] * ways + c % ways : c; }
};

// nearSlots writes the cosines of the queries and the filled candidates.
// grid (candidates, heads, rows).
KERNEL nearSlots(Past p, Look o, View q, float *near) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, kh = h / (p.hq / p.heads);
  if (c >= o.n) return;
#pragma unroll 1
  for (int row = blockIdx.z; row < p.rows; row += gridDim.z) {
    int r = p.row0 + row, seg = p.segOf[r];
    i64 t = (i64)row * p.hq + h;
    int i = o.slot(t, c), word = o.held[t * o.slots + i];
    if (word & 1) near[t * o.n + c] = cosine(q.row(r * p.hq + h), heldKey(p, seg, kh, word, h * o.slots + i), p.d);
  }
}

// pickSlots lists the slots that a read takes, with their weights in near, and writes
// the weight of the response: a warp per row and head. A list begins with its length,
// and a weight is read only where there are several.
KERNEL __launch_bounds__(128) pickSlots(Past p, Look o, int soft, float temperature, float steepness, float least, const float *mix, View weight, float *near, int *list) {
  int t = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
  if (t >= p.rows * p.hq) return;
  int h = t % p.hq, best = -1, count = 0, *to = list + (i64)t * (o.n + 1);
  float *x = near + (i64)t * o.n, confidence = -1.0f;
#pragma unroll 1
  for (int b = 0; b < o.n; b += 32) {
    int c = b + lane, i = c < o.n ? o.slot(t, c) : 0;
    bool filled = c < o.n && (o.held[(i64)t * o.slots + i] & 1);
    float v = filled ? x[c] : 0.0f;
    u32 all = __ballot_sync(0xffffffffu, filled);
#pragma unroll 1
    for (u32 left = all; left; left &= left - 1) { // the first one may be NaN, and stays
      int j = __ffs(left) - 1;
      float y = __shfl_sync(0xffffffffu, v, j);
      int k = __shfl_sync(0xffffffffu, i, j);
      if (best < 0 || y > confidence) best = k, confidence = y;
    }
    if (soft && filled) {
      int k = count + __popc(all & ((1u << lane) - 1));
      x[k] = mul(temperature, v);
      to[1 + k] = i;
    }
    count += __popc(all);
  }
  if (!soft) {
    count = best >= 0;
    if (lane == 0 && count) to[1] = best;
  }
  __syncwarp();
  if (soft && count > 0) softmaxWarp(x, count);
  if (lane > 0) return;
  to[0] = count;
  weight.flat(p.row0 + t / p.hq)[h] = confidence <= -0.5f ? 0.0f : sigmoid(add(mix[h], mul(steepness, sub(confidence, least))));
}

// readSlots writes the responses. grid (components, heads, rows).
KERNEL readSlots(Past p, Look o, int soft, View dst, const float *near, const int *list) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, kh = h / (p.hq / p.heads);
  if (c >= p.d) return;
#pragma unroll 1
  for (int row = blockIdx.z; row < p.rows; row += gridDim.z) {
    int r = p.row0 + row, seg = p.segOf[r];
    i64 t = (i64)row * p.hq + h;
    const int *now = o.held + t * o.slots, *to = list + t * (o.n + 1);
    int n = to[0];
    float total = 0.0f;
#pragma unroll 1
    for (int b = 0; b < n; b += 128) {
      float acc = 0.0f;
#pragma unroll 1
      for (int k = b; k < min(b + 128, n); k++) {
        int i = to[1 + k];
        float v = heldValue(p, seg, kh, now[i], h * o.slots + i)[c];
        acc = soft ? fma32(near[t * o.n + k], v, acc) : v;
      }
      total = soft ? add(total, acc) : acc;
    }
    dst.row(r * p.hq + h)[c] = total;
  }
}

// attendTable: a CTA per query head and row.
KERNEL __launch_bounds__(64) attendTable(Past p, Look o, float scale, View q, View dst, View weight) {
  __shared__ Scores s;
  int h = blockIdx.x, kh = h / (p.hq / p.heads);
#pragma unroll 1
  for (int row = blockIdx.y; row < p.rows; row += gridDim.y) {
    int r = p.row0 + row, seg = p.segOf[r];
    const int *now = o.held + ((i64)row * p.hq + h) * o.slots;
    float mass = attend(
        s, dst.row(r * p.hq + h), q.row(r * p.hq + h), p.d, scale, (o.slots + 63) / 64, [&](int i) { return i < o.slots && (now[i] & 1); },
        [&](int i) { return heldKey(p, seg, kh, now[i], h * o.slots + i); }, [&](int i) { return heldValue(p, seg, kh, now[i], h * o.slots + i); });
    if (threadIdx.x == 0 && threadIdx.y == 0) weight.flat(r)[h] = mass;
  }
}

// keepTable moves the slots on to the last row of a segment: a thread per component,
// slots of all heads on the second axis.
KERNEL keepTable(Past p, int slots, const int *held) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, seg = blockIdx.z, end = p.end(seg);
  if (c >= p.d || p.begin(seg) >= end) return;
#pragma unroll 1
  for (int cell = blockIdx.y; cell < p.hq * slots; cell += gridDim.y) {
    int kh = cell / slots / (p.hq / p.heads), word = held[(i64)(end - 1 - p.row0) * p.hq * slots + cell];
    if (word < 2) continue;
    int r = p.row0 + word / 2 - 1;
    p.out(seg, TABLE_KEY)[(i64)cell * p.d + c] = p.key(seg, kh, r)[c];
    p.out(seg, TABLE_VALUE)[(i64)cell * p.d + c] = p.content(seg, kh, r)[c];
  }
}
