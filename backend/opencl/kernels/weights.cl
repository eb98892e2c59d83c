// Storage types of weights: value k of a row of any of them is its defined float32
// value (docs/numerics.md 9). The block types lie as in GGUF files.

float f16(ushort h) {
    uint sign = (uint)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00) return as_float(sign | 0x7f800000 | (mag & 0x3ff) << 13);
    if (mag < 0x0400) return as_float(sign | as_uint((float)mag * 0x1p-24f)); // subnormal, exact
    return as_float(sign | ((mag << 13) + ((127 - 15) << 23)));
}

typedef __global const uchar *Bytes;

float f16_at(Bytes p) { return f16(p[0] | (ushort)p[1] << 8); }

float value_f32(Bytes w, uint k) { return ((__global const float *)w)[k]; }

float value_bf16(Bytes w, uint k) { return as_float((uint)((__global const ushort *)w)[k] << 16); }

float value_f16(Bytes w, uint k) { return f16(((__global const ushort *)w)[k]); }

float value_q8_0(Bytes w, uint k) {
    w += k / 32 * 34;
    return f16_at(w) * (float)(char)w[2 + k % 32];
}

// low4 is a code of the formats with 32 values in 16 bytes.
int low4(Bytes q, uint i) { return q[i & 15] >> (i / 16 * 4) & 15; }

// fifth is bit i of four bytes, moved to its place in the code.
int fifth(Bytes q, uint i) { return (q[i / 8] >> i % 8 & 1) << 4; }

float value_q4_0(Bytes w, uint k) {
    w += k / 32 * 18;
    return f16_at(w) * (float)(low4(w + 2, k % 32) - 8);
}

float value_q4_1(Bytes w, uint k) {
    w += k / 32 * 20;
    return f16_at(w) * (float)low4(w + 4, k % 32) + f16_at(w + 2);
}

float value_q5_0(Bytes w, uint k) {
    w += k / 32 * 22;
    return f16_at(w) * (float)((low4(w + 6, k % 32) | fifth(w + 2, k % 32)) - 16);
}

float value_q5_1(Bytes w, uint k) {
    w += k / 32 * 24;
    return f16_at(w) * (float)(low4(w + 8, k % 32) | fifth(w + 4, k % 32)) + f16_at(w + 2);
}

float value_q2_k(Bytes w, uint k) {
    uint v = k % 256;
    w += k / 256 * 84;
    int q = w[16 + v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3;
    int s = w[v / 16];
    return (f16_at(w + 80) * (float)(s & 15)) * (float)q - f16_at(w + 82) * (float)(s >> 4);
}

float value_q3_k(Bytes w, uint k) {
    uint v = k % 256, l = v % 32, n = v / 128, j = v % 128 / 32, b = v / 16;
    w += k / 256 * 110;
    Bytes s = w + 96;
    int scale = ((s[b & 7] >> (b / 8 * 4) & 15) | (s[8 + b % 4] >> (b / 4 * 2) & 3) << 4) - 32;
    int q = (w[32 + 32 * n + l] >> (2 * j) & 3) + (w[l] >> (4 * n + j) & 1) * 4 - 4;
    return (f16_at(w + 108) * (float)scale) * (float)q;
}

// value_45 is Q4_K and, with the fifth bits, Q5_K.
float value_45(Bytes w, uint v, int q) {
    Bytes s = w + 4;
    uint b = v / 32;
    int scale, least;
    if (b < 4) {
        scale = s[b] & 63;
        least = s[b + 4] & 63;
    } else {
        scale = (s[b + 4] & 15) | s[b - 4] >> 6 << 4;
        least = s[b + 4] >> 4 | s[b] >> 6 << 4;
    }
    return (f16_at(w) * (float)scale) * (float)q - f16_at(w + 2) * (float)least;
}

float value_q4_k(Bytes w, uint k) {
    uint v = k % 256;
    w += k / 256 * 144;
    return value_45(w, v, w[16 + v / 64 * 32 + v % 32] >> (v / 32 % 2 * 4) & 15);
}

float value_q5_k(Bytes w, uint k) {
    uint v = k % 256, b = v / 32, l = v % 32;
    w += k / 256 * 176;
    return value_45(w, v, (w[48 + v / 64 * 32 + l] >> (b % 2 * 4) & 15) | (w[16 + l] >> b & 1) << 4);
}

float value_q6_k(Bytes w, uint k) {
    uint v = k % 256, n = v / 128, j = v % 128 / 32, l = v % 32;
    w += k / 256 * 210;
    int q = (w[64 * n + 32 * (j & 1) + l] >> (j / 2 * 4) & 15) | (w[128 + 32 * n + l] >> (2 * j) & 3) << 4;
    return (f16_at(w + 208) * (float)(char)w[192 + v / 16]) * (float)(q - 32);
}
