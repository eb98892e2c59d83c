// Shared by all programs: scalar functions of docs/numerics.md 4, views and the
// reduction RSUM. Products and sums that belong together are written with fma();
// nothing else may be contracted.
#pragma OPENCL FP_CONTRACT OFF

#define LANES 32 // work items of a reduction
#define GROUP 64 // work items of everything else
#define KB 128   // terms of a chain of DOT
#define PAGE 64  // slots of a key block

// EACH runs over indices below n, work item l of a group taking every size-th. All
// work items go through as many rounds: PoCL 3.1 makes machine code that writes
// behind n out of a loop that only some of them enter, where a barrier comes before.
#define EACH(i, l, size, n) for (uint i = (l), i##_end = (n) + (l); i < i##_end; i += (size)) if (i < (n))

// status[0] is not zero once an op of the stream failed: every kernel looks first.
#define FAILED(status) (status[0] != 0)

// View is an operand of rows, [R, C] or [R, heads, D], in floats (or ints) from the
// start of its buffer.
typedef struct {
    ulong off, s0, s1, heads;
} View;

// row is where a row, or one head of it, begins.
ulong row(View v, ulong r) { return v.off + r / v.heads * v.s0 + r % v.heads * v.s1; }

// ELEMENT begins a kernel with a work item per column (axis 0) of n and row (axis 1).
#define ELEMENT                              \
    if (FAILED(status)) return;              \
    uint i = get_global_id(0);               \
    ulong r = get_global_id(1);              \
    if (i >= n) return

// REDUCED begins a kernel with a group of lanes per row.
#define REDUCED                         \
    __local float s[LANES];             \
    if (FAILED(status)) return;         \
    ulong r = get_group_id(0);          \
    uint l = get_local_id(0)

// greater and less let a NaN of x stay.
float greater(float x, float y) { return x < y ? y : x; }

float less(float x, float y) { return x > y ? y : x; }

float pow2(int k) { return as_float((uint)(k + 127) << 23); }

float exp_(float x) {
    if (x != x) return x;
    if (x < -104.0f) x = -104.0f;
    if (x > 89.0f) x = 89.0f;
    float t = fma(x, 0x1.715476p+0f, 0x1.8p+23f);
    float n = t - 0x1.8p+23f;
    int ni = as_int(t) - 0x4b400000;
    float r = fma(n, -0x1.62e43p-1f, x);
    r = fma(n, 0x1.05c61p-29f, r);
    float q = 0x1.6b69f2p-10f;
    q = fma(q, r, 0x1.122f2ep-7f);
    q = fma(q, r, 0x1.55568cp-5f);
    q = fma(q, r, 0x1.5554a4p-3f);
    q = fma(q, r, 0x1p-1f);
    q = fma(q, r, 1.0f);
    q = fma(q, r, 1.0f);
    int n1 = ni >> 1, n2 = ni - n1;
    return (q * pow2(n1)) * pow2(n2);
}

float sigmoid(float x) { return 1.0f / (1.0f + exp_(-x)); }

float silu(float x) { return x / (1.0f + exp_(-x)); }

float rsqrt_(float x) { return 1.0f / sqrt(x); }

// log1p_ is for arguments from 0 to 1, and those of log_.
float log1p_(float u) {
    float s = u / (2.0f + u);
    float z = s * s;
    float p = 0x1.f08af8p-3f;
    p = fma(p, z, 0x1.b72bb8p-3f);
    p = fma(p, z, 0x1.25051p-2f);
    p = fma(p, z, 0x1.9996d8p-2f);
    p = fma(p, z, 0x1.555558p-1f);
    float w = z * p;
    return fma(-s, u - w, u);
}

float log_(float x) {
    if (x != x || x == INFINITY) return x;
    if (x == 0.0f) return -INFINITY;
    if (x < 0.0f) return NAN;
    int e = 0;
    if (as_uint(x) < 0x00800000) x = x * 0x1p23f, e = -23;
    int k = (as_int(x) - 0x3f3504f3) >> 23;
    float d = log1p_(as_float(as_uint(x) - ((uint)k << 23)) - 1.0f), n = (float)(e + k);
    return fma(n, 0x1.62e43p-1f, fma(n, -0x1.05c61p-29f, d));
}

float softplus(float x) {
    if (x != x) return x;
    float m = x > 0.0f ? x : 0.0f;
    return m + log1p_(exp_(-fabs(x)));
}

float erf_(float x) {
    float t = fabs(x), s = x * x, r;
    if (t > 475.0f / 512.0f) {
        r = fma(-0x1.22p-16f, t, 0x1.91cfb2p-12f);
        float u = fma(-0x1.fd1438p-9f, t, 0x1.8d6342p-6f);
        r = fma(r, s, u);
        r = fma(r, t, -0x1.b55cb8p-4f);
        r = fma(r, t, -0x1.450aap-1f);
        r = fma(r, t, -0x1.079d0cp-3f);
        r = fma(r, t, -t);
        r = 1.0f - exp_(r);
        return x < 0.0f ? -r : r;
    }
    r = fma(-0x1.38ep-11f, s, 0x1.471a58p-8f);
    r = fma(r, s, -0x1.b691b2p-6f);
    r = fma(r, s, 0x1.ce1c44p-4f);
    r = fma(r, s, -0x1.8127p-2f);
    r = fma(r, s, 0x1.06eba8p-3f);
    return fma(r, x, x);
}

float gelu(float x) { return (0.5f * x) * (1.0f + erf_(x * 0x1.6a09e6p-1f)); }

// lanes adds the 32 lanes of a block of RSUM; every work item of the group gets the sum.
float lanes(float lane, __local float *s) {
    uint l = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    s[l] = lane;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint h = LANES / 2; h >= 1; h /= 2) {
        if (l < h) s[l] = s[l] + s[l + h];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return s[0];
}

// RSUM adds to total the reduction over the i below n, by a group of 32 with s: step
// is what becomes of the lane of i.
#define RSUM(total, i, n, step)                                        \
    for (uint i##_b = 0; i##_b < (n); i##_b += 1024) {                  \
        float lane = 0.0f;                                              \
        EACH(i##_j, get_local_id(0), LANES, min(1024u, (n) - i##_b)) {  \
            uint i = i##_b + i##_j;                                     \
            lane = (step);                                              \
        }                                                               \
        total = total + lanes(lane, s);                                 \
    }

// rsum and rsum2 are RSUM of x[0..n), plain and of squares.
float rsum(__global const float *x, uint n, __local float *s) {
    float total = 0.0f;
    RSUM(total, i, n, lane + x[i])
    return total;
}

float rsum2(__global const float *x, uint n, __local float *s) {
    float total = 0.0f;
    RSUM(total, i, n, fma(x[i], x[i], lane))
    return total;
}

// highest is the largest m of a group of 32.
float highest(float m, __local float *s) {
    barrier(CLK_LOCAL_MEM_FENCE);
    s[get_local_id(0)] = m;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < LANES; i++)
        if (s[i] > m) m = s[i];
    return m;
}

// HIGHEST declares m, the largest value over the i below n that is no NaN: the sum
// that follows lets those through.
#define HIGHEST(m, i, n, value)              \
    float m = -INFINITY;                     \
    EACH(i, get_local_id(0), LANES, n)       \
        if ((value) > m) m = (value);        \
    m = highest(m, s)

// dot_ is DOT of numerics.md 2, by one work item.
float dot_(__global const float *x, __global const float *y, uint n) {
    float total = 0.0f;
    for (uint b = 0; b < n; b += KB) {
        float acc = 0.0f;
        for (uint k = b; k < min(b + KB, n); k++) acc = fma(x[k], y[k], acc);
        total = total + acc;
    }
    return total;
}
