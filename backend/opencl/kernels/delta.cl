// Gated DeltaNet layers and running sums (docs/numerics.md 5 and 8). States belong to
// sequences and are reached through the plan.

__kernel void sum_rows(__global const int *status, TABLES, uint n, __global const float *x, View xv) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    if (i >= n) return;
    Seg g = SEG(get_global_id(1));
    float t = FLOATS(g.sum_in)[i];
    for (uint r = 0; r < g.rows; r++) t = t + x[row(xv, g.first + r) + i];
    FLOATS(g.sum_out)[i] = t;
}

// input is channel c of row t of a sequence; below 0 it is history.
float input(__global const float *hist, __global const float *x, View xv, Seg g, int t, uint taps, uint n, uint c) {
    return t < 0 ? hist[(ulong)(taps - 1 + t) * n + c] : x[row(xv, g.first + t) + c];
}

// conv has a work item per channel and row.
__kernel void conv(__global const int *status, TABLES, uint layer, uint taps, uint n, __global float *d, View dv,
                   __global const float *x, View xv, __global const float *w, View wv) {
    if (FAILED(status)) return;
    uint c = get_global_id(0);
    ulong r = get_global_id(1);
    if (c >= n) return;
    Seg g = SEG(ROW(r).seg);
    __global const float *hist = FLOATS(g.conv_in) + (ulong)layer * (taps - 1) * n;
    int t = (int)(r - g.first) - (int)(taps - 1);
    float total = 0.0f;
    for (uint b = 0; b < taps; b += KB) {
        float acc = 0.0f;
        for (uint j = b; j < min(b + KB, taps); j++) acc = fma(input(hist, x, xv, g, t + (int)j, taps, n, c), w[wv.off + (ulong)j * n + c], acc);
        total = total + acc;
    }
    d[row(dv, r) + c] = silu(total);
}

// conv_state keeps the last taps-1 inputs: axis 0 channels, 1 places, 2 sequences.
__kernel void conv_state(__global const int *status, TABLES, uint layer, uint taps, uint n, __global const float *x, View xv) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), j = get_global_id(1);
    if (c >= n) return;
    Seg g = SEG(get_global_id(2));
    ulong begin = (ulong)layer * (taps - 1) * n;
    FLOATS(g.conv_out)[begin + (ulong)j * n + c] = input(FLOATS(g.conv_in) + begin, x, xv, g, (int)g.rows - (int)(taps - 1) + (int)j, taps, n, c);
}

__kernel void delta_gates(__global const int *status, uint n, __global float *g, View gv, __global float *beta, View ev, __global const float *a, View av,
                          __global const float *b, View bv, __global const float *aexp, View xv, __global const float *bias, View tv) {
    if (FAILED(status)) return;
    uint h = get_global_id(0);
    ulong r = get_global_id(1);
    if (h >= n) return;
    g[row(gv, r) + h] = exp_(-(aexp[xv.off + h] * softplus(a[row(av, r) + h] + bias[tv.off + h])));
    beta[row(ev, r) + h] = sigmoid(b[row(bv, r) + h]);
}

// gated_delta has a work item per value column of a head (axis 1) of a sequence (axis 2).
// It goes over its column of the state twice per row.
__kernel void gated_delta(__global const int *status, TABLES, uint layer, uint hk, uint dk, uint dv, __global float *d, View ov,
                          __global const float *q, View qv, __global const float *k, View kv, __global const float *v, View vv, __global const float *g, View gv,
                          __global const float *beta, View bv) {
    if (FAILED(status)) return;
    uint j = get_global_id(0), h = get_global_id(1), hv = get_global_size(1);
    if (j >= dv) return;
    Seg s = SEG(get_global_id(2));
    ulong begin = ((ulong)layer * hv + h) * dk * dv + j;
    __global const float *from = FLOATS(s.delta_in) + begin;
    __global float *S = FLOATS(s.delta_out) + begin;
    for (ulong r = s.first; r < s.first + s.rows; r++) {
        __global const float *kr = k + row(kv, r * hk + h / (hv / hk)), *qr = q + row(qv, r * hk + h / (hv / hk));
        float decay = g[row(gv, r) + h], kept = 0.0f;
        for (uint b = 0; b < dk; b += KB) {
            float acc = 0.0f;
            for (uint i = b; i < min(b + KB, dk); i++) {
                float c = from[(ulong)i * dv] * decay;
                S[(ulong)i * dv] = c;
                acc = fma(c, kr[i], acc);
            }
            kept = kept + acc;
        }
        float e = (v[row(vv, r * hv + h) + j] - kept) * beta[row(bv, r) + h], out = 0.0f;
        for (uint b = 0; b < dk; b += KB) {
            float acc = 0.0f;
            for (uint i = b; i < min(b + KB, dk); i++) {
                float c = fma(kr[i], e, S[(ulong)i * dv]);
                S[(ulong)i * dv] = c;
                acc = fma(c, qr[i], acc);
            }
            out = out + acc;
        }
        d[row(ov, r * hv + h) + j] = out;
        from = S;
    }
}
