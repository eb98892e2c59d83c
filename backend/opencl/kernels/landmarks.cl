// Landmarks of an archive, and reads that are used again (docs/numerics.md 16.1, 16.2 and
// 16.5). Which event a slot holds is written down row by row; the slots themselves change
// after all rows of a part of a pass have read.

// place_landmarks goes over the rows of a segment (axis 2) for a slot (axis 0) of an archive
// head (axis 1).
__kernel void place_landmarks(__global const int *status, ARCHIVES, uint layer, uint window, uint sinks, ulong row0, uint rows, uint M, uint mode, int gated, float threshold,
                              __global float *part, ulong l, ulong marks) {
    if (FAILED(status)) return;
    uint m = get_global_id(0), a = get_global_id(1), A = get_global_size(1), seg = get_global_id(2);
    if (m >= M) return;
    Landmark x = {0, 0, OUT(seg, LAND_SCORE)[a * M + m]};
    ulong first = SEG(seg).first, end = min(first + SEG(seg).rows, row0 + rows);
    for (ulong r = max(first, row0); r < end; r++) {
        uint e = events(ROW(r).slot, window, sinks);
        ulong cell = ((r - row0) * A + a) * M;
        if (e > 0) x = place(x, r - row0 + 1, e, m, M, mode, gated, threshold, part + l + cell);
        ((__global Landmark *)(part + marks))[cell + m] = x;
    }
}

// weigh_landmarks writes the weights of the slots, a work item per row and query head.
__kernel void weigh_landmarks(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, ulong row0, uint rows, uint hq, uint M, uint A,
                              float scale, float temperature, __global const float *q, View qv, __global float *part, ulong marks, ulong weights) {
    if (FAILED(status)) return;
    ulong t = get_global_id(0), r = row0 + t / hq;
    if (t >= rows * hq || events(ROW(r).slot, window, sinks) == 0) return;
    uint h = t % hq, a = h / (hq / A), seg = ROW(r).seg;
    ulong first = SEG(seg).first;
    __global float *p = part + weights + t * M;
    q += row(qv, r * hq + h);
    for (uint m = 0; m < M; m++) {
        Landmark x = ((__global const Landmark *)(part + marks))[((r - row0) * A + a) * M + m];
        __global const float *key = OUT(seg, LAND_KEY) + (ulong)(a * M + m) * D;
        if (x.key > 0) key = ADDRESS(a / (A / heads), first, row0 + x.key - 1);
        float e = (dot_(q, key, D) * scale) * temperature;
        p[m] = x.score != -INFINITY ? e : -1e9f;
    }
    softmax_alone(p, M);
}

// recall blends the landmarks into a response: axis 0 components, 1 rows and query heads.
__kernel void recall(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, ulong row0, uint hq, uint M, uint A, int lexical, int reuse,
                     int mixed, __global const float *mix, View mv, __global float *d, View dv, __global float *part, ulong marks, ulong weights, ulong again) {
    if (FAILED(status)) return;
    uint c = get_global_id(0);
    ulong t = get_global_id(1), r = row0 + t / hq;
    if (c >= D || events(ROW(r).slot, window, sinks) == 0) return;
    uint h = t % hq, a = h / (hq / A), seg = ROW(r).seg, kh = a / (A / heads);
    ulong first = SEG(seg).first;
    if (reuse && ((__global const int *)part)[again + seg]) return;
    float y = 0.0f, w = mixed ? sigmoid(mix[mv.off + a]) : 1.0f;
    bool filled = false;
    for (uint b = 0; b < M; b += KB) {
        float acc = 0.0f;
        for (uint m = b; m < min(b + KB, M); m++) {
            Landmark x = ((__global const Landmark *)(part + marks))[((r - row0) * A + a) * M + m];
            __global const float *value = OUT(seg, LAND_VALUE) + (ulong)(a * M + m) * D;
            if (x.value > 0) {
                ulong e = row0 + x.value - 1;
                value = lexical ? ADDRESS(kh, first, e) : CONTENT(kh, first, e);
            }
            filled = filled || x.score != -INFINITY;
            acc = fma(part[weights + t * M + m], value[c], acc);
        }
        y = y + acc;
    }
    d += row(dv, r * hq + h);
    if (filled) d[c] = fma(w, y, (1.0f - w) * d[c]);
}

// keep_landmarks moves the slots on to the last row of a segment (axis 2): axis 0 components,
// 1 slots of all archive heads.
__kernel void keep_landmarks(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, ulong row0, uint rows, uint M, int lexical, __global float *part,
                             ulong marks) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), i = get_global_id(1), A = get_global_size(1) / M, seg = get_global_id(2), kh = i / M / (A / heads);
    ulong first = SEG(seg).first, end = min(first + SEG(seg).rows, row0 + rows);
    if (c >= D || max(first, row0) >= end) return;
    Landmark x = ((__global const Landmark *)(part + marks))[(end - 1 - row0) * A * M + i];
    if (x.key > 0) OUT(seg, LAND_KEY)[(ulong)i * D + c] = ADDRESS(kh, first, row0 + x.key - 1)[c];
    if (x.value > 0) OUT(seg, LAND_VALUE)[(ulong)i * D + c] = lexical ? ADDRESS(kh, first, row0 + x.value - 1)[c] : CONTENT(kh, first, row0 + x.value - 1)[c];
    if (c == 0) OUT(seg, LAND_SCORE)[i] = x.score;
}

// find_reuse decides for a segment (axis 0) of one row whether the last read is good enough.
__kernel void find_reuse(__global const int *status, ARCHIVES, uint layer, uint D, uint window, uint sinks, uint segs, uint hq, uint stride, int close_, float closeness,
                         __global const float *q, View qv, __global float *part, ulong again) {
    if (FAILED(status)) return;
    uint seg = get_global_id(0);
    if (seg >= segs) return;
    ulong r = SEG(seg).first;
    uint slot = ROW(r).slot;
    bool use = SEG(seg).rows == 1 && events(slot, window, sinks) > 0 && OUT(seg, READ_MARK)[0] != 0.0f;
    if (use && slot % stride == 0) {
        use = close_;
        for (uint h = 0; h < hq && use; h++) use = !(cosine(q + row(qv, r * hq + h), OUT(seg, READ_QUERY) + h * D, D) < closeness);
    }
    ((__global int *)part)[again + seg] = use;
}

// keep_reads keeps the read of a segment (axis 2) of one row, and forgets it after a
// pass of more: axis 0 components, 1 query heads.
__kernel void keep_reads(__global const int *status, ARCHIVES, uint layer, uint D, uint window, uint sinks, __global const float *q, View qv, __global const float *d, View dv,
                         __global float *part, ulong again) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), h = get_global_id(1), hq = get_global_size(1), seg = get_global_id(2), n = SEG(seg).rows;
    if (c >= D) return;
    ulong r = SEG(seg).first;
    uint slot = ROW(r).slot;
    bool one = n == 1, read = one && events(slot, window, sinks) > 0 && !((__global const int *)part)[again + seg];
    if (read || !one) {
        OUT(seg, READ_QUERY)[h * D + c] = one ? q[row(qv, r * hq + h) + c] : 0.0f;
        OUT(seg, READ_VALUE)[h * D + c] = one ? d[row(dv, r * hq + h) + c] : 0.0f;
    }
    if (c > 0 || h > 0) return;
    __global float *mark = OUT(seg, READ_MARK);
    if (read || !one) mark[0] = one ? 1.0f : 0.0f;
    for (uint i = 0; i < n; i++)
        if (one ? read : events(slot + i, window, sinks) > 0) mark[1] = mark[1] + 1.0f;
}
