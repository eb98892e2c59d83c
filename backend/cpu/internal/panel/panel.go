// Package panel says how packed weights look to the cpu backend: a matrix of
// N outputs by K inputs is cut into panels of 32 outputs, so that the lanes of
// a vector run over outputs while each output keeps its own chain over k
// (numerics.md 2). What a panel holds inside is its codec's business; only the
// float32 values of the weights, in rising k, are fixed.
package panel

// Width is the number of outputs in a panel. The last panel of a matrix is
// filled up with zero weights.
const Width = 32

// KB is the block length of the contract's DOT.
const KB = 128

// Count returns the number of panels that n outputs need.
func Count(n int) int { return (n + Width - 1) / Width }

// Codec is one storage format of packed weights with its kernels for one
// instruction set. All funcs are single-threaded, allocate nothing and may be
// called concurrently. Every panel of one matrix takes Bytes(k) bytes and they
// lie one after the other, the first on a 64-byte boundary.
type Codec struct {
	Name string

	// Bytes returns the size of one panel of K = k inputs, a multiple of 64.
	Bytes func(k int) int

	// Pack fills one panel from rows <= 32 file rows; row r begins at
	// src[r*stride]. Missing rows become zero weights.
	Pack func(dst, src []byte, stride, rows, k int)

	// Row writes the k float32 weights of one lane.
	Row func(dst []float32, panel []byte, lane, k int)

	// Expand writes the float32 weights of inputs [k0, k0+n) as dst[n][32];
	// k0 is a multiple of 128 and n <= 128. Nil for the float32 codec, whose
	// panels already have that form.
	Expand func(dst []float32, panel []byte, k, k0, n int)

	// Tile adds inputs [k0, k0+n) of a panel, bounds as of Expand but n > 0, to the
	// chains of rows 2 to MaxTile:
	//
	//	dst[r·dstStride/4 + lane] = src[r·srcStride/4 + lane] + Σ(chain from +0, i < n) a[i·rows + r]·weight[k0+i, lane]
	//
	// Nil where MaxTile is 0: what has no kernel for that expands.
	Tile    func(rows int, dst *float32, dstStride int, src *float32, srcStride int, a *float32, panel []byte, k0, n int)
	MaxTile int

	// Gemv writes y[32·p+lane] = DOT(x, weight) for every panel p of panels;
	// len(y) is 32 times their number, len(x) == k.
	Gemv func(y, x []float32, panels []byte, k int)
}
