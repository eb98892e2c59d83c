// Package delta holds the cpu backend's kernels of Gated DeltaNet layers: the
// gated delta rule of one head, the causal depthwise convolution before it,
// and its gates (docs/numerics.md 8). Every instruction set gives the same
// bits, and so does every cut of the rows.
package delta

//go:generate go -C ../../../../internal/gen run ./delta -pkg delta -out ../../backend/cpu/internal/delta/delta_avx2_amd64.s -stubs ../../backend/cpu/internal/delta/delta_avx2_amd64.go
//go:generate go -C ../../../../internal/gen run ./delta -avx512 -pkg delta -out ../../backend/cpu/internal/delta/delta_avx512_amd64.s -stubs ../../backend/cpu/internal/delta/delta_avx512_amd64.go
//go:generate go -C ../../../../internal/gen run ./delta -neon ../../backend/cpu/internal/delta/delta_neon_arm64.s

import (
	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/vec"
)

// kb is the block length of the contract's DOT.
const kb = 128

// Kernels are the kernels of one instruction set. Get them from [For]. Every
// method is single-threaded, allocates nothing and may be called concurrently.
type Kernels struct {
	// Set is the instruction set these kernels use.
	Set isa.Set

	row *vec.Kernels
	run func(h *Head, tmp []float32)
}

// For returns the kernels of an available set ([isa.Available]).
func For(s isa.Set) *Kernels {
	k := &Kernels{Set: s, row: vec.For(s), run: native(s)}
	if k.run == nil {
		k.run = runGeneric
	}
	return k
}

// Head is the work of one head over T rows of one sequence.
//
// The state is [Dk][Dv] float32, row-major. It is read from Src and written to
// Dst, which may be the same slice but may not overlap partly. Row t of q lies
// at Q[t*QStride:], of k at K[t*KStride:] (Dk values each), of v at
// V[t*VStride:] and of the output at Out[t*OutStride:] (Dv values each); the
// decay and beta of row t are G[t*GStride] and Beta[t*BetaStride]. Strides count
// floats. q and k come normalised and scaled. Out may not overlap an input.
type Head struct {
	T, Dk, Dv int

	Dst, Src     []float32
	Out, Q, K, V []float32
	G, Beta      []float32

	OutStride, QStride, KStride, VStride, GStride, BetaStride int
}

// Scratch is the number of floats that [Kernels.Run] needs as scratch.
func Scratch(dk, dv int) int { return max(32*dk+64, 3*dv) }

// Run writes for every row, one after the other,
//
//	S[i][j] = S[i][j]·g
//	d[j]    = (v[j] - DOT over i (S[i][j], k[i]))·beta
//	S[i][j] = FMA(k[i], d[j], S[i][j])
//	out[j]  = DOT over i (S[i][j], q[i])
//
// With T == 0 the state is copied. tmp is scratch of [Scratch] floats or more;
// what it holds does not matter.
func (k *Kernels) Run(h *Head, tmp []float32) {
	if h.T == 0 {
		copy(h.Dst[:h.Dk*h.Dv], h.Src)
		return
	}
	k.run(h, tmp)
}

// Gates writes the decay g = exp(-(aExp·softplus(a + dtBias))) and
// beta = sigmoid(b) of one row; all slices have one value per head, and
// aExp = exp(A_log). g may be a, beta may be b.
func (k *Kernels) Gates(g, beta, a, b, aExp, dtBias []float32) {
	k.row.Add(g, a, dtBias)
	k.row.Softplus(g, g)
	k.row.Mul(g, g, aExp)
	k.row.Scale(g, g, -1) // exact
	k.row.Exp(g, g)
	k.row.Sigmoid(beta, b)
}
