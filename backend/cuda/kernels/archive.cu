// Attention over a window, and the archive of decayed sums behind it
// (docs/numerics.md 16.1 and 16.2). Everything but the sums themselves is computed
// for all rows of a part of a pass at once.
#include "archive.cuh"

// archiveCarry copies parts of a layer's state, from part first on, to where this
// pass may change it; before a sequence's first row nothing is there, and scores say
// so. grid (floats, parts, segments).
KERNEL archiveCarry(Past p, int first) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, part = first + blockIdx.y, seg = blockIdx.z;
  const Archive &a = p.archives[seg];
  int n = a.len[part];
  if (i >= n) return;
  float v = part == LAND_SCORE || part == TABLE_SCORE ? minusInf() : 0.0f;
  if (p.segs[seg].slot > 0) v = global(a.in[part])[(i64)p.layer * n + i];
  p.out(seg, part)[i] = v;
}

// first says whether x comes before y among the largest: NaN comes last, and the
// lower index before an equal one. An index of -1 is none.
DEV bool first(float x, int i, float y, int j) {
  if (i < 0 || j < 0) return i >= 0;
  if (x != x || y != y) return x == x || (y != y && i < j);
  return x > y || (x == y && i < j);
}

// choose marks the k largest of each list of n values and writes their indices in
// ascending order: a warp per list, of which each row has heads. Rows without an archive
// have no values unless all have: the first k stand for their largest.
KERNEL __launch_bounds__(128) choose(Past p, const float *values, int *marks, int *to, int heads, int n, int k, int all) {
  int r = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
  if (r >= p.rows * heads) return;
  const float *x = values + (i64)r * n;
  marks += (i64)r * n, to += (i64)r * k;
  if (!all && p.events(p.row0 + r / heads) == 0) {
#pragma unroll 1
    for (int i = lane; i < k; i += 32) to[i] = i;
    return;
  }
#pragma unroll 1
  for (int i = lane; i < n; i += 32) marks[i] = 0;
#pragma unroll 1
  for (int c = 0; c < k; c++) {
    float best = 0.0f;
    int at = -1;
#pragma unroll 1
    for (int i = lane; i < n; i += 32)
      if (!marks[i] && first(x[i], i, best, at)) best = x[i], at = i;
#pragma unroll
    for (int h = 16; h >= 1; h /= 2) {
      float v = __shfl_xor_sync(0xffffffffu, best, h);
      int i = __shfl_xor_sync(0xffffffffu, at, h);
      if (first(v, i, best, at)) best = v, at = i;
    }
    if ((at & 31) == lane) marks[at] = 1; // only its own lane reads a mark
  }
  int count = 0;
#pragma unroll 1
  for (int b = 0; b < n; b += 32) {
    bool in = b + lane < n && marks[b + lane];
    u32 all = __ballot_sync(0xffffffffu, in);
    if (in) to[count + __popc(all & ((1u << lane) - 1))] = b + lane;
    count += __popc(all);
  }
}

// put writes component c of a window slot.
DEV void put(const Vec &to, int c, float v) { ((float *)to.p)[(c >> to.shift) * to.step + (c & ((1 << to.shift) - 1))] = v; }

// putWindow stores rows; raw has no memory where addresses are the keys.
KERNEL putWindow(Past p, View k, View v, View raw) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.heads * p.d) return;
  int h = i / p.d, c = i % p.d;
#pragma unroll 1
  for (int r = blockIdx.y; r < p.rows; r += gridDim.y) {
    int seg = p.segOf[r], j = p.archives[seg].slot + r - p.segs[seg].row;
    put(p.at(seg, 2 * p.layer, h, j), c, k.row(r * p.heads + h)[c]);
    put(p.at(seg, 2 * p.layer + 1, h, j), c, v.row(r * p.heads + h)[c]);
    if (raw.p) put(p.at(seg, p.archives[seg].raw + p.layer, h, j), c, raw.row(r * p.heads + h)[c]);
  }
}

// windowAttention: a CTA per query head and row. mass has no memory if it is not
// asked for.
KERNEL __launch_bounds__(64) windowAttention(Past p, View dst, View mass, View q, float scale) {
  __shared__ Scores s;
  int h = blockIdx.x, kh = h / (p.hq / p.heads);
#pragma unroll 1
  for (int r = blockIdx.y; r < p.rows; r += gridDim.y) {
    int seg = p.segOf[r], own = p.archives[seg].slot + r - p.segs[seg].row;
    float m = attend(
        s, dst.row(r * p.hq + h), q.row(r * p.hq + h), p.d, scale, (own >> 6) + 1, [&](int i) { return i <= own && (i > own - p.window || i < p.sinks); },
        [&](int i) { return p.at(seg, 2 * p.layer, kh, i); }, [&](int i) { return p.at(seg, 2 * p.layer + 1, kh, i); });
    if (mass.p && threadIdx.x == 0 && threadIdx.y == 0) mass.flat(r)[h] = m;
  }
}

// scoreCodes has a thread per code, head and row, of archive heads with the address
// of their event, or of query heads with their query. It writes DOT(x, c)·scale to l
// and exp(clip(·)) of it to w. grid (codes, heads, rows), block (32, W).
KERNEL scoreCodes(Past p, const float *codes, int A, int M, float scale, int features, int queries, View q, float *l, float *w) {
  int m = (blockIdx.x * blockDim.y + threadIdx.y) * 32 + threadIdx.x, h = blockIdx.y, n = gridDim.y;
#pragma unroll 1
  for (int t = blockIdx.z; t < p.rows; t += gridDim.z) {
    int r = p.row0 + t;
    if (p.events(r) == 0) continue;
    Vec x = queries ? straight(q.row(r * n + h)) : p.address(p.segOf[r], h / (A / p.heads), r);
    float squares = 0.0f;
    if (features) { // a warp's threads have one x
#pragma unroll 1
      for (int b = 0; b < p.d; b += 1024) {
        float lane = 0.0f;
#pragma unroll 1
        for (int i = b + threadIdx.x; i < min(b + 1024, p.d); i += 32) lane = fma32(x[i], x[i], lane);
        squares = add(squares, tree(lane));
      }
      squares = mul(squares, mul(scale, 0.5f));
    }
    if (m >= M) continue;
    float score = mul(dot(x, codes + ((i64)(h / (n / A)) * M + m) * p.d, p.d), scale);
    i64 cell = ((i64)t * n + h) * M + m;
    l[cell] = score;
    w[cell] = exp32(less(greater(features ? sub(score, squares) : score, -20.0f), 10.0f));
  }
}

// Term is what one event does to the sums of a code and a scale, and what a read
// after it takes of them: num = FMA(add, v, num·kept), times due. kept is -1 where
// nothing is written.
struct Term {
  float add, kept, due, den;
};

// codeSums goes over the rows of a segment for a code of an archive head: it keeps the
// denominators and writes a Term per row and scale. power holds per scale the decay to
// the power of 0 to powers-1, and then the gains. grid (codes, archive heads, segments).
KERNEL codeSums(Past p, int M, int S, int lazy, int gated, float threshold, const float *power, int powers, const float *l, const float *w, const int *marks, Term *terms) {
  int m = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y, A = gridDim.y, seg = blockIdx.z;
  if (m >= M) return;
  float *den = p.out(seg, DEN) + (i64)(a * M + m) * S, *last = p.out(seg, LAST) + a * M + m;
  int end = p.end(seg);
#pragma unroll 1
  for (int r = p.begin(seg); r < end; r++) {
    int e = p.events(r);
    if (e == 0) continue;
    i64 cell = ((i64)(r - p.row0) * A + a) * M + m;
    bool shut = gated && l[cell] < threshold, skip = lazy && (shut || !marks[cell]);
    float weight = shut ? 0.0f : w[cell];
    int before = lazy ? max(0, min(e - (int)*last, powers - 1)) : 1, after = lazy && skip ? before : 0;
#pragma unroll 1
    for (int s = 0; s < S; s++) {
      Term x = {mul(weight, power[S * powers + s]), power[s * powers + before], power[s * powers + after], 0.0f};
      float v = den[s];
      if (skip)
        x.kept = -1.0f;
      else
        den[s] = v = add(mul(v, x.kept), x.add);
      x.den = mul(v, x.due);
      terms[cell * S + s] = x;
    }
    if (lazy && !skip) *last = (float)e;
  }
}

// mixScales writes the softmax over the scales of a code: a thread per place in the
// list of codes (0: all), query head and row. z has the queries' part of a correction
// c [A, rank, S]. grid (places, query heads, rows).
KERNEL mixScales(float *mix, const float *logits, const int *list, const float *z, const float *c, int rows, int n, int M, int S, int A, int rank) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, hq = gridDim.y, a = h / (hq / A);
  if (i >= n) return;
#pragma unroll 1
  for (int t = blockIdx.z; t < rows; t += gridDim.z) {
    i64 r = (i64)t * hq + h;
    const float *x = logits + ((i64)a * M + (list ? list[r * n + i] : i)) * S;
    float *d = mix + (r * n + i) * S, m = minusInf();
#pragma unroll 1
    for (int s = 0; s < S; s++) {
      float v = x[s];
      if (rank > 0) v = add(v, dot(z + r * rank, Column{c + (i64)a * rank * S + s, S}, rank));
      d[s] = v;
      m = greater(m, v);
    }
#pragma unroll 1
    for (int s = 0; s < S; s++) d[s] = exp32(sub(d[s], m));
    float k = quo(1.0f, rsum<Sum>(d, S));
#pragma unroll 1
    for (int s = 0; s < S; s++) d[s] = mul(d[s], k);
  }
}

// Read is what a read takes of n codes: those in list (0: all) with weights phi and
// mixtures of scales, of every row if each is set; norm with one division.
struct Read {
  const int *list;
  const float *mix;
  const Term *terms;
  float *phi, *norm;
  int n, M, S, A, perCode, each;
};

// weighCodes writes the weights of the codes of a read, and, with one division, 1
// over the weighted sum of denominators: a warp per row and query head.
KERNEL __launch_bounds__(128) weighCodes(Past p, Read o, const float *l, const float *w) {
  int r = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x, t = r / p.hq, h = r % p.hq, n = o.n;
  if (r >= p.rows * p.hq || p.events(p.row0 + t) == 0) return;
  float *phi = o.phi + (i64)r * n;
  const int *codes = o.list + (i64)r * n;
  const float *from = (o.perCode ? l : w) + (i64)r * o.M;
#pragma unroll 1
  for (int i = lane; i < n; i += 32) phi[i] = from[o.list ? codes[i] : i];
  if (o.perCode) {
    softmaxWarp(phi, n);
    return;
  }
  const float *x = o.mix + (i64)(o.each ? r : h) * n * o.S;
  const Term *terms = o.terms + ((i64)t * o.A + h / (p.hq / o.A)) * o.M * o.S;
  float total = 0.0f, acc = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 32) {
    float d = 0.0f, f = 0.0f;
    if (b + lane < n) {
      int i = b + lane;
      const Term *to = terms + (i64)(o.list ? codes[i] : i) * o.S;
      d = phi[i];
#pragma unroll 1
      for (int s0 = 0; s0 < o.S; s0 += 128) {
        float g = 0.0f;
#pragma unroll 1
        for (int s = s0; s < min(s0 + 128, o.S); s++) g = fma32(x[i * o.S + s], to[s].den, g);
        f = add(f, g);
      }
    }
    int used = min(32, n - b);
#pragma unroll 1
    for (int i = 0; i < used; i++) acc = fma32(__shfl_sync(0xffffffffu, d, i), __shfl_sync(0xffffffffu, f, i), acc);
    if (((b + 32) & 127) == 0 || b + 32 >= n) {
      total = add(total, acc);
      acc = 0.0f;
    }
  }
  if (lane == 0) o.norm[r] = quo(1.0f, greater(total, 1e-8f));
}

// archiveScan goes over the rows of a segment for a component of an archive head: it
// keeps the numerators, and writes the responses of the head's queries. again says of
// which segments the last read is used again; z and u [A, rank, D] are of the
// correction. grid (components, archive heads, segments).
KERNEL archiveScan(Past p, Read o, View dst, int lexical, const int *again, const float *z, const float *u, int rank) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y, seg = blockIdx.z, group = p.hq / o.A, D = p.d, n = o.n, S = o.S;
  if (c >= D) return;
  float *num = p.out(seg, NUM) + (i64)a * o.M * S * D + c;
  int end = p.end(seg), kh = a / (o.A / p.heads);
#pragma unroll 1
  for (int r = p.begin(seg); r < end; r++) {
    if (p.events(r) == 0) {
#pragma unroll 1
      for (int h = a * group; h < (a + 1) * group; h++) dst.row(r * p.hq + h)[c] = 0.0f;
      continue;
    }
    const Term *terms = o.terms + ((i64)(r - p.row0) * o.A + a) * o.M * S;
    float v = lexical ? p.address(seg, kh, r)[c] : p.content(seg, kh, r)[c];
#pragma unroll 4
    for (int i = 0; i < o.M * S; i++) {
      float kept = terms[i].kept, x = num[(i64)i * D];
      if (kept != -1.0f) num[(i64)i * D] = fma32(terms[i].add, v, mul(x, kept));
    }
#pragma unroll 1
    for (int h = a * group; h < (a + 1) * group; h++) {
      float *out = dst.row(r * p.hq + h) + c;
      if (again && again[seg]) {
        *out = p.out(seg, READ_VALUE)[h * D + c];
        continue;
      }
      i64 t = (i64)(r - p.row0) * p.hq + h;
      const int *codes = o.list + t * n;
      const float *w = o.phi + t * n, *x = o.mix + (o.each ? t : h) * n * S;
      float resp = 0.0f;
#pragma unroll 1
      for (int b = 0; b < n; b += 128) {
        float acc = 0.0f;
#pragma unroll 1
        for (int i = b; i < min(b + 128, n); i++) {
          int m = o.list ? codes[i] : i;
          float f = 0.0f;
#pragma unroll 1
          for (int s0 = 0; s0 < S; s0 += 128) {
            float g = 0.0f;
#pragma unroll 1
            for (int s = s0; s < min(s0 + 128, S); s++) {
              const Term &y = terms[m * S + s];
              float e = mul(num[(i64)(m * S + s) * D], y.due);
              if (o.perCode) e = mul(e, quo(1.0f, greater(y.den, 1e-8f)));
              g = fma32(x[i * S + s], e, g);
            }
            f = add(f, g);
          }
          acc = fma32(w[i], f, acc);
        }
        resp = add(resp, acc);
      }
      if (!o.perCode) resp = mul(resp, o.norm[t]);
      if (rank > 0) resp = add(resp, dot(z + t * rank, Column{u + (i64)a * rank * D + c, D}, rank));
      *out = resp;
    }
  }
}
