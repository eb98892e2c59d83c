// Gradients of the ops of Gated DeltaNet layers (docs/numerics.md 10).
#include "grad.cuh"
#include "plan.cuh"

extern __shared__ float4 shared[];

// Line is a channel of a convolution: the rows of a segment, before them history.
struct Line {
  const float *in, *x;
  i64 stride;
  int taps, cols;
  __device__ __forceinline__ float at(int t) const { return t < 0 ? in[(i64)(taps - 1 + t) * cols] : x[t * stride]; }
};

DEV Line line(const Seg &s, const View &x, int taps, int cols, int layer, int c) {
  return Line{global(s.convIn) + (i64)layer * (taps - 1) * cols + c, x.p + s.row * x.stride + c, x.stride, taps, cols};
}

// convSlopes writes the gradient of what SiLU was given, [R, cols].
KERNEL convSlopes(float *du, View dy, View x, const float *w, int taps, int cols, const Seg *segs, const int *segOf, int layer) {
  EACH(cols, x.rows) {
    const Seg &s = segs[segOf[r]];
    Line l = line(s, x, taps, cols, layer, c);
    int t = r - s.row - taps + 1;
    float z = 0.0f;
#pragma unroll 1
    for (int b = 0; b < taps; b += 128) {
      float acc = 0.0f;
#pragma unroll 1
      for (int j = b; j < min(b + 128, taps); j++) acc = fma32(l.at(t + j), w[(i64)j * cols + c], acc);
      z = add(z, acc);
    }
    du[(i64)r * cols + c] = mul(dy.flat(r)[c], slope(z, silu(z)));
  }
}

KERNEL convGrad(View dx, const float *du, const float *w, int taps, int cols, const Seg *segs, const int *segOf) {
  EACH(cols, dx.rows) {
    const Seg &s = segs[segOf[r]];
    int n = min(taps, s.row + s.rows - r);
    float acc = 0.0f;
#pragma unroll 1
    for (int i = 0; i < n; i++) acc = fma32(du[(i64)(r + i) * cols + c], w[(i64)(taps - 1 - i) * cols + c], acc);
    raise(dx.flat(r) + c, acc);
  }
}

// convParts: part [blocks, taps, cols].
KERNEL convParts(float *part, const float *du, View x, int taps, int cols, const Seg *segs, const int *segOf, int layer, const Block *blocks, int n) {
  EACH(cols, n * taps) {
    Block b = blocks[r / taps];
    const Seg &s = segs[segOf[b.lo]];
    Line l = line(s, x, taps, cols, layer, c);
    int shift = r % taps - taps + 1 - s.row;
    float acc = 0.0f;
#pragma unroll 4
    for (int i = b.lo; i < b.hi; i++) acc = fma32(du[(i64)i * cols + c], l.at(i + shift), acc);
    part[(i64)r * cols + c] = acc;
  }
}

// Gates is what the gradients of the gates have in common.
struct Gates {
  View dg, g, a;
  const float *aExp, *dtBias;
  // e is the gradient of the exponent, x what softplus was given, u the gradient of x.
  __device__ __forceinline__ float e(int r, int h) const { return -mul(dg.flat(r)[h], g.flat(r)[h]); }
  __device__ __forceinline__ float x(int r, int h) const { return add(a.flat(r)[h], dtBias[h]); }
  __device__ __forceinline__ float u(int r, int h) const { return mul(mul(e(r, h), aExp[h]), sigmoid(x(r, h))); }
};

KERNEL deltaGatesGrad(Gates s, View da, View db, View dbeta, View beta, int heads) {
  EACH(heads, da.rows) {
    float b = beta.flat(r)[c];
    raise(da.flat(r) + c, s.u(r, c));
    raise(db.flat(r) + c, mul(dbeta.flat(r)[c], mul(b, sub(1.0f, b))));
  }
}

KERNEL aExpParts(float *part, Gates s, const Block *blocks, int n, int heads) {
  EACH(heads, n) {
    float acc = 0.0f;
#pragma unroll 1
    for (int i = blocks[r].lo; i < blocks[r].hi; i++) acc = fma32(s.e(i, c), softplus(s.x(i, c)), acc);
    part[(i64)r * heads + c] = acc;
  }
}

KERNEL dtBiasParts(float *part, Gates s, const Block *blocks, int n, int heads) {
  EACH(heads, n) {
    float acc = 0.0f;
#pragma unroll 1
    for (int i = blocks[r].lo; i < blocks[r].hi; i++) acc = add(acc, s.u(i, c));
    part[(i64)r * heads + c] = acc;
  }
}

// Delta are the operands of the gradient of the gated delta rule for value heads
// [first, first + heads), and scratch memory. States are [nk, nv], both at least 1.
struct Delta {
  View dv, dg, dbeta, dy, q, k, v, g, beta;
  const Seg *segs;
  float *kept;    // before the rows that are multiples of chunk: [slots, heads]
  float *states;  // before the rows of a chunk: [segments, heads, chunk]
  float *d, *off; // what rows write, and v - kv: [R, heads, nv]
  float *cq, *ck; // what a head adds to dq and dk: [R, heads, nk]
  float *D;       // the gradient of the state, unless it lies in shared memory
  int layer, hv, per, nk, nv, first, heads, chunk;

  __device__ __forceinline__ i64 size() const { return (i64)nk * nv; }
  // slot of chunk c of a segment: no two have the same.
  __device__ __forceinline__ float *slot(const Seg &s, int seg, int c, int h) const { return kept + ((i64)(s.row / chunk + seg + c) * heads + h) * size(); }
  __device__ __forceinline__ const float *begin(const Seg &s, int h) const { return global(s.deltaIn) + ((i64)layer * hv + first + h) * size(); }
  __device__ __forceinline__ const float *key(const View &x, int r, int h) const { return x.p + r * x.stride + (first + h) / per * x.stride2; }
  __device__ __forceinline__ const float *value(const View &x, int r, int h) const { return x.p + r * x.stride + (first + h) * x.stride2; }
};

// forward runs the rule once more: a thread per column of the state, whose elements
// are step apart in S. grid (columns / 32, heads, segments).
DEV void forward(const Delta &a, float *S, int step) {
  int j = blockIdx.x * 32 + threadIdx.x, h = blockIdx.y, nk = a.nk;
  __builtin_assume(nk > 0);
  if (j >= a.nv) return;
  const Seg &s = a.segs[blockIdx.z];
  const float *in = a.begin(s, h) + j;
#pragma unroll 4
  for (int i = 0; i < nk; i++) S[(i64)i * step] = in[(i64)i * a.nv];
#pragma unroll 1
  for (int t = 0; t < s.rows; t++) {
    int r = s.row + t;
    if (t > 0 && t % a.chunk == 0) {
      float *to = a.slot(s, blockIdx.z, t / a.chunk, h) + j;
#pragma unroll 4
      for (int i = 0; i < nk; i++) to[(i64)i * a.nv] = S[(i64)i * step];
    }
    const float *k = a.key(a.k, r, h);
    float g = a.g.flat(r)[a.first + h], beta = a.beta.flat(r)[a.first + h], kv = 0.0f;
#pragma unroll 1
    for (int b = 0; b < nk; b += 128) {
      float acc = 0.0f;
#pragma unroll 4
      for (int i = b; i < min(b + 128, nk); i++) acc = fma32(mul(S[(i64)i * step], g), k[i], acc);
      kv = add(kv, acc);
    }
    float off = sub(a.value(a.v, r, h)[j], kv), d = mul(off, beta);
    i64 at = ((i64)r * a.heads + h) * a.nv + j;
    a.off[at] = off;
    a.d[at] = d;
#pragma unroll 4
    for (int i = 0; i < nk; i++) S[(i64)i * step] = fma32(k[i], d, mul(S[(i64)i * step], g));
  }
}

// deltaForward keeps the columns in shared memory, nk·32 floats, the other one where
// the states of a chunk will lie.
KERNEL __launch_bounds__(32) deltaForward(Delta a) { forward(a, (float *)shared + threadIdx.x, 32); }
KERNEL __launch_bounds__(32) deltaForwardWide(Delta a) {
  forward(a, a.states + ((i64)blockIdx.z * a.heads + blockIdx.y) * a.chunk * a.size() + blockIdx.x * 32 + threadIdx.x, a.nv);
}

// Sums are DOTs of 128 terms under way.
struct Sums {
  float acc[4], total[4];
  __device__ __forceinline__ void close() {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      total[i] = add(total[i], acc[i]);
      acc[i] = 0.0f;
    }
  }
};

// back goes through the rows of a segment and head from the last to the first, chunk
// by chunk, whose states are made again first. D, [nk, ld], is the gradient of the
// state. A row is two sweeps over it: its columns look up the gradient of what the
// row wrote, then its rows, one per thread, follow four sums and take D to the row
// before. Past states come by tiles of 32 x 32, so that both their rows and what a
// warp reads at a time lie side by side. One more warp makes the sums that are
// single. grid (heads, segments), block (32, W + 1); vectors and W tiles in `room`.
DEV void back(const Delta &a, float *D, int ld, float *room) {
  int lane = threadIdx.x, wy = threadIdx.y, warps = blockDim.y - 1, tid = wy * 32 + lane, h = blockIdx.x, nk = a.nk, nv = a.nv;
  __builtin_assume(nk > 0 && nv > 0);
  const Seg &s = a.segs[blockIdx.y];
  float *sk = room, *sq = sk + nk, *sslope = sq + nk, *sy = sslope + nk, *sd = sy + nv, *su = sd + nv, *soff = su + nv, *sdd = soff + nv;
  float *tile = sdd + nv + wy * 32 * 33;
  float *states = a.states + ((i64)blockIdx.y * a.heads + h) * a.chunk * a.size();
#pragma unroll 1
  for (int i = wy; i < nk; i += warps + 1)
#pragma unroll 1
    for (int j = lane; j < nv; j += 32) D[(i64)i * ld + j] = 0.0f;
  bool worker = wy < warps;
#pragma unroll 1
  for (int c = (s.rows - 1) / a.chunk; c >= 0; c--) {
    int r0 = s.row + c * a.chunk, n = min(a.chunk, s.row + s.rows - r0);
    const float *begin = c > 0 ? a.slot(s, blockIdx.y, c, h) : a.begin(s, h);
    __syncthreads();
    const float *k0 = a.key(a.k, r0, h), *d0 = a.d + ((i64)r0 * a.heads + h) * nv, *g0 = a.g.flat(r0) + a.first + h;
    i64 ds = (i64)a.heads * nv, size = a.size();
#pragma unroll 1
    for (int i = wy; i < nk; i += warps + 1)
#pragma unroll 1
      for (int j = lane; j < nv; j += 32) {
        const float *k = k0 + i, *d = d0 + j, *g = g0;
        float v = begin[(i64)i * nv + j], *to = states + (i64)i * nv + j;
#pragma unroll 2
        for (int t = 1; t < n; t++, k += a.k.stride, d += ds, g += a.g.stride) *(to += size) = v = fma32(*k, *d, mul(v, *g));
      }
#pragma unroll 1
    for (int t = n - 1; t >= 0; t--) {
      int r = r0 + t, hv = a.first + h;
      i64 row = (i64)r * a.heads + h;
      const float *past = t > 0 ? states + t * a.size() : begin;
      float g = a.g.flat(r)[hv], beta = a.beta.flat(r)[hv];
      if (worker) {
#pragma unroll 1
        for (int i = tid; i < nk; i += 32 * warps) {
          sk[i] = a.key(a.k, r, h)[i];
          sq[i] = a.key(a.q, r, h)[i];
        }
#pragma unroll 1
        for (int j = tid; j < nv; j += 32 * warps) {
          sy[j] = a.value(a.dy, r, h)[j];
          sd[j] = a.d[row * nv + j];
          soff[j] = a.off[row * nv + j];
        }
      } else if (r + 1 < s.row + s.rows) {
        float v = rsumWarp<Sum>(sslope, nk);
        if (lane == 0) raise(a.dg.flat(r + 1) + hv, v);
      }
      __syncthreads();
      if (worker) {
#pragma unroll 1
        for (int j = tid; j < nv; j += 32 * warps) {
          float y = sy[j], dd = 0.0f;
#pragma unroll 1
          for (int b = 0; b < nk; b += 128) {
            float acc = 0.0f;
            const float *di = D + (i64)b * ld + j;
#pragma unroll 8
            for (int i = b; i < min(b + 128, nk); i++, di += ld) acc = fma32(fma32(sq[i], y, *di), sk[i], acc);
            dd = add(dd, acc);
          }
          float u = mul(dd, beta);
          sdd[j] = dd;
          su[j] = u;
          raise(a.dv.p + r * a.dv.stride + hv * a.dv.stride2 + j, u);
        }
      }
      __syncthreads();
      if (worker) {
#pragma unroll 1
        for (int i0 = wy * 32; i0 < nk; i0 += 32 * warps) {
          int i = i0 + lane, rows = min(32, nk - i0);
          bool in = i < nk;
          float k = in ? sk[i] : 0.0f, q = in ? sq[i] : 0.0f;
          float *di = D + (i64)(in ? i : 0) * ld;
          Sums x = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll 1
          for (int j0 = 0; j0 < nv; j0 += 32) {
            int cols = min(32, nv - j0);
            __syncwarp();
            if (lane < cols) {
              const float *from = past + (i64)i0 * nv + j0 + lane;
              float *to = tile + lane;
#pragma unroll 8
              for (int e = 0; e < rows; e++, from += nv, to += 33) *to = *from;
            }
            __syncwarp();
            if (in) {
              const float *ej = sy + j0, *from = tile + lane * 33;
#pragma unroll 8
              for (int e = 0; e < cols; e++, di++) {
                float S = from[e], m = mul(S, g), y = ej[e], d = ej[nv + e], u = ej[2 * nv + e];
                float w = fma32(q, y, *di), z = fma32(-k, u, w);
                x.acc[0] = fma32(fma32(k, d, m), y, x.acc[0]);
                x.acc[1] = fma32(w, d, x.acc[1]);
                x.acc[2] = fma32(m, u, x.acc[2]);
                x.acc[3] = fma32(z, S, x.acc[3]);
                *di = mul(z, g);
              }
            }
            if ((j0 & 127) == 96 || j0 + 32 >= nv) x.close();
          }
          if (in) {
            a.cq[row * nk + i] = x.total[0];
            a.ck[row * nk + i] = sub(x.total[1], x.total[2]);
            sslope[i] = x.total[3];
          }
        }
      } else if (lane == 0) {
        float dbeta = 0.0f;
#pragma unroll 1
        for (int b = 0; b < nv; b += 128) {
          float acc = 0.0f;
#pragma unroll 4
          for (int j = b; j < min(b + 128, nv); j++) acc = fma32(sdd[j], soff[j], acc);
          dbeta = add(dbeta, acc);
        }
        raise(a.dbeta.flat(r) + hv, dbeta);
      }
      __syncthreads();
    }
  }
  if (!worker) {
    float v = rsumWarp<Sum>(sslope, nk);
    if (lane == 0) raise(a.dg.flat(s.row) + a.first + h, v);
  }
}

// deltaGrad has D in shared memory, behind what back needs; deltaGradWide in memory.
KERNEL __launch_bounds__(288, 1) deltaGrad(Delta a, int room) { back(a, (float *)shared + room, a.nv | 1, (float *)shared); }
KERNEL __launch_bounds__(288, 1) deltaGradWide(Delta a) { back(a, a.D + ((i64)blockIdx.y * a.heads + blockIdx.x) * a.size(), a.nv, (float *)shared); }

// addHeads adds to d [R, Hk, cols], from key head first on, what value heads gave,
// [R, heads, cols], `per` of them for each key head in ascending order.
KERNEL addHeads(View d, const float *part, int first, int heads, int per, int cols, int rows) {
  int n = heads / per;
  EACH(cols, rows * n) {
    float *to = d.p + (r / n) * d.stride + (first + r % n) * d.stride2 + c, v = *to;
#pragma unroll 1
    for (int e = 0; e < per; e++) v = add(v, part[((i64)(r / n) * heads + r % n * per + e) * cols + c]);
    *to = v;
  }
}
