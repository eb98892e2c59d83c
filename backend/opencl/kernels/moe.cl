// Choosing experts and adding up what they say (docs/numerics.md 5).

#define LOWEST 4 // place in the status of the first row without a choice

// route picks the k largest of each row of p, a softmax over E experts, in ascending
// order. One work item per row; it marks what it took with NaN, which never wins.
__kernel void route(__global int *status, uint R, __global float *p, ulong off, uint E, uint k, int renorm, __global int *ids, View iv,
                    __global float *w, View wv) {
    if (FAILED(status)) return;
    uint r = get_global_id(0);
    if (r >= R) return;
    p += off + (ulong)r * E, ids += iv.off + (ulong)r * k, w += row(wv, r);
    for (uint i = 0; i < k; i++) {
        int best = -1;
        for (uint e = 0; e < E; e++)
            if (p[e] == p[e] && (best < 0 || p[e] > p[best])) best = e;
        if (best < 0) {
            atomic_min(&status[LOWEST], (int)r);
            return;
        }
        float v = p[best];
        p[best] = NAN;
        uint j = i; // keep both lists in order of the experts
        for (; j > 0 && ids[j - 1] > best; j--) ids[j] = ids[j - 1], w[j] = w[j - 1];
        ids[j] = best, w[j] = v;
    }
    if (!renorm) return;
    float total = 0.0f; // RSUM by one work item
    for (uint b = 0; b < k; b += 1024) {
        float lane[LANES];
        for (uint i = 0; i < LANES; i++) lane[i] = 0.0f;
        for (uint i = b; i < min(b + 1024, k); i++) lane[i % LANES] = lane[i % LANES] + w[i];
        for (uint h = LANES / 2; h >= 1; h /= 2)
            for (uint i = 0; i < h; i++) lane[i] = lane[i] + lane[i + h];
        total = total + lane[0];
    }
    float n = 1.0f / total;
    for (uint i = 0; i < k; i++) w[i] = w[i] * n;
}

// route_failed turns the first row without a choice into a failure of the stream.
__kernel void route_failed(__global int *status, int op, uint R) {
    if (FAILED(status) || status[LOWEST] >= (int)R) return;
    status[0] = op;
    status[1] = status[LOWEST];
    status[2] = 0;
    status[3] = 0;
}

// expert_sum is the chain over a row's experts from +0.
__kernel void expert_sum(__global const int *status, uint n, __global float *d, View dv, __global const float *w, View wv, __global const float *out, ulong off, uint k) {
    if (FAILED(status)) return;
    uint i = get_global_id(0);
    ulong r = get_global_id(1);
    if (i >= n) return;
    float y = 0.0f;
    for (uint j = 0; j < k; j++) y = fma(w[row(wv, r) + j], out[off + (r * k + j) * n + i], y);
    d[row(dv, r) + i] = y;
}
