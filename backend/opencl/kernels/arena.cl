// The device's memory is a few large buffers. What lies in any of them, pages of
// keys and values, recurrent states, weights of experts, is named by a reference:
// the buffer's number in the upper 8 bits, the byte in the others.
#define ARENA \
    __global uchar *m0, __global uchar *m1, __global uchar *m2, __global uchar *m3, __global uchar *m4, __global uchar *m5, \
    __global uchar *m6, __global uchar *m7, __global uchar *m8, __global uchar *m9, __global uchar *m10, __global uchar *m11, \
    __global uchar *m12, __global uchar *m13, __global uchar *m14, __global uchar *m15
#define AT(ref) at(ref, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
#define FLOATS(ref) ((__global float *)AT(ref))

__global uchar *at(ulong ref, ARENA) {
    __global uchar *m = m0;
    switch (ref >> 56) {
    case 1: m = m1; break;
    case 2: m = m2; break;
    case 3: m = m3; break;
    case 4: m = m4; break;
    case 5: m = m5; break;
    case 6: m = m6; break;
    case 7: m = m7; break;
    case 8: m = m8; break;
    case 9: m = m9; break;
    case 10: m = m10; break;
    case 11: m = m11; break;
    case 12: m = m12; break;
    case 13: m = m13; break;
    case 14: m = m14; break;
    case 15: m = m15; break;
    }
    return m + (ref & 0xffffffffffffffUL);
}

// Row and Seg are the ragged tables of a plan; TABLES says where they lie.
typedef struct {
    uint seg, slot, pos, pad;
} Row;

typedef struct {
    uint first, rows, pages, pad; // first row of the pass, rows, first of its pages in the list
    ulong delta_in, delta_out, conv_in, conv_out, sum_in, sum_out;
} Seg;

#define TABLES ARENA, ulong rows_at, ulong segs_at, ulong pages_at
#define ROW(r) (((__global const Row *)AT(rows_at))[r])
#define SEG(i) (((__global const Seg *)AT(segs_at))[i])
#define KEYS(row, block) FLOATS(((__global const ulong *)AT(pages_at))[SEG(row.seg).pages + (block)])

// span is the first slot that a row at slot own sees.
uint span(uint own, uint window) { return window > 0 && own + 1 > window ? own + 1 - window : 0; }
