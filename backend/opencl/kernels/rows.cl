// Ops of rows by themselves. Elementwise kernels have a work item per column
// (axis 0) and row (axis 1); kernels that reduce have a group per row.

__kernel void add(__global const int *status, uint n, __global float *d, View dv, __global const float *a, View av, __global const float *b, View bv) {
    ELEMENT;
    d[row(dv, r) + i] = a[row(av, r) + i] + b[row(bv, r) + i];
}

__kernel void add_bias(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, __global const float *b, View bv) {
    ELEMENT;
    d[row(dv, r) + i] = x[row(xv, r) + i] + b[bv.off + i];
}

__kernel void swiglu(__global const int *status, uint n, __global float *d, View dv, __global const float *g, View gv, __global const float *u, View uv) {
    ELEMENT;
    d[row(dv, r) + i] = silu(g[row(gv, r) + i]) * u[row(uv, r) + i];
}

__kernel void sigmoid_mul(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, __global const float *g, View gv) {
    ELEMENT;
    d[row(dv, r) + i] = x[row(xv, r) + i] * sigmoid(g[row(gv, r) + i]);
}

__kernel void add_gated(__global const int *status, uint n, __global float *d, View dv, __global const float *y, View yv, __global const float *x, View xv,
                        __global const float *g, View gv) {
    ELEMENT;
    d[row(dv, r) + i] = fma(sigmoid(g[row(gv, r)]), x[row(xv, r) + i], y[row(yv, r) + i]);
}

__kernel void gather(__global const int *status, uint n, __global uint *d, View dv, __global const uint *x, View xv, __global const int *rows, View rv) {
    ELEMENT;
    d[row(dv, r) + i] = x[row(xv, rows[rv.off + r]) + i];
}

// check_ids fails the stream at the first of n numbers outside [low, limit). One group.
__kernel void check_ids(__global int *status, int op, __global const int *ids, View v, uint n, int low, int limit) {
    __local uint bad[GROUP];
    if (FAILED(status)) return;
    uint l = get_local_id(0), at = n;
    EACH(i, l, GROUP, n)
        if (at == n && (ids[v.off + i] < low || ids[v.off + i] >= limit)) at = i;
    bad[l] = at;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l != 0) return;
    for (uint i = 0; i < GROUP; i++) at = min(at, bad[i]);
    if (at == n) return;
    status[0] = op;
    status[1] = at;
    status[2] = ids[v.off + at];
    status[3] = limit;
}

__kernel void rms_norm(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, __global const float *w, View wv, float eps) {
    REDUCED;
    d += row(dv, r), x += row(xv, r), w += wv.off;
    float k = rsqrt_(rsum2(x, n, s) / (float)n + eps);
    EACH(i, l, LANES, n) d[i] = (x[i] * k) * w[i];
}

__kernel void gated_rms_norm(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, __global const float *z, View zv,
                             __global const float *w, View wv, float eps) {
    REDUCED;
    d += row(dv, r), x += row(xv, r), z += row(zv, r), w += wv.off;
    float k = rsqrt_(rsum2(x, n, s) / (float)n + eps);
    EACH(i, l, LANES, n) d[i] = ((x[i] * k) * w[i]) * silu(z[i]);
}

__kernel void l2_norm(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, float eps, float scale) {
    REDUCED;
    d += row(dv, r), x += row(xv, r);
    float k = rsqrt_(rsum2(x, n, s) + eps);
    EACH(i, l, LANES, n) d[i] = scale != 1.0f ? (x[i] * k) * scale : x[i] * k;
}

__kernel void layer_norm(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, __global const float *w, View wv,
                         __global const float *b, View bv, float eps) {
    REDUCED;
    d += row(dv, r), x += row(xv, r), w += wv.off, b += bv.off;
    float mu = rsum(x, n, s) / (float)n;
    EACH(i, l, LANES, n) d[i] = x[i] - mu; // a lane sums what it wrote
    float k = rsqrt_(rsum2(d, n, s) / (float)n + eps);
    EACH(i, l, LANES, n) d[i] = ((d[i] * k) * w[i]) + b[i];
}

__kernel void softmax(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv) {
    REDUCED;
    d += row(dv, r), x += row(xv, r);
    HIGHEST(m, i, n, x[i]);
    EACH(i, l, LANES, n) d[i] = exp_(x[i] - m);
    float k = 1.0f / rsum(d, n, s);
    EACH(i, l, LANES, n) d[i] = d[i] * k;
}

__kernel void arg_max(__global const int *status, uint n, __global int *d, View dv, __global const float *x, View xv) {
    __local int best[LANES];
    if (FAILED(status)) return;
    ulong r = get_group_id(0);
    uint l = get_local_id(0);
    x += row(xv, r);
    int b = -1;
    EACH(i, l, LANES, n)
        if (x[i] == x[i] && (b < 0 || x[i] > x[b])) b = i;
    best[l] = b;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l != 0) return;
    for (uint i = 1; i < LANES; i++) {
        int c = best[i];
        if (c >= 0 && (b < 0 || x[c] > x[b] || x[c] == x[b] && c < b)) b = c;
    }
    d[row(dv, r)] = b;
}

// norm_rope has a group per head of a row; cos and sin hold half pairs per row.
__kernel void norm_rope(__global const int *status, uint n, __global float *d, View dv, __global const float *x, View xv, int norm, __global const float *w, View wv,
                        float eps, __global const float *angles, ulong at, uint half_) {
    REDUCED;
    d += row(dv, r), x += row(xv, r);
    float k = 1.0f;
    if (norm) {
        w += wv.off;
        k = rsqrt_(rsum2(x, n, s) / (float)n + eps);
    }
    angles += at + r / xv.heads * 2 * half_;
    EACH(i, l, LANES, n - half_) {
        uint j = i < half_ ? i : i + half_; // pairs, then what is not rotated
        float a = norm ? (x[j] * k) * w[j] : x[j];
        if (i >= half_) {
            d[j] = a;
            continue;
        }
        float b = norm ? (x[j + half_] * k) * w[j + half_] : x[j + half_];
        float c = angles[i], t = angles[half_ + i];
        d[j] = fma(a, c, -(b * t));
        d[j + half_] = fma(b, c, a * t);
    }
}

// The copies move elements of 4, 2 and 1 bytes with up to four axes.
typedef struct {
    ulong off, s[4];
} Strides;

ulong place(Strides v, ulong i, ulong d1, ulong d2, ulong d3) {
    ulong l = i % d3;
    i /= d3;
    ulong k = i % d2;
    i /= d2;
    return v.off + i / d1 * v.s[0] + i % d1 * v.s[1] + k * v.s[2] + l * v.s[3];
}

#define COPY(name, type)                                                                                                               \
    __kernel void name(__global const int *status, ulong n, ulong d1, ulong d2, ulong d3, __global type *d, Strides dv,                 \
                       __global const type *x, Strides xv) {                                                                           \
        if (FAILED(status)) return;                                                                                                    \
        ulong i = get_global_id(0);                                                                                                    \
        if (i < n) d[place(dv, i, d1, d2, d3)] = x[place(xv, i, d1, d2, d3)];                                                          \
    }

COPY(copy4, uint)
COPY(copy2, ushort)
COPY(copy1, uchar)
