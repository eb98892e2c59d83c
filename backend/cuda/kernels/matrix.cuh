// Products of 16 x 16 by 16 x 8 matrices of bfloat16 on tensor cores, summed in
// float32. They promise neither an order nor a rounding: only kernels of the fast
// mode (fast*.cu) use them. Matrices lie in shared memory in units of eight
// neighbouring values of a row, 16 bytes, rows side by side: the eight rows that one
// step of ldmatrix reads are 128 neighbouring bytes.
#pragma once
#include "canon.cuh"

// pack rounds two floats to bfloat16, to nearest; a lies lower.
DEV u32 pack(float a, float b) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(b), "f"(a));
  return d;
}

DEV uint4 pack8(const float *v) { return make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])); }

// load4 loads four 8 x 8 matrices; lane 8i + r gives the address of row r of
// matrix i.
DEV void load4(u32 *d, const uint4 *p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"((u32)__cvta_generic_to_shared(p))
               : "memory");
}

// load4Turned gives of each matrix its transpose.
DEV void load4Turned(u32 *d, const uint4 *p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"((u32)__cvta_generic_to_shared(p))
               : "memory");
}

// mma adds A·B to d: lane 4g + t has columns 2t, 2t + 1 of rows g and g + 8 of d.
DEV void mma(float *d, const u32 *a, const u32 *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
