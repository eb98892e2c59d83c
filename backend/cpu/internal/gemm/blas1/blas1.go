// Package blas1 has the vector operations that a BLAS needs beside the matrix
// product, in the orders of docs/numerics.md: Dot is DOT (2), SumSq is RSUM (3).
//
// All take contiguous vectors and an available instruction set, which changes
// no bit; they allocate nothing.
package blas1

import (
	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/internal/canon"
)

const (
	kb      = panel.KB
	atOnce  = 16   // blocks of a Dot whose chains run side by side
	lanes   = 32   // of RSUM
	rsBlock = 1024 // elements of an RSUM block
)

// Dot returns DOT(x, y); len(y) >= len(x).
//
// Within a block of 128 every step waits for the one before, so short vectors
// are bound by the latency of FMA; long ones run up to 16 blocks side by side.
func Dot(s isa.Set, x, y []float32) float32 {
	y = y[:len(x)]
	var total float32
	var acc [atOnce]float32
	for len(x) > 0 {
		blocks, n := min(len(x)/kb, atOnce), kb
		switch {
		case blocks == 0:
			blocks, n = 1, len(x)
		case blocks > atOnce/2:
			blocks &^= atOnce/2 - 1
		}
		if !chains(s, &acc, &x[0], &y[0], blocks, n) {
			chainsGeneric(&acc, x, y, blocks, n)
		}
		for _, a := range acc[:blocks] {
			total += a
		}
		x, y = x[blocks*n:], y[blocks*n:]
	}
	return total
}

func chainsGeneric(acc *[atOnce]float32, x, y []float32, blocks, n int) {
	for b := range blocks {
		var a float32
		for i := b * kb; i < b*kb+n; i++ {
			a = canon.FMA32(x[i], y[i], a)
		}
		acc[b] = a
	}
}

// Dots writes dst[r] = DOT(x[r·ldx:], y[r·ldy:]) of n terms for all of dst. Rows run
// side by side, which their chains by themselves cannot.
func Dots(s isa.Set, dst, x []float32, ldx int, y []float32, ldy, n int) {
	r := 0
	for ; rowsAtOnce(s) && n > 0 && n%4 == 0 && r+8 <= len(dst); r += 8 {
		x, y, d := x[r*ldx:][:7*ldx+n], y[r*ldy:][:7*ldy+n], dst[r:][:8]
		clear(d)
		for b := 0; b < n; b += kb {
			var acc [8]float32
			rows(&acc, &x[b], ldx, &y[b], ldy, min(kb, n-b))
			for i, a := range acc {
				d[i] += a
			}
		}
	}
	for ; r < len(dst); r++ {
		dst[r] = Dot(s, x[r*ldx:][:n], y[r*ldy:][:n])
	}
}

// Axpy sets y[i] = FMA(a, x[i], y[i]) for i < len(x); len(y) >= len(x). y may be
// x itself but not overlap it otherwise.
func Axpy(s isa.Set, a float32, x, y []float32) {
	y = y[:len(x)]
	if len(x) == 0 || axpy(s, a, &x[0], &y[0], len(x)) {
		return
	}
	for i, v := range x {
		y[i] = canon.FMA32(a, v, y[i])
	}
}

// Scal sets x[i] = a·x[i].
func Scal(s isa.Set, a float32, x []float32) {
	if len(x) == 0 || scal(s, a, &x[0], len(x)) {
		return
	}
	for i, v := range x {
		x[i] = a * v
	}
}

// SumSq returns RSUM(x²).
func SumSq(s isa.Set, x []float32) float32 {
	var total float32
	for len(x) > 0 {
		var lane [lanes]float32
		b := x[:min(len(x), rsBlock)]
		x = x[len(b):]
		if n := len(b) &^ (lanes - 1); n > 0 {
			squares(s, &lane, b[:n])
			b = b[n:]
		}
		if len(b) > 0 {
			var pad [lanes]float32 // FMA with +0 changes no lane: none is ever -0
			copy(pad[:], b)
			squares(s, &lane, pad[:])
		}
		for h := lanes / 2; h > 0; h /= 2 {
			for j := range h {
				lane[j] += lane[j+h]
			}
		}
		total += lane[0]
	}
	return total
}

func squares(s isa.Set, lane *[lanes]float32, x []float32) {
	if sumSq(s, lane, &x[0], len(x)) {
		return
	}
	for i, v := range x {
		lane[i%lanes] = canon.FMA32(v, v, lane[i%lanes])
	}
}
