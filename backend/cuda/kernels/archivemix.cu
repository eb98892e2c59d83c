// Ops that join the responses of window and archive (docs/numerics.md 16.2 and 16.4),
// and GELU.
#include "archive.cuh"
#include "grad.cuh"

// head is the value of row r, heads counted one by one, in a tensor [R, H].
DEV float head(const View &x, const View &rows, int r) { return x.flat(r / rows.heads)[r % rows.heads]; }

KERNEL blend(View dst, View x, View y, View a, int cols) {
  EACH(cols, dst.rows) {
    float w = head(a, dst, r);
    dst.row(r)[c] = fma32(w, y.row(r)[c], mul(sub(1.0f, w), x.row(r)[c]));
  }
}

// massMerge joins local and exact by their log masses ml and me.
KERNEL massMerge(View dst, View local, View ml, View exact, View me, int cols) {
  EACH(cols, dst.rows) {
    float m = head(me, dst, r), w = m != minusInf() ? sigmoid(sub(m, head(ml, dst, r))) : 0.0f;
    dst.row(r)[c] = fma32(w, exact.row(r)[c], mul(sub(1.0f, w), local.row(r)[c]));
  }
}

KERNEL geluRows(View dst, View x, int cols) {
  EACH(cols, dst.rows) dst.flat(r)[c] = gelu(x.flat(r)[c]);
}

// latent is the queries' part z of a low-rank correction, a thread per rank: of rows of
// q from first on, heads counted one by one, of which group share a matrix
// v [A, d, rank].
KERNEL latent(float *z, View q, const float *v, int first, int rows, int rank, int d, int group) {
  EACH(rank, rows) z[(i64)r * rank + c] = dot(q.row(first + r), Column{v + (i64)((first + r) % q.heads / group) * d * rank + c, rank}, d);
}

// correct adds z·u to q, u [A, rank, d].
KERNEL correct(View dst, View q, const float *z, const float *u, int rank, int d, int group) {
  EACH(d, dst.rows) dst.row(r)[c] = add(q.row(r)[c], dot(z + (i64)r * rank, Column{u + (i64)(r % q.heads / group) * rank * d + c, d}, rank));
}

// gateMix: a warp per head of a row. Rows at slots below from have no archive; gate
// and promote have no memory if there are none.
KERNEL __launch_bounds__(128) gateMix(const Seg *segs, const int *segOf, View dst, View local, View remote, View gate, View promote, int from, float constant, int norm, int cols) {
  int r = blockIdx.x * 4 + threadIdx.y;
  if (r >= dst.rows) return;
  int t = r / dst.heads;
  const Seg &s = segs[segOf[t]];
  float *d = dst.row(r);
  const float *x = local.row(r), *y = remote.row(r);
  if (s.slot + t - s.row < from) {
#pragma unroll 1
    for (int i = threadIdx.x; i < cols; i += 32) d[i] = x[i];
    return;
  }
  float g = gate.p ? sigmoid(head(gate, dst, r)) : constant, up = promote.p ? head(promote, dst, r) : 0.0f;
  bool remotely = !gate.p && up == 0.0f && !norm; // g is the remote weight
  if (!remotely) {
    if (!gate.p) g = sub(1.0f, g);
    g = mul(g, sub(1.0f, up));
    if (norm) {
      float a = length(quo(rsumWarp<Squares>(x, cols), (float)cols)), b = length(quo(rsumWarp<Squares>(y, cols), (float)cols));
      g = mul(sub(1.0f, g), less(greater(less(quo(a, greater(b, 1e-6f)), quo(b, greater(a, 1e-6f))), 0.0f), 1.0f));
      remotely = true;
    }
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < cols; i += 32) d[i] = remotely ? fma32(g, y[i], mul(sub(1.0f, g), x[i])) : fma32(g, x[i], mul(sub(1.0f, g), y[i]));
}
