// Losses of rows with their gradients (docs/numerics.md 10): a group per row, which adds
// scale times the gradient to dx where graded is set.

#define LOSS                                   \
    REDUCED;                                   \
    float k = weighted ? weights[wv.off + r] : 1.0f; \
    x += row(xv, r);                           \
    if (graded) d += row(dv, r)

__kernel void cross_entropy(__global const int *status, uint n, __global float *loss, View lv, int graded, __global float *d, View dv, __global const float *x, View xv,
                            int weighted, __global const float *weights, View wv, float scale, __global const int *targets, View tv) {
    LOSS;
    int t = targets[tv.off + r];
    if (t < 0) {
        if (l == 0) loss[lv.off + r] = 0.0f;
        return;
    }
    float sum = 0.0f, c = k * scale;
    HIGHEST(m, i, n, x[i]);
    RSUM(sum, i, n, lane + exp_(x[i] - m))
    float inv = 1.0f / sum;
    if (graded)
        EACH(i, l, LANES, n) {
            float p = exp_(x[i] - m) * inv;
            if (i == (uint)t) p = p - 1.0f;
            d[i] = d[i] + p * c;
        }
    if (l == 0) loss[lv.off + r] = ((m + log_(sum)) - x[t]) * k;
}

__kernel void distill_kl(__global const int *status, uint n, __global float *loss, View lv, int graded, __global float *d, View dv, __global const float *x, View xv,
                         int weighted, __global const float *weights, View wv, float scale, __global const float *y, View yv, float t) {
    LOSS;
    y += row(yv, r);
    float suma = 0.0f, sumb = 0.0f, total = 0.0f, c = (t * k) * scale;
    HIGHEST(ma, i, n, y[i] / t);
    RSUM(suma, i, n, lane + exp_(y[i] / t - ma))
    HIGHEST(mb, i, n, x[i] / t);
    RSUM(sumb, i, n, lane + exp_(x[i] / t - mb))
    float ia = 1.0f / suma, ib = 1.0f / sumb, la = ma + log_(suma), lb = mb + log_(sumb);
    RSUM(total, i, n, lane + (exp_(y[i] / t - ma) * ia) * ((y[i] / t - la) - (x[i] / t - lb)))
    if (graded)
        EACH(i, l, LANES, n) d[i] = d[i] + (exp_(x[i] / t - mb) * ib - exp_(y[i] / t - ma) * ia) * c;
    if (l == 0) loss[lv.off + r] = (total * (t * t)) * k;
}

__kernel void squared_error(__global const int *status, uint n, __global float *loss, View lv, int graded, __global float *d, View dv, __global const float *x, View xv,
                            int weighted, __global const float *weights, View wv, float scale, __global const float *y, View yv) {
    LOSS;
    y += row(yv, r);
    float total = 0.0f, c = ((2.0f / (float)n) * k) * scale;
    RSUM(total, i, n, fma(x[i] - y[i], x[i] - y[i], lane))
    if (graded)
        EACH(i, l, LANES, n) d[i] = d[i] + (x[i] - y[i]) * c;
    if (l == 0) loss[lv.off + r] = (total / (float)n) * k;
}

__kernel void cosine_error(__global const int *status, uint n, __global float *loss, View lv, int graded, __global float *d, View dv, __global const float *x, View xv,
                           int weighted, __global const float *weights, View wv, float scale, __global const float *y, View yv) {
    LOSS;
    y += row(yv, r);
    float xx = rsum2(x, n, s), yy = rsum2(y, n, s), den = sqrt(xx) * sqrt(yy), c = k * scale;
    bool raised = !(den > 1e-12f);
    if (raised) den = 1e-12f;
    float cosine = dot_(x, y, n) / den, a = 1.0f / den, b = raised ? 0.0f : cosine / xx;
    if (graded)
        EACH(i, l, LANES, n) d[i] = d[i] + fma(b, x[i], -(y[i] * a)) * c;
    if (l == 0) loss[lv.off + r] = (1.0f - cosine) * k;
}
