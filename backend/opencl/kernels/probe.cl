// What an exact device must get right (docs/numerics.md 1), on values that the
// compiler does not know.
__kernel void probe(__global float *in, uint at, uint n) {
    uint i = get_global_id(0);
    if (i >= n) return;
    __global float *out = in + at;
    float a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
    out[5 * i] = fma(a, b, c);
    out[5 * i + 1] = a * b + c;
    out[5 * i + 2] = a / b;
    out[5 * i + 3] = sqrt(fabs(a));
    out[5 * i + 4] = exp_(a);
}
