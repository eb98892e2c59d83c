// Sparse experts. A pair is a row and one of the k experts chosen for it; the tables
// name every expert's weight and its storage type, and a launch does those of TYPE.

typedef struct {
    ulong ref;
    uint type, pad;
} Expert;

// expert_dot writes out[pair][n] = DOT(x, w of the pair's expert). A group has 64
// outputs (axis 0) of a pair (axis 1); pairs share rows of x unless each has its own.
__kernel void expert_dot(__global const int *status, ARENA, __global const Expert *table, ulong first, ulong stride, __global const int *ids, View iv,
                         uint share, __global const float *x, View xv, uint N, uint K, __global float *out, ulong off) {
    __local float ws[STEP][GROUP + 1], xs[ROWS][STEP];
    if (FAILED(status)) return;
    ulong p = get_group_id(1);
    Expert e = table[first + ids[iv.off + p]];
    if (e.type != TYPE) return;
    uint l = get_local_id(0), n0 = get_group_id(0) * GROUP, outs = min((uint)GROUP, N - n0);
    float total = 0.0f;
    for (uint b = 0; b < (K + KB - 1) / KB; b++) {
        float acc[ROWS];
        acc[0] = 0.0f;
        block_product(acc, ws, xs, AT(e.ref) + n0 * stride, stride, outs, 0, x + row(xv, p / share), 0, 1, b, K);
        total = total + acc[0];
    }
    if (l < outs) out[off + p * N + n0 + l] = total;
}
