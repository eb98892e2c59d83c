// The gradient of attention over whole sequences (docs/numerics.md 10): keys and values
// are rows of the pass, segments begin at slot 0, and a row's slot is its place in its
// segment. Groups of 64 work items form the pairs of a block and then the chains over it.

// onward is the first block from b on that may hold a slot in sight, from slot lo on or
// below sinks.
uint onward(uint b, uint lo, uint sinks) { return b * PAGE < sinks ? b : max(b, lo / PAGE); }

// Operands of all three kernels.
#define PAIRS                                                                                                                      \
    __global const int *status, TABLES, uint heads, uint D, uint window, uint sinks, float scale, __global const float *q, View qv, \
        __global const float *k, View kv, __global const float *v, View vv, __global const float *dy, View dyv, __global float *part, ulong off

// attention_mass writes lse and DOT(dy, y) of every row (axis 2) and head (axis 1).
__kernel void attention_mass(PAIRS, __global const float *y, View yv) {
    __local float s[PAGE];
    if (FAILED(status)) return;
    uint h = get_group_id(1), hq = get_num_groups(1), j = get_local_id(0);
    ulong r = get_group_id(2);
    uint own = ROW(r).slot, lo = span(own, window);
    ulong first = r - own;
    q += row(qv, r * hq + h);
    float m = -INFINITY, l = 0.0f;
    for (uint b = onward(0, lo, sinks); b <= own / PAGE; b = onward(b + 1, lo, sinks)) {
        uint i = b * PAGE + j;
        bool visible = (i >= lo || i < sinks) && i <= own;
        // all work items go through the loops of dot_, EACH says why
        float score = dot_(q, k + row(kv, (first + min(i, own)) * heads + h / (hq / heads)), D) * scale;
        barrier(CLK_LOCAL_MEM_FENCE);
        s[j] = visible && score == score ? score : -INFINITY;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint w = PAGE / 2; w >= 1; w /= 2) {
            if (j < w && s[j + w] > s[j]) s[j] = s[j + w];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        float mb = s[0];
        barrier(CLK_LOCAL_MEM_FENCE);
        s[j] = visible ? exp_(score - mb) : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (j < LANES) s[j] = (0.0f + s[j]) + s[j + LANES];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint w = LANES / 2; w >= 1; w /= 2) {
            if (j < w) s[j] = s[j] + s[j + w];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        float mm = mb > m ? mb : m;
        l = fma(0.0f + s[0], exp_(mb - mm), l * exp_(m - mm));
        m = mm;
    }
    float c = dot_(dy + row(dyv, r * hq + h), y + row(yv, r * hq + h), D);
    if (j == 0) part[off + (r * hq + h) * 2] = m + log_(l), part[off + (r * hq + h) * 2 + 1] = c;
}

// attention_query_grad adds to dq, of a row (axis 2) and a head (axis 1), the chains over
// key blocks ascending. Of its own blocks it takes those that any row of its query block
// sees: what it does not see itself counts +0 there.
__kernel void attention_query_grad(PAIRS, __global float *dq, View dqv) {
    __local float ds[PAGE];
    if (FAILED(status)) return;
    uint h = get_group_id(1), hq = get_num_groups(1), j = get_local_id(0), kh = h / (hq / heads);
    ulong r = get_group_id(2);
    uint own = ROW(r).slot, lo = span(own, window), rows = SEG(ROW(r).seg).rows;
    ulong first = r - own;
    q += row(qv, r * hq + h), dy += row(dyv, r * hq + h), dq += row(dqv, r * hq + h);
    float lse = part[off + (r * hq + h) * 2], c = part[off + (r * hq + h) * 2 + 1];
    uint least = span(own / PAGE * PAGE, window);
    for (uint b = onward(0, least, sinks); b <= own / PAGE; b = onward(b + 1, least, sinks)) {
        uint i = b * PAGE + j;
        ulong at = (first + min(i, own)) * heads + kh;
        float p = exp_(dot_(q, k + row(kv, at), D) * scale - lse);
        float slope = (p * (dot_(dy, v + row(vv, at), D) - c)) * scale;
        barrier(CLK_LOCAL_MEM_FENCE);
        ds[j] = (i >= lo || i < sinks) && i <= own ? slope : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        uint n = min((uint)PAGE, rows - b * PAGE);
        EACH(d, j, PAGE, D) {
            float acc = 0.0f;
            for (uint t = 0; t < n; t++) acc = fma(ds[t], k[row(kv, (first + b * PAGE + t) * heads + kh) + d], acc);
            dq[d] = dq[d] + acc;
        }
    }
}

// attention_key_grad adds to dk and dv, of a row (axis 2) and a key head (axis 1), the
// chains over query blocks and the heads of the group, ascending.
__kernel void attention_key_grad(PAIRS, __global float *dk, View dkv, __global float *dv, View dvv, uint group) {
    __local float p[PAGE], ds[PAGE];
    if (FAILED(status)) return;
    uint kh = get_group_id(1), hq = heads * group, j = get_local_id(0);
    ulong r = get_group_id(2);
    uint own = ROW(r).slot, rows = SEG(ROW(r).seg).rows, last = (rows - 1) / PAGE;
    ulong first = r - own;
    if (window > 0 && own / PAGE * PAGE >= sinks) last = min(last, (own / PAGE * PAGE + PAGE - 2 + window) / PAGE);
    k += row(kv, r * heads + kh), v += row(vv, r * heads + kh), dk += row(dkv, r * heads + kh), dv += row(dvv, r * heads + kh);
    for (uint b = own / PAGE; b <= last; b++)
        for (uint h = kh * group; h < (kh + 1) * group; h++) {
            uint i = b * PAGE + j, n = min((uint)PAGE, rows - b * PAGE);
            ulong at = (first + min(i, rows - 1)) * hq + h;
            float w = exp_(dot_(q + row(qv, at), k, D) * scale - part[off + at * 2]);
            float slope = (w * (dot_(dy + row(dyv, at), v, D) - part[off + at * 2 + 1])) * scale;
            bool visible = i < rows && own <= i && (own >= span(i, window) || own < sinks);
            barrier(CLK_LOCAL_MEM_FENCE);
            p[j] = visible ? w : 0.0f;
            ds[j] = visible ? slope : 0.0f;
            barrier(CLK_LOCAL_MEM_FENCE);
            EACH(d, j, PAGE, D) {
                float acc = 0.0f, accv = 0.0f;
                for (uint t = 0; t < n; t++) {
                    ulong to = (first + b * PAGE + t) * hq + h;
                    acc = fma(ds[t], q[row(qv, to) + d], acc);
                    accv = fma(p[t], dy[row(dyv, to) + d], accv);
                }
                dk[d] = dk[d] + acc;
                dv[d] = dv[d] + accv;
            }
        }
}
