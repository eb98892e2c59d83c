// Products with a weight of one storage type, VALUE(row, k), for tiles of ROWS rows
// and 64 outputs: a work item owns an output and ROWS chains. Weights are widened
// into local memory once per tile.

#define STEP 64 // values of K in local memory

// block_product adds the products of K block b to acc, as one chain each.
// w is the row of this work item's place in the tile that it loads; live says how
// many rows of x there are.
void block_product(float *acc, __local float ws[STEP][GROUP + 1], __local float xs[ROWS][STEP], Bytes w, ulong stride, uint outs, __global const int *pick,
                   __global const float *x, ulong xstride, uint live, uint b, uint K) {
    uint l = get_local_id(0);
    for (uint k0 = b * KB; k0 < min(b * KB + KB, K); k0 += STEP) {
        uint steps = min((uint)STEP, K - k0);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint n = 0; n < outs; n++) {
            ulong o = pick ? (ulong)pick[n] : (ulong)n;
            if (l < steps) ws[l][n] = VALUE(w + o * stride, k0 + l);
        }
        for (uint r = 0; r < live; r++)
            if (l < steps) xs[r][l] = x[r * xstride + k0 + l];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (l < outs)
            for (uint k = 0; k < steps; k++) {
                float v = ws[k][l];
                for (uint r = 0; r < ROWS; r++) acc[r] = fma(xs[r][k], v, acc[r]);
            }
    }
}

// linear has a group per tile of 64 outputs (axis 0) and ROWS rows (axis 1). With
// split set axis 2 is the K block and part[block][r][n] gets its chain, which
// linear_sum adds up; without it the group does so itself.
__kernel void linear(__global const int *status, __global float *d, View dv, __global const float *x, View xv, __global const uchar *w, ulong woff, ulong stride,
                     int picked, __global const int *pick, View pv, uint R, uint N, uint K, int split, __global float *part, ulong poff) {
    __local float ws[STEP][GROUP + 1], xs[ROWS][STEP];
    if (FAILED(status)) return;
    uint l = get_local_id(0), n0 = get_group_id(0) * GROUP, r0 = get_group_id(1) * ROWS;
    uint outs = min((uint)GROUP, N - n0), live = min((uint)ROWS, R - r0), blocks = (K + KB - 1) / KB;
    uint first = split ? get_group_id(2) : 0, last = split ? first + 1 : blocks;
    float total[ROWS];
    for (uint r = 0; r < ROWS; r++) total[r] = 0.0f;
    for (uint b = first; b < last; b++) {
        float acc[ROWS];
        for (uint r = 0; r < ROWS; r++) acc[r] = 0.0f;
        block_product(acc, ws, xs, w + woff + (picked ? 0 : n0 * stride), stride, outs, picked ? pick + pv.off + n0 : 0, x + row(xv, r0), xv.s0, live, b, K);
        for (uint r = 0; r < ROWS; r++) total[r] = total[r] + acc[r];
    }
    if (l >= outs) return;
    for (uint r = 0; r < live; r++)
        if (split)
            part[poff + ((ulong)first * R + r0 + r) * N + n0 + l] = total[r];
        else
            d[row(dv, r0 + r) + n0 + l] = total[r];
}

__kernel void linear_sum(__global const int *status, uint n, __global float *d, View dv, __global const float *part, ulong poff, uint R, uint blocks) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    ulong r = get_global_id(1);
    if (i >= n) return;
    float total = 0.0f;
    for (uint b = 0; b < blocks; b++) total = total + part[poff + ((ulong)b * R + r) * n + i];
    d[row(dv, r) + i] = total;
}

__kernel void embed(__global const int *status, uint n, __global float *d, View dv, __global const uchar *w, ulong woff, ulong stride, __global const int *ids, View iv) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    ulong r = get_global_id(1);
    if (i < n) d[row(dv, r) + i] = VALUE(w + woff + ids[iv.off + r] * stride, i);
}
