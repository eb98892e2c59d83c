// The exact tier: a table of original keys and values per query head (docs/numerics.md
// 16.3). Which event a slot holds is written down row by row, so that all rows of a part
// of a pass read at once; the slots themselves change after that.

// score_event has a work item per head (axis 0) and row (axis 1).
__kernel void score_event(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, ulong row0, uint hq, int quality,
                          __global const float *q, View qv, __global const float *adm_key, View kv, __global const float *adm_value, View vv, __global const float *bias, View bv,
                          __global float *part, ulong scores) {
    if (FAILED(status)) return;
    uint h = get_global_id(0), kh = h / (hq / heads);
    ulong t = get_global_id(1), r = row0 + t;
    if (h >= hq || events(ROW(r).slot, window, sinks) == 0) return;
    uint seg = ROW(r).seg;
    ulong first = SEG(seg).first;
    float score;
    if (quality) {
        score = cosine(KEY(kh, first, r), q + row(qv, r * hq + h), D);
    } else {
        score = 0.0f;
        for (uint part_ = 0; part_ < 2; part_++) {
            __global const float *x = part_ ? CONTENT(kh, first, r) : ADDRESS(kh, first, r), *y = part_ ? adm_value + row(vv, h) : adm_key + row(kv, h);
            float n = 1.0f / greater(sqrt(squares_alone(x, D)), 1e-12f), total = 0.0f;
            for (uint b = 0; b < D; b += KB) {
                float acc = 0.0f;
                for (uint c = b; c < min(b + KB, D); c++) acc = fma(x[c] * n, y[c], acc);
                total = total + acc;
            }
            score = part_ ? score + total : total;
        }
        score = score + bias[bv.off + h];
    }
    part[scores + t * hq + h] = score;
}

// score_sets writes the cosines with the codes of the sets, of the events' keys or of
// the queries: axis 0 sets, 1 heads, 2 rows.
__kernel void score_sets(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, ulong row0, uint sets, __global const float *codes, View cv,
                         int queries, __global const float *q, View qv, __global float *part, ulong to) {
    if (FAILED(status)) return;
    uint i = get_global_id(0), h = get_global_id(1), hq = get_global_size(1);
    ulong t = get_global_id(2), r = row0 + t;
    if (i >= sets) return;
    uint seg = ROW(r).seg;
    ulong first = SEG(seg).first;
    if (!queries && events(ROW(r).slot, window, sinks) == 0) return;
    __global const float *x = queries ? q + row(qv, r * hq + h) : KEY(h / (hq / heads), first, r);
    part[to + (t * hq + h) * sets + i] = cosine(x, codes + cv.off + ((ulong)h * sets + i) * D, D);
}

// A held word says what a slot has after a row: twice the row of the part, from 1, whose
// event it is, or 0 for what was there before, and 1 more if it is filled.

// HELD is the key or the value of slot i, which a held word describes.
#define HELD(word, bank, event, i) ((word) > 1 ? event(kh, first, row0 + (word) / 2 - 1) : OUT(seg, bank) + ((ulong)h * slots + (i)) * D)

// write_table goes over the rows of a segment (axis 1) for a head (axis 0).
__kernel void write_table(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, uint sinks, ulong row0, uint rows, uint hq, uint slots,
                          uint ways, int fifo, int probed, float threshold, float admission, float diversity, float recency, __global float *part, ulong scores, ulong chosen,
                          ulong held) {
    if (FAILED(status)) return;
    uint h = get_global_id(0), seg = get_global_id(1), kh = h / (hq / heads);
    if (h >= hq) return;
    __global float *score = OUT(seg, TABLE_SCORE) + (ulong)h * slots, *age = OUT(seg, TABLE_AGE) + (ulong)h * slots, *next = OUT(seg, TABLE_NEXT) + h;
    ulong first = SEG(seg).first, begin = max(first, row0), end = min(first + SEG(seg).rows, row0 + rows);
    for (ulong r = begin; r < end; r++) {
        ulong t = (r - row0) * hq + h;
        __global int *now = (__global int *)part + held + t * slots;
        for (uint i = 0; i < slots; i++) now[i] = r > begin ? (now - (ulong)hq * slots)[i] : score[i] != -INFINITY ? 1 : 0;
        uint e = events(ROW(r).slot, window, sinks);
        if (e == 0 || !(part[scores + t] >= threshold)) continue;
        float step = (float)e, grade = part[scores + t];
        int to = -1;
        if (fifo) {
            to = clamp((int)*next, 0, (int)slots - 1);
            *next = (float)((to + 1) % (int)slots);
        } else {
            uint from = probed ? ((__global const int *)part)[chosen + t] * ways : 0, behind = probed ? from + ways : slots;
            __global const float *key = KEY(kh, first, r);
            float near = -INFINITY, low = 0.0f;
            for (uint i = from; i < behind; i++)
                if (now[i] & 1)
                    near = greater(near, cosine(key, HELD(now[i], TABLE_KEY, KEY, i), D));
                else if (to < 0)
                    to = i;
            grade = admission * grade + diversity * (near != -INFINITY ? 1.0f - near : 2.0f);
            if (to < 0) {
                for (uint i = from; i < behind; i++) {
                    float x = score[i] - recency / (1.0f + (step - age[i]));
                    if (to < 0 || x < low) to = i, low = x;
                }
                if (!(grade > low)) continue;
            }
        }
        score[to] = grade, age[to] = step;
        now[to] = 2 * (int)(r - row0 + 1) + (grade != -INFINITY ? 1 : 0);
    }
}

// near_slots writes the cosines of the queries and the filled ones of n candidates: axis
// 0 candidates, 1 heads, 2 rows.
__kernel void near_slots(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, ulong row0, uint n, uint slots, uint ways, uint probe,
                         __global const float *q, View qv, __global float *part, ulong sets, ulong held, ulong near) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), h = get_global_id(1), hq = get_global_size(1), kh = h / (hq / heads);
    ulong t = get_global_id(2), r = row0 + t;
    if (c >= n) return;
    uint seg = ROW(r).seg;
    ulong first = SEG(seg).first;
    t = t * hq + h;
    uint i = probe > 0 ? ((__global const int *)part)[sets + t * probe + c / ways] * ways + c % ways : c;
    int word = ((__global const int *)part)[held + t * slots + i];
    if (word & 1) part[near + t * n + c] = cosine(q + row(qv, r * hq + h), HELD(word, TABLE_KEY, KEY, i), D);
}

// pick_slots lists the slots that a read takes, with their weights, and writes the weight
// of the response: a work item per head (axis 0) and row (axis 1). A list begins with its
// length, and a weight is read only where there are several.
__kernel void pick_slots(__global const int *status, uint hq, uint n, uint slots, uint ways, uint probe, int soft, float temperature, float steepness, float least,
                         __global const float *mix, View mv, __global float *weight, View wv, ulong row0, __global float *part, ulong sets, ulong held, ulong near, ulong list) {
    if (FAILED(status)) return;
    uint h = get_global_id(0);
    ulong r = get_global_id(1), t = r * hq + h;
    if (h >= hq) return;
    __global float *x = part + near + t * n;
    __global int *to = (__global int *)part + list + t * (n + 1);
    int best = -1;
    uint count = 0;
    float confidence = -1.0f;
    for (uint c = 0; c < n; c++) {
        int i = probe > 0 ? ((__global const int *)part)[sets + t * probe + c / ways] * ways + c % ways : c;
        if (!(((__global const int *)part)[held + t * slots + i] & 1)) continue;
        if (best < 0 || x[c] > confidence) best = i, confidence = x[c];
        if (soft) x[count] = temperature * x[c], to[++count] = i;
    }
    if (!soft && best >= 0) to[++count] = best;
    to[0] = count;
    if (soft && count > 0) softmax_alone(x, count);
    weight[row(wv, row0 + r) + h] = confidence <= -0.5f ? 0.0f : sigmoid(mix[mv.off + h] + steepness * (confidence - least));
}

// read_slots writes the responses: axis 0 components, 1 heads, 2 rows.
__kernel void read_slots(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, ulong row0, uint n, uint slots, int soft, __global float *d, View dv,
                         __global float *part, ulong held, ulong near, ulong list) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), h = get_global_id(1), hq = get_global_size(1), kh = h / (hq / heads);
    ulong t = get_global_id(2), r = row0 + t;
    if (c >= D) return;
    uint seg = ROW(r).seg;
    ulong first = SEG(seg).first;
    t = t * hq + h;
    __global const int *now = (__global const int *)part + held + t * slots, *to = (__global const int *)part + list + t * (n + 1);
    float total = 0.0f;
    for (uint b = 0; b < (uint)to[0]; b += KB) {
        float acc = 0.0f;
        for (uint k = b; k < min(b + KB, (uint)to[0]); k++) {
            uint i = to[1 + k];
            float v = HELD(now[i], TABLE_VALUE, CONTENT, i)[c];
            acc = fma(part[near + t * n + k], v, acc);
            if (!soft) acc = v;
        }
        total = soft ? total + acc : acc;
    }
    d[row(dv, r * hq + h) + c] = total;
}

// attend_table has a group per head (axis 1) of a row (axis 2).
__kernel void attend_table(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, ulong row0, uint slots, float scale, __global const float *q, View qv,
                           __global float *d, View dv, __global float *weight, View wv, __global float *part, ulong held) {
    __local float s[PAGE], p[PAGE];
    __local uint live[PAGE];
    if (FAILED(status)) return;
    uint h = get_group_id(1), hq = get_num_groups(1), j = get_local_id(0), kh = h / (hq / heads);
    ulong t = get_group_id(2), r = row0 + t;
    uint seg = ROW(r).seg;
    ulong first = SEG(seg).first;
    __global const int *now = (__global const int *)part + held + (t * hq + h) * slots;
    d += row(dv, r * hq + h), q += row(qv, r * hq + h);
#define FILLED(i) ((i) < slots && (now[min(i, slots - 1)] & 1))
#define K(i) HELD(now[min(i, slots - 1)], TABLE_KEY, KEY, min(i, slots - 1))
#define V(i) HELD(now[min(i, slots - 1)], TABLE_VALUE, CONTENT, min(i, slots - 1))
    ATTEND((slots + PAGE - 1) / PAGE, FILLED, K, V)
    if (j == 0) weight[row(wv, r) + h] = mass;
}

// keep_table moves the slots on to the last row of a segment (axis 2): axis 0 components,
// 1 slots of all heads.
__kernel void keep_table(__global const int *status, ARCHIVES, uint layer, uint heads, uint D, uint window, ulong row0, uint rows, uint hq, uint slots, __global float *part,
                         ulong held) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), cell = get_global_id(1), h = cell / slots, kh = h / (hq / heads), seg = get_global_id(2);
    ulong first = SEG(seg).first, end = min(first + SEG(seg).rows, row0 + rows);
    if (c >= D || max(first, row0) >= end) return;
    int word = ((__global const int *)part)[held + (end - 1 - row0) * hq * slots + cell];
    if (word < 2) return;
    OUT(seg, TABLE_KEY)[(ulong)cell * D + c] = KEY(kh, first, row0 + word / 2 - 1)[c];
    OUT(seg, TABLE_VALUE)[(ulong)cell * D + c] = CONTENT(kh, first, row0 + word / 2 - 1)[c];
}
