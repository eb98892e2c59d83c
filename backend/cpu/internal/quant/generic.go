package quant

import (
	"samebit/backend/cpu/internal/panel"
	"samebit/internal/blockq"
	"samebit/internal/canon"
)

// scales returns D and M of half h of row r: the weight is D·q - M for formats
// with a K minimum, D·q + M for plain ones, and D·(q-off) without a minimum.
func (l *layout) scales(head, chunk []byte, h, r int) (d, m float32) {
	half := func(b []byte, at int) float32 { return blockq.F16ToF32(le.Uint16(b[at+2*r:])) }
	switch l.scale {
	case plain:
		d = half(chunk, 0)
		if l.min {
			m = half(chunk, 64)
		}
	case sub32:
		d = half(head, 0) * float32(chunk[r])
		m = -float32(half(head, 64) * float32(chunk[32+r]))
	case sub16:
		d = half(head, 0) * float32(int8(chunk[32*h+r]))
	case nibbles:
		s := chunk[32*h+r]
		d = half(head, 0) * float32(s&15)
		m = -float32(half(head, 64) * float32(s>>4))
	}
	return d, m
}

// weights writes n weights (a multiple of 32, at most 128) of row r of a block
// to dst[0], dst[step], ...: the exact values of blockq.Dequant.
func (l *layout) weights(dst []float32, step int, block []byte, r, n int) {
	var q codes
	head := block[:l.head]
	for c := range n / 32 {
		chunk := block[l.head+c*l.chunk:][:l.chunk]
		l.get(&q, chunk, r)
		for h := range 2 {
			d, m := l.scales(head, chunk, h, r)
			for f := range 4 {
				w := q[4*h+f]
				for b := range 4 {
					at := (c*32 + h*16 + f*4 + b) * step
					v := int32(w >> (8 * b) & 0xff)
					if l.min {
						dst[at] = float32(d*float32(v)) + m
					} else {
						dst[at] = d * float32(v-l.off)
					}
				}
			}
		}
	}
}

func (l *layout) row(dst []float32, p []byte, lane int) {
	for k0 := 0; k0 < len(dst); k0 += 128 {
		n := min(128, len(dst)-k0)
		l.weights(dst[k0:k0+n], 1, p[l.block(k0):], lane, n)
	}
}

func (l *layout) expand(dst []float32, p []byte, k0, n int) {
	if n == 0 {
		return
	}
	for r := range panel.Width {
		l.weights(dst[r:], panel.Width, p[l.block(k0):], r, n)
	}
}

func (l *layout) gemv(y, x []float32, p []byte, k int) {
	var w [128 * panel.Width]float32
	stride := l.bytes(k)
	clear(y)
	for i := range len(y) / panel.Width {
		y := y[i*panel.Width:][:panel.Width]
		for k0 := 0; k0 < k; k0 += 128 {
			n := min(128, k-k0)
			l.expand(w[:], p[i*stride:], k0, n)
			var acc [panel.Width]float32
			for j, v := range x[k0 : k0+n] {
				for r, wr := range w[j*panel.Width:][:panel.Width] {
					acc[r] = canon.FMA32(v, wr, acc[r])
				}
			}
			for r, a := range acc {
				y[r] += a
			}
		}
	}
}
