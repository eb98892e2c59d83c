// Attention over key blocks of 64 slots (docs/numerics.md 7). A page is a key block:
// [2·layers, heads, 64, D], keys of layer l at index 2l and values at 2l+1.

// put_kv stores a row of keys and values per head: axis 0 components, 1 heads, 2 rows.
__kernel void put_kv(__global const int *status, TABLES, uint layer, uint heads, uint D,
                     __global const float *k, View kv, __global const float *v, View vv) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), h = get_global_id(1);
    ulong r = get_global_id(2);
    if (c >= D) return;
    Row w = ROW(r);
    __global float *page = KEYS(w, w.slot / PAGE);
    ulong at = ((2UL * layer * heads + h) * PAGE + w.slot % PAGE) * D + c;
    page[at] = k[row(kv, r * heads + h) + c];
    page[at + (ulong)heads * PAGE * D] = v[row(vv, r * heads + h) + c];
}

// Operands of queries begin at row base of the pass.

// attend writes the triple (m, l, o[D]) of a key block to part: axis 0 blocks from the
// row's first, axis 1 heads, axis 2 rows from row0. One group of 64 per triple.
__kernel void attend(__global const int *status, TABLES, uint layer, uint heads, uint D,
                     uint row0, uint base, uint window, float scale, __global const float *q, View qv, __global float *part, ulong off) {
    __local float p[PAGE], s[PAGE];
    if (FAILED(status)) return;
    ulong r = row0 + get_group_id(2);
    uint h = get_group_id(1), hq = get_num_groups(1), j = get_local_id(0);
    uint slot = ROW(r).slot;
    uint lo = span(slot, window), b = lo / PAGE + get_group_id(0);
    if (b > slot / PAGE) return;
    __global const float *keys = KEYS(ROW(r), b) + (2UL * layer * heads + h / (hq / heads)) * PAGE * D;
    __global const float *values = keys + (ulong)heads * PAGE * D;
    uint first = max(lo, b * PAGE) - b * PAGE, last = min(slot, b * PAGE + PAGE - 1) - b * PAGE;
    bool visible = j >= first && j <= last;
    float score = visible ? dot_(q + row(qv, (r - base) * hq + h), keys + (ulong)j * D, D) * scale : -INFINITY;
    s[j] = score == score ? score : -INFINITY; // the sum lets a NaN through
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = PAGE / 2; i >= 1; i /= 2) {
        if (j < i && s[j + i] > s[j]) s[j] = s[j + i];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float m = s[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    p[j] = visible ? exp_(score - m) : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j < LANES) s[j] = (0.0f + p[j]) + p[j + LANES];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = LANES / 2; i >= 1; i /= 2) {
        if (j < i) s[j] = s[j] + s[j + i];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    part += off + ((get_group_id(2) * hq + h) * get_num_groups(0) + get_group_id(0)) * (D + 2);
    if (j == 0) part[0] = m, part[1] = 0.0f + s[0];
    EACH(c, j, PAGE, D) {
        float a = 0.0f;
        for (uint i = first; i <= last; i++) a = fma(p[i], values[(ulong)i * D + c], a);
        part[2 + c] = 0.0f + a; // a chain may end at -0
    }
}

// merge joins the triples of a row in ascending order. It writes the row where out is
// set, and where weigh is the final m and l to mass[row][head].
__kernel void merge(__global const int *status, TABLES, uint D, uint row0, uint base, uint window, __global const float *part, ulong off, uint blocks, int out,
                    __global float *d, View dv, int weigh, __global float *mass, ulong moff) {
    if (FAILED(status)) return;
    uint h = get_group_id(1), hq = get_num_groups(1), j = get_local_id(0);
    ulong r = row0 + get_group_id(2);
    Row w = ROW(r);
    uint n = w.slot / PAGE - span(w.slot, window) / PAGE + 1;
    part += off + (get_group_id(2) * hq + h) * blocks * (D + 2);
    EACH(c, j, GROUP, D) {
        float m = -INFINITY, l = 0.0f, o = 0.0f;
        for (uint b = 0; b < n; b++) {
            __global const float *t = part + b * (D + 2);
            float mm = t[0] > m ? t[0] : m;
            float al = exp_(m - mm), be = exp_(t[0] - mm);
            l = fma(t[1], be, l * al);
            o = fma(t[2 + c], be, o * al);
            m = mm;
        }
        if (out) d[row(dv, (r - base) * hq + h) + c] = o * (1.0f / l);
        if (weigh && c == 0)
            mass[moff + (get_group_id(2) * hq + h) * 2] = m, mass[moff + (get_group_id(2) * hq + h) * 2 + 1] = l;
    }
}

// scores writes the scaled logits of every slot (axis 0), or with mass the weights:
// axis 1 heads, axis 2 rows.
__kernel void scores(__global const int *status, TABLES, uint layer, uint heads, uint D,
                     uint row0, uint base, uint window, float scale, __global const float *q, View qv, uint S, __global float *d, View dv, int weigh, __global const float *mass,
                     ulong moff) {
    if (FAILED(status)) return;
    ulong r = row0 + get_global_id(2);
    uint j = get_global_id(0), h = get_global_id(1), hq = get_global_size(1);
    if (j >= S) return;
    Row w = ROW(r);
    __global float *to = d + row(dv, (r - base) * hq + h) + j;
    if (j > w.slot || j < span(w.slot, window)) {
        *to = weigh ? 0.0f : -INFINITY;
        return;
    }
    __global const float *keys = KEYS(w, j / PAGE) + ((2UL * layer * heads + h / (hq / heads)) * PAGE + j % PAGE) * D;
    float s = dot_(q + row(qv, (r - base) * hq + h), keys, D) * scale;
    if (weigh) {
        mass += moff + (get_global_id(2) * hq + h) * 2;
        s = exp_(s - mass[0]) * (1.0f / mass[1]);
    }
    *to = s;
}

// moments adds rows of weights to the sums of a group of heads (axis 1), a work item
// per position. With squares each mean around it is formed again.
__kernel void moments(__global const int *status, uint n, uint rows, uint heads, __global float *sum, View sv, int squares, __global float *square, View tv,
                      __global const float *w, View wv) {
    if (FAILED(status)) return;
    uint p = get_global_id(0), g = get_global_id(1), hq = get_num_groups(1) * heads;
    if (p >= n) return;
    sum += sv.off + (ulong)g * n + p;
    square += tv.off + (ulong)g * n + p;
    float s = *sum, t = squares ? *square : 0.0f;
    for (ulong r = 0; r < rows; r++) {
        float top = -INFINITY;
        for (uint i = squares && p >= 3 ? p - 3 : squares ? 0 : p; i <= (squares ? min(p + 3, n - 1) : p); i++) {
            float m = w[row(wv, r * hq + g * heads) + i];
            for (uint h = 1; h < heads; h++) m = m + w[row(wv, r * hq + g * heads + h) + i];
            m = m / (float)heads;
            if (m > top) top = m;
            if (i == p) s = s + m;
        }
        if (squares) {
            float u = 256.0f * top;
            t = t + u * u;
        }
    }
    *sum = s;
    if (squares) *square = t;
}
