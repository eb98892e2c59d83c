// Packed weights. A matrix [N, K] lies in panels of 32 outputs, so that the 32
// lanes of a warp read neighbouring bytes and each lane follows the chain of its
// own output. Within a panel:
//   float types   [K/c][32][c], c values of 16 bytes; K is padded with +0 to 8
//   block types   [units][words][32], 32-bit words; a unit is 64 values of the
//                 formats with blocks of 32 (scales first), 256 of the others
// load8 gives eight neighbouring values of one output, the exact float32 values
// that docs/numerics.md 9 defines. Go's side is pack.go.
#pragma once
#include "canon.cuh"

// The numbers are those of the table in pack.go.
enum Type { F32, BF16, F16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K };

struct Weight {
  const char *p;
  i64 panel; // bytes
  int n, k;
  int type, pad;
};

DEV float half32(u32 h) {
  float f;
  asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "r"(h));
  return f;
}
DEV float lowHalf(u32 w) { return half32(w & 0xffffu); }
DEV float highHalf(u32 w) { return half32(w >> 16); }

// at is word i of a lane's unit.
DEV u32 at(const u32 *u, int i) { return __ldg(u + i * 32); }
DEV int byteOf(u32 w, int i) { return (w >> (8 * i)) & 255; }

// scales45 unpacks scale and minimum b of a Q4_K or Q5_K block from its 12 bytes.
DEV void scales45(const u32 *u, int first, int b, float &sc, float &mn) {
  int i = b & 3;
  u32 s0 = byteOf(at(u, first), i), s1 = byteOf(at(u, first + 1), i), s2 = byteOf(at(u, first + 2), i);
  u32 s = b < 4 ? s0 & 63 : (s2 & 15) | (s0 >> 6) << 4;
  u32 m = b < 4 ? s1 & 63 : s2 >> 4 | (s1 >> 6) << 4;
  sc = (float)(int)s;
  mn = (float)(int)m;
}

template <int T> DEV void load8(float *out, const char *panel, int lane, int k8) {
  if (T == F32) {
    const float4 *p = (const float4 *)panel + k8 * 64 + lane;
    float4 a = __ldg(p), b = __ldg(p + 32);
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    return;
  }
  if (T == BF16 || T == F16) {
    uint4 v = __ldg((const uint4 *)panel + k8 * 32 + lane);
    u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out[2 * i] = T == BF16 ? bits(w[i] << 16) : lowHalf(w[i]);
      out[2 * i + 1] = T == BF16 ? bits(w[i] & 0xffff0000u) : highHalf(w[i]);
    }
    return;
  }
  if (T >= Q8_0 && T <= Q5_1) { // two blocks of 32 in a unit
    const int head = T == Q8_0 || T == Q4_0 ? 1 : T == Q4_1 ? 2 : T == Q5_0 ? 3 : 4;
    const int each = T == Q8_0 ? 8 : 4;
    const u32 *u = (const u32 *)panel + (k8 >> 3) * (head + 2 * each) * 32 + lane;
    int b = (k8 >> 2) & 1, g = k8 & 3;
    bool minimum = T == Q4_1 || T == Q5_1, fifth = T == Q5_0 || T == Q5_1;
    float d, m = 0.0f;
    if (minimum) {
      u32 w = at(u, b);
      d = lowHalf(w), m = highHalf(w);
    } else {
      d = half32(at(u, 0) >> (16 * b) & 0xffffu);
    }
    u32 qh = fifth ? at(u, (minimum ? 2 : 1) + b) >> (8 * g) : 0;
    int q0 = head + b * each + (T == Q8_0 ? 2 * g : 2 * (g & 1));
    u32 w[2] = {at(u, q0), at(u, q0 + 1)};
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int q;
      if (T == Q8_0)
        q = (int)(w[i / 4] << (24 - 8 * (i & 3))) >> 24;
      else
        q = (w[i / 4] >> (8 * (i & 3) + 4 * (g >> 1))) & 15;
      if (fifth) q |= ((qh >> i) & 1) << 4;
      if (T == Q4_0) q -= 8;
      if (T == Q5_0) q -= 16;
      float v = mul(d, (float)q);
      out[i] = minimum ? add(v, m) : v;
    }
    return;
  }
  const int words = T == Q2_K ? 21 : T == Q3_K ? 28 : T == Q4_K ? 36 : T == Q5_K ? 44 : 53;
  const u32 *u = (const u32 *)panel + (i64)(k8 >> 5) * words * 32 + lane;
  int v = (k8 & 31) * 8, n = v >> 7, j = (v >> 5) & 3, l = (v & 31) >> 2, b = v >> 5, k = v >> 4;
  if (T == Q2_K) {
    u32 s = byteOf(at(u, k >> 2), k & 3), dm = at(u, 20), w[2] = {at(u, 4 + 8 * n + l), at(u, 5 + 8 * n + l)};
    float d = mul(lowHalf(dm), (float)(int)(s & 15)), m = mul(highHalf(dm), (float)(int)(s >> 4));
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = sub(mul(d, (float)(int)((w[i / 4] >> (8 * (i & 3) + 2 * j)) & 3)), m);
  }
  if (T == Q3_K) {
    u32 lo = byteOf(at(u, 24 + ((k & 7) >> 2)), k & 3) >> (4 * (k >> 3)) & 15;
    u32 hi = byteOf(at(u, 26), k & 3) >> (2 * (k >> 2)) & 3;
    float d = mul(lowHalf(at(u, 27)), (float)((int)(lo | hi << 4) - 32));
    u32 w[2] = {at(u, 8 + 8 * n + l), at(u, 9 + 8 * n + l)}, h[2] = {at(u, l), at(u, l + 1)};
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int q = (w[i / 4] >> (8 * (i & 3) + 2 * j)) & 3;
      q += (int)((h[i / 4] >> (8 * (i & 3) + 4 * n + j)) & 1) * 4 - 4;
      out[i] = mul(d, (float)q);
    }
  }
  if (T == Q4_K || T == Q5_K) {
    float sc, mn;
    scales45(u, 1, b, sc, mn);
    u32 dm = at(u, 0);
    float d = mul(lowHalf(dm), sc), m = mul(highHalf(dm), mn);
    const int first = T == Q4_K ? 4 : 12;
    int q0 = first + 8 * (v >> 6) + l;
    u32 w[2] = {at(u, q0), at(u, q0 + 1)}, h[2] = {0, 0};
    if (T == Q5_K) h[0] = at(u, 4 + l), h[1] = at(u, 5 + l);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int q = (w[i / 4] >> (8 * (i & 3) + 4 * (b & 1))) & 15;
      if (T == Q5_K) q |= ((h[i / 4] >> (8 * (i & 3) + b)) & 1) << 4;
      out[i] = sub(mul(d, (float)q), m);
    }
  }
  if (T == Q6_K) {
    int s = (int)(at(u, 48 + (k >> 2)) << (24 - 8 * (k & 3))) >> 24;
    float d = mul(lowHalf(at(u, 52)), (float)s);
    int q0 = 16 * n + 8 * (j & 1) + l, h0 = 32 + 8 * n + l;
    u32 w[2] = {at(u, q0), at(u, q0 + 1)}, h[2] = {at(u, h0), at(u, h0 + 1)};
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int q = (w[i / 4] >> (8 * (i & 3) + 4 * (j >> 1))) & 15;
      q |= ((h[i / 4] >> (8 * (i & 3) + 2 * j)) & 3) << 4;
      out[i] = mul(d, (float)(q - 32));
    }
  }
}

// load8 of a type that is known when the kernel runs.
DEV void loadAny(float *out, int type, const char *panel, int lane, int k8) {
  switch (type) {
  case F32: return load8<F32>(out, panel, lane, k8);
  case BF16: return load8<BF16>(out, panel, lane, k8);
  case F16: return load8<F16>(out, panel, lane, k8);
  case Q8_0: return load8<Q8_0>(out, panel, lane, k8);
  case Q4_0: return load8<Q4_0>(out, panel, lane, k8);
  case Q4_1: return load8<Q4_1>(out, panel, lane, k8);
  case Q5_0: return load8<Q5_0>(out, panel, lane, k8);
  case Q5_1: return load8<Q5_1>(out, panel, lane, k8);
  case Q2_K: return load8<Q2_K>(out, panel, lane, k8);
  case Q3_K: return load8<Q3_K>(out, panel, lane, k8);
  case Q4_K: return load8<Q4_K>(out, panel, lane, k8);
  case Q5_K: return load8<Q5_K>(out, panel, lane, k8);
  default: return load8<Q6_K>(out, panel, lane, k8);
  }
}
