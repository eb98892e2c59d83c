// Gradients of ops of rows by themselves, which add to what is there, and the step of
// AdamW (docs/numerics.md 10).

__kernel void zero(__global const int *status, uint n, __global float *d, View dv) {
    ELEMENT;
    d[row(dv, r) + i] = 0.0f;
}

// silu_slope is the derivative of SiLU at x, whose value there is a.
float silu_slope(float x, float a) {
    float g = sigmoid(x);
    return fma(a, 1.0f - g, g);
}

__kernel void swiglu_grad(__global const int *status, uint n, __global float *dg, View dgv, __global float *du, View duv, __global const float *dy, View yv,
                          __global const float *g, View gv, __global const float *u, View uv) {
    ELEMENT;
    dg += row(dgv, r), du += row(duv, r);
    float e = dy[row(yv, r) + i], x = g[row(gv, r) + i], a = silu(x);
    du[i] = du[i] + e * a;
    dg[i] = dg[i] + (e * u[row(uv, r) + i]) * silu_slope(x, a);
}

__kernel void sigmoid_mul_grad(__global const int *status, uint n, __global float *dx, View dxv, __global float *dg, View dgv, __global const float *dy, View yv,
                               __global const float *x, View xv, __global const float *g, View gv) {
    ELEMENT;
    dx += row(dxv, r), dg += row(dgv, r);
    float e = dy[row(yv, r) + i], a = sigmoid(g[row(gv, r) + i]);
    dx[i] = dx[i] + e * a;
    dg[i] = dg[i] + (e * x[row(xv, r) + i]) * (a * (1.0f - a));
}

__kernel void softmax_grad(__global const int *status, uint n, __global float *d, View dv, __global const float *dy, View yv, __global const float *p, View pv) {
    REDUCED;
    d += row(dv, r), dy += row(yv, r), p += row(pv, r);
    float c = 0.0f;
    RSUM(c, i, n, lane + dy[i] * p[i])
    EACH(i, l, LANES, n) d[i] = d[i] + (dy[i] - c) * p[i];
}

__kernel void l2_norm_grad(__global const int *status, uint n, __global float *d, View dv, __global const float *dy, View yv, __global const float *x, View xv, float eps,
                           float scale) {
    REDUCED;
    d += row(dv, r), dy += row(yv, r), x += row(xv, r);
    float k = rsqrt_(rsum2(x, n, s) + eps), c = 0.0f;
#define G (scale != 1.0f ? dy[i] * scale : dy[i])
    RSUM(c, i, n, lane + G * (x[i] * k))
    EACH(i, l, LANES, n) d[i] = d[i] + fma(-c, x[i] * k, G) * k;
#undef G
}

// NORM_GRAD is the gradient of RMSNorm for a row x, where dy is that of component i of
// the result. Where they are kept, the terms of the weight's chains go to kept.
#define NORM_GRAD(dy)                                                  \
    float k = rsqrt_(rsum2(x, n, s) / (float)n + eps), c = 0.0f;       \
    RSUM(c, i, n, lane + ((dy) * w[i]) * (x[i] * k))                   \
    c = c / (float)n;                                                  \
    kept += koff + r * 2 * n;                                          \
    EACH(i, l, LANES, n) {                                             \
        float e = (dy), xh = x[i] * k;                                 \
        d[i] = d[i] + fma(-c, xh, e * w[i]) * k;                       \
        if (keep) kept[i] = e, kept[n + i] = xh;                       \
    }

__kernel void rms_norm_grad(__global const int *status, uint n, __global float *d, View dv, __global const float *y, View yv, __global const float *x, View xv,
                            __global const float *w, View wv, float eps, int keep, __global float *kept, ulong koff) {
    REDUCED;
    d += row(dv, r), y += row(yv, r), x += row(xv, r), w += wv.off;
    NORM_GRAD(y[i])
}

// layer_norm_grad: as NORM_GRAD, of x and the gradient of its result less their means.
__kernel void layer_norm_grad(__global const int *status, uint n, __global float *d, View dv, __global const float *y, View yv, __global const float *x, View xv,
                              __global const float *w, View wv, float eps, int keep, __global float *kept, ulong koff) {
    REDUCED;
    d += row(dv, r), y += row(yv, r), x += row(xv, r), w += wv.off;
    float mu = rsum(x, n, s) / (float)n, k = 0.0f, m = 0.0f, c = 0.0f;
    RSUM(k, i, n, fma(x[i] - mu, x[i] - mu, lane))
    k = rsqrt_(k / (float)n + eps);
    RSUM(m, i, n, lane + y[i] * w[i])
    m = m / (float)n;
    RSUM(c, i, n, lane + (y[i] * w[i] - m) * ((x[i] - mu) * k))
    c = c / (float)n;
    kept += koff + r * 2 * n;
    EACH(i, l, LANES, n) {
        float e = y[i], xh = (x[i] - mu) * k;
        d[i] = d[i] + fma(-c, xh, e * w[i] - m) * k;
        if (keep) kept[i] = e, kept[n + i] = xh;
    }
}

__kernel void gated_norm_grad(__global const int *status, uint n, __global float *d, View dv, __global float *dz, View dzv, __global const float *y, View yv,
                              __global const float *x, View xv, __global const float *z, View zv, __global const float *w, View wv, float eps, int keep,
                              __global float *kept, ulong koff) {
    REDUCED;
    d += row(dv, r), dz += row(dzv, r), y += row(yv, r), x += row(xv, r), z += row(zv, r), w += wv.off;
    NORM_GRAD(y[i] * silu(z[i]))
    EACH(i, l, LANES, n) dz[i] = dz[i] + (y[i] * ((x[i] * k) * w[i])) * silu_slope(z[i], silu(z[i]));
}

// turned is component i of a head's gradient before the rotation.
float turned(__global const float *y, __global const float *angles, uint half_, uint i) {
    if (i >= 2 * half_) return y[i];
    uint j = i < half_ ? i : i - half_;
    float c = angles[j], t = -angles[half_ + j];
    return i < half_ ? fma(y[i], c, -(y[i + half_] * t)) : fma(y[i], c, y[j] * t);
}

// norm_rope_grad has a group per head of a row, as norm_rope.
__kernel void norm_rope_grad(__global const int *status, uint n, __global float *d, View dv, __global const float *y, View yv, __global const float *x, View xv, int norm,
                             __global const float *w, View wv, float eps, __global const float *angles, ulong at, uint half_, int keep, __global float *kept, ulong koff) {
    REDUCED;
    d += row(dv, r), y += row(yv, r), x += row(xv, r);
    angles += at + r / xv.heads * 2 * half_;
    if (!norm) {
        EACH(i, l, LANES, n) d[i] = d[i] + turned(y, angles, half_, i);
        return;
    }
    w += wv.off;
    NORM_GRAD(turned(y, angles, half_, i))
}

// delta_gates_grad has a work item per head and row.
__kernel void delta_gates_grad(__global const int *status, uint n, __global float *da, View dav, __global float *db, View dbv, __global const float *dg, View dgv,
                               __global const float *de, View dev, __global const float *g, View gv, __global const float *beta, View bv, __global const float *a, View av,
                               __global const float *aexp, View xv, __global const float *bias, View tv) {
    ELEMENT;
    da += row(dav, r), db += row(dbv, r);
    float e = -(dg[row(dgv, r) + i] * g[row(gv, r) + i]), b = beta[row(bv, r) + i];
    da[i] = da[i] + (e * aexp[xv.off + i]) * sigmoid(a[row(av, r) + i] + bias[tv.off + i]);
    db[i] = db[i] + de[row(dev, r) + i] * (b * (1.0f - b));
}

// squares writes the sum of squares of each block of 1024, chain adds those up.
__kernel void squares(__global const int *status, uint n, __global const float *x, View xv, __global float *part, ulong off) {
    REDUCED;
    uint b = r * 1024;
    float total = rsum2(x + xv.off + b, min(1024u, n - b), s);
    if (l == 0) part[off + r] = total;
}

__kernel void chain(__global const int *status, uint n, __global float *d, View dv, __global const float *part, ulong off) {
    if (FAILED(status) || get_global_id(0) != 0) return;
    float total = 0.0f;
    for (uint i = 0; i < n; i++) total = total + part[off + i];
    d[dv.off] = total;
}

__kernel void adam_w(__global const int *status, uint n, __global float *w, View wv, __global float *m, View mv, __global float *v, View vv, __global const float *g, View gv,
                     float beta1, float rest1, float beta2, float rest2, float scale2, float rate, float decay, float eps, float clip) {
    ELEMENT;
    w += wv.off, m += mv.off, v += vv.off;
    float x = g[gv.off + i] * clip;
    m[i] = m[i] * beta1 + x * rest1;
    v[i] = v[i] * beta2 + (x * x) * rest2;
    w[i] = w[i] * decay - (m[i] / (sqrt(v[i] * scale2) + eps)) * rate;
}
