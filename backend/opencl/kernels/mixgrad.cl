// Gradients of the ops of mixing.cl (docs/numerics.md 16.6).

__kernel void gelu_grad(__global const int *status, uint n, __global float *d, View dv, __global const float *dy, View yv, __global const float *x, View xv) {
    ELEMENT;
    d += row(dv, r);
    float v = x[row(xv, r) + i], density = exp_((v * v) * -0.5f) * 0x1.988454p-2f;
    d[i] = d[i] + dy[row(yv, r) + i] * (0.5f * (1.0f + erf_(v * 0x1.6a09e6p-1f)) + v * density);
}

// latent_grad is the gradient of a query's latent values: axis 0 ranks, 1 rows and heads.
__kernel void latent_grad(__global const int *status, uint n, uint D, uint group, __global const float *dy, View yv, __global const float *u, View uv, __global float *dz,
                          ulong off) {
    ELEMENT;
    dz[off + r * n + i] = dot_(dy + row(yv, r), u + row(uv, r % yv.heads / group * n + i), D);
}

__kernel void correct_grad(__global const int *status, uint n, uint rank, uint group, __global float *d, View dv, __global const float *dy, View yv, __global const float *v, View vv,
                           __global const float *dz, ulong off) {
    ELEMENT;
    d += row(dv, r);
    d[i] = d[i] + dy[row(yv, r) + i];
    d[i] = d[i] + dot_(dz + off + r * rank, v + row(vv, r % dv.heads / group * n + i), rank);
}

// spread_dot is DOT of dy with x - y.
float spread_dot(__global const float *dy, __global const float *x, __global const float *y, uint n) {
    float total = 0.0f;
    for (uint b = 0; b < n; b += KB) {
        float acc = 0.0f;
        for (uint i = b; i < min(b + KB, n); i++) acc = fma(dy[i], x[i] - y[i], acc);
        total = total + acc;
    }
    return total;
}

// gate_mix_grad has a group per head of a row, as gate_mix.
__kernel void gate_mix_grad(__global const int *status, TABLES, uint n, __global float *dl, View dlv, __global float *dr, View drv, __global const float *dy, View yv,
                            __global const float *x, View xv, __global const float *y, View rv, int gated, __global const float *gate, View gv, __global float *dg, View dgv,
                            uint from, float constant_, int norm) {
    REDUCED;
    ulong t = r / yv.heads, h = r % yv.heads;
    dl += row(dlv, r), dr += row(drv, r), dy += row(yv, r), x += row(xv, r), y += row(rv, r);
    if (ROW(t).slot < from) {
        EACH(i, l, LANES, n) dl[i] = dl[i] + dy[i];
        return;
    }
    float g = gated ? sigmoid(gate[row(gv, t) + h]) : constant_, slope, toward, away, back = 0.0f;
    if (!gated && norm) g = 1.0f - g;
    slope = g * (1.0f - g);
    // dl takes dy times toward, dr times away
    float xx = 0.0f, yy = 0.0f, nx = 0.0f, ny = 0.0f, length = 0.0f;
    if (norm) {
        xx = rsum2(x, n, s), yy = rsum2(y, n, s);
        nx = sqrt(xx / (float)n), ny = sqrt(yy / (float)n);
        float agree = less(greater(less(nx / greater(ny, 1e-6f), ny / greater(nx, 1e-6f)), 0.0f), 1.0f), dw = spread_dot(dy, y, x, n);
        away = (1.0f - g) * agree, toward = 1.0f - away;
        length = (dw * (1.0f - g)) * agree;
        back = -((dw * agree) * slope);
    } else if (gated) {
        toward = g, away = 1.0f - g;
        back = spread_dot(dy, x, y, n) * slope;
    } else {
        away = g, toward = 1.0f - g;
    }
    bool local_ = nx / greater(ny, 1e-6f) <= ny / greater(nx, 1e-6f); // whose length is the smaller one
    float cx = local_ ? length / xx : -(length / xx), cy = local_ ? -(length / yy) : length / yy;
    bool putx = norm && (local_ ? xx > 0.0f : !(nx < 1e-6f)), puty = norm && (local_ ? !(ny < 1e-6f) : yy > 0.0f);
    EACH(i, l, LANES, n) {
        dl[i] = dl[i] + dy[i] * toward;
        dr[i] = dr[i] + dy[i] * away;
        if (putx) dl[i] = dl[i] + cx * x[i];
        if (puty) dr[i] = dr[i] + cy * y[i];
    }
    if (gated && l == 0) dg[row(dgv, t) + h] = dg[row(dgv, t) + h] + back;
}

// pair_sums adds to the gradient of a parameter [A, nx, ny] the chains over rows, blocks of
// rows and the query heads of an archive head (axis 1) of the products of x[i] and y[j]; with
// plain set of x alone. Rows at slots below from are left out. Where written is set, the
// event of a row follows its heads: e[i] of the archive head with k[j] of window rows before.
__kernel void pair_sums(__global const int *status, TABLES, uint segs, uint nx, uint ny, uint group, uint from, __global float *d, View dv, __global const float *x, View xv,
                        int plain, __global const float *y, View yv, int written, __global const float *e, View ev, __global const float *k, View kv, uint window, uint per) {
    if (FAILED(status)) return;
    uint c = get_global_id(0), a = get_global_id(1), A = get_global_size(1), i = c / ny, j = c % ny;
    if (c >= nx * ny) return;
    d += dv.off + (ulong)a * nx * ny + c;
    BLOCKS(lo, hi) {
        float acc = 0.0f;
        for (ulong r = lo; r < hi; r++) {
            if (ROW(r).slot < from) continue;
            for (ulong h = (r * A + a) * group; h < (r * A + a + 1) * group; h++) acc = fma(x[row(xv, h) + i], plain ? 1.0f : y[row(yv, h) + j], acc);
            if (written) acc = fma(e[row(ev, r * A + a) + i], k[row(kv, (r - window) * (A / per) + a / per) + j], acc);
        }
        *d = *d + acc;
    }
}
