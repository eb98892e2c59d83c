// Gradients of the convolution and of the gated delta rule (docs/numerics.md 10).

// conv_slope writes the gradient before SiLU, a work item per channel and row.
__kernel void conv_slope(__global const int *status, TABLES, uint layer, uint taps, uint n, __global float *u, ulong off, __global const float *y, View yv,
                         __global const float *x, View xv, __global const float *w, View wv) {
    ELEMENT;
    Seg g = SEG(ROW(r).seg);
    __global const float *hist = FLOATS(g.conv_in) + (ulong)layer * (taps - 1) * n;
    int t = (int)(r - g.first) - (int)(taps - 1);
    float z = 0.0f;
    for (uint b = 0; b < taps; b += KB) {
        float acc = 0.0f;
        for (uint j = b; j < min(b + KB, taps); j++) acc = fma(input(hist, x, xv, g, t + (int)j, taps, n, i), w[row(wv, j) + i], acc);
        z = z + acc;
    }
    float sg = sigmoid(z);
    u[off + r * n + i] = y[row(yv, r) + i] * fma(silu(z), 1.0f - sg, sg);
}

__kernel void conv_grad(__global const int *status, TABLES, uint taps, uint n, __global float *d, View dv, __global const float *u, ulong off, __global const float *w, View wv) {
    ELEMENT;
    Seg g = SEG(ROW(r).seg);
    uint live = min((ulong)taps, g.first + g.rows - r);
    float acc = 0.0f;
    for (uint j = 0; j < live; j++) acc = fma(u[off + (r + j) * n + i], w[row(wv, taps - 1 - j) + i], acc);
    d += row(dv, r);
    d[i] = d[i] + acc;
}

// conv_weight_grad has a work item per channel and tap.
__kernel void conv_weight_grad(__global const int *status, TABLES, uint segs, uint layer, uint taps, uint n, __global float *d, View dv, __global const float *u, ulong off,
                               __global const float *x, View xv) {
    ELEMENT;
    d += row(dv, r);
    for (uint s = 0; s < segs; s++) {
        Seg g = SEG(s);
        __global const float *hist = FLOATS(g.conv_in) + (ulong)layer * (taps - 1) * n;
        for (uint b = 0; b < g.rows; b += 128) {
            float acc = 0.0f;
            for (uint t = b; t < min(b + 128, g.rows); t++)
                acc = fma(u[off + (ulong)(g.first + t) * n + i], input(hist, x, xv, g, (int)t - (int)(taps - 1) + (int)r, taps, n, i), acc);
            d[i] = d[i] + acc;
        }
    }
}

// The gradient of the delta rule keeps states of a segment per head: slot 0 of states is
// the one it began with, slots 1 to chunks those after so many chunks of rows, and the rest
// those after each row of one chunk. wrote holds v - kv and d of those rows.
#define STATES __global float *states, ulong off, uint slots, __global float *wrote, ulong woff

__global const float *state(__global const float *states, uint slots, uint h, uint slot, uint dk, uint dv) { return states + ((ulong)h * slots + slot) * dk * dv; }

// delta_begin copies the state of segment seg to slot 0: axis 0 elements, 1 heads.
__kernel void delta_begin(__global const int *status, TABLES, uint seg, uint layer, uint n, STATES) {
    ELEMENT;
    states[off + r * slots * n + i] = FLOATS(SEG(seg).delta_in)[(layer * get_global_size(1) + r) * n + i];
}

// delta_walk goes from the state in a slot over some rows, and keeps the state after
// each to slot to + row/every. A work item owns a value column of a head (axis 1).
__kernel void delta_walk(__global const int *status, uint row0, uint rows, uint from, uint to, uint every, STATES, uint hk, uint dk, uint dv, __global const float *k, View kv,
                         __global const float *v, View vv, __global const float *g, View gv, __global const float *beta, View bv) {
    if (FAILED(status)) return;
    uint j = get_global_id(0), h = get_global_id(1), hv = get_global_size(1);
    if (j >= dv) return;
    states += off, wrote += woff;
    __global const float *past = state(states, slots, h, from, dk, dv) + j;
    for (uint t = 0; t < rows; t++) {
        ulong r = row0 + t;
        __global const float *kr = k + row(kv, r * hk + h / (hv / hk));
        __global float *next = states + ((ulong)h * slots + to + t / every) * dk * dv + j;
        float decay = g[row(gv, r) + h], kept = 0.0f;
        for (uint b = 0; b < dk; b += KB) {
            float acc = 0.0f;
            for (uint i = b; i < min(b + KB, dk); i++) acc = fma(past[(ulong)i * dv] * decay, kr[i], acc);
            kept = kept + acc;
        }
        float rest = v[row(vv, r * hv + h) + j] - kept, e = rest * beta[row(bv, r) + h];
        for (uint i = 0; i < dk; i++) next[(ulong)i * dv] = fma(kr[i], e, past[(ulong)i * dv] * decay);
        if (every == 1) {
            __global float *w = wrote + ((ulong)t * hv + h) * 2 * dv + j;
            w[0] = rest, w[dv] = e;
        }
        past = next;
    }
}

// delta_back takes the gradient D of a head's state (axis 0) back over the rows of a
// chunk, whose states begin at slot to and come after that in slot from. dq and dk of a value
// head go to keys, as several add to one key head. work has room for dd, u and a slope
// per row of the state.
__kernel void delta_back(__global const int *status, uint row0, uint rows, uint from, uint to, STATES, uint hk, uint dk, uint dv, __global const float *q, View qv,
                         __global const float *k, View kv, __global const float *g, View gv, __global const float *beta, View bv, __global const float *dy, View dyv,
                         __global float *dval, View dvv, __global float *dg, View dgv, __global float *dbeta, View dbv, __global float *keys, ulong koff,
                         __global float *D, ulong doff, __global float *work, ulong aoff) {
    __local float s[LANES];
    if (FAILED(status)) return;
    uint h = get_group_id(0), hv = get_num_groups(0), l = get_local_id(0);
    states += off, D += doff + (ulong)h * dk * dv;
    __global float *dd = work + aoff + (ulong)h * (2 * dv + dk), *u = dd + dv, *slope = u + dv;
    for (uint left = rows; left > 0; left--) {
        uint t = left - 1;
        ulong r = row0 + t;
        __global const float *past = state(states, slots, h, t > 0 ? to + t - 1 : from, dk, dv), *next = state(states, slots, h, to + t, dk, dv);
        __global const float *rest = wrote + woff + ((ulong)t * hv + h) * 2 * dv, *e = rest + dv;
        __global const float *qr = q + row(qv, r * hk + h / (hv / hk)), *kr = k + row(kv, r * hk + h / (hv / hk)), *y = dy + row(dyv, r * hv + h);
        __global float *dvr = dval + row(dvv, r * hv + h), *dq = keys + koff + (r * hv + h) * 2 * dk, *dkr = dq + dk;
        float decay = g[row(gv, r) + h], b = beta[row(bv, r) + h];
        EACH(j, l, LANES, dv) {
            float total = 0.0f;
            for (uint i0 = 0; i0 < dk; i0 += KB) {
                float acc = 0.0f;
                for (uint i = i0; i < min(i0 + KB, dk); i++) {
                    float c = fma(qr[i], y[j], D[(ulong)i * dv + j]);
                    D[(ulong)i * dv + j] = c;
                    acc = fma(c, kr[i], acc);
                }
                total = total + acc;
            }
            dd[j] = total;
            u[j] = total * b;
            dvr[j] = dvr[j] + total * b;
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
        EACH(i, l, LANES, dk) {
            __global const float *m = past + (ulong)i * dv;
            __global float *c = D + (ulong)i * dv;
            float kept = 0.0f;
            for (uint j0 = 0; j0 < dv; j0 += KB) {
                float acc = 0.0f;
                for (uint j = j0; j < min(j0 + KB, dv); j++) acc = fma(m[j] * decay, u[j], acc);
                kept = kept + acc;
            }
            dq[i] = dot_(next + (ulong)i * dv, y, dv);
            dkr[i] = dot_(c, e, dv) - kept;
            for (uint j = 0; j < dv; j++) c[j] = fma(-kr[i], u[j], c[j]);
            slope[i] = dot_(c, m, dv);
            for (uint j = 0; j < dv; j++) c[j] = c[j] * decay;
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
        float gate = 0.0f, bt = dot_(dd, rest, dv);
        RSUM(gate, i, dk, lane + slope[i])
        if (l == 0) {
            dg[row(dgv, r) + h] = dg[row(dgv, r) + h] + gate;
            dbeta[row(dbv, r) + h] = dbeta[row(dbv, r) + h] + bt;
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
}

// delta_keys adds what the value heads left to the gradients of their key heads: axis 0
// components, 1 rows and key heads of the pass.
__kernel void delta_keys(__global const int *status, uint n, uint group, __global float *dq, View dqv, __global float *dk, View dkv, __global const float *keys, ulong koff) {
    ELEMENT;
    dq += row(dqv, r), dk += row(dkv, r);
    for (uint e = 0; e < group; e++) {
        __global const float *p = keys + koff + (r * group + e) * 2 * n + i;
        dq[i] = dq[i] + p[0];
        dk[i] = dk[i] + p[n];
    }
}
