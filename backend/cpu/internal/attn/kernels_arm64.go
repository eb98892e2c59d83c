//go:build !noasm

package attn

import "samebit/backend/cpu/internal/isa"

// For returns the kernels of instruction set s, or the portable ones where s
// has none here. Keep the result: it is made anew by each call.
func For(s isa.Set) *Kernels {
	if s != isa.NEON {
		return generic()
	}
	k := &Kernels{softmax: softmaxTail, fold: foldNEON, merge: mergeTail, scaleTo: scaleToTail, weigh: weighNEON, widen: widenNEON,
		score16: [...]func(s, q []float32, k, next []uint16, d int){nil, score16x1NEON, score16x2NEON, score16x3NEON, score16x4NEON},
		pv16:    [...]func(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32){nil, pv16x1NEON, pv16x2NEON, pv16x3NEON, pv16x4NEON}}
	// The tile kernels take heads of a multiple of 4 components.
	g := generic()
	for rows, f := range [...]func(s, q, k, next []float32, d int){nil,
		score1NEON, score2NEON, score3NEON, score4NEON, score5NEON, score6NEON} {
		slow := g.score[rows]
		k.score[rows] = func(s, q, k, next []float32, d int) {
			if d%4 != 0 {
				slow(s, q, k, next, d)
				return
			}
			f(s, q, k, next, d)
		}
	}
	for rows, f := range [...]func(o, p, v, next []float32, d, lo, hi int, fac []float32){nil,
		pv1NEON, pv2NEON, pv3NEON, pv4NEON, pv5NEON, pv6NEON} {
		slow := g.pv[rows]
		k.pv[rows] = func(o, p, v, next []float32, d, lo, hi int, fac []float32) {
			if d%4 != 0 {
				slow(o, p, v, next, d, lo, hi, fac)
				return
			}
			f(o, p, v, next, d, lo, hi, fac)
		}
	}
	return k
}

// softmaxTail hides the slots outside [lo, hi) before softmaxNEON, which takes
// whole rows; the products with the scale are formed here then.
func softmaxTail(s, st []float32, rows, lo, hi int, scale float32) {
	if lo > 0 || hi < Page {
		for r := range rows {
			p := s[r*Page:][:Page]
			for i := range p {
				if i < lo || i >= hi {
					p[i] = negInf
				} else {
					p[i] *= scale
				}
			}
		}
		scale = 1
	}
	softmaxNEON(s, st, rows, scale)
}

func mergeTail(o, ob []float32, al, be float32) {
	n := len(o) &^ 3
	mergeNEON(o[:n], ob[:n], al, be)
	mergeGeneric(o[n:], ob[n:], al, be)
}

func scaleToTail(out, o []float32, f float32) {
	n := len(out) &^ 3
	scaleToNEON(out[:n], o[:n], f)
	scaleToGeneric(out[n:], o[n:], f)
}

//go:noescape
func softmaxNEON(s, st []float32, rows int, scale float32)

//go:noescape
func foldNEON(st []float32, rows int)

//go:noescape
func mergeNEON(o, ob []float32, al, be float32)

//go:noescape
func scaleToNEON(out, o []float32, f float32)

//go:noescape
func weighNEON(s []float32, m, inv float32)

//go:noescape
func widenNEON(dst []float32, src []uint16)

//go:noescape
func score16x1NEON(s, q []float32, k, next []uint16, d int)

//go:noescape
func score16x2NEON(s, q []float32, k, next []uint16, d int)

//go:noescape
func score16x3NEON(s, q []float32, k, next []uint16, d int)

//go:noescape
func score16x4NEON(s, q []float32, k, next []uint16, d int)

//go:noescape
func pv16x1NEON(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32)

//go:noescape
func pv16x2NEON(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32)

//go:noescape
func pv16x3NEON(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32)

//go:noescape
func pv16x4NEON(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32)

//go:noescape
func score1NEON(s, q, k, next []float32, d int)

//go:noescape
func score2NEON(s, q, k, next []float32, d int)

//go:noescape
func score3NEON(s, q, k, next []float32, d int)

//go:noescape
func score4NEON(s, q, k, next []float32, d int)

//go:noescape
func score5NEON(s, q, k, next []float32, d int)

//go:noescape
func score6NEON(s, q, k, next []float32, d int)

//go:noescape
func pv1NEON(o, p, v, next []float32, d, lo, hi int, fac []float32)

//go:noescape
func pv2NEON(o, p, v, next []float32, d, lo, hi int, fac []float32)

//go:noescape
func pv3NEON(o, p, v, next []float32, d, lo, hi int, fac []float32)

//go:noescape
func pv4NEON(o, p, v, next []float32, d, lo, hi int, fac []float32)

//go:noescape
func pv5NEON(o, p, v, next []float32, d, lo, hi int, fac []float32)

//go:noescape
func pv6NEON(o, p, v, next []float32, d, lo, hi int, fac []float32)
