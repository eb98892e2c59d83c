// Sums over the rows of a pass: gradients of weights, in blocks of ROWBLOCK rows of a
// segment, and of tables, row by row (docs/numerics.md 10).

#define TILE 8 // outputs that share an input

// weight_grad has a work item per input k (axis 0) and tile of outputs (axis 1).
__kernel void weight_grad(__global const int *status, TABLES, uint segs, uint N, uint K, __global float *d, View dv, __global const float *y, View yv,
                          __global const float *x, View xv) {
    if (FAILED(status)) return;
    uint k = get_global_id(0), n0 = get_global_id(1) * TILE;
    if (k >= K) return;
    uint live = min((uint)TILE, N - n0);
    d += dv.off + n0 * dv.s0 + k, y += yv.off + n0, x += xv.off + k;
    BLOCKS(lo, hi) {
        float acc[TILE];
        for (uint n = 0; n < TILE; n++) acc[n] = 0.0f;
        for (ulong r = lo; r < hi; r++) {
            float v = x[r * xv.s0];
            for (uint n = 0; n < TILE; n++) acc[n] = fma(y[r * yv.s0 + min(n, live - 1)], v, acc[n]);
        }
        for (uint n = 0; n < live; n++) d[n * dv.s0] = d[n * dv.s0] + acc[n];
    }
}

__kernel void bias_grad(__global const int *status, TABLES, uint segs, uint n, __global float *d, View dv, __global const float *y, View yv) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    if (i >= n) return;
    BLOCKS(lo, hi) {
        float acc = 0.0f;
        for (ulong r = lo; r < hi; r++) acc = acc + y[row(yv, r) + i];
        d[dv.off + i] = d[dv.off + i] + acc;
    }
}

// norm_weight_grad adds up what NORM_GRAD kept: per row and head the gradient of the
// result and the normalised input.
__kernel void norm_weight_grad(__global const int *status, TABLES, uint segs, uint n, uint heads, __global float *d, View dv, __global const float *kept, ulong koff) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    if (i >= n) return;
    kept += koff + i;
    BLOCKS(lo, hi) {
        float acc = 0.0f;
        for (ulong r = lo * heads; r < hi * heads; r++) acc = fma(kept[r * 2 * n], kept[(r * 2 + 1) * n], acc);
        d[dv.off + i] = d[dv.off + i] + acc;
    }
}

// gate_weight_grad has a work item per head; either gradient may be left out.
__kernel void gate_weight_grad(__global const int *status, TABLES, uint segs, uint n, int scaled, __global float *dx, View dxv, int biased, __global float *dt, View dtv,
                               __global const float *dg, View dgv, __global const float *g, View gv, __global const float *a, View av, __global const float *aexp, View xv,
                               __global const float *bias, View tv) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    if (i >= n) return;
    BLOCKS(lo, hi) {
        float accx = 0.0f, acct = 0.0f;
        for (ulong r = lo; r < hi; r++) {
            float e = -(dg[row(dgv, r) + i] * g[row(gv, r) + i]), x = a[row(av, r) + i] + bias[tv.off + i];
            accx = fma(e, softplus(x), accx);
            acct = acct + (e * aexp[xv.off + i]) * sigmoid(x);
        }
        if (scaled) dx[dxv.off + i] = dx[dxv.off + i] + accx;
        if (biased) dt[dtv.off + i] = dt[dtv.off + i] + acct;
    }
}

// scatter adds row after row to those that to names; negative ones are left out. A
// work item per column keeps the order.
__kernel void scatter(__global const int *status, uint n, __global float *d, View dv, __global const float *y, View yv, __global const int *to, View tv, uint rows) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    if (i >= n) return;
    for (ulong r = 0; r < rows; r++) {
        int t = to[tv.off + r];
        if (t < 0) continue;
        __global float *p = d + row(dv, t) + i;
        *p = *p + y[row(yv, r) + i];
    }
}
