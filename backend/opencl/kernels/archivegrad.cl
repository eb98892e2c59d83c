// The gradient of an archive over whole sequences (docs/numerics.md 16.6). The sums are formed
// once more from row to row, and their gradient runs backwards; what a row leaves for
// others lies in scratch memory for all rows of the pass. Rows without an archive leave
// nothing.

// SEQUENCE are the rows that bring events, and the options of the window.
#define SEQUENCE TABLES, uint heads, uint D, uint window, uint sinks, uint M, uint S, uint A

// EVENT_ROW is the row of an event's key and value in tensors of key heads.
#define EVENT_ROW(r, a) (((r) - window) * heads + (a) / (A / heads))

bool inside(float x) { return !(x < -20.0f) && !(x > 10.0f); }

// score_back has a work item per code (axis 0), head (axis 1) and row (axis 2), of archive
// heads with their event, or of query heads. It writes DOT(x, c)·scale to l and the
// exponent to x; of events also the weight, its derivative, and the part of that which goes
// through the exponential.
__kernel void score_back(__global const int *status, SEQUENCE, __global const float *codes, View cv, float scale, int features, int gated, float threshold, int queries,
                         __global const float *x, View xv, __global float *part, ulong l, ulong e, ulong weight, ulong slope, ulong hard) {
    if (FAILED(status)) return;
    uint m = get_global_id(0), h = get_global_id(1), n = get_global_size(1);
    ulong r = get_global_id(2), cell = (r * n + h) * M + m;
    if (m >= M || events(ROW(r).slot, window, sinks) == 0) return;
    x += row(xv, queries ? r * n + h : EVENT_ROW(r, h));
    float score = dot_(x, codes + cv.off + ((ulong)h / (n / A) * M + m) * D, D) * scale, y = score;
    if (features) y = y - squares_alone(x, D) * (scale / 2.0f);
    part[l + cell] = score;
    part[e + cell] = y;
    if (queries) return;
    float w = exp_(less(greater(y, -20.0f), 10.0f));
    bool shut = gated && score < threshold;
    float through = !shut && inside(y) ? w : 0.0f, total = through;
    if (gated) {
        float g = sigmoid((score - threshold) * 10.0f);
        total = total + (w * (g * (1.0f - g))) * 10.0f;
    }
    part[weight + cell] = shut ? 0.0f : w;
    part[slope + cell] = total;
    part[hard + cell] = through;
}

// mark_back goes over the rows of a segment (axis 2) for a landmark slot (axis 0) of an
// archive head (axis 1).
__kernel void mark_back(__global const int *status, SEQUENCE, uint mode, int gated, float threshold, __global float *part, ulong l, ulong marks) {
    if (FAILED(status)) return;
    uint m = get_global_id(0), a = get_global_id(1), seg = get_global_id(2);
    if (m >= M) return;
    Landmark x = {0, 0, -INFINITY};
    for (ulong r = SEG(seg).first; r < SEG(seg).first + SEG(seg).rows; r++) {
        uint e = events(ROW(r).slot, window, sinks);
        if (e == 0) continue;
        x = place(x, r + 1, e, m, M, mode, gated, threshold, part + l + (r * A + a) * M);
        ((__global Landmark *)(part + marks))[(r * A + a) * M + m] = x;
    }
}

// recall_back takes the blend with landmarks of a row's query head back, a work item for
// each: it writes the gradient of the response to resp, and of the scores with the
// landmarks' keys to scores. land takes whether there are any, and DOT(dy, recalled).
__kernel void recall_back(__global const int *status, SEQUENCE, uint rows, uint hq, float scale, float temperature, int mixed, __global const float *mix, View mv,
                          __global const float *q, View qv, __global const float *dy, View yv, __global const float *k, View kv, __global const float *v, View vv,
                          __global float *part, ulong marks, ulong weights, ulong scores, ulong resp, ulong land) {
    if (FAILED(status)) return;
    ulong t = get_global_id(0), r = t / hq;
    if (t >= (ulong)rows * hq || events(ROW(r).slot, window, sinks) == 0) return;
    uint a = t % hq / (hq / A);
    __global const Landmark *slot = (__global const Landmark *)(part + marks) + (r * A + a) * M;
    __global float *p = part + weights + t * M, *g = part + scores + t * M, *out = part + resp + t * D;
    q += row(qv, t), dy += row(yv, t);
    bool filled = false;
    for (uint m = 0; m < M; m++) {
        p[m] = -1e9f;
        if (slot[m].score != -INFINITY) {
            filled = true;
            p[m] = (dot_(q, k + row(kv, EVENT_ROW((ulong)slot[m].key - 1, a)), D) * scale) * temperature;
        }
    }
    part[land + t * 2] = filled ? 1.0f : 0.0f;
    for (uint m = 0; m < M; m++) g[m] = 0.0f;
    for (uint c = 0; c < D; c++) out[c] = dy[c];
    if (!filled) return;
    softmax_alone(p, M);
    float w = mixed ? sigmoid(mix[mv.off + a]) : 1.0f, y = 0.0f;
    for (uint b = 0; b < D; b += KB) {
        float acc = 0.0f;
        for (uint c = b; c < min(b + KB, D); c++) {
            float recalled = 0.0f;
            for (uint m0 = 0; m0 < M; m0 += KB) {
                float part_ = 0.0f;
                for (uint m = m0; m < min(m0 + KB, M); m++) part_ = fma(p[m], slot[m].value > 0 ? v[row(vv, EVENT_ROW((ulong)slot[m].value - 1, a)) + c] : 0.0f, part_);
                recalled = recalled + part_;
            }
            acc = fma(dy[c], recalled, acc);
        }
        y = y + acc;
    }
    part[land + t * 2 + 1] = y;
    for (uint m = 0; m < M; m++)
        for (uint b = 0; b < D; b += KB) {
            float acc = 0.0f;
            for (uint c = b; c < min(b + KB, D); c++) acc = fma(dy[c], slot[m].value > 0 ? v[row(vv, EVENT_ROW((ulong)slot[m].value - 1, a)) + c] : 0.0f, acc);
            g[m] = g[m] + acc;
        }
    float top = dot_(p, g, M);
    for (uint m = 0; m < M; m++) g[m] = ((((g[m] - top) * p[m]) * w) * temperature) * scale;
    for (uint c = 0; c < D; c++) out[c] = dy[c] * (1.0f - w);
}

// sums_forward goes over the rows of a segment (axis 2) for a code and scale (axis 0) of an
// archive head (axis 1), whose numerators lie in num, and writes the denominators and
// DOT(resp, num) of every query.
__kernel void sums_forward(__global const int *status, SEQUENCE, uint hq, __global const float *v, View vv, __global const float *resp, View rv, __global const float *power,
                           ulong pat, uint powers, __global float *part, ulong weight, ulong num, ulong den, ulong b) {
    if (FAILED(status)) return;
    uint i = get_global_id(0), a = get_global_id(1), seg = get_global_id(2), group = hq / A, s = i % S;
    if (i >= M * S) return;
    __global float *n = part + num + (((ulong)seg * A + a) * M * S + i) * D;
    float decay = power[pat + s * powers + 1], gain = power[pat + S * powers + s], sum = 0.0f;
    for (uint c = 0; c < D; c++) n[c] = 0.0f;
    for (ulong r = SEG(seg).first; r < SEG(seg).first + SEG(seg).rows; r++) {
        if (events(ROW(r).slot, window, sinks) == 0) continue;
        __global const float *x = v + row(vv, EVENT_ROW(r, a));
        float add = part[weight + (r * A + a) * M + i / S] * gain;
        sum = sum * decay + add;
        for (uint c = 0; c < D; c++) n[c] = fma(add, x[c], n[c] * decay);
        part[den + (r * A + a) * M * S + i] = sum;
        for (ulong h = r * hq + a * group; h < r * hq + (a + 1) * group; h++) part[b + h * M * S + i] = dot_(resp + row(rv, h), n, D);
    }
}

// read_back takes the read of a row's query head back, a work item for each. b becomes the
// gradient of the mixed values.
__kernel void read_back(__global const int *status, SEQUENCE, uint rows, uint hq, uint rank, int per_code, float scale, __global const float *resp, View rv,
                        __global const float *u, View uv, __global const float *c, View cv, int blended, int mixed, __global const float *blend, View bv, __global float *part,
                        ulong l, ulong e, ulong z, ulong mix, int each, ulong den, ulong b, ulong phi, ulong p, ulong numback, ulong denback, ulong logit, ulong score,
                        ulong scales, ulong dz, ulong land, ulong lands) {
    if (FAILED(status)) return;
    ulong t = get_global_id(0), r = t / hq;
    if (t >= (ulong)rows * hq || events(ROW(r).slot, window, sinks) == 0) return;
    uint h = t % hq, a = h / (hq / A), N = M * S;
    __global const float *x = part + mix + (each ? t : h) * N, *d = part + den + (r * A + a) * N, *ex = part + e + t * M;
    __global float *y = part + b + t * N, *w = part + phi + t * M, *pm = part + p + t * M, *nb = part + numback + t * N, *db = part + denback + t * N, *lg = part + logit + t * N,
                   *sc = part + score + t * M;
    for (uint m = 0; m < M; m++) w[m] = per_code ? part[l + t * M + m] : exp_(less(greater(ex[m], -20.0f), 10.0f));
    float value = 0.0f;
    if (per_code) {
        softmax_alone(w, M);
        for (uint i = 0; i < N; i++) {
            float inv = 1.0f / greater(d[i], 1e-8f);
            y[i] = y[i] * inv;
            nb[i] = (x[i] * w[i / S]) * inv;
            db[i] = d[i] < 1e-8f ? 0.0f : -(nb[i] * y[i]);
        }
    } else {
        float mass = 0.0f;
        for (uint m = 0; m < M; m++) pm[m] = dot_(x + m * S, y + m * S, S);
        value = dot_(w, pm, M);
        for (uint m = 0; m < M; m++) pm[m] = dot_(x + m * S, d + m * S, S);
        mass = dot_(w, pm, M);
        float inv = 1.0f / greater(mass, 1e-8f), back = 0.0f;
        value = value * inv;
        if (!(mass < 1e-8f)) back = -(value * inv);
        for (uint i = 0; i < N; i++) {
            float f = x[i] * w[i / S];
            y[i] = fma(y[i], inv, back * d[i]);
            nb[i] = f * inv;
            db[i] = f * back;
        }
    }
    for (uint m = 0; m < M; m++) pm[m] = dot_(x + m * S, y + m * S, S);
    for (uint i = 0; i < N; i++) lg[i] = (y[i] - pm[i / S]) * (x[i] * w[i / S]);
    if (per_code) value = dot_(w, pm, M);
    for (uint m = 0; m < M; m++)
        if (per_code)
            sc[m] = ((pm[m] - value) * w[m]) * scale;
        else
            sc[m] = inside(ex[m]) ? (pm[m] * w[m]) * scale : 0.0f;
    float corrected = 0.0f;
    if (rank > 0) {
        __global float *g = part + scales + t * S, *dzr = part + dz + t * rank;
        __global const float *zr = part + z + t * rank;
        for (uint s = 0; s < S; s++) {
            g[s] = 0.0f;
            for (uint m0 = 0; m0 < M; m0 += KB) {
                float acc = 0.0f;
                for (uint m = m0; m < min(m0 + KB, M); m++) acc = fma(1.0f, lg[m * S + s], acc);
                g[s] = g[s] + acc;
            }
        }
        resp += row(rv, t);
        for (uint j = 0; j < rank; j++) dzr[j] = dot_(resp, u + uv.off + ((ulong)a * rank + j) * D, D);
        corrected = dot_(zr, dzr, rank);
        for (uint j = 0; j < rank; j++) dzr[j] = dzr[j] + dot_(g, c + cv.off + ((ulong)a * rank + j) * S, S);
    }
    value = value + corrected;
    if (mixed) {
        float blendw = sigmoid(blend[bv.off + a]);
        part[lands + t] = blended && part[land + t * 2] != 0.0f ? ((1.0f - blendw) * part[land + t * 2 + 1] - value) * blendw : 0.0f;
    }
}

// code_back is component c of the gradient of x through its scores with the codes, and
// with features through |x|² by the part power of them.
float code_back(__global const float *score, __global const float *power, uint M, __global const float *codes, uint D, uint c, int features, float x) {
    float t = dot_rows(score, M, codes + c, D);
    if (features) {
        float n = 0.0f;
        RSUM_ALONE(n, i, M, lane + power[i])
        t = fma(-n, x, t);
    }
    return t;
}

// query_back adds to dq: axis 0 components, 1 rows and query heads.
__kernel void query_back(__global const int *status, SEQUENCE, uint hq, uint rank, int features, __global float *dq, View dqv, __global const float *q, View qv,
                         __global const float *codes, View cv, __global const float *v, View vv, __global const float *k, View kv, int blended, __global float *part,
                         ulong score, ulong dz, ulong marks, ulong land, ulong scores) {
    if (FAILED(status)) return;
    uint c = get_global_id(0);
    ulong t = get_global_id(1), r = t / hq;
    if (c >= D || events(ROW(r).slot, window, sinks) == 0) return;
    uint a = t % hq / (hq / A);
    dq += row(dqv, t) + c, q += row(qv, t);
    if (blended && part[land + t * 2] != 0.0f) {
        __global const Landmark *slot = (__global const Landmark *)(part + marks) + (r * A + a) * M;
        float total = 0.0f;
        for (uint b = 0; b < M; b += KB) {
            float acc = 0.0f;
            for (uint m = b; m < min(b + KB, M); m++) acc = fma(part[scores + t * M + m], slot[m].key > 0 ? k[row(kv, EVENT_ROW((ulong)slot[m].key - 1, a)) + c] : 0.0f, acc);
            total = total + acc;
        }
        *dq = *dq + total;
    }
    *dq = *dq + code_back(part + score + t * M, part + score + t * M, M, codes + cv.off + (ulong)a * M * D, D, c, features, q[c]);
    if (rank > 0) *dq = *dq + dot_(part + dz + t * rank, v + vv.off + ((ulong)a * D + c) * rank, rank);
}

// sums_back goes backwards over the rows of a segment (axis 2) for a code and scale (axis
// 0) of an archive head (axis 1): it writes DOT(gradient of num, v) + that of den.
__kernel void sums_back(__global const int *status, SEQUENCE, uint hq, __global const float *v, View vv, __global const float *resp, View rv, __global const float *power,
                        ulong pat, uint powers, __global float *part, ulong num, ulong numback, ulong denback, ulong g) {
    if (FAILED(status)) return;
    uint i = get_global_id(0), a = get_global_id(1), seg = get_global_id(2), group = hq / A, N = M * S;
    if (i >= N) return;
    __global float *n = part + num + (((ulong)seg * A + a) * N + i) * D;
    float decay = power[pat + i % S * powers + 1], den = 0.0f;
    for (uint c = 0; c < D; c++) n[c] = 0.0f;
    for (uint left = SEG(seg).rows; left > 0; left--) {
        ulong r = SEG(seg).first + left - 1;
        if (events(ROW(r).slot, window, sinks) == 0) continue;
        den = den * decay;
        for (uint c = 0; c < D; c++) n[c] = n[c] * decay;
        for (ulong h = r * hq + a * group; h < r * hq + (a + 1) * group; h++) {
            __global const float *e = resp + row(rv, h);
            float f = part[numback + h * N + i];
            den = den + part[denback + h * N + i];
            for (uint c = 0; c < D; c++) n[c] = fma(f, e[c], n[c]);
        }
        part[g + (r * A + a) * N + i] = dot_(n, v + row(vv, EVENT_ROW(r, a)), D) + den;
    }
}

// value_back does the same for a component (axis 0), of all codes and scales, and writes
// the gradient of the events' values.
__kernel void value_back(__global const int *status, SEQUENCE, uint hq, __global const float *resp, View rv, __global const float *power, ulong pat, uint powers,
                         __global float *part, ulong weight, ulong num, ulong numback, ulong dv) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), a = get_global_id(1), seg = get_global_id(2), group = hq / A, N = M * S;
    if (c >= D) return;
    __global float *n = part + num + ((ulong)seg * A + a) * N * D + c;
    for (uint i = 0; i < N; i++) n[(ulong)i * D] = 0.0f;
    for (uint left = SEG(seg).rows; left > 0; left--) {
        ulong r = SEG(seg).first + left - 1;
        if (events(ROW(r).slot, window, sinks) == 0) continue;
        for (uint i = 0; i < N; i++) {
            float x = n[(ulong)i * D] * power[pat + i % S * powers + 1];
            for (ulong h = r * hq + a * group; h < r * hq + (a + 1) * group; h++) x = fma(part[numback + h * N + i], resp[row(rv, h) + c], x);
            n[(ulong)i * D] = x;
        }
        float total = 0.0f;
        for (uint b = 0; b < N; b += KB) {
            float acc = 0.0f;
            for (uint j = b; j < min(b + KB, N); j++) { // the codes of a scale side by side
                uint m = j % M, s = j / M;
                acc = fma(part[weight + (r * A + a) * M + m] * power[pat + S * powers + s], n[(ulong)(m * S + s) * D], acc);
            }
            total = total + acc;
        }
        part[dv + (r * A + a) * D + c] = total;
    }
}

// weight_back writes the gradients of an event's scores: axis 0 codes, 1 archive heads, 2
// rows.
__kernel void weight_back(__global const int *status, SEQUENCE, float scale, __global const float *power, ulong pat, uint powers, __global float *part, ulong slope, ulong hard,
                          ulong g, ulong score, ulong through) {
    if (FAILED(status)) return;
    uint m = get_global_id(0), a = get_global_id(1);
    ulong r = get_global_id(2), cell = (r * A + a) * M + m;
    if (m >= M || events(ROW(r).slot, window, sinks) == 0) return;
    float dw = dot_(power + pat + S * powers, part + g + cell * S, S);
    part[score + cell] = (dw * part[slope + cell]) * scale;
    part[through + cell] = (dw * part[hard + cell]) * scale;
}

// event_back adds to dk and dv: axis 0 components, 1 key heads, 2 rows, which are events
// where a row that far behind them has an archive.
__kernel void event_back(__global const int *status, SEQUENCE, int features, __global float *dk, View dkv, __global float *dv, View dvv, __global const float *k, View kv,
                         __global const float *codes, View cv, __global float *part, ulong vals, ulong score, ulong through) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), kh = get_global_id(1), t = ROW(get_global_id(2)).slot;
    ulong j = get_global_id(2), r = j + window;
    if (c >= D || t < sinks || t + window >= SEG(ROW(j).seg).rows) return;
    __global float *pk = dk + row(dkv, j * heads + kh) + c, *pv = dv + row(dvv, j * heads + kh) + c;
    float x = k[row(kv, j * heads + kh) + c];
    for (uint a = kh * (A / heads); a < (kh + 1) * (A / heads); a++) {
        ulong cell = r * A + a;
        *pv = *pv + part[vals + cell * D + c];
        *pk = *pk + code_back(part + score + cell * M, part + through + cell * M, M, codes + cv.off + (ulong)a * M * D, D, c, features, x);
    }
}
