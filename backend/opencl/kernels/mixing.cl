// Ops that join the responses of window and archive, row by row (docs/numerics.md 16.2
// and 16.4), and GELU.

__kernel void blend(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, __global const float *y, View yv,
                    __global const float *a, View av) {
    ELEMENT;
    float w = a[row(av, r / dv.heads) + r % dv.heads];
    d[row(dv, r) + i] = fma(w, y[row(yv, r) + i], (1.0f - w) * x[row(xv, r) + i]);
}

// mass_merge joins local and exact by their log masses ml and me.
__kernel void mass_merge(__global const int *status, uint n, __global float *d, View dv, __global const float *local_, View lv, __global const float *ml, View mlv,
                         __global const float *exact, View ev, __global const float *me, View mev) {
    ELEMENT;
    float m = me[row(mev, r / dv.heads) + r % dv.heads];
    float w = m != -INFINITY ? sigmoid(m - ml[row(mlv, r / dv.heads) + r % dv.heads]) : 0.0f;
    d[row(dv, r) + i] = fma(w, exact[row(ev, r) + i], (1.0f - w) * local_[row(lv, r) + i]);
}

__kernel void gelu_(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv) {
    ELEMENT;
    d[row(dv, r) + i] = gelu(x[row(xv, r) + i]);
}

// latent is the query's part of a low-rank correction: axis 0 ranks, 1 rows and heads, of
// which group share a matrix v [D, n].
__kernel void latent(__global const int *status, uint n, uint D, uint group, __global const float *q, View qv, ulong first, __global const float *v, View vv,
                     __global float *z, ulong off) {
    ELEMENT;
    q += row(qv, first + r);
    z[off + r * n + i] = dot_rows(q, D, v + row(vv, r % qv.heads / group * D) + i, n);
}

__kernel void correct(__global const int *status, uint n, uint rank, uint group, __global float *d, View dv, __global const float *q, View qv, __global const float *u, View uv,
                      __global const float *z, ulong off) {
    ELEMENT;
    d[row(dv, r) + i] = q[row(qv, r) + i] + dot_rows(z + off + r * rank, rank, u + row(uv, r % qv.heads / group * rank) + i, n);
}

// gate_mix has a group per head of a row. Rows at slots below from have no archive.
__kernel void gate_mix(__global const int *status, TABLES, uint n, __global float *d, View dv, __global const float *local_, View lv, __global const float *remote, View rv,
                       int gated, __global const float *gate, View gv, int promoted, __global const float *promote, View pv, uint from, float constant_, int norm) {
    REDUCED;
    ulong t = r / dv.heads;
    d += row(dv, r), local_ += row(lv, r), remote += row(rv, r);
    if (ROW(t).slot < from) {
        EACH(i, l, LANES, n) d[i] = local_[i];
        return;
    }
    float g = gated ? sigmoid(gate[row(gv, t) + r % dv.heads]) : constant_, up = promoted ? promote[row(pv, t) + r % dv.heads] : 0.0f;
    bool remotely = !gated && up == 0.0f && !norm; // g is the remote weight
    if (!remotely) {
        if (!gated) g = 1.0f - g;
        g = g * (1.0f - up);
        if (norm) {
            float a = sqrt(rsum2(local_, n, s) / (float)n), b = sqrt(rsum2(remote, n, s) / (float)n);
            g = (1.0f - g) * less(greater(less(a / greater(b, 1e-6f), b / greater(a, 1e-6f)), 0.0f), 1.0f);
            remotely = true;
        }
    }
    EACH(i, l, LANES, n) d[i] = remotely ? fma(g, remote[i], (1.0f - g) * local_[i]) : fma(g, local_[i], (1.0f - g) * remote[i]);
}
