// Attention over a window, and the archive of decayed sums behind it (docs/numerics.md
// 16.1 and 16.2). The rows of a pass are taken in parts, [row0, row0 + rows) of it, for
// which everything but the sums themselves is computed for all rows at once.

// carry copies parts of a layer's state (axis 1, from part first on) to where this pass
// may change it; before a sequence's first row nothing is there, and scores say so.
__kernel void carry(__global const int *status, ARCHIVES, uint layer, uint first) {
    if (FAILED(status)) return;
    uint i = get_global_id(0), part = first + get_global_id(1), seg = get_global_id(2), n = ARCHIVE(seg).len[part];
    if (i >= n) return;
    float v = part == LAND_SCORE || part == TABLE_SCORE ? -INFINITY : 0.0f;
    if (ROW(SEG(seg).first).slot > 0) v = FLOATS(ARCHIVE(seg).in[part])[(ulong)layer * n + i];
    OUT(seg, part)[i] = v;
}

// choose marks the k largest of each list of n values and writes their indices in
// ascending order; the lower index wins ties and NaN comes last. A work item per list.
__kernel void choose(__global const int *status, uint lists, uint n, uint k, __global float *part, ulong from, ulong marks_at, ulong to) {
    if (FAILED(status)) return;
    ulong r = get_global_id(0);
    if (r >= lists) return;
    __global const float *x = part + from + r * n;
    __global int *marks = (__global int *)part + marks_at + r * n, *list = (__global int *)part + to + r * k;
    for (uint i = 0; i < n; i++) marks[i] = 0;
    for (uint c = 0; c < k; c++) {
        int best = -1;
        for (uint i = 0; i < n; i++)
            if (!marks[i] && (best < 0 || x[i] > x[best] || (x[best] != x[best] && x[i] == x[i]))) best = i;
        marks[best] = 1;
    }
    for (uint i = 0, c = 0; i < n; i++)
        if (marks[i]) list[c++] = i;
}

// put_window stores rows: axis 0 components, 1 key heads, 2 rows.
__kernel void put_window(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, __global const float *k, View kv, __global const float *v, View vv,
                         int raw, __global const float *a, View av) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), h = get_global_id(1);
    ulong r = get_global_id(2);
    if (c >= D) return;
    uint seg = ROW(r).seg, j = ARCHIVE(seg).slot + (uint)(r - SEG(seg).first);
    WINDOW(seg, 2 * layer, h, j)[c] = k[row(kv, r * heads + h) + c];
    WINDOW(seg, 2 * layer + 1, h, j)[c] = v[row(vv, r * heads + h) + c];
    if (raw) WINDOW(seg, ARCHIVE(seg).raw + layer, h, j)[c] = a[row(av, r * heads + h) + c];
}

// window_attention has a group per head (axis 1) of a row (axis 2).
__kernel void window_attention(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, float scale, __global float *d, View dv,
                               int weigh, __global float *m, View mv, __global const float *q, View qv) {
    __local float s[PAGE], p[PAGE];
    __local uint live[PAGE];
    if (FAILED(status)) return;
    uint h = get_group_id(1), hq = get_num_groups(1), j = get_local_id(0), kh = h / (hq / heads);
    ulong r = get_group_id(2);
    uint seg = ROW(r).seg, own = ARCHIVE(seg).slot + (uint)(r - SEG(seg).first);
    d += row(dv, r * hq + h), q += row(qv, r * hq + h);
#define SEEN(i) ((i) <= own && ((i) + window > own || (i) < sinks))
#define K(i) WINDOW(seg, 2 * layer, kh, min(i, own))
#define V(i) WINDOW(seg, 2 * layer + 1, kh, min(i, own))
    ATTEND(own / PAGE + 1, SEEN, K, V)
    if (weigh && j == 0) m[row(mv, r) + h] = mass;
}

// score_codes has a work item per code (axis 0), head (axis 1) and row (axis 2), of
// archive heads with the address of their event, or of query heads with their query. It
// writes DOT(x, c)·scale to part at l, and exp(clip(·)) of it at w.
__kernel void score_codes(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, ulong row0, uint A, uint M,
                          __global const float *codes, View cv, float scale, int features, int queries, __global const float *q, View qv, __global float *part, ulong l, ulong w) {
    if (FAILED(status)) return;
    uint m = get_global_id(0), h = get_global_id(1), n = get_global_size(1);
    ulong r = get_global_id(2), cell = (r * n + h) * M + m;
    if (m >= M) return;
    r += row0;
    uint seg = ROW(r).seg;
    ulong first = SEG(seg).first;
    if (events(ROW(r).slot, window, sinks) == 0) return;
    __global const float *x = queries ? q + row(qv, r * n + h) : ADDRESS(h / (A / heads), first, r);
    float score = dot_(x, codes + cv.off + ((ulong)h / (n / A) * M + m) * D, D) * scale, e = score;
    if (features) e = e - squares_alone(x, D) * (scale / 2.0f);
    part[l + cell] = score;
    part[w + cell] = exp_(less(greater(e, -20.0f), 10.0f));
}

// Sum is what one event does to the sums of a code and a scale, and what a read after it
// takes of them: num = FMA(add, v, num·kept), times due. kept is -1 where nothing is
// written.
typedef struct {
    float add, kept, due, den;
} Sum;

// code_sums goes over the rows of a segment (axis 2) for a code (axis 0) of an archive head
// (axis 1): it keeps the denominators and writes a Sum per row and scale. power holds
// per scale the decay to the power of 0 to powers-1, and then the gains.
__kernel void code_sums(__global const int *status, ARCHIVES, uint layer, uint window, uint sinks, ulong row0, uint rows, uint M, uint S, int lazy, int gated, float threshold,
                        __global const float *power, ulong pat, uint powers, __global float *part, ulong l, ulong w, ulong marks, ulong sums) {
    if (FAILED(status)) return;
    uint m = get_global_id(0), a = get_global_id(1), A = get_global_size(1), seg = get_global_id(2);
    if (m >= M) return;
    __global float *den = OUT(seg, DEN) + (ulong)(a * M + m) * S, *last = OUT(seg, LAST) + a * M + m;
    power += pat;
    ulong first = SEG(seg).first, end = min(first + SEG(seg).rows, row0 + rows);
    for (ulong r = max(first, row0); r < end; r++) {
        uint e = events(ROW(r).slot, window, sinks);
        if (e == 0) continue;
        ulong cell = ((r - row0) * A + a) * M + m;
        bool shut = gated && part[l + cell] < threshold;
        bool skip = lazy && (shut || !((__global const int *)part)[marks + cell]);
        float weight = shut ? 0.0f : part[w + cell];
        uint before = lazy ? clamp((int)e - (int)*last, 0, (int)powers - 1) : 1, after = lazy ? skip ? before : 0 : 0;
        __global Sum *to = (__global Sum *)(part + sums) + cell * S;
        for (uint s = 0; s < S; s++) {
            Sum x = {weight * power[S * powers + s], power[s * powers + before], power[s * powers + after], 0.0f};
            if (skip)
                x.kept = -1.0f;
            else
                den[s] = den[s] * x.kept + x.add;
            x.den = den[s] * x.due;
            to[s] = x;
        }
        if (lazy && !skip) *last = (float)e;
    }
}

// mix_scales writes the softmax over the scales of a code: axis 0 places in the list of
// codes, 1 query heads, 2 rows.
__kernel void mix_scales(__global const int *status, uint n, uint M, uint S, uint A, uint rank, __global const float *logits, View lv, __global const float *c, View cv,
                         int listed, __global float *part, ulong list, ulong z, ulong mix) {
    if (FAILED(status)) return;
    uint i = get_global_id(0), h = get_global_id(1), hq = get_global_size(1), a = h / (hq / A);
    ulong r = get_global_id(2) * hq + h;
    if (i >= n) return;
    uint m = listed ? ((__global const int *)part)[list + r * n + i] : i;
    __global float *d = part + mix + (r * n + i) * S;
    for (uint s = 0; s < S; s++) {
        d[s] = logits[lv.off + ((ulong)a * M + m) * S + s];
        if (rank > 0) d[s] = d[s] + dot_rows(part + z + r * rank, rank, c + cv.off + (ulong)a * rank * S + s, S);
    }
    softmax_alone(d, S);
}

// weigh_codes writes the weights of the n codes of a read, a work item per row and query
// head, and, with one division, 1 over the weighted sum of denominators to norm.
__kernel void weigh_codes(__global const int *status, TABLES, uint window, uint sinks, ulong row0, uint rows, uint hq, uint n, uint M, uint S, uint A, int listed, int per_code,
                          __global float *part, ulong l, ulong w, ulong list, ulong mix, int each, ulong sums, ulong phi, ulong norm) {
    if (FAILED(status)) return;
    ulong r = get_global_id(0), t = r / hq;
    if (r >= rows * hq || events(ROW(row0 + t).slot, window, sinks) == 0) return;
    uint h = r % hq, a = h / (hq / A);
    __global float *d = part + phi + r * n;
    __global const int *codes = (__global const int *)part + list + r * n;
    for (uint i = 0; i < n; i++) d[i] = part[(per_code ? l : w) + r * M + (listed ? codes[i] : i)];
    if (per_code) {
        softmax_alone(d, n);
        return;
    }
    float total = 0.0f;
    __global const float *x = part + mix + (each ? r : h) * n * S;
    for (uint b = 0; b < n; b += KB) {
        float acc = 0.0f;
        for (uint i = b; i < min(b + KB, n); i++) {
            __global const Sum *to = (__global const Sum *)(part + sums) + ((t * A + a) * M + (listed ? codes[i] : i)) * S;
            float f = 0.0f;
            for (uint s0 = 0; s0 < S; s0 += KB) {
                float g = 0.0f;
                for (uint s = s0; s < min(s0 + KB, S); s++) g = fma(x[i * S + s], to[s].den, g);
                f = f + g;
            }
            acc = fma(d[i], f, acc);
        }
        total = total + acc;
    }
    part[norm + r] = 1.0f / greater(total, 1e-8f);
}

// scan goes over the rows of a segment (axis 2) for a component (axis 0) of an archive
// head (axis 1): it keeps the numerators, and writes the responses of the head's queries.
__kernel void scan(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, ulong row0, uint rows, uint hq, uint n, uint M, uint S,
                   int listed, int per_code, int lexical, int reuse, uint rank, __global const float *u, View uv, __global float *d, View dv,
                   __global float *part, ulong list, ulong z, ulong mix, int each, ulong sums, ulong phi, ulong norm, ulong again) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), a = get_global_id(1), A = get_global_size(1), seg = get_global_id(2), group = hq / A;
    if (c >= D) return;
    __global float *num = OUT(seg, NUM) + (ulong)a * M * S * D + c;
    ulong first = SEG(seg).first, end = min(first + SEG(seg).rows, row0 + rows);
    for (ulong r = max(first, row0); r < end; r++) {
        if (events(ROW(r).slot, window, sinks) == 0) {
            for (uint h = a * group; h < (a + 1) * group; h++) d[row(dv, r * hq + h) + c] = 0.0f;
            continue;
        }
        __global const Sum *to = (__global const Sum *)(part + sums) + ((r - row0) * A + a) * M * S;
        uint kh = a / (A / heads);
        float v = lexical ? ADDRESS(kh, first, r)[c] : CONTENT(kh, first, r)[c];
        for (uint i = 0; i < M * S; i++)
            if (to[i].kept != -1.0f) num[(ulong)i * D] = fma(to[i].add, v, num[(ulong)i * D] * to[i].kept);
        for (uint h = a * group; h < (a + 1) * group; h++) {
            __global float *out = d + row(dv, r * hq + h) + c;
            if (reuse && ((__global const int *)part)[again + seg]) {
                *out = OUT(seg, READ_VALUE)[h * D + c];
                continue;
            }
            ulong t = (r - row0) * hq + h;
            __global const int *codes = (__global const int *)part + list + t * n;
            __global const float *w = part + phi + t * n, *x = part + mix + (each ? t : h) * n * S;
            float resp = 0.0f;
            for (uint b = 0; b < n; b += KB) {
                float acc = 0.0f;
                for (uint i = b; i < min(b + KB, n); i++) {
                    uint m = listed ? codes[i] : i;
                    float f = 0.0f;
                    for (uint s0 = 0; s0 < S; s0 += KB) {
                        float g = 0.0f;
                        for (uint s = s0; s < min(s0 + KB, S); s++) {
                            Sum y = to[m * S + s];
                            float e = num[(ulong)(m * S + s) * D] * y.due;
                            if (per_code) e = e * (1.0f / greater(y.den, 1e-8f));
                            g = fma(x[i * S + s], e, g);
                        }
                        f = f + g;
                    }
                    acc = fma(w[i], f, acc);
                }
                resp = resp + acc;
            }
            if (!per_code) resp = resp * part[norm + t];
            if (rank > 0) resp = resp + dot_rows(part + z + t * rank, rank, u + uv.off + (ulong)a * rank * D + c, D);
            *out = resp;
        }
    }
}
