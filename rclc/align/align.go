// Package align solves the alignment matrix of latent rollout: the linear map that
// takes a model's output embedding to its input embedding as well as one can.
package align

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Lambda is the usual ridge.
const Lambda = 1e-5

// Ridge solves
//
//	M = (OutᵀOut + λI)⁻¹ OutᵀIn
//
// in float64 for embeddings out and in, both [vocab, hidden] in row-major order,
// and returns Mᵀ, [hidden, hidden] with one row per output: what a rollout takes as
// its alignment, h' = Mᵀh. With tied embeddings M is nearly the identity.
//
// rows hands out row i of both; a nil second row means that it is the first.
// Its slices are read before the next call. λ must be positive; 0 means Lambda. It
// fails when a value is not finite, and when the system is too ill-conditioned for
// float64.
func Ridge(vocab, hidden int, lambda float64, rows func(i int) (out, in []float32, err error)) ([]float32, error) {
	if lambda == 0 {
		lambda = Lambda
	}
	if vocab < 1 || hidden < 1 || hidden > 1<<15 {
		return nil, fmt.Errorf("align: embeddings of %d × %d: want at least one row, and 1 to %d values in it", vocab, hidden, 1<<15)
	}
	if !(lambda > 0) || math.IsInf(lambda, 0) {
		return nil, fmt.Errorf("align: ridge %v: want a positive number", lambda)
	}
	gram := mat.NewSymDense(hidden, nil)
	cross := mat.NewDense(hidden, hidden, nil)
	// Blocks of rows, so that the sums are products of matrices and nothing of the
	// vocabulary's size is held.
	const block = 256
	a, b := mat.NewDense(block, hidden, nil), mat.NewDense(block, hidden, nil)
	var atb mat.Dense
	for at := 0; at < vocab; at += block {
		n := min(block, vocab-at)
		for i := range n {
			out, in, err := rows(at + i)
			if err != nil {
				return nil, fmt.Errorf("align: row %d: %w", at+i, err)
			}
			if in == nil {
				in = out
			}
			if len(out) != hidden || len(in) != hidden {
				return nil, fmt.Errorf("align: row %d has %d and %d values, want %d", at+i, len(out), len(in), hidden)
			}
			for j := range hidden {
				x, y := float64(out[j]), float64(in[j])
				if x-x != 0 || y-y != 0 {
					return nil, fmt.Errorf("align: row %d, column %d: %v and %v: want finite values", at+i, j, out[j], in[j])
				}
				a.Set(i, j, x)
				b.Set(i, j, y)
			}
		}
		x, y := a.Slice(0, n, 0, hidden), b.Slice(0, n, 0, hidden)
		gram.SymRankK(gram, 1, x.T())
		atb.Mul(x.T(), y)
		cross.Add(cross, &atb)
	}
	for i := range hidden {
		gram.SetSym(i, i, gram.At(i, i)+lambda)
	}
	var chol mat.Cholesky
	if !chol.Factorize(gram) {
		return nil, fmt.Errorf("align: the embeddings are too nearly dependent for a ridge of %v: use a larger one", lambda)
	}
	var m mat.Dense
	if err := chol.SolveTo(&m, cross); err != nil {
		var cond mat.Condition
		if !errors.As(err, &cond) || math.IsInf(float64(cond), 1) {
			return nil, fmt.Errorf("align: %w", err)
		}
		return nil, fmt.Errorf("align: condition number %.3g with a ridge of %v: use a larger one", float64(cond), lambda)
	}
	t := make([]float32, hidden*hidden)
	for o := range hidden {
		for i := range hidden {
			t[o*hidden+i] = float32(m.At(i, o))
		}
	}
	return t, nil
}
