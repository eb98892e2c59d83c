// The recurrent ops of Gated DeltaNet layers (docs/numerics.md 8).
#include "canon.cuh"
#include "plan.cuh"

KERNEL deltaGates(View g, View beta, View a, View b, const float *aExp, const float *dtBias, int heads) {
  int h = blockIdx.x * blockDim.x + threadIdx.x;
  if (h >= heads) return;
#pragma unroll 1
  for (int r = blockIdx.y; r < g.rows; r += gridDim.y) {
    g.flat(r)[h] = exp32(-mul(aExp[h], softplus(add(a.flat(r)[h], dtBias[h]))));
    beta.flat(r)[h] = sigmoid(b.flat(r)[h]);
  }
}

// conv has one thread per channel and row of the pass, and one per channel and
// row of new history.
KERNEL conv(View dst, View x, const float *w, int taps, int cols, const Seg *segs, const int *segOf, int layer) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  i64 hist = (i64)(taps - 1) * cols;
#pragma unroll 1
  for (int r = blockIdx.y; r < dst.rows; r += gridDim.y) {
    const Seg &s = segs[segOf[r]];
    const float *in = global(s.convIn) + layer * hist;
    float *out = global(s.convOut) + layer * hist;
    int t = r - s.row;
    float total = 0.0f;
#pragma unroll 1
    for (int b = 0; b < taps; b += 128) {
      float acc = 0.0f;
#pragma unroll 1
      for (int j = b; j < min(b + 128, taps); j++) {
        int u = t - taps + 1 + j; // row of the segment, below 0 is history
        float v = u < 0 ? in[(i64)(taps - 1 + u) * cols + c] : x.flat(s.row + u)[c];
        acc = fma32(v, w[(i64)j * cols + c], acc);
      }
      total = add(total, acc);
    }
    dst.flat(r)[c] = silu(total);
    if (t == 0) { // the first row's thread also writes the history
#pragma unroll 1
      for (int j = 0; j < taps - 1; j++) {
        int u = s.rows - taps + 1 + j;
        out[(i64)j * cols + c] = u < 0 ? in[(i64)(taps - 1 + u) * cols + c] : x.flat(s.row + u)[c];
      }
    }
  }
}

// sumRows: one thread per column, one CTA row per segment.
KERNEL sumRows(View x, int cols, const Seg *segs) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  const Seg &s = segs[blockIdx.y];
  float v = global(s.sumIn)[c];
#pragma unroll 4
  for (int r = s.row; r < s.row + s.rows; r++) v = add(v, x.flat(r)[c]);
  global(s.sumOut)[c] = v;
}

// Rule holds the operands of the gated delta rule.
struct Rule {
  View dst, q, k, v, g, beta;
  const Seg *segs;
  int layer, hv, per, dk, dv;
};

// gatedDelta is the rule for any widths: one thread per column of a head's state,
// which lies in DeltaOut. grid (columns, heads, segments).
KERNEL gatedDelta(Rule a) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y;
  if (j >= a.dv) return;
  const Seg &s = a.segs[blockIdx.z];
  i64 at = ((i64)a.layer * a.hv + h) * a.dk * a.dv + j;
  float *S = global(s.deltaOut) + at;
  const float *in = global(s.deltaIn) + at;
  int hk = h / a.per;
#pragma unroll 1
  for (int t = s.row; t < s.row + s.rows; t++) {
    const float *k = a.k.p + t * a.k.stride + hk * a.k.stride2, *q = a.q.p + t * a.q.stride + hk * a.q.stride2;
    float g = a.g.p[t * a.g.stride + h], beta = a.beta.p[t * a.beta.stride + h];
    float kv = 0.0f;
#pragma unroll 1
    for (int b = 0; b < a.dk; b += 128) {
      float acc = 0.0f;
#pragma unroll 4
      for (int i = b; i < min(b + 128, a.dk); i++) acc = fma32(mul(in[(i64)i * a.dv], g), k[i], acc);
      kv = add(kv, acc);
    }
    float d = mul(sub(a.v.p[t * a.v.stride + h * a.v.stride2 + j], kv), beta);
    float out = 0.0f;
#pragma unroll 1
    for (int b = 0; b < a.dk; b += 128) {
      float acc = 0.0f;
#pragma unroll 4
      for (int i = b; i < min(b + 128, a.dk); i++) {
        float v = fma32(k[i], d, mul(in[(i64)i * a.dv], g));
        S[(i64)i * a.dv] = v;
        acc = fma32(v, q[i], acc);
      }
      out = add(out, acc);
    }
    a.dst.p[t * a.dst.stride + h * a.dst.stride2 + j] = out;
    in = S;
  }
}

// deltaRegs keeps a column of DK values in registers; one warp holds 32 columns
// and dv is a multiple of 32. Keys and queries of a token lie in shared memory,
// those of the next ones are read meanwhile. One sweep over the column updates
// and reads out for token t and decays and looks up for token t + 1: two chains
// side by side. After the last token the decay is 1, which changes nothing.
template <int DK> DEV void deltaRegs(const Rule &a, float (*sk)[DK], float (*sq)[DK]) {
  const int W = DK / 32;
  int lane = threadIdx.x, j = blockIdx.x * 32 + lane, h = blockIdx.y, hk = h / a.per;
  int first = a.segs[blockIdx.z].row, rows = a.segs[blockIdx.z].rows;
  i64 at = ((i64)a.layer * a.hv + h) * DK * a.dv + j;
  const float *k = a.k.p + first * a.k.stride + hk * a.k.stride2 + lane, *q = a.q.p + first * a.q.stride + hk * a.q.stride2 + lane;
  const float *gp = a.g.p + first * a.g.stride + h, *bp = a.beta.p + first * a.beta.stride + h;
  const float *vp = a.v.p + first * a.v.stride + h * a.v.stride2 + j;
  float *out = a.dst.p + first * a.dst.stride + h * a.dst.stride2 + j;
#pragma unroll
  for (int i = 0; i < W; i++) {
    sk[0][32 * i + lane] = k[32 * i];
    sq[0][32 * i + lane] = q[32 * i];
    sk[1][32 * i + lane] = rows > 1 ? k[a.k.stride + 32 * i] : 0.0f;
  }
  __syncwarp();
  float S[DK], g = *gp, acc = 0.0f;
  {
    const float *in = global(a.segs[blockIdx.z].deltaIn) + at;
#pragma unroll
    for (int i = 0; i < DK; i++, in += a.dv) S[i] = *in;
  }
#pragma unroll
  for (int i = 0; i < DK; i++) {
    S[i] = mul(S[i], g);
    acc = fma32(S[i], sk[0][i], acc);
  }
#pragma unroll 1
  for (int t = 0; t < rows; t++) {
    int now = t & 1;
    float nk[W], nq[W];
    g = 1.0f;
    if (t + 1 < rows) {
      gp += a.g.stride;
      q += a.q.stride;
      g = *gp;
#pragma unroll
      for (int i = 0; i < W; i++) nq[i] = q[32 * i];
    }
    if (t + 2 < rows) {
#pragma unroll
      for (int i = 0; i < W; i++) nk[i] = k[2 * a.k.stride + 32 * i];
      k += a.k.stride;
    }
    float d = mul(sub(*vp, add(0.0f, acc)), *bp), o = 0.0f;
    acc = 0.0f;
#pragma unroll
    for (int i = 0; i < DK; i += 4) {
      float4 kk = *(const float4 *)&sk[now][i], qq = *(const float4 *)&sq[now][i], next = *(const float4 *)&sk[now ^ 1][i];
      float v = fma32(kk.x, d, S[i]);
      o = fma32(v, qq.x, o);
      S[i] = mul(v, g);
      acc = fma32(S[i], next.x, acc);
      v = fma32(kk.y, d, S[i + 1]);
      o = fma32(v, qq.y, o);
      S[i + 1] = mul(v, g);
      acc = fma32(S[i + 1], next.y, acc);
      v = fma32(kk.z, d, S[i + 2]);
      o = fma32(v, qq.z, o);
      S[i + 2] = mul(v, g);
      acc = fma32(S[i + 2], next.z, acc);
      v = fma32(kk.w, d, S[i + 3]);
      o = fma32(v, qq.w, o);
      S[i + 3] = mul(v, g);
      acc = fma32(S[i + 3], next.w, acc);
    }
    *out = add(0.0f, o);
    out += a.dst.stride;
    vp += a.v.stride;
    bp += a.beta.stride;
    __syncwarp();
    if (t + 1 < rows) {
#pragma unroll
      for (int i = 0; i < W; i++) sq[now ^ 1][32 * i + lane] = nq[i];
    }
    if (t + 2 < rows) {
#pragma unroll
      for (int i = 0; i < W; i++) sk[now][32 * i + lane] = nk[i];
    }
    __syncwarp();
  }
  float *end = global(a.segs[blockIdx.z].deltaOut) + at;
  int step = a.dv;
  asm volatile("" : "+r"(step)); // else the distances of the loads are kept in registers
#pragma unroll
  for (int i = 0; i < DK; i++, end += step) *end = S[i];
}

#define DELTA_REGS(DK)                                            \
  KERNEL __launch_bounds__(32) gatedDelta##DK(Rule a) {           \
    __shared__ __align__(16) float sk[2][DK], sq[2][DK];          \
    deltaRegs<DK>(a, sk, sq);                                     \
  }
DELTA_REGS(32)
DELTA_REGS(64)
DELTA_REGS(128)
