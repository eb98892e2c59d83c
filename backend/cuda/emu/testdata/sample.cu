// Kernels that try the emulator with what a compiler makes of them. The text
// beside this file comes from
//
//	nvcc -ptx -arch=compute_75 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true sample.cu
//
// (nvidia-cuda-nvcc 13.0.88) with .version lowered to 7.0.
#include <stdint.h>

__device__ const float tab[4] = {1.f, 2.f, 3.f, 4.f};
__constant__ int ctab[8] = {1, 2, 3, 4, 5};

// gemm: C[M, N] = A[M, K] · B[N, K]ᵀ in blocks of 128 of K, a tile of 64 by 64
// per block of 256 threads, 4 by 4 per thread.
extern "C" __global__ void gemm(float *__restrict__ C, const float *__restrict__ A, const float *__restrict__ B, int M, int N, int K) {
	__shared__ __align__(16) float As[2][16][64];
	__shared__ __align__(16) float Bs[2][16][64];
	int t = threadIdx.x;
	int tx = t & 15, ty = t >> 4;
	int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64;
	float tot[4][4] = {};
	for (int kb = 0; kb < K; kb += 128) {
		float acc[4][4] = {};
		int ke = min(kb + 128, K);
		for (int k0 = kb; k0 < ke; k0 += 16) {
			__syncthreads();
#pragma unroll
			for (int i = 0; i < 4; i++) {
				int e = t + i * 256;
				int r = e >> 4, c = e & 15;
				As[0][c][r] = (m0 + r < M && k0 + c < ke) ? A[(size_t)(m0 + r) * K + k0 + c] : 0.f;
				Bs[0][c][r] = (n0 + r < N && k0 + c < ke) ? B[(size_t)(n0 + r) * K + k0 + c] : 0.f;
			}
			__syncthreads();
#pragma unroll
			for (int k = 0; k < 16; k++) {
				float4 a = *(float4 *)&As[0][k][ty * 4];
				float4 b = *(float4 *)&Bs[0][k][tx * 4];
				float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
				for (int i = 0; i < 4; i++)
#pragma unroll
					for (int j = 0; j < 4; j++) acc[i][j] = fmaf(av[i], bv[j], acc[i][j]);
			}
		}
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++) tot[i][j] += acc[i][j];
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			int m = m0 + ty * 4 + i, n = n0 + tx * 4 + j;
			if (m < M && n < N) C[(size_t)m * N + n] = tot[i][j];
		}
}

__device__ float wsum(float v) {
	for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
	return __shfl_sync(~0u, v, 0);
}

__device__ float wmax(float v) {
	for (int d = 16; d; d >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
	return v;
}

// ex has the shape of an exponential, not its digits.
__device__ float ex(float x) {
	if (x != x) return x;
	x = fminf(fmaxf(x, -104.f), 89.f);
	float t = fmaf(x, 1.442695f, 12582912.f);
	float n = t - 12582912.f;
	int ni = __float_as_int(t) - 0x4b400000;
	float r = fmaf(n, -0.693f, x);
	float q = fmaf(r, 0.1f, 1.f);
	int n1 = ni >> 1, n2 = ni - n1;
	return (q * __int_as_float((n1 + 127) << 23)) * __int_as_float((n2 + 127) << 23);
}

// softmax: a warp per row, shuffles and branches in a loop.
extern "C" __global__ void softmax(float *y, const float *x, int K) {
	int r = blockIdx.x;
	const float *p = x + (size_t)r * K;
	float m = -INFINITY;
	for (int i = threadIdx.x; i < K; i += 32) m = fmaxf(m, p[i]);
	m = wmax(m);
	float s = 0;
	for (int i = threadIdx.x; i < K; i += 32) s += ex(p[i] - m);
	s = wsum(s);
	float inv = 1.f / s;
	for (int i = threadIdx.x; i < K; i += 32) y[(size_t)r * K + i] = ex(p[i] - m) * inv * tab[i & 3];
}

// diverge: every lane leaves its loop at another time.
extern "C" __global__ void diverge(int *y, const int *n, int N) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= N) return;
	unsigned c = n[i];
	int s = 0;
	while (c != 1 && s < 1000) {
		c = (c & 1) ? 3 * c + 1 : c / 2;
		s++;
		if (s == 77) continue;
		s += c % 7 == 3;
	}
	y[i] = s + ctab[i & 7];
}

// misc: doubles, bytes, dynamic shared memory, votes, atomics, a switch.
extern "C" __global__ void misc(double *d, uint8_t *b, long long *l, unsigned *u, int n) {
	extern __shared__ unsigned char sm[];
	int i = threadIdx.x;
	sm[i] = b[i];
	__syncthreads();
	d[i] = sqrt((double)i) / 3.0 + fma((double)i, 2.0, 1.0);
	b[i] = sm[blockDim.x - 1 - i];
	l[i] = (long long)i * n % 1000007;
	unsigned bal = __ballot_sync(~0u, i & 1);
	u[i] = __popc(bal) + __clz(i) + __brev(i) + __ffs(i);
	if (__any_sync(~0u, i > 5)) atomicAdd(u + n, 1u);
	atomicMax((int *)u + n + 1, i);
	unsigned short h = b[i];
	unsigned bf = ((unsigned)h) << 16;
	d[i] += __uint_as_float(bf);
	switch (i % 5) {
	case 0: u[i] += 3; break;
	case 1: u[i] *= 5; break;
	case 2: u[i] ^= 9; break;
	case 3: u[i] -= 2; break;
	default: u[i] = ~u[i];
	}
	u[i] = __float2int_rn((float)d[i]) + __float2uint_rz(sqrtf(d[i]));
}
