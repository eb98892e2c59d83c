// The primitive steps and scalar functions of docs/numerics.md, as package canon
// of the repository has them, and the small types that every kernel uses.
// Floats are only added, multiplied and divided through the intrinsics below:
// each of them is one correctly rounded instruction that nothing fuses.
#pragma once

#define DEV static __device__ __forceinline__
#define KERNEL extern "C" __global__ void

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// global says that a pointer read from memory leads to global memory.
template <class T> DEV T *global(T *p) {
  __builtin_assume(__isGlobal(p));
  return p;
}

DEV float fma32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEV float mul(float a, float b) { return __fmul_rn(a, b); }
DEV float add(float a, float b) { return __fadd_rn(a, b); }
DEV float sub(float a, float b) { return __fsub_rn(a, b); }
DEV float quo(float a, float b) { return __fdiv_rn(a, b); }
DEV float bits(u32 u) { return __uint_as_float(u); }

DEV float minusInf() { return bits(0xff800000u); }
DEV float pow2(int k) { return __int_as_float((k + 127) << 23); }

// exp32 is numerics.md 4.1. A NaN passes every clamp and step.
DEV float exp32(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  float t = fma32(x, bits(0x3fb8aa3b), bits(0x4b400000));
  float n = sub(t, bits(0x4b400000));
  int ni = __float_as_int(t) - 0x4b400000;
  float r = fma32(n, bits(0xbf317218), x);
  r = fma32(n, bits(0x3102e308), r);
  float q = bits(0x3ab5b4f9);
  q = fma32(q, r, bits(0x3c091797));
  q = fma32(q, r, bits(0x3d2aab46));
  q = fma32(q, r, bits(0x3e2aaa52));
  q = fma32(q, r, 0.5f);
  q = fma32(q, r, 1.0f);
  q = fma32(q, r, 1.0f);
  int n1 = ni >> 1;
  return mul(mul(q, pow2(n1)), pow2(ni - n1));
}

DEV float sigmoid(float x) { return quo(1.0f, add(1.0f, exp32(-x))); }
DEV float silu(float x) { return quo(x, add(1.0f, exp32(-x))); }
DEV float rsqrt32(float x) { return quo(1.0f, __fsqrt_rn(x)); }

// tail is TAIL of numerics.md 4.3: w, and s.
DEV float tail(float f, float &s) {
  s = quo(f, add(2.0f, f));
  float z = mul(s, s);
  float p = bits(0x3e78457c);
  p = fma32(p, z, bits(0x3e5b95dc));
  p = fma32(p, z, bits(0x3e928288));
  p = fma32(p, z, bits(0x3ecccb6c));
  p = fma32(p, z, bits(0x3f2aaaac));
  return mul(z, p);
}

// log1p32 is numerics.md 4.3 for 0 <= u <= 1.
DEV float log1p32(float u) {
  float s, w = tail(u, s);
  return fma32(-s, sub(u, w), u);
}

// log32 is numerics.md 4.3.
DEV float log32(float x) {
  if (!(x < bits(0x7f800000))) return x; // NaN and +Inf
  if (x <= 0.0f) return x == 0.0f ? minusInf() : bits(0x7fc00000);
  int e = 0;
  if (x < bits(0x00800000)) {
    x = mul(x, 8388608.0f);
    e = -23;
  }
  int k = (int)(__float_as_uint(x) - 0x3f3504f3u) >> 23;
  e += k;
  float f = sub(bits(__float_as_uint(x) - ((u32)k << 23)), 1.0f), s, w = tail(f, s);
  float d = fma32(-s, sub(f, w), f), fe = (float)e;
  return fma32(fe, bits(0x3f317218), fma32(fe, bits(0xb102e308), d));
}

DEV float softplus(float x) {
  float y = add(x > 0.0f ? x : 0.0f, log1p32(exp32(-fabsf(x))));
  return x == x ? y : x;
}

// erf32 is numerics.md 4.5.
DEV float erf32(float x) {
  float t = fabsf(x), s = mul(x, x), r;
  if (t > 0.927734375f) {
    r = fma32(bits(0xb7910000), t, bits(0x39c8e7d9));
    float u = fma32(bits(0xbb7e8a1c), t, bits(0x3cc6b1a1));
    r = fma32(r, s, u);
    r = fma32(r, t, bits(0xbddaae5c));
    r = fma32(r, t, bits(0xbf228550));
    r = fma32(r, t, bits(0xbe03ce86));
    r = fma32(r, t, -t);
    r = sub(1.0f, exp32(r));
    return x < 0.0f ? -r : r;
  }
  r = fma32(bits(0xba1c7000), s, bits(0x3ba38d2c));
  r = fma32(r, s, bits(0xbcdb48d9));
  r = fma32(r, s, bits(0x3de70e22));
  r = fma32(r, s, bits(0xbec09380));
  r = fma32(r, s, bits(0x3e0375d4));
  return fma32(r, x, x);
}

DEV float gelu(float x) { return mul(mul(0.5f, x), add(1.0f, erf32(mul(x, bits(0x3f3504f3))))); }

// View is a tensor of rows: [R, C], or [R, H, C] with every head a row.
struct View {
  float *p;
  i64 stride, stride2;
  int heads, rows;
  __device__ __forceinline__ float *row(int r) const { return p + (i64)(r / heads) * stride + (i64)(r % heads) * stride2; }
  // flat is row of a tensor with two axes.
  __device__ __forceinline__ float *flat(int r) const { return p + (i64)r * stride; }
  // wide says whether the rows of such a tensor begin at multiples of 16 bytes.
  __device__ __forceinline__ bool wide() const { return (((u64)p | (u64)stride * 4) & 15) == 0; }
};

// Status is the first failure that a kernel of the stream found; op numbers are
// those of Go's side.
struct Status {
  u32 op;
  int a, b, c;
};

DEV void fail(Status *s, u32 op, int a, int b, int c) {
  if (atomicCAS(&s->op, 0u, op) == 0u) {
    s->a = a;
    s->b = b;
    s->c = c;
  }
}

// tree adds the 32 lanes of a warp as numerics.md 3 does: every lane gets the sum.
DEV float tree(float v) {
#pragma unroll
  for (int h = 16; h >= 1; h /= 2) v = add(v, __shfl_xor_sync(0xffffffffu, v, h));
  return v;
}

// Sum and Squares are the two forms of RSUM.
struct Sum {
  static __device__ __forceinline__ float step(float x, float lane) { return add(lane, x); }
};
struct Squares {
  static __device__ __forceinline__ float step(float x, float lane) { return fma32(x, x, lane); }
};

// rsumBlock is the sum of one block of 1024 elements, for every lane of a warp.
template <class F> DEV float rsumBlock(const float *x, int n) {
  float lane = 0.0f;
  int i = threadIdx.x;
#pragma unroll 1
  for (; i + 96 < n; i += 128) { // loads together, steps in order
    float a = x[i], b = x[i + 32], c = x[i + 64], d = x[i + 96];
    lane = F::step(d, F::step(c, F::step(b, F::step(a, lane))));
  }
#pragma unroll 1
  for (; i < n; i += 32) lane = F::step(x[i], lane);
  return tree(lane);
}

// rsumWarp is RSUM of a row by one warp.
template <class F> DEV float rsumWarp(const float *x, int n) {
  float total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 1024) total = add(total, rsumBlock<F>(x + b, min(1024, n - b)));
  return total;
}

// rsumCTA is RSUM of a row by all warps of a CTA of (32, W) threads: every warp
// sums blocks, and their sums are added in order. part has room for W floats.
template <class F> DEV float rsumCTA(const float *x, int n, float *part) {
  int warps = blockDim.y, w = threadIdx.y;
  float total = 0.0f;
#pragma unroll 1
  for (int b = 0; b < n; b += 1024 * warps) {
    int from = b + 1024 * w;
    float v = from < n ? rsumBlock<F>(x + from, min(1024, n - from)) : 0.0f;
    if (threadIdx.x == 0) part[w] = v;
    __syncthreads();
    int used = min(warps, (n - b + 1023) >> 10);
#pragma unroll 1
    for (int i = 0; i < used; i++) total = add(total, part[i]);
    __syncthreads();
  }
  return total;
}

// maxCTA is the largest of f(0), …, f(n-1) that is no NaN, for every thread of a CTA.
template <class G> DEV float maxCTA(int n, float *part, const G &f) {
  float m = minusInf();
#pragma unroll 1
  for (int i = threadIdx.y * 32 + threadIdx.x; i < n; i += 32 * blockDim.y) {
    float v = f(i);
    m = v > m ? v : m;
  }
#pragma unroll
  for (int h = 16; h >= 1; h /= 2) {
    float v = __shfl_xor_sync(0xffffffffu, m, h);
    m = v > m ? v : m;
  }
  if (threadIdx.x == 0) part[threadIdx.y] = m;
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < blockDim.y; i++) m = part[i] > m ? part[i] : m;
  __syncthreads();
  return m;
}
