package attn

import (
	"math"

	"samebit/internal/canon"
)

// generic is the meaning of the kernels in plain Go.
func generic() *Kernels {
	k := &Kernels{softmax: softmaxGeneric, fold: foldGeneric, merge: mergeGeneric, scaleTo: scaleToGeneric, weigh: weighGeneric, widen: widenGeneric}
	for rows := 1; rows <= tileRows; rows++ {
		k.score[rows] = func(s, q, key, _ []float32, d int) {
			for r := range rows {
				scoreGeneric(s[r*Page:][:Page], q[r*d:][:d], key)
			}
		}
		k.pv[rows] = func(o, p, v, _ []float32, d, lo, hi int, fac []float32) {
			for r := range rows {
				pvGeneric(o[r*padded(d):][:d], p[r*Page:][:Page], v, lo, hi, fac[r], fac[lanes+r])
			}
		}
	}
	return k
}

func widenGeneric(dst []float32, src []uint16) {
	for i := range src {
		dst[i] = math.Float32frombits(uint32(src[At16(i)]) << 16)
	}
}

// scoreGeneric: s[j] = DOT(q, k[:, j]), blocks of 128 components.
func scoreGeneric(s, q, key []float32) {
	clear(s)
	for c0 := 0; c0 < len(q); c0 += dotBlock {
		var acc [Page]float32
		for c := c0; c < min(c0+dotBlock, len(q)); c++ {
			x, row := q[c], key[c*Page:][:Page]
			for i := range acc {
				acc[i] = canon.FMA32(x, row[i], acc[i])
			}
		}
		for i := range acc {
			s[i] += acc[i]
		}
	}
}

func pvGeneric(o, p, v []float32, lo, hi int, al, be float32) {
	for c := range o {
		var a float32
		for i := lo; i < hi; i++ {
			a = canon.FMA32(p[i], v[i*len(o)+c], a)
		}
		o[c] = canon.FMA32(0+a, be, o[c]*al)
	}
}

func softmaxGeneric(s, st []float32, rows, lo, hi int, scale float32) {
	for r := range rows {
		p := s[r*Page:][:Page]
		mb := negInf
		for i := lo; i < hi; i++ {
			p[i] = float32(p[i] * scale)
			if p[i] > mb {
				mb = p[i]
			}
		}
		clear(p[:lo])
		clear(p[hi:])
		var lane [32]float32
		for i := lo; i < hi; i++ {
			p[i] = canon.Exp(p[i] - mb)
			lane[i%32] += p[i]
		}
		for h := 16; h > 0; h /= 2 {
			for i := range h {
				lane[i] += lane[i+h]
			}
		}
		st[stMB+r], st[stLB+r] = mb, 0+lane[0]
	}
	foldGeneric(st, rows)
}

func foldGeneric(st []float32, rows int) {
	for r := range rows {
		m, l, mb, lb := st[stM+r], st[stL+r], st[stMB+r], st[stLB+r]
		top := m
		if mb > top {
			top = mb
		}
		al, be := canon.Exp(m-top), canon.Exp(mb-top)
		st[stM+r], st[stL+r] = top, canon.FMA32(lb, be, l*al)
		st[stAl+r], st[stBe+r] = al, be
	}
}

func mergeGeneric(o, ob []float32, al, be float32) {
	for c := range o {
		o[c] = canon.FMA32(ob[c], be, o[c]*al)
	}
}

func scaleToGeneric(out, o []float32, f float32) {
	for c := range out {
		out[c] = o[c] * f
	}
}

func weighGeneric(s []float32, m, inv float32) {
	for i := range s {
		s[i] = canon.Exp(s[i]-m) * inv
	}
}
