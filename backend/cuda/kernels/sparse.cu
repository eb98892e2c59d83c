// Ops that read some rows of weights (docs/numerics.md 2 and 5): embedding, single
// outputs, experts. The storage type is known when the kernel runs.
#include "weights.cuh"

// embed: one thread per eight values.
KERNEL embed(View dst, const int *ids, Weight w, Status *st, u32 op) {
  int k8 = blockIdx.x * blockDim.x + threadIdx.x;
  if (k8 * 8 >= w.k) return;
#pragma unroll 1
  for (int r = blockIdx.y; r < dst.rows; r += gridDim.y) {
    int id = ids[r];
    if (id < 0 || id >= w.n) {
      fail(st, op, id, r, w.n);
      return;
    }
    float v[8];
    loadAny(v, w.type, w.p + (i64)(id >> 5) * w.panel, id & 31, k8);
    float *d = dst.flat(r) + k8 * 8;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (k8 * 8 + i < w.k) d[i] = v[i];
  }
}

// block is the chain of one block of 128 inputs.
DEV float block(const float *x, const Weight &w, const char *panel, int lane, int b) {
  float acc = 0.0f;
  int last = min(b * 16 + 16, (w.k + 7) >> 3);
#pragma unroll 1
  for (int k8 = b * 16; k8 < last; k8++) {
    float v[8];
    loadAny(v, w.type, panel, lane, k8);
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (k8 * 8 + i < w.k) acc = fma32(x[k8 * 8 + i], v[i], acc);
  }
  return acc;
}

// linearRows: a warp per output and row, its lanes take blocks.
// grid (outputs, rows).
KERNEL linearRows(View dst, View x, const int *ids, Weight w, Status *st, u32 op) {
  int id = ids[blockIdx.x], lane = threadIdx.x, blocks = (w.k + 127) >> 7;
  if (id < 0 || id >= w.n) {
    if (lane == 0) fail(st, op, id, w.n, 0);
    return;
  }
  const char *panel = w.p + (i64)(id >> 5) * w.panel;
#pragma unroll 1
  for (int r = blockIdx.y; r < x.rows; r += gridDim.y) {
    float total = 0.0f;
#pragma unroll 1
    for (int first = 0; first < blocks; first += 32) {
      float acc = first + lane < blocks ? block(x.flat(r), w, panel, id & 31, first + lane) : 0.0f;
      int used = min(32, blocks - first);
#pragma unroll 1
      for (int i = 0; i < used; i++) total = add(total, __shfl_sync(0xffffffffu, acc, i));
    }
    if (lane == 0) dst.flat(r)[blockIdx.x] = total;
  }
}

struct Expert {
  Weight gate, up, down;
};

// dotPanel is DOT of x with the 32 outputs of a panel by a CTA of (32, W) threads,
// for every thread of its lane. part has room for W·32 floats.
DEV float dotPanel(const float *x, const Weight &w, int panel, float *part) {
  int lane = threadIdx.x, wy = threadIdx.y, warps = blockDim.y, blocks = (w.k + 127) >> 7;
  float total = 0.0f;
#pragma unroll 1
  for (int first = 0; first < blocks; first += warps) {
    int b = first + wy;
    if (b < blocks) part[wy * 32 + lane] = block(x, w, global(w.p) + panel * w.panel, lane, b);
    __syncthreads();
    int used = min(warps, blocks - first);
#pragma unroll 1
    for (int i = 0; i < used; i++) total = add(total, part[i * 32 + lane]);
    __syncthreads();
  }
  return total;
}

// expertsUp writes h[r·k + i] = silu(gate x)·up x of the i-th expert of row r.
// grid (panels, choices), block (32, W).
KERNEL __launch_bounds__(512, 1) expertsUp(float *h, View x, const int *ids, const Expert *list, int n, int k, int f, Status *st, u32 op) {
  __shared__ float part[16 * 32];
#pragma unroll 1
  for (int i = blockIdx.y; i < x.rows * k; i += gridDim.y) {
    int e = ids[i];
    if (e < 0 || e >= n) {
      if (threadIdx.x == 0) fail(st, op, i / k, e, n);
      return;
    }
    float g = dotPanel(x.flat(i / k), list[e].gate, blockIdx.x, part);
    float u = dotPanel(x.flat(i / k), list[e].up, blockIdx.x, part);
    int at = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.y == 0 && at < f) h[(i64)i * f + at] = mul(silu(g), u);
  }
}

// expertsDown adds the experts of a row, ascending.
KERNEL __launch_bounds__(512, 1) expertsDown(View dst, const float *h, const int *ids, View weights, const Expert *list, int n, int k, int f, int cols) {
  __shared__ float part[16 * 32];
#pragma unroll 1
  for (int r = blockIdx.y; r < dst.rows; r += gridDim.y) {
    float y = 0.0f;
#pragma unroll 1
    for (int i = 0; i < k; i++) {
      int e = ids[(i64)r * k + i];
      if (e < 0 || e >= n) return;
      y = fma32(weights.flat(r)[i], dotPanel(h + ((i64)r * k + i) * f, list[e].down, blockIdx.x, part), y);
    }
    int at = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.y == 0 && at < cols) dst.flat(r)[at] = y;
  }
}
