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

// at is word i of a lane's unit. A plain load: what is read twice is loaded once.
DEV u32 at(const u32 *u, int i) { return u[i * 32]; }
DEV int byteOf(u32 w, int i) { return (w >> (8 * i)) & 255; }

// Layout says how a block type lies: groups of 8 values in a unit and under one
// scale, words of a unit, the words before its codes, and the code of zero.
template <int T> struct Layout {
  static const bool pairs = T >= Q8_0 && T <= Q5_1; // two blocks of 32 in a unit
  static const bool minimum = T == Q4_1 || T == Q5_1 || T == Q2_K || T == Q4_K || T == Q5_K;
  static const int unit = pairs ? 8 : 32, run = T == Q2_K || T == Q3_K || T == Q6_K ? 2 : 4;
  static const int words = T == Q8_0 ? 17 : T == Q4_0 ? 9 : T == Q4_1 ? 10 : T == Q5_0 ? 11 : T == Q5_1 ? 12 : T == Q2_K ? 21 : T == Q3_K ? 28 : T == Q4_K ? 36 : T == Q5_K ? 44 : 53;
  static const int head = T == Q8_0 || T == Q4_0 ? 1 : T == Q4_1 ? 2 : T == Q5_0 ? 3 : T == Q5_1 ? 4 : 0;
  static const int zero = T == Q8_0 ? 128 : T == Q4_0 ? 8 : T == Q5_0 ? 16 : T == Q3_K ? 4 : T == Q6_K ? 32 : 0;
};

// unitOf is where a lane's words of the unit with group k8 begin.
template <int T> DEV const u32 *unitOf(const char *panel, int lane, u32 k8) {
  return (const u32 *)panel + (i64)(k8 / Layout<T>::unit) * (Layout<T>::words * 32) + lane;
}

// Within a unit, group g of 8 values lies in block c of 32 of pair p of blocks.
// Compilers see what loops over g and c share.

// whole is the float of byte i of w, less zero, in two exact steps: the last byte
// of 2^23 + c, then less 2^23.
DEV float whole(u32 w, u32 i, int zero) { return sub(bits(__byte_perm(0x4b000000u, w, 0x3214 + i)), (float)(8388608 + zero)); }

// sixes gives the factors and the minima of four blocks of Q4_K or Q5_K, the first
// or the second half of a unit: six bits each from 12 bytes.
DEV void sixes(const u32 *u, u32 half, u32 &factors, u32 &minima) {
  u32 s0 = at(u, 1), s1 = at(u, 2);
  if (half == 0) {
    factors = s0 & 0x3f3f3f3fu, minima = s1 & 0x3f3f3f3fu;
  } else {
    u32 s2 = at(u, 3);
    factors = (s2 & 0x0f0f0f0fu) | (s0 >> 2 & 0x30303030u), minima = (s2 >> 4 & 0x0f0f0f0fu) | (s1 >> 2 & 0x30303030u);
  }
}

// scales gives the factor d and the minimum m of a group.
template <int T> DEV void scales(const u32 *u, u32 p, u32 c, u32 g, float &d, float &m) {
  u32 b = 2 * p + c, k = 2 * b + g / 2; // block of 32 and of 16
  m = 0.0f;
  if (Layout<T>::pairs && Layout<T>::minimum) {
    u32 w = at(u, b);
    d = lowHalf(w), m = highHalf(w);
  } else if (Layout<T>::pairs) {
    d = half32(at(u, 0) >> (16 * b) & 0xffffu);
  } else if (T == Q2_K) {
    u32 s = byteOf(at(u, k >> 2), k & 3), dm = at(u, 20);
    d = mul(lowHalf(dm), (float)(int)(s & 15)), m = mul(highHalf(dm), (float)(int)(s >> 4));
  } else if (T == Q3_K) {
    u32 lo = byteOf(at(u, 24 + ((k & 7) >> 2)), k & 3) >> (4 * (k >> 3)) & 15;
    u32 hi = byteOf(at(u, 26), k & 3) >> (2 * (k >> 2)) & 3;
    d = mul(lowHalf(at(u, 27)), (float)((int)(lo | hi << 4) - 32));
  } else if (T == Q4_K || T == Q5_K) {
    u32 dm = at(u, 0), sc, mn;
    sixes(u, b >> 2, sc, mn);
    d = mul(lowHalf(dm), whole(sc, b & 3, 0)), m = mul(highHalf(dm), whole(mn, b & 3, 0));
  } else {
    int s = (int)(at(u, 48 + (k >> 2)) << (24 - 8 * (k & 3))) >> 24;
    d = mul(lowHalf(at(u, 52)), (float)s);
  }
}

// codes gives the codes of values 4i to 4i + 3 of a group, one per byte.
template <int T> DEV u32 codes(const u32 *u, u32 p, u32 c, u32 g, u32 i) {
  const int head = Layout<T>::head;
  u32 b = 2 * p + c, n = p >> 1, j = 2 * (p & 1) + c, l = 2 * g + i;
  if (T == Q8_0) return at(u, head + 8 * b + l) ^ 0x80808080u;
  if (Layout<T>::pairs) {
    u32 w = at(u, head + 4 * b + 2 * (g & 1) + i) >> (4 * (g >> 1)) & 0x0f0f0f0fu;
    if (T == Q5_0 || T == Q5_1) { // fifth bits, four neighbouring ones of a word
      u32 four = at(u, (T == Q5_1 ? 2 : 1) + b) >> (4 * l) & 15;
      w |= (four * 0x00204081u & 0x01010101u) << 4;
    }
    return w;
  }
  if (T == Q2_K) return at(u, 4 + 8 * n + l) >> (2 * j) & 0x03030303u;
  if (T == Q3_K) return (at(u, 8 + 8 * n + l) >> (2 * j) & 0x03030303u) | (at(u, l) >> (4 * n + j) & 0x01010101u) << 2;
  if (T == Q4_K) return at(u, 4 + 8 * p + l) >> (4 * c) & 0x0f0f0f0fu;
  if (T == Q5_K) return (at(u, 12 + 8 * p + l) >> (4 * c) & 0x0f0f0f0fu) | (at(u, 4 + l) >> b & 0x01010101u) << 4;
  return (at(u, 16 * n + 8 * c + l) >> (4 * (p & 1)) & 0x0f0f0f0fu) | (at(u, 32 + 8 * n + l) >> (2 * j) & 0x03030303u) << 4;
}

// group gives the eight values of a group.
template <int T> DEV void group(float *out, const u32 *u, u32 p, u32 c, u32 g, float d, float m) {
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float q = whole(codes<T>(u, p, c, g, i / 4), i % 4, Layout<T>::zero);
    // The product is exact, so that fused steps round as two do.
    out[i] = Layout<T>::minimum ? fma32(d, q, Layout<T>::pairs ? m : -m) : mul(d, q);
  }
}

// upper is group for block 1 of a pair of Q4_K, whose codes are the upper halves of
// bytes: sixteen times a code, times a sixteenth of the factor, is the same product.
DEV void upper(float *out, const u32 *u, u32 p, u32 g, float sixteenth, float m) {
#pragma unroll
  for (int i = 0; i < 8; i++) out[i] = fma32(sixteenth, whole(at(u, 4 + 8 * p + 2 * g + i / 4) & 0xf0f0f0f0u, i % 4, 0), -m);
}

template <int T> DEV void load8(float *out, const char *panel, int lane, int k8) {
  if constexpr (T == F32) {
    const float4 *p = (const float4 *)panel + k8 * 64 + lane;
    float4 a = __ldg(p), b = __ldg(p + 32);
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
  } else if constexpr (T == BF16 || T == F16) {
    uint4 v = __ldg((const uint4 *)panel + k8 * 32 + lane);
    u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out[2 * i] = T == BF16 ? bits(w[i] << 16) : lowHalf(w[i]);
      out[2 * i + 1] = T == BF16 ? bits(w[i] & 0xffff0000u) : highHalf(w[i]);
    }
  } else {
    const u32 *u = unitOf<T>(panel, lane, k8);
    float d, m;
    u32 p = (u32)k8 / 8 % (Layout<T>::unit / 8), c = k8 >> 2 & 1, g = k8 & 3;
    scales<T>(u, p, c, g, d, m);
    group<T>(out, u, p, c, g, d, m);
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
