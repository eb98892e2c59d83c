// Products back through a weight of one storage type, VALUE(row, k), in tiles of ROWS
// rows (docs/numerics.md 10): a work item owns an input and ROWS chains.

// linear_grad adds the blocks of DOT over the N outputs to dx: axis 0 inputs, 1 tiles.
__kernel void linear_grad(__global const int *status, uint R, uint N, uint K, __global float *d, View dv, __global const float *y, View yv,
                          __global const uchar *w, ulong woff, ulong stride) {
    if (FAILED(status)) return;
    uint k = get_global_id(0), r0 = get_global_id(1) * ROWS;
    if (k >= K) return;
    uint live = min((uint)ROWS, R - r0);
    d += dv.off + r0 * dv.s0 + k, y += yv.off + r0 * yv.s0, w += woff;
    for (uint b = 0; b < N; b += KB) {
        float acc[ROWS];
        for (uint r = 0; r < ROWS; r++) acc[r] = 0.0f;
        for (uint n = b; n < min(b + KB, N); n++) {
            float v = VALUE(w + n * stride, k);
            for (uint r = 0; r < ROWS; r++) acc[r] = fma(y[min(r, live - 1) * yv.s0 + n], v, acc[r]);
        }
        for (uint r = 0; r < live; r++) d[r * dv.s0] = d[r * dv.s0] + acc[r];
    }
}
